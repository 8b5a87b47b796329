"""Which nodes a driver plan changes, which have the release already, and which it leaves out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.driver_digests import OfferedTarget, other_bytes
from fleet.driver_target import DriverTarget
from fleet.errors import ConfigurationError
from fleet.measures import NodeTraits
from fleet.model import Node
from fleet.plan import Change, NodePlan

DRIVER = "driver"
"""The name of the one component that a driver plan changes."""

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class NodeDriverReading:
    """What was read of a node for a plan. `fault`: why it is not visited, None where it may be.

    `current` is the release that is loaded, `target` how it gets the wanted one (None: it has it, or a fault).
    `driver_refusal` is the scheduler's (SchedulerNode). `platform` is that of its packages, `gpus` how many it has;
    None: not known.
    """

    traits: NodeTraits
    current: str | None = None
    target: DriverTarget | None = None
    busy: bool = True
    fault: str | None = None
    driver_refusal: str | None = None
    platform: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class SortedNodes:
    """`nodes` are changed, `current` have the release, `left_out` are not visited, each for its reason.

    `notes` are worth telling whoever approves the plan.
    """

    nodes: dict[str, NodePlan]
    current: tuple[str, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...] = ()


def sort_nodes(chosen: Sequence[Node], to: str, readings: Mapping[str, NodeDriverReading]) -> SortedNodes:
    """Sort the nodes of the pools that are planned for.

    Raises ConfigurationError where the GPU Operator owns the driver of every node that could be visited.
    """
    nodes: dict[str, NodePlan] = {}
    current: list[str] = []
    left_out: dict[str, str] = {}
    wrong = _wrong_bytes(chosen, readings)
    for node in chosen:
        reading = readings.get(node.name)
        why = "was not read" if reading is None else reading.fault or reading.driver_refusal or wrong.get(node.name)
        if reading is None or why is not None:
            left_out[node.name] = str(why)
        elif reading.target is None:
            current.append(node.name)
        else:
            change = Change(component=DRIVER, current=reading.current or "unknown", desired=to, entry=DRIVER)
            nodes[node.name] = NodePlan(pool=node.pool, rack=node.rack, model=node.model, changes=(change,))
    refused = {name: readings[name].driver_refusal for name in left_out if _is_refused(readings.get(name))}
    if refused and not nodes and not current:
        raise _nothing_is_ours({name: str(why) for name, why in refused.items()})
    return SortedNodes(nodes, tuple(current), left_out, (*_operators(len(refused)), *_others(len(wrong))))


def _wrong_bytes(chosen: Sequence[Node], readings: Mapping[str, NodeDriverReading]) -> dict[str, str]:
    offers: dict[str, OfferedTarget] = {}
    for node in chosen:
        reading = readings.get(node.name)
        if reading is not None and reading.target is not None and not _is_refused(reading) and reading.fault is None:
            offers[node.name] = OfferedTarget(reading.target, reading.platform)
    return other_bytes(offers)


def _is_refused(reading: NodeDriverReading | None) -> bool:
    return reading is not None and reading.fault is None and reading.driver_refusal is not None


def _nothing_is_ours(refused: Mapping[str, str]) -> ConfigurationError:
    first = next(iter(refused))
    return ConfigurationError(
        f"the GPU Operator owns the driver of every node here ({len(refused)}; {first}: {refused[first]}); let it "
        "upgrade them, or install it with driver.enabled=false where the hosts are to bring their own",
        evidence=tuple(f"{name}: {why}" for name, why in list(refused.items())[:_SHOWN]),
    )


def _operators(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    whose = "1 node's driver is" if count == 1 else f"the drivers of {count} nodes are"
    return (
        f"{whose} left to NVIDIA's GPU Operator, which owns them: set the version in its ClusterPolicy or "
        "NVIDIADriver; its labels nvidia.com/gpu-driver-upgrade-state show how far it is",
    )


def _others(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    many = "1 node is" if count == 1 else f"{count} nodes are"
    return (f"{many} left out because a package of theirs has other bytes under the same version than elsewhere",)

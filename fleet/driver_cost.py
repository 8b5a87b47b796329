"""What a driver rollout's controls cost: they are drained and measured too, though nothing is changed on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.job_waves import RunningJob, work_on
from fleet.setting_types import Strict

_DRAINS_EACH = 2  # before the change of their wave and after it


class ControlCost(Strict):
    """An estimate for the controls of a wave, or of a whole plan; the waiting for their work to leave is not in it.

    `nodes` are different nodes and `drains` how often one of them is taken out. `hours` are node-hours out of service,
    `gpu_hours` the same in GPU-hours. `lost_gpu_hours` is what stopping their jobs of now would lose, once for each
    drain. None: not known.
    """

    nodes: int
    drains: int
    hours: float
    gpu_hours: float | None
    lost_gpu_hours: float | None


class ControlScene(NamedTuple):
    """What is known of the nodes: `seconds` that one is measured, `gpus` by node, `busy` ones, and all `jobs`."""

    seconds: float
    gpus: Mapping[str, int | None]
    busy: frozenset[str]
    jobs: Sequence[RunningJob]


def control_cost(controls: Sequence[str], scene: ControlScene) -> ControlCost:
    """What measuring `controls` before and after the change of a wave costs."""
    hours = scene.seconds / 3600
    counts = [scene.gpus.get(node) for node in controls]
    known = [count for count in counts if count is not None]
    work = work_on(controls, scene.busy, scene.jobs)
    lost = work.lost(range(len(work.jobs)))
    return ControlCost(
        nodes=len(controls),
        drains=_DRAINS_EACH * len(controls),
        hours=_DRAINS_EACH * hours * len(controls),
        gpu_hours=_DRAINS_EACH * hours * sum(known) if len(known) == len(counts) else None,
        lost_gpu_hours=None if lost is None else _DRAINS_EACH * lost,
    )


def total_cost(costs: Iterable[ControlCost], nodes: int) -> ControlCost:
    """The sum over the waves of a plan, whose controls are `nodes` different nodes in all."""
    found = list(costs)
    return ControlCost(
        nodes=nodes,
        drains=sum(cost.drains for cost in found),
        hours=sum(cost.hours for cost in found),
        gpu_hours=_sum([cost.gpu_hours for cost in found]),
        lost_gpu_hours=_sum([cost.lost_gpu_hours for cost in found]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def cost_text(cost: ControlCost) -> str:
    """For people who approve it."""
    gpus = "GPU-hours not known" if cost.gpu_hours is None else f"{cost.gpu_hours:.1f} GPU-hours"
    lost = "not known" if cost.lost_gpu_hours is None else f"{cost.lost_gpu_hours:.1f} GPU-hours"
    nodes = "1 node" if cost.nodes == 1 else f"{cost.nodes} nodes"
    return (
        f"its controls are drained and measured too: {nodes}, {cost.drains} drains, about {cost.hours:.1f} node-hours "
        f"({gpus}) out of service, without the waiting for work; work lost if their jobs were stopped each time: {lost}"
    )

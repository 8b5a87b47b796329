"""The plan of a driver rollout: a canary in each pool, controls beside it, then growing waves, each of them judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from fleet.canary_cohorts import Cohorts, match_controls
from fleet.canary_design import CanaryDesign
from fleet.canary_power import CanarySize
from fleet.canary_settings import CanarySettings
from fleet.canonical import digest
from fleet.config import FleetSpec, Pool
from fleet.deferral import Planned, Scene, plan_around
from fleet.driver_cohorts import (
    WaveCohorts,
    incomparable,
    measuring_seconds,
    planned_size,
    wave_cohorts,
    without,
)
from fleet.driver_settings import DriverSettings
from fleet.driver_target import DriverTarget
from fleet.errors import ConfigurationError, PlanChanged
from fleet.job_waves import RunningJob
from fleet.measure_plan import benchmark_measures
from fleet.measures import Measure, NodeTraits
from fleet.model import Node
from fleet.plan import Change, NodePlan, OperationPlan, Policy, Wave, policy_of
from fleet.rounds import Candidate
from fleet.series_catalog import rules_for
from fleet.waves import max_out
from fleet.windows import next_open

DRIVER = "driver"
"""The name of the one component that a driver plan changes."""

_INSTALL_SECONDS = 300.0  # packages and a DKMS build for two kernels
_MEASURED_SHARE = 0.5  # of a pool; the others are controls


@dataclass(frozen=True, slots=True)
class NodeDriverReading:
    """What was read of a node for a plan. `fault`: why it is not visited, None where it may be.

    `current` is the release that is loaded, `target` how it gets the wanted one (None: it has it, or a fault).
    """

    traits: NodeTraits
    current: str | None = None
    target: DriverTarget | None = None
    busy: bool = True
    fault: str | None = None


class DriverPlan(OperationPlan):
    """A rollout of the driver release `to`. `targets` are by digest, `target_of` names each node's.

    `cohorts` are by wave number. `size` is what the policy's error rates ask for in each cohort. `series` are the
    measures of the metrics server that were there when it was planned; `unmeasured` are benchmarks that cannot be
    compared across this change.
    """

    version: Literal[1] = 1
    kind: Literal["driver"] = "driver"
    to: str
    seed: int
    pool_sizes: dict[str, int]
    targets: dict[str, DriverTarget]
    target_of: dict[str, str]
    canary: CanarySettings
    series: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    drivers: DriverSettings
    size: CanarySize
    cohorts: dict[int, WaveCohorts]
    traits: dict[str, NodeTraits]
    notes: tuple[str, ...] = ()
    expected_end: datetime | None = None

    def target(self, node: str) -> DriverTarget:
        """Raises KeyError for a node that is not changed."""
        return self.targets[self.target_of[node]]

    def measuring(self) -> CanarySettings:
        """The policy's settings without the benchmarks that this change cannot be judged by."""
        return without(self.canary, self.unmeasured)

    def measures(self) -> tuple[Measure, ...]:
        """Benchmarks, and the series that this fleet keeps."""
        rules = [self.canary.margined(rule.as_measure()) for rule in rules_for(self.series)] if self.series else []
        return (*benchmark_measures(self.measuring(), None), *(one for one in rules if one is not None))

    def design(self, measures: tuple[Measure, ...]) -> CanaryDesign:
        """The rules of every wave's verdict, fixed with the plan."""
        return self.canary.design(measures)

    def cohorts_of(self, wave: Wave) -> Cohorts:
        """The wave's cohorts as the verdict wants them, with their strata."""
        kept = self.cohorts[wave.number]
        wanted = [self.traits[node] for node in (*kept.measured, *kept.controls)]
        if not kept.measured or not kept.controls:
            return Cohorts(kept.measured, kept.controls, (), tuple(wanted), self.seed, kept.notes)
        return match_controls(kept.measured, wanted, self.seed)


def plan_driver_rollout(
    spec: FleetSpec,
    pools: tuple[str, ...],
    to: str,
    readings: Mapping[str, NodeDriverReading],
    now: datetime,
    seed: int,
    jobs: Sequence[RunningJob] = (),
    series: tuple[str, ...] = (),
) -> DriverPlan:
    """The plan for every node of `pools`; nodes that cannot be visited are left out with their reason.

    Raises ConfigurationError for a pool that does not exist, one whose floor lets no node out, or error rates that no
    number of nodes can hold.
    """
    policy = policy_of(spec, _known(spec, pools))
    chosen = [node for node in spec.inventory() if node.pool in pools]
    former = [reading.current for reading in readings.values() if reading.target is not None]
    unmeasured = incomparable(spec.canary, to, former)
    canary = without(spec.canary, unmeasured)
    size = planned_size(canary, len(series))
    nodes, current, left_out = _sort(chosen, to, readings)
    sizes = Counter(node.pool for node in chosen)
    _check_floors(spec, sizes, {plan.pool for plan in nodes.values()})
    opens = {pool: next_open(spec.pools[pool].waves.windows, now) for pool in pools}
    scene = Scene(_with_canary(spec.pools, size, sizes), sizes, policy.rack_limits, seed, opens)
    made = plan_around(
        [_candidate(node, nodes[node.name], readings[node.name], spec) for node in chosen if node.name in nodes],
        jobs,
        scene,
    )
    deferred = {node: one.text for node, one in made.deferred.items() if node in nodes}
    for node in deferred:
        del nodes[node]
    targets, target_of = _targets(nodes, readings)
    serving = {entry.name: entry.pool for entry in spec.nodes if entry.name in current}
    traits = {name: reading.traits for name, reading in readings.items()}
    cohorts = wave_cohorts(made.waves, serving, traits, canary, size, seed, len(series))
    return DriverPlan(
        fleet=spec.fleet,
        made_at=now,
        policy=policy,
        nodes=nodes,
        left_out=left_out | deferred,
        waves=made.waves,
        lost_gpu_hours=_lost(made),
        to=to,
        seed=seed,
        pool_sizes=dict(sizes),
        current=current,
        targets=targets,
        target_of=target_of,
        canary=spec.canary,
        series=series,
        unmeasured=unmeasured,
        drivers=spec.drivers,
        size=size,
        cohorts=cohorts,
        traits={name: one for name, one in traits.items() if name in nodes or name in serving},
        notes=_notes(unmeasured),
        expected_end=_expected_end(made, max(opens.values(), default=now), spec.canary),
    )


def check_driver_unchanged(plan: DriverPlan, spec: FleetSpec) -> None:
    """Raise PlanChanged where what was approved is not what would be done now."""
    policy = policy_of(spec, tuple(plan.policy.pools))
    if policy != plan.policy:
        names = [name for name in Policy.model_fields if getattr(policy, name) != getattr(plan.policy, name)]
        raise PlanChanged(f"the fleet file's {', '.join(names)} differ from the plan's; plan again")
    for name, now, then in (("canary", spec.canary, plan.canary), ("drivers", spec.drivers, plan.drivers)):
        if now != then:
            raise PlanChanged(f"the fleet file's {name} differs from the plan's; plan again")


def _known(spec: FleetSpec, pools: tuple[str, ...]) -> tuple[str, ...]:
    for pool in pools:
        if pool not in spec.pools:
            raise ConfigurationError(f"no pool {pool!r}; the fleet file has {', '.join(sorted(spec.pools))}")
    return pools


def _notes(unmeasured: Sequence[str]) -> tuple[str, ...]:
    if not unmeasured:
        return ()
    return (
        f"not measured: {', '.join(unmeasured)}: dcgmproftester runs only on a driver of its own CUDA version, and "
        "that changes; a command of yours in canary.commands can take its place",
    )


def _sort(
    chosen: Sequence[Node], to: str, readings: Mapping[str, NodeDriverReading]
) -> tuple[dict[str, NodePlan], tuple[str, ...], dict[str, str]]:
    """(nodes to change, nodes that have the release, nodes left out with their reason)."""
    nodes: dict[str, NodePlan] = {}
    current: list[str] = []
    left_out: dict[str, str] = {}
    for node in chosen:
        reading = readings.get(node.name)
        if reading is None or reading.fault is not None:
            left_out[node.name] = "was not read" if reading is None else str(reading.fault)
        elif reading.target is None:
            current.append(node.name)
        else:
            change = Change(component=DRIVER, current=reading.current or "unknown", desired=to, entry=DRIVER)
            nodes[node.name] = NodePlan(pool=node.pool, rack=node.rack, model=node.model, changes=(change,))
    return nodes, tuple(current), left_out


def _check_floors(spec: FleetSpec, sizes: Mapping[str, int], pools: set[str]) -> None:
    for pool in sorted(pools):
        if max_out(spec.pools[pool], sizes[pool]) < 1:
            raise ConfigurationError(
                f"pool {pool}: a floor of {spec.pools[pool].capacity_floor:.0%} of {sizes[pool]} nodes lets none "
                f"out of service; lower pools.{pool}.capacity_floor"
            )


def _with_canary(pools: Mapping[str, Pool], size: CanarySize, sizes: Mapping[str, int]) -> dict[str, Pool]:
    """Pools whose first wave is as large as the verdict needs, and leaves as many nodes for its control."""
    found: dict[str, Pool] = {}
    for name, pool in pools.items():
        most = max(1, int(sizes.get(name, 0) * _MEASURED_SHARE))
        canary = min(max(pool.waves.canary, size.nodes), most)
        found[name] = pool.model_copy(update={"waves": pool.waves.model_copy(update={"canary": canary})})
    return found


def _candidate(node: Node, plan: NodePlan, reading: NodeDriverReading, spec: FleetSpec) -> Candidate:
    drivers = spec.drivers
    seconds = _INSTALL_SECONDS + drivers.expected_boot_seconds + 2 * measuring_seconds(spec.canary)
    return Candidate(
        node=node.name,
        pool=node.pool,
        rack=node.rack,
        model=node.model,
        vintage=digest({"driver": plan.changes[0].current, "firmware": reading.traits.firmware})[:12],
        unit=node.name,
        busy=reading.busy,
        device_seconds=seconds,
        nvlink_domain=node.nvlink_domain,
        power_domain=node.power_domain,
    )


def _targets(
    nodes: Mapping[str, NodePlan], readings: Mapping[str, NodeDriverReading]
) -> tuple[dict[str, DriverTarget], dict[str, str]]:
    targets: dict[str, DriverTarget] = {}
    target_of: dict[str, str] = {}
    for name in nodes:
        target = readings[name].target
        assert target is not None
        key = digest(target.model_dump(mode="json"))[:12]
        targets[key], target_of[name] = target, key
    return targets, target_of


def _lost(made: Planned) -> float | None:
    losses = [wave.lost_gpu_hours for wave in made.waves]
    known = [loss for loss in losses if loss is not None]
    return sum(known) if len(known) == len(losses) else None


def _expected_end(made: Planned, start: datetime, settings: CanarySettings) -> datetime:
    """Without waiting for work or approvals; each wave bakes, and its controls are measured before and after."""
    seconds = sum(wave.expected_seconds + wave.bake_seconds + 2 * measuring_seconds(settings) for wave in made.waves)
    return start + timedelta(seconds=seconds)

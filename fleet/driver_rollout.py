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
from fleet.driver_cost import ControlCost, ControlScene, control_cost, total_cost
from fleet.driver_nodes import DRIVER, NodeDriverReading, SortedNodes, sort_nodes
from fleet.driver_settings import DriverSettings
from fleet.driver_target import DriverTarget
from fleet.errors import ConfigurationError, PlanChanged
from fleet.job_waves import RunningJob
from fleet.measure_plan import benchmark_measures
from fleet.measures import Measure, NodeTraits
from fleet.model import Node
from fleet.plan import NodePlan, OperationPlan, Policy, Wave, policy_of
from fleet.rounds import Candidate
from fleet.series_catalog import rules_for
from fleet.waves import max_out
from fleet.windows import next_open

__all__ = ["DRIVER", "DriverPlan", "NodeDriverReading", "check_driver_unchanged", "plan_driver_rollout"]

_INSTALL_SECONDS = 300.0  # packages and a DKMS build for two kernels
_MEASURED_SHARE = 0.5  # of a pool; the others are controls


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

    def control_cost(self) -> ControlCost | None:
        """What measuring the controls of all waves costs; a control of several waves is drained for each.

        None where there are none, or the plan does not tell.
        """
        costs = [kept.cost for kept in self.cohorts.values() if kept.controls]
        known = [cost for cost in costs if cost is not None]
        if not known or len(known) != len(costs):
            return None
        return total_cost(known, len({node for kept in self.cohorts.values() for node in kept.controls}))


@dataclass(frozen=True, slots=True)
class _Measuring:
    """What is measured, and by how many nodes; `settings` are the policy's without the `unmeasured` benchmarks."""

    unmeasured: tuple[str, ...]
    settings: CanarySettings
    size: CanarySize
    series: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """Everything that a plan is written down from."""

    spec: FleetSpec
    policy: Policy
    found: SortedNodes
    measuring: _Measuring
    scene: Scene
    made: Planned
    cohorts: dict[int, WaveCohorts]

    @property
    def nodes(self) -> dict[str, NodePlan]:
        """Those that are changed by this plan."""
        return {name: node for name, node in self.found.nodes.items() if name not in self.made.deferred}


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

    Raises ConfigurationError for a pool that does not exist, one whose floor lets no node out, nodes whose drivers are
    all somebody else's, or error rates that no number of nodes can hold.
    """
    policy = policy_of(spec, _known(spec, pools))
    chosen = [node for node in spec.inventory() if node.pool in pools]
    measuring = _measuring(spec, to, readings, series)
    found = sort_nodes(chosen, to, readings)
    sizes = Counter(node.pool for node in chosen)
    _check_floors(spec, sizes, {plan.pool for plan in found.nodes.values()})
    opens = {pool: next_open(spec.pools[pool].waves.windows, now) for pool in pools}
    scene = Scene(_with_canary(spec.pools, measuring.size, sizes), sizes, policy.rack_limits, seed, opens)
    candidates = [
        _candidate(node, found.nodes[node.name], readings[node.name], spec)
        for node in chosen
        if node.name in found.nodes
    ]
    made = plan_around(candidates, jobs, scene)
    cohorts = _cohorts(spec, found, made, readings, measuring, seed, jobs)
    return _plan(_Draft(spec, policy, found, measuring, scene, made, cohorts), to, readings, now)


def _plan(draft: _Draft, to: str, readings: Mapping[str, NodeDriverReading], now: datetime) -> DriverPlan:
    spec, made, measuring, nodes = draft.spec, draft.made, draft.measuring, draft.nodes
    targets, target_of = _targets(nodes, readings)
    deferred = {name: one.text for name, one in made.deferred.items() if name in draft.found.nodes}
    watched = {*nodes, *draft.found.current}
    return DriverPlan(
        fleet=spec.fleet,
        made_at=now,
        policy=draft.policy,
        nodes=nodes,
        left_out=draft.found.left_out | deferred,
        waves=made.waves,
        lost_gpu_hours=_lost(made),
        to=to,
        seed=draft.scene.seed,
        pool_sizes=dict(draft.scene.pool_sizes),
        current=draft.found.current,
        targets=targets,
        target_of=target_of,
        canary=spec.canary,
        series=measuring.series,
        unmeasured=measuring.unmeasured,
        drivers=spec.drivers,
        size=measuring.size,
        cohorts=draft.cohorts,
        traits={name: reading.traits for name, reading in readings.items() if name in watched},
        notes=(*draft.found.notes, *_notes(measuring.unmeasured)),
        expected_end=_expected_end(made, max(draft.scene.opens.values(), default=now), spec.canary),
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


def _measuring(
    spec: FleetSpec, to: str, readings: Mapping[str, NodeDriverReading], series: tuple[str, ...]
) -> _Measuring:
    former = [reading.current for reading in readings.values() if reading.target is not None]
    unmeasured = incomparable(spec.canary, to, former)
    settings = without(spec.canary, unmeasured)
    return _Measuring(unmeasured, settings, planned_size(settings, len(series)), series)


def _cohorts(
    spec: FleetSpec,
    found: SortedNodes,
    made: Planned,
    readings: Mapping[str, NodeDriverReading],
    measuring: _Measuring,
    seed: int,
    jobs: Sequence[RunningJob],
) -> dict[int, WaveCohorts]:
    """By wave number, each with what its controls cost."""
    serving = {entry.name: entry.pool for entry in spec.nodes if entry.name in found.current}
    traits = {name: reading.traits for name, reading in readings.items()}
    settings, series = measuring.settings, len(measuring.series)
    cohorts = wave_cohorts(made.waves, serving, traits, settings, measuring.size, seed, series)
    gpus = {name: reading.gpus for name, reading in readings.items()}
    busy = frozenset(name for name, reading in readings.items() if reading.busy)
    scene = ControlScene(measuring_seconds(settings), gpus, busy, jobs)
    return {
        number: kept.model_copy(update={"cost": control_cost(kept.controls, scene)}) for number, kept in cohorts.items()
    }


def _notes(unmeasured: Sequence[str]) -> tuple[str, ...]:
    if not unmeasured:
        return ()
    return (
        f"not measured: {', '.join(unmeasured)}: dcgmproftester runs only on a driver of its own CUDA version, and "
        "that changes; a command of yours in canary.commands can take its place",
    )


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

"""The plan of a measurement: which nodes are drained, benchmarked and given back, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fleet.canary_settings import CanarySettings
from fleet.canary_words import count
from fleet.config import FleetSpec
from fleet.drain_plan import DrainedJob, DrainPlan
from fleet.errors import PreconditionError
from fleet.job_waves import RunningJob, order_by_job
from fleet.measure_plan import benchmark_measures
from fleet.measures import Phase
from fleet.model import Node
from fleet.plan import NodePlan, OperationPlan, Policy, Wave, policy_of
from fleet.rounds import Candidate
from fleet.waves import max_out, order_of_pool

_TEST_SECONDS = 60.0  # one run of one benchmark, with the cooling before it


class MeasurementPlan(OperationPlan):
    """Drain the nodes, run every benchmark `runs` times on each, and give them back; nothing is changed on them.

    `parent` is the operation on whose behalf it is, None where a person asked. `before` is an earlier operation whose
    tools and GPU slots are used again, so that the two compare. `canary` says what is run. `lost_gpu_hours` is what
    stopping the jobs now would lose, None where one of them is not known; they are not stopped without a checkpoint.
    """

    version: Literal[1] = 1
    kind: Literal["measurement"] = "measurement"
    phase: Phase
    runs: int
    seed: int
    parent: str | None = None
    before: str | None = None
    reason: str
    canary: CanarySettings
    jobs: tuple[DrainedJob, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasurementRequest:
    """What is asked for; the fields are those of the plan."""

    phase: Phase
    runs: int
    seed: int
    reason: str = ""
    parent: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the waves are made under; `sizes` are the pools' nodes in all, `seconds` is how long a node is measured."""

    policy: Policy
    sizes: Mapping[str, int]
    jobs: tuple[RunningJob, ...]
    seed: int
    seconds: float


def plan_measurement(
    spec: FleetSpec, drained: DrainPlan, request: MeasurementRequest, settings: CanarySettings
) -> MeasurementPlan:
    """A wave for each pool, in rounds by rack limits, domains and floor; idle nodes first, then by job.

    `drained` is the unforced plan of a drain of the same nodes. No gate holds a measurement: nothing is changed, and
    where it has a parent, that one's approval names the nodes. Maintenance windows hold it only with a parent: a
    person who asks wants it now. Raises PreconditionError where no node may leave service.
    """
    entries = {node.name: node for node in spec.inventory()}
    sizes = Counter(node.pool for node in entries.values())
    nodes, left_out = _open_nodes(spec, drained, sizes)
    pools = tuple(sorted({plan.pool for plan in nodes.values()}))
    policy = _ungated(policy_of(spec, pools), keeps_windows=request.parent is not None)
    jobs = tuple(RunningJob(job.id, job.nodes, job.gpus, job.lost_gpu_hours) for job in drained.jobs)
    seconds = request.runs * len(benchmark_measures(settings, None)) * _TEST_SECONDS
    scene = _Scene(policy, sizes, jobs, request.seed, seconds)
    members = [[entries[name] for name, plan in nodes.items() if plan.pool == pool] for pool in pools]
    return MeasurementPlan(
        fleet=spec.fleet,
        made_at=drained.made_at,
        policy=policy,
        nodes=nodes,
        left_out=left_out,
        waves=tuple(_wave(number, of_pool, scene) for number, of_pool in enumerate(members, start=1)),
        lost_gpu_hours=drained.lost_gpu_hours,
        phase=request.phase,
        runs=request.runs,
        seed=request.seed,
        parent=request.parent,
        before=request.before,
        reason=request.reason,
        canary=settings,
        jobs=drained.jobs,
    )


def _open_nodes(
    spec: FleetSpec, drained: DrainPlan, sizes: Mapping[str, int]
) -> tuple[dict[str, NodePlan], dict[str, str]]:
    """The nodes that the limits may let out, and all others with their reason."""
    racks = spec.rack_limits()
    nodes: dict[str, NodePlan] = {}
    left_out = dict(drained.left_out)
    for name, plan in drained.nodes.items():
        if racks[plan.rack] < 1:
            left_out[name] = f"rack {plan.rack} is closed (limit 0)"
        elif max_out(spec.pools[plan.pool], sizes[plan.pool]) < 1:
            left_out[name] = f"the floor of pool {plan.pool} lets no node out of service"
        else:
            nodes[name] = plan
    if not nodes:
        raise PreconditionError("nothing to measure: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return nodes, left_out


def _ungated(policy: Policy, keeps_windows: bool) -> Policy:
    gates = {pool: gate.model_copy(update={"required": 0}) for pool, gate in policy.gates.items()}
    if keeps_windows:
        return policy.model_copy(update={"gates": gates})
    pools = {
        name: pool.model_copy(update={"waves": pool.waves.model_copy(update={"windows": ()})})
        for name, pool in policy.pools.items()
    }
    return policy.model_copy(update={"gates": gates, "pools": pools})


def _wave(number: int, nodes: Sequence[Node], scene: _Scene) -> Wave:
    """One pool's nodes as a single wave: nothing is changed that a smaller one could warn of."""
    name, racks = nodes[0].pool, Counter(node.rack for node in nodes)
    pool, size, limits = scene.policy.pools[name], scene.sizes[name], scene.policy.rack_limits
    busy = frozenset(node for job in scene.jobs for node in job.nodes)
    candidates = [_candidate(node, node.name in busy, scene.seconds) for node in nodes]
    planned = order_of_pool(candidates, pool, size, limits, scene.seed, scene.jobs)
    units = [*planned.canary, *planned.others]
    order = replace(planned, canary=(), others=units, size_of=lambda _: len(units))
    rounds = [units for wave in order_by_job(order, scene.seed) for units in wave]
    disturbed = [job for units in rounds for job in order.work.numbers(c.node for unit in units for c in unit)]
    return Wave(
        number=number,
        name=f"measure {name}",
        pool=name,
        units=tuple(tuple(c.node for c in unit) for units in rounds for unit in units),
        racks=dict(sorted(racks.items())),
        out_at_most=min(sum(min(n, limits[rack]) for rack, n in racks.items()), max_out(pool, size)),
        rounds=len(rounds),
        expected_seconds=len(rounds) * scene.seconds,
        bake_seconds=0.0,
        jobs=len(set(disturbed)),
        disturbances=len(disturbed),
        round_units=tuple(map(len, rounds)),
    )


def _candidate(node: Node, busy: bool, seconds: float) -> Candidate:
    return Candidate(
        node=node.name,
        pool=node.pool,
        rack=node.rack,
        model=node.model,
        vintage="",
        unit=node.name,
        busy=busy,
        device_seconds=seconds,
        nvlink_domain=node.nvlink_domain,
        power_domain=node.power_domain,
    )


def describe_measurement(plan: MeasurementPlan) -> list[str]:
    """What the measurement does, one line each; the jobs last."""
    loss = "not known" if plan.lost_gpu_hours is None else f"{plan.lost_gpu_hours:.1f} GPU-hours"
    told = f" for {plan.parent}" if plan.parent is not None else ""
    lines = [
        f"fleet {plan.fleet}; plan digest {plan.digest[:16]}",
        f"{count(len(plan.nodes), 'node')} to measure{told}, {count(plan.runs, 'run')} of each benchmark, "
        f"{len(plan.left_out)} left out; {count(len(plan.jobs), 'job')} on them",
        "each node is drained, measured, validated and given back as it was; nothing is changed on it",
    ]
    for wave in plan.waves:
        hours = plan.drain_seconds(wave.pool) / 3600
        minutes = max(1, round(wave.expected_seconds / 60))
        lines.append(
            f"pool {wave.pool}: {count(len(wave.nodes), 'node')} in {count(wave.rounds, 'round')}, at most "
            f"{wave.out_at_most} out together; about {minutes} min without the waiting for work; "
            f"a node not empty after {hours:g} h goes back"
        )
    if plan.jobs:
        lines.append(f"no job is stopped without a checkpoint; stopping every job now would lose: {loss}")
    return lines + [job.text for job in plan.jobs]

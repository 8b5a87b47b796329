"""The plan of a drain: which nodes, by when, and what the jobs on them would lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fleet.checkpoints import Choice, Decision
from fleet.config import FleetSpec, GatePolicy
from fleet.errors import ConfigurationError
from fleet.model import Job, Node
from fleet.plan import NodePlan, OperationPlan, Policy, Wave, policy_of
from fleet.waves import max_out

MARGIN = timedelta(minutes=30)
"""A forced job may lose what half an hour more of its work costs than what was approved."""


class DrainedJob(BaseModel):
    """One job that the drain has to do with, once however many nodes it has. `text` says what will be done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    owner: str
    gpus: int | None
    nodes: tuple[str, ...]
    choice: Choice
    expected_at: datetime | None
    lost_gpu_hours: float | None
    text: str


class DrainPlan(OperationPlan):
    """Cordon the nodes and wait until they are empty, at the latest until `deadline_seconds` after each cordon.

    `forced`: the jobs in `jobs` are stopped at once, whatever they lose; that needs an approval of this plan, which
    names the loss. `lost_gpu_hours` is what stopping them all now would lose, None where one job's loss is not known.
    """

    version: Literal[1] = 1
    kind: Literal["drain"] = "drain"
    deadline_seconds: float
    reason: str
    forced: bool = False
    jobs: tuple[DrainedJob, ...]

    def drain_seconds(self, _pool: str, /) -> float:
        """The plan's own deadline, whatever the pool."""
        return self.deadline_seconds

    def may_stop(self) -> Mapping[str, float | None]:
        """Every job of a forced plan, with the most that it may lose; None where nobody could tell what it loses."""
        if not self.forced:
            return {}
        return {job.id: _most(job) for job in self.jobs}


@dataclass(frozen=True, slots=True)
class JobFound:
    """A job on the nodes, and what would be done about it now."""

    job: Job
    decision: Decision


def plan_drain(
    spec: FleetSpec,
    nodes: Sequence[Node],
    left_out: Mapping[str, str],
    jobs: Sequence[JobFound],
    now: datetime,
    deadline_seconds: float,
    reason: str,
    forced: bool,
) -> DrainPlan:
    """A wave for each pool; idle nodes first in it. Maintenance windows do not hold a drain that a person asks for.

    Raises ConfigurationError for a forced drain that nobody could approve.
    """
    busy = {name for found in jobs for name in found.job.nodes}
    pools = tuple(sorted({node.pool for node in nodes}))
    policy = policy_of(spec, pools)
    open_pools = {
        name: pool.model_copy(update={"waves": pool.waves.model_copy(update={"windows": ()})})
        for name, pool in policy.pools.items()
    }
    policy = policy.model_copy(update={"pools": open_pools})
    if forced:
        policy = policy.model_copy(update={"gates": {pool: _asks(pool, gate) for pool, gate in policy.gates.items()}})
    ordered = sorted(nodes, key=lambda node: (node.name in busy, node.name))
    told = tuple(_job(found) for found in jobs)
    losses = [job.lost_gpu_hours for job in told]
    return DrainPlan(
        fleet=spec.fleet,
        made_at=now,
        policy=policy,
        nodes={n.name: NodePlan(pool=n.pool, rack=n.rack, model=n.model, changes=()) for n in ordered},
        left_out=dict(left_out),
        waves=tuple(
            _wave(number, [n for n in ordered if n.pool == pool], spec, policy, told)
            for number, pool in enumerate(pools, start=1)
        ),
        lost_gpu_hours=None if None in losses else sum(loss for loss in losses if loss is not None),
        deadline_seconds=deadline_seconds,
        reason=reason,
        forced=forced,
        jobs=told,
    )


def _asks(pool: str, gate: GatePolicy) -> GatePolicy:
    """A gate that needs somebody. Raises ConfigurationError where nobody may approve."""
    if gate.allowed_signers is None and not gate.unsigned:
        raise ConfigurationError(
            f"nobody may approve that jobs of pool {pool} are stopped: set pools.{pool}.gate.allowed_signers"
        )
    return gate.model_copy(update={"required": max(1, gate.required)})


def _job(found: JobFound) -> DrainedJob:
    job, decision = found.job, found.decision
    return DrainedJob(
        id=job.id,
        owner=job.user,
        gpus=job.gpus,
        nodes=job.nodes,
        choice=decision.choice,
        expected_at=decision.expected_at,
        lost_gpu_hours=decision.lost_gpu_hours.get(Choice.STOP_NOW),
        text=decision.text,
    )


def _wave(number: int, nodes: list[Node], spec: FleetSpec, policy: Policy, jobs: Sequence[DrainedJob]) -> Wave:
    pool = nodes[0].pool
    racks = Counter(node.rack for node in nodes)
    size = sum(node.pool == pool for node in spec.inventory())
    allowed = sum(min(count, policy.rack_limits[rack]) for rack, count in racks.items())
    names = {node.name for node in nodes}
    return Wave(
        number=number,
        name=f"drain {pool}",
        pool=pool,
        units=tuple((node.name,) for node in nodes),
        racks=dict(sorted(racks.items())),
        out_at_most=min(allowed, max_out(policy.pools[pool], size)),
        rounds=1,
        expected_seconds=0.0,
        bake_seconds=0.0,
        jobs=sum(bool(names.intersection(job.nodes)) for job in jobs),
    )


def _most(job: DrainedJob) -> float | None:
    if job.lost_gpu_hours is None:
        return None
    return job.lost_gpu_hours + MARGIN.total_seconds() / 3600 * (job.gpus or 0)


def describe_drain(plan: DrainPlan) -> list[str]:
    """What the drain does, one line each; the jobs last."""
    hours = plan.deadline_seconds / 3600
    loss = "not known" if plan.lost_gpu_hours is None else f"{plan.lost_gpu_hours:.1f} GPU-hours"
    lines = [
        f"fleet {plan.fleet}; plan digest {plan.digest[:16]}",
        f"{len(plan.nodes)} nodes to drain, {len(plan.left_out)} left out; {len(plan.jobs)} jobs on them",
        f"each node has {hours:g} h from its cordon; then it goes back and its jobs' owners are to be asked",
        f"stopping every job now would lose: {loss}",
    ]
    room = sum(wave.out_at_most for wave in plan.waves)
    if room < len(plan.nodes):
        lines.append(
            f"racks and floors let at most {room} of them be out together: with those drained the operation halts, and "
            "goes on by `gpufleet resume` once some were given back"
        )
    if plan.forced:
        lines[2] = (
            "FORCED: every job below is stopped at once, requeued where it may be; needs an approval of this plan"
        )
    return lines + [job.text for job in plan.jobs]

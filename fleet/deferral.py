"""Nodes of jobs that were disturbed lately: visited last, or not at all by this plan.

A job's policy says for how long it is left in peace after a disturbance. Where that is still so when the rollout is
expected to reach one of its nodes, the node's whole unit is deferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.config import Pool
from fleet.job_waves import RunningJob
from fleet.plan import Wave
from fleet.rounds import Candidate
from fleet.waves import plan_waves


@dataclass(frozen=True, slots=True)
class Deferral:
    """Why a node is not visited by this plan, and when it may be."""

    until: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What the waves are made under; `opens` is when each pool may begin at the earliest."""

    pools: Mapping[str, Pool]
    pool_sizes: Mapping[str, int]
    rack_limits: Mapping[str, int]
    seed: int
    opens: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class Planned:
    """Waves; nodes that are in none of them; and the jobs on visited nodes that are protected, with their dates."""

    waves: tuple[Wave, ...]
    deferred: Mapping[str, Deferral]
    protected: Mapping[str, datetime]


def plan_around(candidates: Sequence[Candidate], jobs: Sequence[RunningJob], scene: Scene) -> Planned:
    """The waves for all candidates but those that are deferred. Units stay whole."""
    left = list(candidates)
    deferred: dict[str, Deferral] = {}
    waves = _waves(left, jobs, scene)
    for reached in (_when_reached, _when_first_reached, _at_the_start):
        early = _too_early(waves, jobs, reached(waves, jobs, scene.opens))
        if not early:
            break
        deferred |= _deferrals(early)
        left = [candidate for candidate in left if candidate.node not in deferred]
        waves = _waves(left, jobs, scene)
    return Planned(waves, deferred, _protected(left, jobs, scene.opens))


def _protected(
    candidates: Sequence[Candidate], jobs: Iterable[RunningJob], opens: Mapping[str, datetime]
) -> dict[str, datetime]:
    """The jobs on these nodes that are protected when the first pool with one of their nodes opens."""
    pools = {candidate.node: candidate.pool for candidate in candidates}
    found: dict[str, datetime] = {}
    for job in sorted(jobs, key=lambda job: job.id):
        first = min((opens[pools[node]] for node in job.nodes if node in pools), default=None)
        if first is not None and job.protection_ends is not None and job.is_protected(first):
            found[job.id] = job.protection_ends
    return found


def _waves(candidates: Sequence[Candidate], jobs: Sequence[RunningJob], scene: Scene) -> tuple[Wave, ...]:
    limits = scene.rack_limits
    return plan_waves(candidates, scene.pools, scene.pool_sizes, limits, scene.seed, jobs, scene.opens)


def _when_reached(waves: Sequence[Wave], _: Sequence[RunningJob], opens: Mapping[str, datetime]) -> list[datetime]:
    """By wave, when its pool is open and those before it are expected to have ended, without waiting for work or
    approvals."""
    times: list[datetime] = []
    free: datetime | None = None
    for wave in waves:
        times.append(opens[wave.pool] if free is None else max(free, opens[wave.pool]))
        free = times[-1] + timedelta(seconds=wave.expected_seconds + wave.bake_seconds)
    return times


def _when_first_reached(
    waves: Sequence[Wave], jobs: Sequence[RunningJob], opens: Mapping[str, datetime]
) -> list[datetime]:
    """The same, but as if all protected nodes of a pool were in the first wave that has any: deferring some cannot
    bring the others forward to an earlier one."""
    guarded = {
        pool: {node for job in jobs if job.is_protected(opens[pool]) for node in job.nodes}
        for pool in {wave.pool for wave in waves}
    }
    firsts: dict[str, datetime] = {}
    times = _when_reached(waves, jobs, opens)
    for wave, at in zip(waves, times, strict=True):
        if not guarded[wave.pool].isdisjoint(wave.nodes):
            firsts.setdefault(wave.pool, at)
    return [firsts.get(wave.pool, at) for wave, at in zip(waves, times, strict=True)]


def _at_the_start(waves: Sequence[Wave], _: Sequence[RunningJob], opens: Mapping[str, datetime]) -> list[datetime]:
    return [opens[wave.pool] for wave in waves]


def _too_early(
    waves: Iterable[Wave], jobs: Iterable[RunningJob], reached: Iterable[datetime]
) -> dict[tuple[str, ...], RunningJob]:
    """Units that are reached while a job on them is still protected, with the job that is so for the longest."""
    on_node: dict[str, list[RunningJob]] = {}
    for job in jobs:
        for node in job.nodes if job.protection_ends is not None else ():
            on_node.setdefault(node, []).append(job)
    found: dict[tuple[str, ...], RunningJob] = {}
    for wave, at in zip(waves, reached, strict=True):
        for unit in wave.units if on_node else ():
            guards = [job for node in unit for job in on_node.get(node, ()) if job.is_protected(at)]
            if guards:
                found[unit] = max(guards, key=lambda job: (job.protection_ends or at, job.id))
    return found


def _deferrals(early: Mapping[tuple[str, ...], RunningJob]) -> dict[str, Deferral]:
    found: dict[str, Deferral] = {}
    for unit, job in early.items():
        until = job.protection_ends
        assert until is not None
        last = f" ({job.last_disturbed:%F %H:%M} UTC)" if job.last_disturbed is not None else ""
        why = f"job {job.id} was disturbed lately{last} and is protected until then"
        for node in unit:
            with_it = "" if node in job.nodes else f"goes out with {next(n for n in unit if n in job.nodes)}, whose "
            found[node] = Deferral(until, f"deferred until {until:%F %H:%M} UTC: {with_it}{why}")
    return found

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
    """What the waves are made under; `start` is when the rollout may begin at the earliest."""

    pools: Mapping[str, Pool]
    pool_sizes: Mapping[str, int]
    rack_limits: Mapping[str, int]
    seed: int
    start: datetime


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
        early = _too_early(waves, jobs, reached(waves, jobs, scene.start))
        if not early:
            break
        deferred |= _deferrals(early)
        left = [candidate for candidate in left if candidate.node not in deferred]
        waves = _waves(left, jobs, scene)
    visited = {candidate.node for candidate in left}
    ends = {job.id: job.protection_ends for job in jobs if not visited.isdisjoint(job.nodes)}
    protected = {job: end for job, end in sorted(ends.items()) if end is not None and end > scene.start}
    return Planned(waves, deferred, protected)


def _waves(candidates: Sequence[Candidate], jobs: Sequence[RunningJob], scene: Scene) -> tuple[Wave, ...]:
    limits = scene.rack_limits
    return plan_waves(candidates, scene.pools, scene.pool_sizes, limits, scene.seed, jobs, scene.start)


def _when_reached(waves: Sequence[Wave], _: Sequence[RunningJob], start: datetime) -> list[datetime]:
    """By wave, when those before it are expected to have ended, without waiting for work or approvals."""
    times = [start]
    for wave in waves:
        times.append(times[-1] + timedelta(seconds=wave.expected_seconds + wave.bake_seconds))
    return times[:-1]


def _when_first_reached(waves: Sequence[Wave], jobs: Sequence[RunningJob], start: datetime) -> list[datetime]:
    """The same, but as if all protected nodes of a pool were in the first wave that has any: deferring some cannot
    bring the others forward to an earlier one."""
    guarded = {node for job in jobs if job.is_protected(start) for node in job.nodes}
    firsts: dict[str, datetime] = {}
    times = _when_reached(waves, jobs, start)
    for wave, at in zip(waves, times, strict=True):
        if not guarded.isdisjoint(wave.nodes):
            firsts.setdefault(wave.pool, at)
    return [firsts.get(wave.pool, at) for wave, at in zip(waves, times, strict=True)]


def _at_the_start(waves: Sequence[Wave], _: Sequence[RunningJob], start: datetime) -> list[datetime]:
    return [start] * len(waves)


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

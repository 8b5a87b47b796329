"""Slurm's main scheduler: first in, first out, and a simple backfill behind the first job that must wait."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from simulator.slurm.features import alternatives, fits_features
from simulator.slurm.records import JobState, SlurmJob, SlurmNode
from simulator.slurm.reservations import Place

if TYPE_CHECKING:
    from simulator.slurm.controller import Controller

PERIOD = 2.0  # simulated seconds between two looks at the queue
REAL_PERIOD = 0.1  # at least this many real seconds
NO_NODES = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


class Queue:
    """Pending jobs by partition. A look costs O(nodes of the partition), whatever the number of jobs."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._pending: dict[str, list[SlurmJob]] = defaultdict(list)
        self._planned = False

    def add(self, job: SlurmJob) -> None:
        self._pending[job.request.partition].append(job)
        timers = self._controller.timers
        if job.eligible > timers.now():
            job.reason = "BeginTime"
            timers.at(job.eligible, self.look_again)
        else:
            self.look_again()

    def drop(self, job: SlurmJob) -> None:
        self._pending[job.request.partition].remove(job)

    def pending(self, partition: str) -> list[SlurmJob]:
        return list(self._pending[partition])

    def look_again(self) -> None:
        """Something changed; many changes in one period make one look."""
        if not self._planned:
            self._planned = True
            timers = self._controller.timers
            timers.after(max(PERIOD, REAL_PERIOD * timers.clock.scale), self._look)

    def _look(self) -> None:
        self._planned = False
        for partition, waiting in self._pending.items():
            if waiting:
                self._pending[partition] = self._schedule(partition, waiting)

    def _schedule(self, partition: str, waiting: list[SlurmJob]) -> list[SlurmJob]:
        nodes = self._controller.nodes_of(partition)
        now = self._controller.timers.now()
        left: list[SlurmJob] = []
        shadow: float | None = None  # when the first job that waits can start
        for job in sorted(waiting, key=lambda job: job.id):
            if job.held or job.eligible > now:
                job.reason = "JobHeldUser" if job.held else "BeginTime"
                left.append(job)
                continue
            job.accrued = now if job.accrued is None else job.accrued
            places = self._controller.reservations.places(job, nodes, now)
            fits = next(((chosen, place) for place in places if (chosen := _choose(job, place.nodes))), None)
            if fits and (shadow is None or now + (job.limit_seconds or float("inf")) <= shadow):
                self._controller.start(job, fits[0], fits[1].reservation)
                continue
            left.append(job)
            job.reason = _why(job, nodes, places, shadow)
            if shadow is None and job.reason == "Resources":
                shadow = self._expected_start(job, nodes)
        return left

    def _expected_start(self, job: SlurmJob, nodes: list[SlurmNode]) -> float:
        """When enough usable nodes are free by the time limits of what runs there."""
        now = self._controller.timers.now()
        free_at = sorted(self._free_at(node, now) for node in nodes if node.usable)
        return free_at[job.request.nodes - 1] if len(free_at) >= job.request.nodes else float("inf")

    def _free_at(self, node: SlurmNode, now: float) -> float:
        jobs = (self._controller.jobs[id_] for id_ in node.running)
        return max((_limit_end(job) for job in jobs), default=now)


def _limit_end(job: SlurmJob) -> float:
    if job.limit_seconds is None or job.started is None:
        return float("inf")
    return job.started + job.limit_seconds


def _choose(job: SlurmJob, nodes: list[SlurmNode]) -> tuple[str, ...]:
    """The first nodes with room, those that it requires first; empty where there are too few."""
    for constraint in alternatives(job.request.constraint):
        chosen = _choose_with(job, constraint, nodes)
        if chosen:
            return chosen
    return ()


def _choose_with(job: SlurmJob, constraint: str, nodes: list[SlurmNode]) -> tuple[str, ...]:
    chosen: list[str] = []
    required = job.request.required
    for node in sorted(nodes, key=lambda node: node.name not in required) if required else nodes:
        empty = not (node.running or node.completing)
        room = empty if job.request.exclusive else 0 < node.gpus_free >= job.request.gpus
        if room and node.usable and fits_features(constraint, node):
            chosen.append(node.name)
            if len(chosen) == job.request.nodes:
                return tuple(sorted(chosen)) if set(required) <= set(chosen) else ()
    return ()


def _why(job: SlurmJob, nodes: list[SlurmNode], places: list[Place], shadow: float | None) -> str:
    if job.request.nodes > len(nodes):
        return "PartitionNodeLimit"
    if job.request.nodes > max((sum(node.usable for node in place.nodes) for place in places), default=0):
        return NO_NODES
    return "Resources" if shadow is None and job.state is JobState.PENDING else "Priority"

"""One look at the scheduler for everybody: many nodes wait, one query answers them all."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass

from fleet.errors import JobRefused, SchedulerUnreachable
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.ports import Clock, Scheduler

_ASKED_ANEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SchedulerLook:
    """What the scheduler said at one moment: every node, and the jobs on each."""

    taken_at: float  # monotonic seconds
    nodes: dict[str, SchedulerNode]
    jobs: dict[str, tuple[Job, ...]]


class SharedScheduler:
    """Implements fleet.ports.Scheduler for many threads, with `look` as the shared, slightly old answer."""

    def __init__(self, scheduler: Scheduler, clock: Clock, poll_seconds: float) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._last: SchedulerLook | None = None
        self._away_at = float("-inf")

    def look(self, newer_than: float = float("-inf")) -> SchedulerLook:
        """An answer at most `poll_seconds` old and asked for after monotonic `newer_than`.

        While another thread asks anew it may be a second older. Raises SchedulerUnreachable: an old answer is never
        passed off as a new one.
        """
        known = self._last
        if known is not None and known.taken_at >= newer_than:
            grace = _ASKED_ANEW_SECONDS if self._lock.locked() else 0.0
            if self._clock.monotonic() - known.taken_at <= self._poll_seconds + grace:
                return known
        with self._lock:
            last = self._last
            oldest = max(newer_than, self._clock.monotonic() - self._poll_seconds)
            if last is None or last.taken_at < oldest:
                asked = self._clock.monotonic()
                try:
                    nodes = self._scheduler.read_nodes()
                    last = self._last = SchedulerLook(asked, nodes, _by_node(self._scheduler.read_jobs()))
                except SchedulerUnreachable:
                    self._away_at = self._clock.monotonic()
                    raise
            return last

    @property
    def away_at(self) -> float:
        """When it last did not answer, in monotonic seconds; minus infinity where it always did."""
        return self._away_at

    def read_nodes(self) -> dict[str, SchedulerNode]:
        return self.look().nodes

    def read_jobs(self) -> tuple[Job, ...]:
        return self._scheduler.read_jobs()

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        self._scheduler.cordon(nodes, reason)

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        self._scheduler.uncordon(nodes)

    def requeue(self, job: str) -> None:
        self._scheduler.requeue(job)

    def cancel(self, job: str) -> None:
        self._scheduler.cancel(job)

    def signal(self, job: str, signal: str) -> None:
        self._scheduler.signal(job, signal)

    def read_environment(self, job: str) -> dict[str, str] | None:
        return self._scheduler.read_environment(job)


def _by_node(jobs: tuple[Job, ...]) -> dict[str, tuple[Job, ...]]:
    by_node: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        for node in job.nodes:
            by_node[node].append(job)
    return {node: tuple(found) for node, found in by_node.items()}


class NoScheduler:
    """A fleet without a workload manager: every node is empty, and a cordon is only remembered here."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._reasons: dict[str, str | None] = dict.fromkeys(names)

    def read_nodes(self) -> dict[str, SchedulerNode]:
        return {
            name: SchedulerNode(
                name=name,
                state=SchedulerState.IDLE,
                flags=frozenset({"IDLE"}),
                cordoned=reason is not None,
                reason=reason,
                reason_by=None,
                reason_at=None,
                gpus=None,
            )
            for name, reason in self._reasons.items()
        }

    def read_jobs(self) -> tuple[Job, ...]:
        return ()

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        self._reasons |= dict.fromkeys(nodes, reason)

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        self._reasons |= dict.fromkeys(nodes)

    def requeue(self, job: str) -> None:
        raise JobRefused(f"there is no workload manager that knows job {job}")

    def cancel(self, job: str) -> None:
        raise JobRefused(f"there is no workload manager that knows job {job}")

    def signal(self, job: str, signal: str) -> None:
        raise JobRefused(f"there is no workload manager that could send {signal} to job {job}")

    def read_environment(self, job: str) -> dict[str, str] | None:
        raise JobRefused(f"there is no workload manager that knows job {job}")

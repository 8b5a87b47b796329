"""What jobs say, and what their storage shows, read once for all nodes of a job."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import datetime, timedelta

from fleet.checkpoint_readers.values import NewestCheckpoint, UnknownCheckpoint
from fleet.checkpoint_trees import newest_checkpoint
from fleet.checkpoints import Decision
from fleet.drain_settings import DrainSettings
from fleet.errors import FleetError, JobRefused, NodeUnreachable, SchedulerUnreachable
from fleet.job_consent import JobConsent, read_job_consent
from fleet.model import Job
from fleet.ports import CheckpointTrees, Clock, Scheduler

_AWAY_SECONDS = 60.0  # a storage that hangs costs one job's time, not that of 3,000
_RECENT_SECONDS = 180.0
_NO_STORAGE = UnknownCheckpoint("the fleet file names no storage of checkpoints: drain.checkpoints")


class SharedJobs:
    """Jobs as the whole process sees them; safe for many threads. A job's decisions are made under its lock."""

    def __init__(
        self,
        settings: DrainSettings,
        storage: CheckpointTrees | None,
        scheduler: Scheduler,
        clock: Clock,
        poll_seconds: float,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._scheduler = scheduler
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._guard = threading.Lock()
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._environments: dict[str, dict[str, str] | None] = {}
        self._read: dict[str, tuple[float, NewestCheckpoint]] = {}
        self._away: tuple[float, UnknownCheckpoint] | None = None
        self._decided: dict[tuple[str, str, datetime], tuple[float, Decision]] = {}
        self._unaskable: set[int] = set()
        self._seen: dict[str, tuple[float, float]] = {}  # job → when it was seen, and for how long it had run

    @property
    def reads_checkpoints(self) -> bool:
        return self._storage is not None

    def lock(self, job: str) -> threading.RLock:
        """Held by whoever decides about the job: its nodes' visits are many."""
        with self._guard:
            return self._locks[job]

    def said(self, job: Job) -> JobConsent:
        """What the job says of itself: its comment, its environment, its partition's rule, in that order."""
        rule = self._settings.folder_rule(job)
        said = read_job_consent(job, None, rule)
        if said.source == "comment":
            return said
        return read_job_consent(job, self._environment(job.id), rule)

    def newest(self, job: Job, said: JobConsent) -> NewestCheckpoint:
        """Its newest checkpoint, at most the scheduler's poll time old. What cannot be read is unknown, with why."""
        if self._storage is None:
            return _NO_STORAGE
        if said.path is None:
            told = said.unknown[0] if said.unknown else "neither its comment nor a rule names a checkpoint folder"
            return UnknownCheckpoint(told)
        with self.lock(job.id):
            kept = self._read.get(job.id)
            if kept is None or self._clock.monotonic() - kept[0] >= self._poll_seconds:
                kept = self._read[job.id] = self._clock.monotonic(), self._read_storage(self._storage, said)
        return kept[1]

    def decided(self, operation: str, job: str, deadline: datetime) -> Decision | None:
        """The operation's last decision for this deadline, where it is not older than the scheduler's poll time."""
        kept = self._decided.get((operation, job, deadline))
        fresh = kept is not None and self._clock.monotonic() - kept[0] < self._poll_seconds
        return kept[1] if kept is not None and fresh else None

    def keep(self, operation: str, deadline: datetime, decision: Decision) -> None:
        self._decided[operation, decision.job, deadline] = self._clock.monotonic(), decision

    def goes_on(self, job: Job) -> bool:
        """Whether this is the run that was seen a moment ago: its time has not gone back. To be asked at each look.

        A suspended job's time stands still, so that its start, counted back from now, seems to move.
        """
        now, before = self._clock.monotonic(), self._seen.get(job.id)
        if job.elapsed_seconds is None:
            return False
        self._seen[job.id] = now, job.elapsed_seconds
        recent = before is not None and now - before[0] <= max(_RECENT_SECONDS, 3 * self._poll_seconds)
        return before is not None and recent and job.elapsed_seconds >= before[1]

    def refuses_signals(self, ask: int) -> bool:
        """Whether the scheduler did not take the signal for this run of a job: it is not tried at each look."""
        return ask in self._unaskable

    def note_refused_signal(self, ask: int) -> None:
        self._unaskable.add(ask)

    def _environment(self, job: str) -> dict[str, str] | None:
        with self.lock(job):
            if job not in self._environments:
                try:
                    self._environments[job] = self._scheduler.read_environment(job)
                except (SchedulerUnreachable, JobRefused):
                    return None
            return self._environments[job]

    def _read_storage(self, storage: CheckpointTrees, said: JobConsent) -> NewestCheckpoint:
        away = self._away
        if away is not None and self._clock.monotonic() - away[0] < _AWAY_SECONDS:
            return away[1]
        seconds = self._settings.checkpoints.read_seconds if self._settings.checkpoints is not None else 20.0
        assert said.path is not None
        try:
            return newest_checkpoint(said.kind, storage.read_tree(said.path, seconds))
        except NodeUnreachable as error:
            unknown = UnknownCheckpoint(f"the storage of checkpoints does not answer: {error.message}")
            self._away = self._clock.monotonic(), unknown
            return unknown
        except FleetError as error:
            return UnknownCheckpoint(f"its folder cannot be read: {error.message}")


def began_at(job: Job, now: datetime) -> datetime | None:
    """When this run of the job began, None where the scheduler does not tell."""
    return None if job.elapsed_seconds is None else now - timedelta(seconds=job.elapsed_seconds)

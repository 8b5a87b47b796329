"""What the truth log says of jobs: which were stopped, what they lost, where they began again, which ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.truth import TruthEvent

VANISHED = "its end was not told"


@dataclass(frozen=True, slots=True)
class KilledJob:
    """`lost_seconds` is the time since its newest complete checkpoint, or since that start where it is the later."""

    at: float
    job: int
    nodes: tuple[str, ...]
    gpus: int
    lost_seconds: float
    cause: str


@dataclass
class JobVerdict:
    """One job's history. `nodes` and `gpus` are those of its last start; steps are None where none was told.

    `resumed` counts the starts after a stop that began at its newest complete checkpoint or later, `behind` those
    that began before it (as step begun at, step that was complete).
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    starts: int = 0
    checkpoints: int = 0
    newest_step: int | None = None
    kills: list[KilledJob] = field(default_factory=list)
    resumed: int = 0
    behind: list[tuple[int, int]] = field(default_factory=list)
    running: bool = False
    ended: bool = False
    mark: float = 0.0

    @property
    def lost_gpu_seconds(self) -> float:
        return sum(kill.gpus * kill.lost_seconds for kill in self.kills)


class JobReader:
    """Follows the jobs' events. `per_second` is how much of the log's time passes in one second of a job's."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._jobs: dict[int, JobVerdict] = {}
        self.killed: list[KilledJob] = []

    @property
    def jobs(self) -> Mapping[int, JobVerdict]:
        return self._jobs

    def read(self, event: TruthEvent) -> None:
        if event.job is None:
            return
        job = self._jobs.setdefault(event.job, JobVerdict())
        match event.event:
            case "job_start":
                self._start(event.job, job, event)
            case "checkpoint":
                job.checkpoints += 1
                job.newest_step, job.mark = event.step, event.t
            case "job_end":
                job.running, job.ended = False, True
            case "job_killed":
                self._kill(event.job, job, event)

    def _start(self, id_: int, job: JobVerdict, event: TruthEvent) -> None:
        if job.running:  # nobody could write that it was stopped: it lost at most what passed until now
            self._add(id_, job, event.t, self._since_mark(job, event.t), VANISHED)
        if job.starts and event.step is not None:
            newest = job.newest_step or 0
            if event.step >= newest:
                job.resumed += 1
            else:
                job.behind.append((event.step, newest))
        job.starts += 1
        job.running, job.ended, job.mark = True, False, event.t
        job.nodes, job.gpus = event.nodes, event.gpus

    def _kill(self, id_: int, job: JobVerdict, event: TruthEvent) -> None:
        job.nodes, job.gpus = event.nodes or job.nodes, event.gpus or job.gpus
        lost = self._since_mark(job, event.t) if event.lost_seconds is None else event.lost_seconds
        self._add(id_, job, event.t, lost, event.cause)

    def _add(self, id_: int, job: JobVerdict, at: float, lost_seconds: float, cause: str) -> None:
        job.running = False
        kill = KilledJob(at, id_, job.nodes, job.gpus, lost_seconds, cause)
        job.kills.append(kill)
        self.killed.append(kill)

    def _since_mark(self, job: JobVerdict, at: float) -> float:
        return (at - job.mark) / self._per_second

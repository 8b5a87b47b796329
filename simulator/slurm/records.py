"""Nodes and jobs as slurmctld keeps them. All times are simulated seconds."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.machine import Machine

CPUS = 192
MEMORY_MB = 2048000


class SlurmError(Exception):
    """A request that slurmctld refuses, in its words."""


class JobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"

    @property
    def compact(self) -> str:
        return _COMPACT[self]


_COMPACT = {
    JobState.PENDING: "PD",
    JobState.RUNNING: "R",
    JobState.COMPLETING: "CG",
    JobState.COMPLETED: "CD",
    JobState.CANCELLED: "CA",
    JobState.FAILED: "F",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
}

FINISHED = frozenset({JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED, JobState.TIMEOUT, JobState.NODE_FAIL})


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What sbatch asks for. `gpus` is per node; `limit_seconds` None is UNLIMITED."""

    name: str
    partition: str
    nodes: int
    gpus: int
    user: str = "root"
    account: str = ""
    comment: str = ""
    limit_seconds: float | None = None
    requeue: bool = True
    exclusive: bool = False
    signal: str = ""
    script: str = ""
    command: str = "(null)"
    workdir: str = "/"
    required: tuple[str, ...] = ()  # nodes that must be among its own
    constraint: str = ""  # features: `a&b`, `a|b`, or `[a|b]` for one of them on all nodes
    reservation: str = ""
    begin_after: float = 0.0  # simulated seconds from its submission

    @property
    def has_steps(self) -> bool:
        """Does its script start a step? Where it does, that step trains, not the batch shell."""
        return re.search(r"^\s*(?:exec\s+)?srun\b", self.script, re.MULTILINE) is not None


@dataclass(eq=False)
class SlurmJob:
    """One job. `nodes` holds the allocation, also after the end; `end_state` waits behind COMPLETING."""

    id: int
    request: JobRequest
    submitted: float
    state: JobState = JobState.PENDING
    reason: str = "None"
    nodes: tuple[str, ...] = ()
    eligible: float = 0.0
    accrued: float | None = None
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    exit_code: str = "0:0"
    end_state: JobState = JobState.COMPLETED
    requeued: bool = False  # goes back to the queue when COMPLETING is over
    held: bool = False
    comment: str = ""
    limit_seconds: float | None = None
    reservation: str = ""  # the one that it runs in
    asked_reservation: str = ""
    task: tuple[int, int] | None = None  # its array's id, and its number there

    def __post_init__(self) -> None:
        self.comment = self.comment or self.request.comment
        self.limit_seconds = self.request.limit_seconds
        self.reservation = self.asked_reservation = self.request.reservation

    @property
    def shown_id(self) -> str:
        """`5_3` for a task of an array."""
        return str(self.id) if self.task is None else "{}_{}".format(*self.task)

    def is_named(self, ids: Collection[str]) -> bool:
        """Is it meant by one of these? An array's id means all of its tasks."""
        return bool({self.shown_id, str(self.task[0] if self.task else self.id)} & {*ids})

    @property
    def holds_nodes(self) -> bool:
        return self.state in (JobState.RUNNING, JobState.COMPLETING)


@dataclass(eq=False)
class SlurmNode:
    """One node. `not_responding` is the flag that scontrol shows and sinfo writes as `*`."""

    machine: Machine
    partition: str
    registered: bool = True
    not_responding: bool = False
    down: bool = False
    drain: bool = False
    reason: str | None = None
    reason_by: str = "root"
    reason_at: float = 0.0
    slurmd_started: float = 0.0
    boot_at: float = 0.0
    last_busy: float = 0.0
    running: dict[int, int] = field(default_factory=dict)  # job id → GPUs
    completing: dict[int, int] = field(default_factory=dict)
    exclusive: bool = False
    features: tuple[str, ...] = ()
    reserved: bool = False  # held by an active reservation
    maintenance: bool = False

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def gpus_free(self) -> int:
        if self.exclusive or self.completing:
            return 0
        return self.machine.gpus - sum(self.running.values())

    @property
    def usable(self) -> bool:
        """May the scheduler start work here?"""
        return not (self.down or self.drain or self.not_responding or not self.registered)

    @property
    def cpus_allocated(self) -> int:
        if not self.running:
            return 0
        if self.exclusive:
            return CPUS
        return sum(max(2, CPUS * gpus // max(self.machine.gpus, 1)) for gpus in self.running.values())

    @property
    def base_state(self) -> str:
        if self.down:
            return "DOWN"
        if not self.running:
            return "IDLE"
        return "ALLOCATED" if self.cpus_allocated >= CPUS else "MIXED"

    @property
    def state(self) -> str:
        """As scontrol prints it: the base state and the flags in Slurm's order."""
        flags = (
            ("COMPLETING", bool(self.completing)),
            ("DRAIN", self.drain),
            ("MAINTENANCE", self.maintenance),
            ("RESERVED", self.reserved),
            ("NOT_RESPONDING", self.not_responding),
        )
        return "+".join([self.base_state, *(word for word, on in flags if on)])

    def sinfo_state(self, compact: bool) -> str:
        """As sinfo prints it (%T, or %t where `compact`), `*` for a node that does not respond."""
        busy = bool(self.running or self.completing)
        if self.drain:
            word = ("drng" if busy else "drain") if compact else ("draining" if busy else "drained")
        elif self.down:
            word = "down"
        elif self.completing:
            word = "comp" if compact else "completing"
        elif self.maintenance and not self.running:
            word = "maint"
        elif self.reserved and not self.running:
            word = "resv" if compact else "reserved"
        else:
            word = _SINFO[self.base_state][compact]
        mark = "$" if self.maintenance and word != "maint" else ""
        return word + ("*" if self.not_responding else mark)


_SINFO = {"IDLE": ("idle", "idle"), "MIXED": ("mixed", "mix"), "ALLOCATED": ("allocated", "alloc")}

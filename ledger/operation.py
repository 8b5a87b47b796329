"""What an operation is: its state, its runner, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.reasons import ReasonKind


class OperationState(StrEnum):
    PLANNED = "planned"
    WAITING = "waiting"  # for a gate, a window or a budget
    RUNNING = "running"
    BAKING = "baking"
    HALTED = "halted"  # a person resumes or aborts it
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"


CLOSED = frozenset({OperationState.DONE, OperationState.ABORTED, OperationState.FAILED})


class ControlVerb(StrEnum):
    """What a person can ask of an operation."""

    HALT = "halt"
    RESUME = "resume"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Control:
    """The newest request; `wave` is the one that a resume expects to go on with."""

    verb: ControlVerb
    actor: str
    reason: str
    wave: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Runner:
    """A process that carries out an operation. `pid_started` (seconds since 1970) tells reused pids apart."""

    host: str
    pid: int
    pid_started: float
    flow_run_id: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `runner` is None while nobody runs it; `heartbeat` is the runner's last sign of life.

    `flow_run_id` is the newest Prefect flow run that was asked to carry it out, suspended ones included.
    `fruitless` counts the claims since a node or a wave's mark was last finished, or a person resumed
    or aborted it.
    """

    id: str
    kind: str
    plan_json: str
    digest: str
    actor: str
    created: datetime
    state: OperationState
    reason_kind: ReasonKind
    reason: str
    since: datetime
    token: int
    runner: Runner | None
    heartbeat: datetime | None
    flow_run_id: str | None
    fruitless: int

    @property
    def open(self) -> bool:
        return self.state not in CLOSED

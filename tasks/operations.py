"""An operation while somebody runs it: who runs it, what was asked of it, and how it ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

import psutil
from prefect import State
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed

from blocks.fleet import Fleet
from fleet.errors import (
    ConfigurationError,
    FailureBudgetSpent,
    GateRejected,
    GateTimedOut,
    PlanChanged,
    RolloutHalted,
)
from fleet.plan import OperationPlan
from fleet.reasons import ReasonKind
from ledger import ControlVerb, Ledger, OperationState, Runner

P_co = TypeVar("P_co", bound=OperationPlan, covariant=True)
AnyRun: TypeAlias = "OperationRun[OperationPlan]"

RECONCILER = "reconcile"  # who asks for a halt where a halted operation still has nodes in hand

_BEAT_SECONDS = 5.0
_SAME_START_SECONDS = 30.0  # start times move with the wall clock


class StoppedByRequest(RolloutHalted):
    """A person asked to halt or abort."""


class BreakerTripped(RolloutHalted):
    """A pool lost nodes too fast."""


class NotWell(RolloutHalted):
    """The pool before a wave, or the nodes after it, are not as they must be, or could not be read."""


class BudgetStuck(RolloutHalted):
    """No node of the wave may leave service, and no operation's end would change that."""


class CanaryInconclusive(RolloutHalted):
    """A pool's canary could not be decided: more nodes or more hours are needed."""


class RolledBack(RolloutHalted):
    """What the operation had changed was changed back; it is over."""


class OperationRun(Generic[P_co]):
    """One runner's hold on an operation. A later runner's token ends it: every write checks.

    Its slots keep Prefect from writing the whole plan out as a sub-flow's parameter: 1,250 nodes are ten times
    what its server takes.
    """

    __slots__ = ("_last_beat", "fleet", "operation", "plan", "token")

    def __init__(self, fleet: Fleet, operation: str, token: int, plan: P_co) -> None:
        self.fleet = fleet
        self.operation = operation
        self.token = token
        self.plan = plan
        self._last_beat = float("-inf")

    @property
    def ledger(self) -> Ledger:
        return self.fleet.ledger()

    def beat(self) -> ControlVerb | None:
        """Show that the runner lives, at most every few seconds; answers HALT or ABORT where one was asked for.

        Raises LeaseLost where another runner has taken over.
        """
        now = self.fleet.clock.monotonic()
        if now - self._last_beat >= _BEAT_SECONDS:
            self.ledger.operations.heartbeat(self.operation, self.token)
            self._last_beat = now
        asked = self.ledger.operations.control(self.operation)
        return None if asked is None or asked.verb is ControlVerb.RESUME else asked.verb

    def set_state(self, state: OperationState, kind: ReasonKind = ReasonKind.NONE, reason: str = "") -> None:
        self.ledger.operations.set_state(self.operation, state, kind, reason, self.token)

    def stop_if_asked(self) -> None:
        """Raise StoppedByRequest where a person asked to halt or abort."""
        asked = self.beat()
        if asked is not None:
            raise StoppedByRequest(self.what_was_asked(), operation=self.operation)

    def what_was_asked(self) -> str:
        """The newest request as a reason to stop; where only nodes in hand were to be finished, the reason before."""
        asked = self.ledger.operations.control(self.operation)
        assert asked is not None
        again = asked.actor == RECONCILER and asked.reason
        why = f": {asked.reason}" if asked.reason else ""
        return asked.reason if again else f"{asked.verb.value} was asked for by {asked.actor}{why}"


class End:
    """How the flow run ends; Prefect shows this state."""

    def __init__(self) -> None:
        self._state: State[None] = Completed(message="every wave is done")

    def halted(self, name: str, message: str) -> None:
        self._state = Cancelled(name=name, message=message)

    def state(self) -> State[None]:
        return self._state


_KINDS: tuple[tuple[type[RolloutHalted], ReasonKind], ...] = (
    (StoppedByRequest, ReasonKind.PERSON),
    (FailureBudgetSpent, ReasonKind.FAILURE_BUDGET),
    (GateRejected, ReasonKind.GATE),
    (GateTimedOut, ReasonKind.GATE),
    (PlanChanged, ReasonKind.CONFLICT),
    (BudgetStuck, ReasonKind.BUDGET),
    (BreakerTripped, ReasonKind.BREAKER),
    (NotWell, ReasonKind.HEALTH),
    (RolledBack, ReasonKind.HEALTH),
    (CanaryInconclusive, ReasonKind.HEALTH),
)


@contextmanager
def recorded_end(run: AnyRun) -> Iterator[End]:
    """Write to the ledger how the operation ended, halted or done; any other end is left to the reconciler.

    What a person must mend first halts it too: taken up again each minute, it would only fail again.
    """
    end = End()
    try:
        yield end
    except (RolloutHalted, ConfigurationError) as error:
        aborted = run.beat() is ControlVerb.ABORT
        state = OperationState.ABORTED if aborted else OperationState.HALTED
        state = OperationState.FAILED if isinstance(error, RolledBack) else state
        kind = next((kind for error_type, kind in _KINDS if isinstance(error, error_type)), ReasonKind.CONFLICT)
        run.set_state(state, kind, error.message)
        end.halted(state.value.capitalize(), error.message)
        get_run_logger().warning("%s: %s", state.value, error.message)
    else:
        run.set_state(OperationState.DONE, reason=f"every wave is done: {_counts(run)}")
    if run.ledger.operations.get(run.operation).runner is not None:
        run.ledger.operations.leave(run.operation, run.token)


def _counts(run: AnyRun) -> str:
    """What became of the nodes: an operation that skipped them all must not read as a success."""
    found = run.ledger.operations.counts(run.operation)
    return ", ".join(f"{count} {status.value}" for status, count in sorted(found.items())) or "no nodes"


def this_runner() -> Runner:
    """This process, as the ledger knows runners."""
    return Runner(
        host=socket.gethostname(),
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        flow_run_id=str(flow_run.id or "") or None,
    )


def is_alive(runner: Runner, silent_seconds: float) -> bool:
    """Whether a runner may still act: its process on this host, its heartbeat on any other."""
    if runner.host != socket.gethostname():
        return silent_seconds < 120.0
    try:
        process = psutil.Process(runner.pid)
        return (
            abs(process.create_time() - runner.pid_started) < _SAME_START_SECONDS
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False

"""Operations that another one begins and waits for: each has its own run, so that neither dies with the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from blocks.fleet import block_name
from fleet.errors import ConfigurationError, PreconditionError
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from ledger import ControlVerb, Operation, OperationState
from tasks.operations import AnyRun
from tasks.runs import start_run

_LOOK_SECONDS = 2.0
_IN_VAIN = frozenset({OperationState.ABORTED, OperationState.FAILED})
_OVER = frozenset({OperationState.DONE, OperationState.ABORTED, OperationState.FAILED})


def run_child(
    run: AnyRun,
    wave: Wave,
    role: str,
    open_child: Callable[[str], Operation],
    what: str,
    renew: Callable[[], bool] = lambda: False,
) -> Operation:
    """Begin the operation that plays `role` for this wave, and wait for its end; it may have ended before.

    `open_child` is given the actor to open it as. One that was aborted or failed is replaced, and one that is done
    where `renew` says that it was not enough. A halted child waits for a person, and so does its parent. What is
    asked of the parent is asked of the child too. Raises what `open_child` raises, StoppedByRequest, and TransientError
    where the Prefect server does not answer.
    """
    child = _known(run, wave, role)
    if child is None or child.state in _IN_VAIN or (child.state in _OVER and renew()):
        actor = f"{run.operation} wave {wave.number} {role}"
        child = _orphan(run, wave, actor) or open_child(actor)
        run.ledger.waves.mark(run.operation, run.token, wave.number, f"{role}:{child.id}")
    _ensure_started(run, child)
    while (now := run.ledger.operations.get(child.id)).state not in _OVER:
        said = f"wave {wave.number}: {what} by {child.id}, which is {now.state.value}"
        run.set_state(OperationState.WAITING, ReasonKind.NONE, f"{said}: {now.reason}" if now.reason else said)
        _pass_on(run, now)
        run.fleet.clock.sleep(_LOOK_SECONDS)
    run.set_state(OperationState.RUNNING)
    return now


def child_of(run: AnyRun, wave: Wave, role: str) -> str | None:
    """The id of the newest operation that plays `role` for this wave, None where none was begun."""
    prefix = f"{role}:"
    marks = run.ledger.waves.marks(run.operation, wave.number)
    return next((mark.removeprefix(prefix) for mark in reversed(marks) if mark.startswith(prefix)), None)


def _orphan(run: AnyRun, wave: Wave, actor: str) -> Operation | None:
    """A child that was opened for this very role by a runner that died before it could write that down."""
    known = {mark.partition(":")[2] for mark in run.ledger.waves.marks(run.operation, wave.number)}
    planned = (one for one in run.ledger.operations.list(open_only=True) if one.state is OperationState.PLANNED)
    return next((one for one in planned if one.actor == actor and one.id not in known), None)


def _known(run: AnyRun, wave: Wave, role: str) -> Operation | None:
    known = child_of(run, wave, role)
    return None if known is None else run.ledger.operations.get(known)


def _ensure_started(run: AnyRun, child: Operation) -> None:
    """A child that has a run is the reconciler's to take up again; one that we halted goes on with us."""
    if child.state in _OVER:
        return
    asked = run.ledger.operations.control(child.id)
    ours = asked is not None and asked.actor == run.operation and asked.verb is ControlVerb.HALT
    if ours:
        try:
            run.ledger.operations.request(child.id, ControlVerb.RESUME, run.operation, f"{run.operation} goes on")
        except PreconditionError:  # it ended meanwhile, or a person aborts it
            return
    elif child.flow_run_id is not None:
        return
    try:
        flow_run = start_run(block_name(run.fleet.spec().fleet), child)
    except ConfigurationError:
        run.ledger.operations.set_state(
            child.id, OperationState.ABORTED, ReasonKind.CONFLICT, "its flow is not deployed"
        )
        raise
    run.ledger.operations.bind_flow_run(child.id, flow_run)


def _pass_on(run: AnyRun, child: Operation) -> None:
    verb = run.beat()
    if verb is None:
        return
    asked = run.ledger.operations.control(child.id)
    if asked is None or asked.verb is not verb:
        with suppress(PreconditionError):  # it is over, or a person aborts it already
            run.ledger.operations.request(child.id, verb, run.operation, f"{verb.value} of {run.operation}")
    if child.state is OperationState.HALTED or verb is ControlVerb.HALT:
        run.stop_if_asked()

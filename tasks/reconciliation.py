"""Operations whose runner has died are taken up again; what was asked of them meanwhile is done."""

from __future__ import annotations

from blocks.fleet import Fleet
from fleet.gates import GateStatus
from fleet.reasons import ReasonKind
from ledger import Control, ControlVerb, Operation, OperationState
from tasks.gate import RECORDED
from tasks.operations import RECONCILER, is_alive
from tasks.runs import crash_run, resume_run, run_condition, start_run
from tasks.slots import RackSlots

MOST_FRUITLESS = 10  # runs of one operation that may end without anything finished before a person must look
_AGAIN_SECONDS = 5.0

_IDLE = frozenset({OperationState.PLANNED, OperationState.HALTED})


def reconcile_operations(fleet: Fleet, name: str) -> list[str]:
    """Look at every open operation once; what was done, a line each. `name` is the fleet as flows take it."""
    said = [_reconcile(fleet, name, operation) for operation in fleet.ledger().operations.list(open_only=True)]
    return [line for line in said if line is not None]


def mend_rack_slots(fleet: Fleet) -> list[str]:
    """Bring the racks' limits in Prefect in step with the leases: a runner that died may have left one wrong.

    What is wrong twice in the same way counts: a running operation changes one a moment before the other.
    """
    racks = {node.rack for node in fleet.spec().inventory()}
    with RackSlots(fleet.clock) as slots:
        first = slots.wrong(fleet.ledger().leases.slots_held(), racks)
        if not first:
            return []
        fleet.clock.sleep(_AGAIN_SECONDS)
        again = slots.wrong(fleet.ledger().leases.slots_held(), first)
        mended = {rack: found for rack, found in again.items() if first[rack] == found}
        for rack, (_, held) in mended.items():
            slots.mend(rack, held)
    return [
        f"rack {rack}: its limit in Prefect counted {taken} slots as taken, {held} are: mended"
        for rack, (taken, held) in mended.items()
    ]


def _reconcile(fleet: Fleet, name: str, operation: Operation) -> str | None:
    """Nothing for an operation that a live process runs, or that waits for a person."""
    asked = fleet.ledger().operations.control(operation.id)
    if operation.state in _IDLE and not _was_set_going(operation, asked) and not _in_hand(fleet, operation):
        return None
    if operation.fruitless >= MOST_FRUITLESS and operation.state is OperationState.HALTED:
        return None
    silent = (fleet.clock.now() - (operation.heartbeat or operation.since)).total_seconds()
    if operation.runner is not None and is_alive(operation.runner, silent):
        return None
    run = operation.flow_run_id
    condition = run_condition(run, fleet.clock.now())
    if condition == "stuck" and run is not None:
        crash_run(run, "its process died before it claimed the operation")
        condition = "over"
    if condition == "under_way" and operation.runner is None:
        return None
    if operation.fruitless >= MOST_FRUITLESS:
        return _give_up(fleet, operation)
    halt = _why_halt(operation, condition, asked)
    if halt is not None:
        actor = RECONCILER if operation.state is OperationState.HALTED else "Prefect UI"
        fleet.ledger().operations.request(operation.id, ControlVerb.HALT, actor, halt)
    if operation.state is OperationState.WAITING and operation.reason_kind is ReasonKind.GATE:
        stops = asked is not None and asked.verb is not ControlVerb.RESUME
        return _reconcile_gate(fleet, name, operation, condition, stops)
    return _start(fleet, name, operation, condition, "its runner is gone")


def _give_up(fleet: Fleet, operation: Operation) -> str:
    """What fails each time is not mended by trying for ever."""
    why = (
        f"{operation.fruitless} runs ended without finishing a node or a wave (last: {operation.reason or 'died'}); "
        f"read their logs in the Prefect UI, mend the cause, then `gpufleet resume {operation.id}`"
    )
    fleet.ledger().operations.set_state(operation.id, OperationState.HALTED, ReasonKind.CONFLICT, why)
    return f"{operation.id}: halted: {why}"


def _why_halt(operation: Operation, condition: str, asked: Control | None) -> str | None:
    """Why the run that is started now may only finish the nodes in hand; None where it may go on."""
    if asked is not None and asked.verb is not ControlVerb.RESUME:
        return None  # that is what it will do already
    if operation.state is OperationState.HALTED:
        return None if _was_set_going(operation, asked) else operation.reason
    return "its flow run was cancelled in the Prefect UI" if condition == "cancelled" else None


def _was_set_going(operation: Operation, asked: Control | None) -> bool:
    """A person wants it to go on, or to end, and the run that was to do it may have died before it said so."""
    if operation.state is OperationState.PLANNED:
        return operation.flow_run_id is not None
    if asked is None or asked.verb is ControlVerb.HALT:
        return False
    return asked.verb is ControlVerb.ABORT or asked.at > operation.since


def _in_hand(fleet: Fleet, operation: Operation) -> bool:
    return bool(fleet.ledger().leases.held_by(operation.id))


def _reconcile_gate(fleet: Fleet, name: str, operation: Operation, condition: str, stops: bool) -> str | None:
    """A suspended run waits for people; one that is gone is replaced, and asks nobody twice."""
    if condition == "under_way":
        return None
    if condition == "suspended":
        gate = fleet.ledger().gates.newest(operation.id)
        settled = gate is not None and gate.status is not GateStatus.OPEN
        if not settled and not stops:
            return None
        assert operation.flow_run_id is not None
        form = {"decision": "approve", "approver": "-", "signature": RECORDED, "comment": "-"}
        resume_run(operation.flow_run_id, form)
        return f"{operation.id}: resumed, its gate is settled"
    return _start(fleet, name, operation, condition, "its suspended run is gone")


def _start(fleet: Fleet, name: str, operation: Operation, condition: str, why: str) -> str:
    """A run that is over without having claimed the operation (its worker died) is followed by another."""
    over = condition in ("over", "cancelled") and operation.flow_run_id is not None
    run = start_run(name, operation, after=operation.flow_run_id or "" if over else "")
    fleet.ledger().operations.bind_flow_run(operation.id, run)
    return f"{operation.id}: {why}; taken up by flow run {run}"

"""Signing and recording approvals."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from adapters.signatures import SignatureRefused, sign
from blocks.fleet import Fleet
from fleet.approvals import APPROVAL_NAMESPACE, approval_text
from fleet.errors import ConfigurationError, PreconditionError, TransientError
from fleet.gates import Decision, GateStatus, counted, missing
from fleet.reasons import ReasonKind
from ledger import Gate, Operation, OperationState
from tasks.gate import RECORDED, check_answer
from tasks.runs import resume_run, run_condition
from tasks.taking_up import read_outline

_TRIES = 20
_PAUSE_SECONDS = 0.5


def sign_approval(fleet: Fleet, operation: str, wave: int, key: Path, reject: bool) -> str:
    """The armoured signature over the open gate of this wave. Raises PreconditionError without an open gate."""
    gate = _open_gate(fleet, operation, wave)
    decision = Decision.REJECT if reject else Decision.APPROVE
    text = approval_text(fleet.spec().fleet, operation, wave, gate.round_number, gate.digest, decision.value)
    return sign(text, APPROVAL_NAMESPACE, key)


def give_approval(fleet: Fleet, operation: str, wave: int, key: Path, reject: bool, comment: str) -> GateStatus:
    """Sign, check as the flow would, record, and resume the suspended run where the gate is settled.

    Raises PreconditionError (no open gate), ConfigurationError or SignatureRefused; a refusal is recorded.
    """
    gate = _open_gate(fleet, operation, wave)
    ledger = fleet.ledger()
    plan = read_outline(ledger.operations.get(operation))
    policy = plan.policy.gates[plan.waves[wave - 1].pool]
    decision = Decision.REJECT if reject else Decision.APPROVE
    signature = sign_approval(fleet, operation, wave, key, reject)
    try:
        approval = check_answer(fleet, gate, policy, decision, "", signature, comment)
    except ConfigurationError as error:
        ledger.gates.refuse(gate.id, str(key), None, error.message)
        raise
    given = ledger.gates.approvals(gate.id)
    status = ledger.gates.record(gate.id, approval)
    if decision is Decision.APPROVE and len(counted((*given, approval))) == len(counted(given)):
        raise SignatureRefused(f"{approval.principal} or this key has approved already; another person must")
    kept = ledger.operations.get(operation)
    if status is GateStatus.OPEN:
        _say_what_is_missing(fleet, kept, gate)
    elif kept.flow_run_id is not None:
        _resume(kept.flow_run_id, decision, approval.principal)
    return status


def _say_what_is_missing(fleet: Fleet, kept: Operation, gate: Gate) -> None:
    """Nobody runs the operation now, so `gpufleet status` would go on to show what was missing before."""
    ledger = fleet.ledger()
    if kept.state is OperationState.WAITING and kept.reason_kind is ReasonKind.GATE:
        reason = f"wave {gate.wave}: {missing(gate.terms, ledger.gates.approvals(gate.id))}"
        ledger.operations.set_state(kept.id, kept.state, kept.reason_kind, reason)


def _resume(run: str, decision: Decision, principal: str) -> None:
    """Resume the run, which may be just about to suspend: its gate opens a moment earlier.

    The approval is in the ledger already: where this does not work, the reconciler resumes the run.
    """
    form = {"decision": decision.value, "approver": principal, "signature": RECORDED, "comment": "gpufleet approve"}
    for _ in range(_TRIES):
        try:
            over = run_condition(run, datetime.now(UTC)) not in ("under_way", "stuck", "suspended")
            if over or resume_run(run, form):
                return
        except TransientError:
            return
        time.sleep(_PAUSE_SECONDS)


def _open_gate(fleet: Fleet, operation: str, wave: int) -> Gate:
    gate = fleet.ledger().gates.current(operation, wave)
    if gate is None or gate.status is not GateStatus.OPEN:
        state = "has no gate yet" if gate is None else f"has a gate that is {gate.status.value}"
        kept = fleet.ledger().operations.get(operation)
        raise PreconditionError(f"{operation} wave {wave} {state}; the operation is {kept.state.value}: {kept.reason}")
    return gate

"""Signing and recording approvals."""

from __future__ import annotations

from pathlib import Path

from adapters.signatures import sign
from blocks.fleet import Fleet
from fleet.approvals import APPROVAL_NAMESPACE, approval_text
from fleet.errors import ConfigurationError, PreconditionError, TransientError
from fleet.gates import Decision, GateStatus
from ledger import Gate
from tasks.gate import RECORDED, check_answer
from tasks.planning import read_plan
from tasks.runs import resume_run


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
    plan = read_plan(ledger.operations.get(operation))
    policy = plan.policy.gates[plan.waves[wave - 1].pool]
    decision = Decision.REJECT if reject else Decision.APPROVE
    signature = sign_approval(fleet, operation, wave, key, reject)
    try:
        approval = check_answer(fleet, gate, policy, decision, "", signature, comment)
    except ConfigurationError as error:
        ledger.gates.refuse(gate.id, str(key), None, error.message)
        raise
    status = ledger.gates.record(gate.id, approval)
    run = ledger.operations.get(operation).flow_run_id
    if status is not GateStatus.OPEN and run is not None:
        _resume(run, decision, approval.principal)
    return status


def _resume(run: str, decision: Decision, principal: str) -> None:
    """The approval is in the ledger already: where no server answers, the reconciler resumes the run."""
    form = {"decision": decision.value, "approver": principal, "signature": RECORDED, "comment": "gpufleet approve"}
    try:
        resume_run(run, form)
    except TransientError:
        return


def _open_gate(fleet: Fleet, operation: str, wave: int) -> Gate:
    gate = fleet.ledger().gates.current(operation, wave)
    if gate is None or gate.status is not GateStatus.OPEN:
        state = "has no gate yet" if gate is None else f"has a gate that is {gate.status.value}"
        kept = fleet.ledger().operations.get(operation)
        raise PreconditionError(f"{operation} wave {wave} {state}; the operation is {kept.state.value}: {kept.reason}")
    return gate

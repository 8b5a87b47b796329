"""Approval gates: a run suspends until enough of the right people have signed the plan's digest and wave."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field

from adapters.signatures import SignatureRefused, verify
from blocks.fleet import Fleet
from fleet.approvals import APPROVAL_NAMESPACE, approval_text
from fleet.config import GatePolicy
from fleet.errors import ConfigurationError, GateRejected, GateTimedOut
from fleet.gates import Approval, Decision, GateStatus, missing
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from ledger import Gate, OperationState
from tasks.operations import AnyRun

RECORDED = "recorded"


class ApprovalForm(RunInput):
    """Approve or reject this wave. `gpufleet approve` fills the same form with a signature."""

    decision: Literal["approve", "reject"] = Field(description="What you decide about this wave")
    approver: str = Field(description="Who you are; with a signature, the allowed signer's principal")
    signature: str = Field(description="The output of `gpufleet approve --print`, or 'none' where unsigned is allowed")
    comment: str = Field(description="Why; kept in the audit chain")


def pass_gate(run: AnyRun, wave: Wave) -> None:
    """Return when the wave is approved; the flow run is suspended meanwhile and its process ends.

    Raises GateRejected, GateTimedOut. An approval that is in the ledger is never asked for again; a gate
    that was rejected or came too late is asked anew only after a person has resumed the operation.
    """
    policy = run.plan.policy.gates[wave.pool]
    gate = _standing_gate(run, wave) or open_gate(run, wave, policy)
    answers = 0
    while gate.status is GateStatus.OPEN:
        run.stop_if_asked()
        run.set_state(OperationState.WAITING, ReasonKind.GATE, f"wave {wave.number}: {_missing(run, gate)}")
        left = (gate.terms.deadline - run.fleet.clock.now()).total_seconds()
        form = suspend_flow_run(
            wait_for_input=ApprovalForm,
            timeout=max(1, int(left) + 1),
            key=f"wave-{wave.number}-round-{gate.round_number}-answer-{answers}",
        )
        answers += 1
        hear(run, gate, policy, form, answers)
        gate = run.ledger.gates.current(run.operation, wave.number) or gate
    if gate.status is GateStatus.REJECTED:
        raise GateRejected(f"wave {wave.number} was rejected", operation=run.operation)
    if gate.status is GateStatus.TIMED_OUT:
        raise GateTimedOut(f"wave {wave.number}: nobody approved in time", operation=run.operation)
    run.set_state(OperationState.RUNNING)


def hear(run: AnyRun, gate: Gate, policy: GatePolicy, form: ApprovalForm, answer: int) -> None:
    """Judge a form once: Prefect hands a resumed run every earlier form of its gate again."""
    mark = f"round-{gate.round_number}-answer-{answer}-of-{flow_run.id}"
    if form.signature == RECORDED or run.ledger.waves.marked(run.operation, gate.wave, mark) is not None:
        return
    take_form(run, gate, policy, form)
    run.ledger.waves.mark(run.operation, run.token, gate.wave, mark)


def _standing_gate(run: AnyRun, wave: Wave) -> Gate | None:
    """The gate that the operation was waiting at, whatever became of it; None where it comes here anew."""
    kept = run.ledger.operations.get(run.operation)
    waiting = kept.state is OperationState.WAITING and kept.reason_kind is ReasonKind.GATE
    gate = run.ledger.gates.current(run.operation, wave.number)
    return gate if waiting and gate is not None and gate.digest == run.plan.digest else None


def open_gate(run: AnyRun, wave: Wave, policy: GatePolicy) -> Gate:
    """The wave's gate as it stands, opened where there is none."""
    deadline = run.fleet.clock.now() + timedelta(seconds=policy.timeout_seconds)
    return run.ledger.gates.open(run.operation, wave.number, run.plan.digest, policy.required, policy.roles, deadline)


def take_form(run: AnyRun, gate: Gate, policy: GatePolicy, form: ApprovalForm) -> None:
    """Check what somebody entered in the Prefect UI; a refusal is recorded and the gate stays open."""
    try:
        approval = check_answer(
            run.fleet, gate, policy, Decision(form.decision), form.approver, form.signature, form.comment
        )
    except ConfigurationError as error:
        run.ledger.gates.refuse(gate.id, form.approver, None, error.message)
        return
    run.ledger.gates.record(gate.id, approval)


def check_answer(
    fleet: Fleet,
    gate: Gate,
    policy: GatePolicy,
    decision: Decision,
    approver: str,
    signature: str,
    comment: str,
) -> Approval:
    """An approval that may be recorded.

    Raises SignatureRefused or ConfigurationError with the reason why it may not.
    """
    if "BEGIN SSH SIGNATURE" not in signature:
        if not policy.unsigned:
            raise SignatureRefused("this gate takes signed approvals only; use `gpufleet approve`")
        if not approver.strip():
            raise SignatureRefused("an approval needs the approver's name")
        return Approval(approver.strip(), (), decision, comment=comment)
    if policy.allowed_signers is None:
        raise ConfigurationError("the gate's policy names no allowed_signers file")
    text = approval_text(fleet.spec().fleet, gate.operation, gate.wave, gate.round_number, gate.digest, decision.value)
    verified = verify(text, signature, APPROVAL_NAMESPACE, fleet.folder() / policy.allowed_signers)
    roles = next((signer.roles for signer in policy.signers if signer.principal == verified.principal), ())
    return Approval(verified.principal, roles, decision, verified.fingerprint, signature, comment, signed=True)


def _missing(run: AnyRun, gate: Gate) -> str:
    return missing(gate.terms, run.ledger.gates.approvals(gate.id)) or "waits for approval"

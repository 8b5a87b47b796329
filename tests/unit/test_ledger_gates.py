"""Gates: rounds, approvals, and what is turned away."""

from __future__ import annotations

from datetime import timedelta

import pytest
from unit.ledger_tools import DIGEST, FakeClock, running

from fleet.gates import Approval, Decision, GateStatus
from ledger import Ledger
from ledger.gates import Gate

pytest_plugins = ("unit.ledger_fixtures",)


def opened(ledger: Ledger, clock: FakeClock, operation: str, digest: str = DIGEST, required: int = 2) -> Gate:
    return ledger.gates.open(operation, 1, digest, required, ("ops",), clock.now() + timedelta(hours=1))


def yes(who: str, *roles: str, key: str | None = None) -> Approval:
    return Approval(who, roles, Decision.APPROVE, key or f"SHA256:{who}", "armoured", "", signed=True)


def test_an_open_gate_is_the_same_gate_when_asked_for_again(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    first = opened(ledger, clock, operation)
    clock.sleep(60)
    assert opened(ledger, clock, operation) == first


def test_two_people_approve_and_are_not_asked_again(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation)
    assert ledger.gates.record(gate.id, yes("ann", "ops")) is GateStatus.OPEN
    assert ledger.gates.record(gate.id, yes("ben")) is GateStatus.APPROVED
    clock.sleep(7200)
    again = opened(ledger, clock, operation)
    assert (again.id, again.status) == (gate.id, GateStatus.APPROVED)
    assert [approval.principal for approval in ledger.gates.approvals(gate.id)] == ["ann", "ben"]


@pytest.mark.parametrize("second", [yes("ann"), yes("Ann", key="SHA256:other"), yes("eve", key="SHA256:ann")])
def test_the_same_person_or_key_does_not_count_again(ledger: Ledger, clock: FakeClock, second: Approval) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation)
    ledger.gates.record(gate.id, yes("ann", "ops"))
    assert ledger.gates.record(gate.id, second) is GateStatus.OPEN
    refusal = ledger.audit.tail(1)[0]
    assert (refusal.action, refusal.actor) == ("gate.refused", second.principal)
    assert "already approved" in refusal.payload


def test_a_rejected_gate_takes_no_approval_and_opens_a_new_round(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation)
    assert ledger.gates.record(gate.id, Approval("cat", (), Decision.REJECT)) is GateStatus.REJECTED
    assert ledger.gates.record(gate.id, yes("ann", "ops")) is GateStatus.REJECTED
    assert opened(ledger, clock, operation).round_number == 2


def test_a_late_approval_is_turned_away(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation, required=1)
    clock.sleep(3600)
    assert ledger.gates.record(gate.id, yes("ann", "ops")) is GateStatus.TIMED_OUT
    assert ledger.gates.approvals(gate.id) == ()
    assert opened(ledger, clock, operation).round_number == 2


def test_another_plan_voids_an_approval(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation, required=1)
    ledger.gates.record(gate.id, yes("ann", "ops"))
    ledger.operations.replace_plan(operation, "{}", "e" * 64)
    assert ledger.gates.get(gate.id).status is GateStatus.VOID
    new = opened(ledger, clock, operation, digest="e" * 64, required=1)
    assert (new.round_number, new.status) == (2, GateStatus.OPEN)


def test_a_stricter_policy_opens_a_new_round(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation, required=1)
    ledger.gates.record(gate.id, yes("ann", "ops"))
    assert opened(ledger, clock, operation, required=2).status is GateStatus.OPEN
    assert ledger.gates.get(gate.id).status is GateStatus.VOID


def test_a_refused_signature_is_written_to_the_audit(ledger: Ledger, clock: FakeClock) -> None:
    operation, _ = running(ledger)
    gate = opened(ledger, clock, operation)
    ledger.gates.refuse(gate.id, "eve", "SHA256:eve", "key is not among the allowed signers")
    assert "not among the allowed signers" in ledger.audit.tail(1, operation)[0].payload
    current = ledger.gates.current(operation, 1)
    assert current is not None
    assert current.status is GateStatus.OPEN

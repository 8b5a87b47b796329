"""When a gate is approved, and who counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fleet.gates import Approval, Decision, GateStatus, GateTerms, gate_status, missing

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TWO = GateTerms(2, ("ops", "safety"), NOW + timedelta(hours=1))


def yes(who: str, *roles: str, key: str | None = None) -> Approval:
    return Approval(who, roles, Decision.APPROVE, key)


def no(who: str) -> Approval:
    return Approval(who, (), Decision.REJECT)


def test_two_people_with_both_roles_approve() -> None:
    assert gate_status(TWO, [yes("ann", "ops"), yes("ben", "safety")], NOW) is GateStatus.APPROVED


def test_one_person_counts_once_however_the_name_is_written() -> None:
    given = [yes("ann", "ops"), yes(" Ann", "safety")]
    assert gate_status(TWO, given, NOW) is GateStatus.OPEN
    assert missing(TWO, given) == "1 of 2 approvals; no approval yet from role safety"


def test_one_key_under_two_names_counts_once() -> None:
    given = [yes("ann", "ops", key="SHA256:a"), yes("ben", "safety", key="SHA256:a")]
    assert gate_status(TWO, given, NOW) is GateStatus.OPEN


def test_enough_people_without_a_role_leave_it_open() -> None:
    assert gate_status(TWO, [yes("ann", "ops"), yes("ben", "ops")], NOW) is GateStatus.OPEN


def test_one_rejection_rejects() -> None:
    given = [yes("ann", "ops"), no("cat"), yes("ben", "safety")]
    assert gate_status(TWO, given, NOW) is GateStatus.REJECTED


def test_the_deadline_ends_an_open_gate_but_not_an_approved_one() -> None:
    late = TWO.deadline
    assert gate_status(TWO, [yes("ann", "ops")], late) is GateStatus.TIMED_OUT
    assert gate_status(TWO, [yes("ann", "ops"), yes("ben", "safety")], late) is GateStatus.APPROVED


def test_a_policy_without_approvers_approves_at_once() -> None:
    assert gate_status(GateTerms(0, (), NOW), [], NOW) is GateStatus.APPROVED

"""When is a gate open, approved, rejected or too late? The rule, without a database.

Signatures are checked before an approval gets here; `fleet.approvals` says what is signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Decision(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


class GateStatus(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    VOID = "void"  # the plan or the policy changed: nothing said here counts any more
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class GateTerms:
    """What a gate asks for: `required` different people, each of `roles` among theirs, before `deadline`."""

    required: int
    roles: tuple[str, ...]
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """One person's word. `signature` is the armoured text, None for free text in the Prefect UI."""

    principal: str
    roles: tuple[str, ...]
    decision: Decision
    fingerprint: str | None = None
    signature: str | None = None
    comment: str = ""
    signed: bool = False


def counted(approvals: Sequence[Approval]) -> tuple[Approval, ...]:
    """The approving votes that count: one per person and one per key, the first of each."""
    people: set[str] = set()
    keys: set[str] = set()
    votes: list[Approval] = []
    for approval in approvals:
        person = approval.principal.strip().casefold()
        known_key = approval.fingerprint is not None and approval.fingerprint in keys
        if approval.decision is not Decision.APPROVE or person in people or known_key:
            continue
        people.add(person)
        if approval.fingerprint is not None:
            keys.add(approval.fingerprint)
        votes.append(approval)
    return tuple(votes)


def gate_status(terms: GateTerms, approvals: Sequence[Approval], now: datetime) -> GateStatus:
    """Judge approvals that all came in time. One rejection rejects; a full set stays approved for good."""
    if any(approval.decision is Decision.REJECT for approval in approvals):
        return GateStatus.REJECTED
    votes = counted(approvals)
    roles = {role for vote in votes for role in vote.roles}
    if len(votes) >= terms.required and roles.issuperset(terms.roles):
        return GateStatus.APPROVED
    return GateStatus.TIMED_OUT if now >= terms.deadline else GateStatus.OPEN


def missing(terms: GateTerms, approvals: Sequence[Approval]) -> str:
    """What the gate still waits for, as a text; empty when nothing is missing."""
    votes = counted(approvals)
    absent = sorted(set(terms.roles) - {role for vote in votes for role in vote.roles})
    parts = []
    if len(votes) < terms.required:
        parts.append(f"{len(votes)} of {terms.required} approvals")
    if absent:
        parts.append(f"no approval yet from role {', '.join(absent)}")
    return "; ".join(parts)

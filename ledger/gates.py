"""Gates and who said what at them. Nothing said counts for another plan, wave or round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import PreconditionError
from fleet.gates import Approval, Decision, GateStatus, GateTerms, counted, gate_status
from ledger.database import Database, Transaction
from ledger.schema import TableRow, approvals, gates


@dataclass(frozen=True, slots=True)
class Gate:
    """One round of one wave's gate, for one plan."""

    id: int
    operation: str
    wave: int
    round_number: int
    digest: str
    terms: GateTerms
    opened: datetime
    status: GateStatus


_LIVE = (GateStatus.OPEN, GateStatus.APPROVED)


class Gates:
    """Opening gates and recording approvals; signatures are checked before they come here."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(
        self, operation: str, wave: int, digest: str, required: int, roles: Sequence[str], deadline: datetime
    ) -> Gate:
        """The gate of this wave and plan.

        While it is open, and once it is approved, the same gate comes back and keeps its deadline. After
        a rejection or a missed deadline, or for another plan, number or roles, a new round begins and the
        former one is closed.
        """
        terms = GateTerms(required, tuple(sorted(set(roles))), deadline)
        with self._db.write() as tx:
            latest = _latest(tx.connection, operation, wave, tx.now)
            if latest is not None:
                same = latest.digest == digest and latest.terms.required == required
                if same and latest.terms.roles == terms.roles and latest.status in _LIVE:
                    return latest
                _close(tx, latest, GateStatus.VOID if latest.status in _LIVE else latest.status)
            number = 1 if latest is None else latest.round_number + 1
            row = {
                "operation": operation,
                "wave": wave,
                "round": number,
                "digest": digest,
                "required": required,
                "roles": "\n".join(terms.roles),
                "opened": tx.now,
                "deadline": deadline,
                "status": gate_status(terms, (), tx.now),
            }
            tx.connection.execute(sa.insert(gates), row)
            evidence = {"wave": wave, "round": number, "required": required, "roles": list(terms.roles)}
            tx.record(operation, "gate.open", operation, {**evidence, "plan": digest})
            gate = _latest(tx.connection, operation, wave, tx.now)
            assert gate is not None
            return gate

    def record(self, gate: int, approval: Approval) -> GateStatus:
        """Take one person's word and return what the gate is then.

        What does not count (a closed gate, the same person or key again) changes nothing and is written
        to the audit with its reason.
        """
        with self._db.write() as tx:
            before = _by_id(tx.connection, gate, tx.now)
            given = _approvals(tx.connection, gate)
            refusal = _refusal(before, given, approval)
            if refusal is not None:
                if before.status is GateStatus.TIMED_OUT:
                    _close(tx, before, GateStatus.TIMED_OUT)
                _record_refusal(tx, before, approval.principal, approval.fingerprint, refusal)
                return before.status
            tx.connection.execute(sa.insert(approvals), _approval_row(gate, approval, tx.now))
            status = gate_status(before.terms, (*given, approval), tx.now)
            tx.connection.execute(sa.update(gates).where(gates.c.id == gate).values(status=status))
            evidence = _evidence(before, approval.fingerprint) | {
                "roles": list(approval.roles),
                "signed": approval.signed,
                "comment": approval.comment,
                "status": status,
            }
            tx.record(approval.principal, f"gate.{approval.decision}", before.operation, evidence)
            return status

    def refuse(self, gate: int, principal: str, fingerprint: str | None, reason: str) -> None:
        """Write to the audit that an approval was turned away (wrong key, other plan, bad signature)."""
        with self._db.write() as tx:
            _record_refusal(tx, _by_id(tx.connection, gate, tx.now), principal, fingerprint, reason)

    def get(self, gate: int) -> Gate:
        """Raises PreconditionError for an unknown gate."""
        with self._db.read() as connection:
            return _by_id(connection, gate, self._db.clock.now())

    def current(self, operation: str, wave: int) -> Gate | None:
        """The newest round, its status as of now; None where the gate was never opened."""
        with self._db.read() as connection:
            return _latest(connection, operation, wave, self._db.clock.now())

    def newest(self, operation: str) -> Gate | None:
        """The gate that was opened last, its status as of now; None where there is none."""
        query = sa.select(gates).where(gates.c.operation == operation).order_by(gates.c.id.desc()).limit(1)
        with self._db.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _gate(row, self._db.clock.now())

    def approvals(self, gate: int) -> tuple[Approval, ...]:
        """What counted, oldest first."""
        with self._db.read() as connection:
            return _approvals(connection, gate)


def void_other_plans(tx: Transaction, operation: str, digest: str) -> None:
    """Close the operation's live gates that are for another plan than `digest`."""
    query = sa.select(gates).where(gates.c.operation == operation, gates.c.digest != digest, gates.c.status.in_(_LIVE))
    for row in tx.connection.execute(query).all():
        _close(tx, _gate(row, tx.now), GateStatus.VOID)


def _refusal(gate: Gate, given: Sequence[Approval], approval: Approval) -> str | None:
    if gate.status is not GateStatus.OPEN:
        return f"the gate is {gate.status}"
    if approval.decision is Decision.REJECT or len(counted((*given, approval))) > len(counted(given)):
        return None
    return "this person or key has already approved; another person must"


def _close(tx: Transaction, gate: Gate, status: GateStatus) -> None:
    change = sa.update(gates).where(gates.c.id == gate.id, gates.c.status != status).values(status=status)
    if tx.connection.execute(change).rowcount:
        evidence = {"wave": gate.wave, "round": gate.round_number, "plan": gate.digest}
        tx.record(gate.operation, f"gate.{status}", gate.operation, evidence)


def _record_refusal(tx: Transaction, gate: Gate, principal: str, fingerprint: str | None, reason: str) -> None:
    evidence = _evidence(gate, fingerprint) | {"reason": reason}
    tx.record(principal, "gate.refused", gate.operation, evidence)


def _evidence(gate: Gate, fingerprint: str | None) -> dict[str, object]:
    return {"wave": gate.wave, "round": gate.round_number, "plan": gate.digest, "key": fingerprint}


def _latest(connection: Connection, operation: str, wave: int, now: datetime) -> Gate | None:
    query = (
        sa.select(gates)
        .where(gates.c.operation == operation, gates.c.wave == wave)
        .order_by(gates.c.round.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _gate(row, now)


def _by_id(connection: Connection, gate: int, now: datetime) -> Gate:
    row = connection.execute(sa.select(gates).where(gates.c.id == gate)).one_or_none()
    if row is None:
        raise PreconditionError(f"no gate {gate}")
    return _gate(row, now)


def _gate(row: TableRow, now: datetime) -> Gate:
    status = GateStatus(row.status)
    if status is GateStatus.OPEN and now >= row.deadline:
        status = GateStatus.TIMED_OUT
    return Gate(
        id=row.id,
        operation=row.operation,
        wave=row.wave,
        round_number=row.round,
        digest=row.digest,
        terms=GateTerms(row.required, tuple(row.roles.split("\n")) if row.roles else (), row.deadline),
        opened=row.opened,
        status=status,
    )


def _approvals(connection: Connection, gate: int) -> tuple[Approval, ...]:
    query = sa.select(approvals).where(approvals.c.gate == gate).order_by(approvals.c.id)
    return tuple(
        Approval(
            principal=row.principal,
            roles=tuple(row.roles.split("\n")) if row.roles else (),
            decision=Decision(row.decision),
            fingerprint=row.fingerprint,
            signature=row.signature,
            comment=row.comment,
            signed=row.signed,
        )
        for row in connection.execute(query)
    )


def _approval_row(gate: int, approval: Approval, now: datetime) -> dict[str, object]:
    return {
        "gate": gate,
        "at": now,
        "principal": approval.principal,
        "roles": "\n".join(approval.roles),
        "decision": approval.decision,
        "fingerprint": approval.fingerprint,
        "signature": approval.signature,
        "comment": approval.comment,
        "signed": approval.signed,
    }

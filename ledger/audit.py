"""Reading and verifying the audit chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.chain import GENESIS, record_hash
from ledger.database import Database
from ledger.schema import TableRow, audit, audit_head, from_micros

_MOST_FAULTS = 100


class FaultKind(StrEnum):
    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at record `seq`, None for the chain as a whole."""

    kind: FaultKind
    seq: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Head:
    """The newest record's number and hash: keep it elsewhere as an anchor."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One record of the chain; hashes as 64 hex digits."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    payload: str
    prev_hash: str
    hash: str


_in_order = sa.select(audit).order_by(audit.c.seq)


class Audit:
    """The hash chain over every change."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def head(self) -> Head:
        with self._db.read() as connection:
            row = _head(connection)
        return Head(0, GENESIS.hex()) if row is None else Head(row[0], row[1].hex())

    def tail(self, count: int, subject: str | None = None) -> tuple[AuditRecord, ...]:
        """The newest `count` records, oldest first; only those about `subject` where given."""
        query = sa.select(audit).order_by(audit.c.seq.desc()).limit(count)
        if subject is not None:
            query = query.where(audit.c.subject == subject)
        with self._db.read() as connection:
            rows = connection.execute(query).all()
        return tuple(
            AuditRecord(
                seq=row.seq,
                at=from_micros(row.at),
                actor=row.actor,
                action=row.action,
                subject=row.subject,
                payload=row.payload,
                prev_hash=row.prev_hash.hex(),
                hash=row.hash.hex(),
            )
            for row in reversed(rows)
        )

    def verify(self, anchor: Head | None = None) -> list[Fault]:
        """Every changed, missing, reordered or cut-off record, at most 100; empty means that the chain holds.

        A chain alone cannot show that somebody who can write the whole database has rebuilt it from some
        record on, head included, nor that the database was put back to an older copy of itself. An
        `anchor` (an earlier `head()`, kept outside this database) shows both.
        """
        with self._db.read() as connection:
            faults, last_seq, last_hash = self._walk(connection, anchor)
            head = _head(connection)
        if head is None:
            faults.append(Fault(FaultKind.MISSING, None, "the head row is gone"))
        elif last_seq < head[0]:
            faults.append(Fault(FaultKind.TRUNCATED, last_seq + 1, f"records {last_seq + 1} to {head[0]} are cut off"))
        elif (last_seq, last_hash) != head:
            faults.append(Fault(FaultKind.CHANGED, last_seq, f"the newest record is not the head ({head[0]})"))
        if anchor is not None and last_seq < anchor.seq:
            faults.append(
                Fault(
                    FaultKind.TRUNCATED,
                    last_seq + 1,
                    f"the anchor's record {anchor.seq} is not there any more",
                )
            )
        return faults[:_MOST_FAULTS]

    def _walk(self, connection: Connection, anchor: Head | None) -> tuple[list[Fault], int, bytes]:
        faults: list[Fault] = []
        seq, prev = 0, GENESIS
        for row in connection.execution_options(yield_per=2000).execute(_in_order):
            if len(faults) < _MOST_FAULTS:
                faults += _check(connection, row, seq, prev)
                if anchor is not None and row.seq == anchor.seq and row.hash.hex() != anchor.hash:
                    faults.append(Fault(FaultKind.CHANGED, row.seq, f"record {row.seq} is not the anchor's"))
            seq, prev = row.seq, row.hash
        return faults, seq, prev


def _check(connection: Connection, row: TableRow, before: int, prev: bytes) -> list[Fault]:
    """The faults of one record, given the number and hash of the one before it."""
    own = record_hash(row.at, row.actor, row.action, row.subject, row.payload, row.prev_hash)
    if own != row.hash:
        return [Fault(FaultKind.CHANGED, row.seq, f"record {row.seq} ({row.action} {row.subject}) was changed")]
    if row.seq != before + 1:
        lost = f"record {before + 1}" if row.seq == before + 2 else f"records {before + 1} to {row.seq - 1}"
        return [Fault(FaultKind.MISSING, before + 1, f"{lost} missing")]
    if row.prev_hash == prev:
        return []
    follows = connection.execute(sa.select(audit.c.seq).where(audit.c.hash == row.prev_hash).limit(1)).scalar()
    if follows is not None or row.prev_hash == GENESIS:
        return [Fault(FaultKind.REORDERED, row.seq, f"record {row.seq} belongs after record {follows or 0}")]
    return [Fault(FaultKind.MISSING, row.seq, f"the record before {row.seq} was replaced or is missing")]


def _head(connection: Connection) -> tuple[int, bytes] | None:
    row = connection.execute(sa.select(audit_head.c.seq, audit_head.c.hash)).one_or_none()
    return None if row is None else (row.seq, row.hash)

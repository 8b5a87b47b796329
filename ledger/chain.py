"""The audit chain: each record's hash covers the record and the hash before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.schema import audit, audit_head, to_micros

GENESIS = bytes(32)


@dataclass(frozen=True, slots=True)
class Record:
    """One change, before it has its place in the chain. `payload` is canonical JSON."""

    at: datetime
    actor: str
    action: str
    subject: str
    payload: str


def record_hash(at_micros: int, actor: str, action: str, subject: str, payload: str, prev_hash: bytes) -> bytes:
    """SHA-256 over an unambiguous text of all fields; the place follows from `prev_hash`."""
    fields = [at_micros, actor, action, subject, payload, prev_hash.hex()]
    return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).digest()


_head = sa.select(audit_head.c.seq, audit_head.c.hash)
_insert = sa.insert(audit)
_move_head = sa.update(audit_head).values(seq=sa.bindparam("new_seq"), hash=sa.bindparam("new_hash"))


def append(connection: Connection, records: Sequence[Record]) -> None:
    """Chain `records` within the caller's write transaction."""
    if not records:
        return
    seq, prev = connection.execute(_head).one()
    rows: list[dict[str, object]] = []
    for record in records:
        seq += 1
        at = to_micros(record.at)
        new = record_hash(at, record.actor, record.action, record.subject, record.payload, prev)
        rows.append(
            {
                "seq": seq,
                "at": at,
                "actor": record.actor,
                "action": record.action,
                "subject": record.subject,
                "payload": record.payload,
                "prev_hash": prev,
                "hash": new,
            }
        )
        prev = new
    connection.execute(_insert, rows[0] if len(rows) == 1 else rows)
    connection.execute(_move_head, {"new_seq": seq, "new_hash": prev})

"""The verdicts on a change, look by look: what was decided, and the samples that it was computed from.

A look is judged once. A runner that takes over after a verdict was written reads that one: judging again would be
another look at the same data, which the stated rate of false alarms does not allow for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import Database
from ledger.fencing import check_token, note_progress
from ledger.schema import TableRow, clean_text
from ledger.verdict_schema import verdicts


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """One look at the data of one wave; `look` counts from 1. `samples_json` None where none were given."""

    operation: str
    wave: int
    look: int
    at: datetime
    verdict_json: str
    samples_json: str | None


_one = sa.select(verdicts).where(
    verdicts.c.operation == sa.bindparam("operation_id"),
    verdicts.c.wave == sa.bindparam("wave_number"),
    verdicts.c.look == sa.bindparam("look_number"),
)
_of = (
    sa.select(verdicts)
    .where(verdicts.c.operation == sa.bindparam("operation_id"))
    .order_by(verdicts.c.wave, verdicts.c.look)
)


class Verdicts:
    """What was found, by operation, wave and look."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def record(
        self, operation: str, token: int, wave: int, look: int, verdict_json: str, samples_json: str | None = None
    ) -> VerdictRecord:
        """Keep a look's verdict; where one is kept already, that one stays and is returned.

        `verdict_json` is an object with an `outcome`. The audit chain gets the outcome and the SHA-256 of both texts.
        Raises LeaseLost where another runner has taken over, ValueError for a text that is no such object.
        """
        outcome = _outcome(verdict_json)
        verdict, samples = clean_text(verdict_json), None if samples_json is None else clean_text(samples_json)
        with self._db.write() as tx:
            plan = check_token(tx.connection, operation, token)
            kept = _find(tx.connection, operation, wave, look)
            if kept is not None:
                return kept
            row = {"operation": operation, "wave": wave, "look": look, "at": tx.now}
            tx.connection.execute(sa.insert(verdicts), row | {"verdict": verdict, "samples": samples})
            note_progress(tx.connection, operation)
            evidence: dict[str, object] = {"wave": wave, "look": look, "outcome": outcome, "plan": plan}
            evidence["verdict"] = _digest(verdict)
            if samples is not None:
                evidence["samples"] = _digest(samples)
            tx.record(f"{operation}#{token}", "wave.verdict", operation, evidence)
            return VerdictRecord(operation, wave, look, tx.now, verdict, samples)

    def of(self, operation: str) -> tuple[VerdictRecord, ...]:
        """Every verdict of the operation, by wave and look."""
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(_of, {"operation_id": operation}))

    def newest(self, operation: str, wave: int | None = None) -> VerdictRecord | None:
        """The last look at one wave, or at the operation's last wave that has one; None where there was none."""
        query = _of if wave is None else _of.where(verdicts.c.wave == wave)
        query = query.order_by(None).order_by(verdicts.c.wave.desc(), verdicts.c.look.desc()).limit(1)
        with self._db.read() as connection:
            row = connection.execute(query, {"operation_id": operation}).one_or_none()
        return None if row is None else _record(row)


def _outcome(verdict_json: str) -> str:
    verdict: object = json.loads(verdict_json)
    outcome = verdict.get("outcome") if isinstance(verdict, Mapping) else None
    if not isinstance(outcome, str):
        raise ValueError("a verdict is a JSON object with an outcome")
    return outcome


def _find(connection: Connection, operation: str, wave: int, look: int) -> VerdictRecord | None:
    where = {"operation_id": operation, "wave_number": wave, "look_number": look}
    row = connection.execute(_one, where).one_or_none()
    return None if row is None else _record(row)


def _record(row: TableRow) -> VerdictRecord:
    return VerdictRecord(row.operation, row.wave, row.look, row.at, row.verdict, row.samples)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()

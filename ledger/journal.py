"""What was about to be done to a node, and how it ended.

An entry is written before the step acts. One that never ended is an unknown outcome: the next runner
reads the hardware back before it acts again. The hardware says what is true; the journal, what was tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.canonical import canonical_json
from fleet.errors import LeaseLost, PreconditionError
from ledger.database import Database
from ledger.fencing import check_lease
from ledger.schema import TableRow, clean_text, journal


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """One try of one step. `outcome` is None while it is under way, or for ever where its runner died."""

    id: int
    operation: str
    node: str
    step: str
    attempt: int
    token: int
    begun: datetime
    intent: Mapping[str, object]
    ended: datetime | None
    outcome: Outcome | None
    result: Mapping[str, object]


_at_node = sa.and_(journal.c.operation == sa.bindparam("operation_id"), journal.c.node == sa.bindparam("node_name"))
_at_step = sa.and_(_at_node, journal.c.step == sa.bindparam("step_name"))
_tried = sa.select(sa.func.count()).select_from(journal).where(_at_step)
_insert = sa.insert(journal).values(attempt=_tried.scalar_subquery() + 1)
_by_id = sa.select(journal).where(journal.c.id == sa.bindparam("entry_id"))
_of_node = sa.select(journal).where(_at_node).order_by(journal.c.id)
_last = sa.select(journal).where(_at_step).order_by(journal.c.id.desc()).limit(1)
_end = (
    sa.update(journal)
    .where(
        journal.c.id == sa.bindparam("entry_id"),
        sa.or_(journal.c.outcome.is_(None), journal.c.outcome == Outcome.UNKNOWN),
    )
    .values(ended=sa.bindparam("now"), outcome=sa.bindparam("new_outcome"), result=sa.bindparam("new_result"))
    .returning(journal.c.operation, journal.c.node, journal.c.step, journal.c.attempt, journal.c.token)
)


class Journal:
    """The step journal."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def begin(self, operation: str, token: int, node: str, step: str, detail: Mapping[str, object]) -> int:
        """Say what is about to be done; returns the entry's id. `detail` is JSON without secrets.

        Raises LeaseLost when another runner took over or the operation does not own the node.
        """
        with self._db.write() as tx:
            plan = check_lease(tx.connection, operation, token, node)
            row = {
                "operation": operation,
                "node": node,
                "step": step,
                "token": token,
                "begun": tx.now,
                "intent": clean_text(canonical_json(detail)),
            }
            where = {"operation_id": operation, "node_name": node, "step_name": step}
            key = tx.connection.execute(_insert, row | where).inserted_primary_key
            assert key is not None
            evidence = {"entry": key[0], "step": step, "detail": dict(detail), "plan": plan}
            tx.record(f"{operation}#{token}", "step.begin", node, evidence)
            return int(key[0])

    def finish(self, entry: int, outcome: Outcome, detail: Mapping[str, object] | None = None) -> None:
        """How it ended, with evidence. An unknown outcome may become known later; a known one stays.

        Raises LeaseLost where another runner has already settled the entry otherwise.
        """
        evidence = dict(detail or {})
        with self._db.write() as tx:
            result = clean_text(canonical_json(evidence))
            values = {"entry_id": entry, "now": tx.now, "new_outcome": outcome, "new_result": result}
            row = tx.connection.execute(_end, values).one_or_none()
            if row is None:
                _check_settled(tx.connection, entry, outcome)
                return
            payload = {"entry": entry, "step": row.step, "outcome": outcome, "detail": evidence}
            tx.record(f"{row.operation}#{row.token}", "step.end", row.node, payload)

    def entries(self, operation: str, node: str) -> tuple[Entry, ...]:
        """Every try on the node, oldest first."""
        where = {"operation_id": operation, "node_name": node}
        with self._db.read() as connection:
            return tuple(_entry(row) for row in connection.execute(_of_node, where))

    def last(self, operation: str, node: str, step: str) -> Entry | None:
        """The newest try of a step, None where it was never tried."""
        where = {"operation_id": operation, "node_name": node, "step_name": step}
        with self._db.read() as connection:
            row = connection.execute(_last, where).one_or_none()
        return None if row is None else _entry(row)

    def attempts(self, operation: str, node: str, step: str) -> int:
        """How often the step was begun."""
        where = {"operation_id": operation, "node_name": node, "step_name": step}
        with self._db.read() as connection:
            return int(connection.execute(_tried, where).scalar_one())


def _check_settled(connection: Connection, entry: int, outcome: Outcome) -> None:
    row = connection.execute(_by_id, {"entry_id": entry}).one_or_none()
    if row is None:
        raise PreconditionError(f"no journal entry {entry}")
    if row.outcome != outcome:
        text = f"step {row.step} was already settled as {row.outcome}, not {outcome}"
        raise LeaseLost(text, node=row.node, operation=row.operation)


def _entry(row: TableRow) -> Entry:
    return Entry(
        id=row.id,
        operation=row.operation,
        node=row.node,
        step=row.step,
        attempt=row.attempt,
        token=row.token,
        begun=row.begun,
        intent=json.loads(row.intent),
        ended=row.ended,
        outcome=None if row.outcome is None else Outcome(row.outcome),
        result=json.loads(row.result) if row.result else {},
    )

"""How far an operation got with each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import PreconditionError
from ledger.database import Database
from ledger.fencing import check_token, note_progress
from ledger.schema import TableRow, nodes, operation_nodes, operations


class NodeStatus(StrEnum):
    """What became of a node in one operation."""

    PENDING = "pending"
    RUNNING = "running"
    UPDATED = "updated"
    DRAINED = "drained"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node of an operation. `attempts` counts visits begun; `waiting_for` is a text for people."""

    node: str
    wave: int
    position: int
    status: NodeStatus
    reason: str
    attempts: int
    waiting_for: str | None
    started: datetime | None
    finished: datetime | None


_at = sa.and_(
    operation_nodes.c.operation == sa.bindparam("operation_id"),
    operation_nodes.c.node == sa.bindparam("node_name"),
)
_row = sa.select(operation_nodes).where(_at)
_rows = (
    sa.select(operation_nodes)
    .where(operation_nodes.c.operation == sa.bindparam("operation_id"))
    .order_by(operation_nodes.c.wave, operation_nodes.c.position, operation_nodes.c.node)
)
_counts = (
    sa.select(operation_nodes.c.status, sa.func.count())
    .where(operation_nodes.c.operation == sa.bindparam("operation_id"))
    .group_by(operation_nodes.c.status)
)
_pending = sa.select(operation_nodes.c.node).where(
    operation_nodes.c.operation == sa.bindparam("operation_id"),
    operation_nodes.c.wave == sa.bindparam("wave_number"),
    operation_nodes.c.status == NodeStatus.PENDING,
)
_that_touched = (
    sa.select(operations.c.id)
    .join(operation_nodes, operation_nodes.c.operation == operations.c.id)
    .where(
        operation_nodes.c.node == sa.bindparam("node_name"),
        operation_nodes.c.status.in_((NodeStatus.RUNNING, NodeStatus.UPDATED, NodeStatus.FAILED)),
    )
    .order_by(operations.c.created.desc(), operations.c.id.desc())
)
_start = (
    sa.update(operation_nodes)
    .where(_at)
    .values(
        status=NodeStatus.RUNNING,
        reason="",
        attempts=operation_nodes.c.attempts + 1,
        waiting_for=None,
        started=sa.bindparam("now"),
        finished=None,
    )
)
_finish = (
    sa.update(operation_nodes)
    .where(_at)
    .values(
        status=sa.bindparam("new_status"),
        reason=sa.bindparam("new_reason"),
        waiting_for=None,
        finished=sa.bindparam("now"),
    )
)
_wait = sa.update(operation_nodes).where(_at).values(waiting_for=sa.bindparam("text"))
_place = sa.update(operation_nodes).where(_at).values(wave=sa.bindparam("wave_"), position=sa.bindparam("position_"))


class Progress:
    """The rows per node; part of `Operations`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add_nodes(self, id: str, places: Sequence[tuple[str, int, int]]) -> None:
        """Give the operation its nodes as (node, wave, position); repeated calls change only pending ones.

        Raises PreconditionError for a node that is not in the inventory.
        """
        with self._db.write() as tx:
            known = {row.node: row for row in tx.connection.execute(_rows, {"operation_id": id})}
            new = [place for place in places if place[0] not in known]
            _check_known(tx.connection, [node for node, _, _ in new])
            if new:
                tx.connection.execute(sa.insert(operation_nodes), [_new_row(id, *place) for place in new])
            moved = [
                {"operation_id": id, "node_name": node, "wave_": wave, "position_": position}
                for node, wave, position in places
                if node in known
                and known[node].status == NodeStatus.PENDING
                and (known[node].wave, known[node].position) != (wave, position)
            ]
            if moved:
                tx.connection.execute(_place, moved)
            if new or moved:
                tx.record(id, "operation.nodes", id, {"added": len(new), "moved": len(moved)})

    def node_rows(self, id: str, wave: int | None = None) -> tuple[NodeRow, ...]:
        """By wave and position."""
        query = _rows if wave is None else _rows.where(operation_nodes.c.wave == wave)
        with self._db.read() as connection:
            return tuple(_node_row(row) for row in connection.execute(query, {"operation_id": id}))

    def counts(self, id: str, wave: int | None = None) -> dict[NodeStatus, int]:
        """How many nodes (of one wave) stand where; a status that no node has is left out."""
        query = _counts if wave is None else _counts.where(operation_nodes.c.wave == wave)
        with self._db.read() as connection:
            rows = connection.execute(query, {"operation_id": id})
            return {NodeStatus(status): int(count) for status, count in rows}

    def pending(self, id: str, wave: int) -> frozenset[str]:
        """The nodes of a wave that nobody has begun to visit."""
        with self._db.read() as connection:
            return frozenset(connection.execute(_pending, {"operation_id": id, "wave_number": wave}).scalars())

    def that_touched(self, node: str) -> tuple[str, ...]:
        """Ids of the operations that began to change this node, newest first; skipped visits do not count."""
        with self._db.read() as connection:
            return tuple(connection.execute(_that_touched, {"node_name": node}).scalars())

    def start_nodes(self, id: str, nodes: Sequence[str], token: int | None = None) -> None:
        """A visit of each begins. Raises LeaseLost for an old `token`."""
        with self._db.write() as tx:
            if token is not None:
                check_token(tx.connection, id, token)
            for node in nodes:
                row = _one(tx.connection, id, node)
                tx.connection.execute(_start, {"operation_id": id, "node_name": node, "now": tx.now})
                tx.record(id, "operation.node", node, {"status": NodeStatus.RUNNING, "attempt": int(row.attempts) + 1})

    def finish_node(self, id: str, node: str, status: NodeStatus, reason: str, token: int | None = None) -> None:
        """What became of the node. Raises LeaseLost for an old `token`."""
        self.finish_nodes(id, [(node, status, reason)], token)

    def finish_nodes(self, id: str, ends: Sequence[tuple[str, NodeStatus, str]], token: int | None = None) -> None:
        """What became of several nodes, as (node, status, reason). Raises LeaseLost for an old `token`."""
        with self._db.write() as tx:
            if token is not None:
                check_token(tx.connection, id, token)
            for node, status, reason in ends:
                row = _one(tx.connection, id, node)
                if (row.status, row.reason) == (status, reason):
                    continue
                values = {"new_status": status, "new_reason": reason, "now": tx.now}
                tx.connection.execute(_finish, {"operation_id": id, "node_name": node, **values})
                if status is not NodeStatus.PENDING:
                    note_progress(tx.connection, id)
                tx.record(id, "operation.node", node, {"status": status, "reason": reason})

    def say(self, id: str, node: str, text: str) -> None:
        """What one node waits for now."""
        with self._db.write() as tx:
            tx.connection.execute(_wait, {"operation_id": id, "node_name": node, "text": text})


def _one(connection: Connection, id: str, node: str) -> TableRow:
    row = connection.execute(_row, {"operation_id": id, "node_name": node}).one_or_none()
    if row is None:
        raise PreconditionError(f"is not a node of {id}", node=node, operation=id)
    return row


def _check_known(connection: Connection, names: Sequence[str]) -> None:
    known = set(connection.execute(sa.select(nodes.c.name)).scalars()) if names else set()
    unknown = sorted(set(names) - known)
    if unknown:
        listed = ", ".join(unknown[:8])
        raise PreconditionError(f"not in the ledger: {listed}; add them to the fleet file and sync")


def _new_row(id: str, node: str, wave: int, position: int) -> dict[str, object]:
    return {
        "operation": id,
        "node": node,
        "wave": wave,
        "position": position,
        "status": NodeStatus.PENDING,
        "reason": "",
        "attempts": 0,
    }


def _node_row(row: TableRow) -> NodeRow:
    return NodeRow(
        node=row.node,
        wave=row.wave,
        position=row.position,
        status=NodeStatus(row.status),
        reason=row.reason,
        attempts=row.attempts,
        waiting_for=row.waiting_for,
        started=row.started,
        finished=row.finished,
    )

"""Why a node waits, and for whom, in lines for people."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.budget import Refused, decide
from fleet.errors import PreconditionError
from fleet.reasons import ReasonKind
from ledger.breakers import pool_view
from ledger.progress import NodeStatus
from ledger.schema import leases, nodes, operation_nodes, operations
from ledger.standings import budget_view, read_nodes

_SHUT = ("done", "aborted", "failed")
_work = (
    sa.select(operation_nodes, operations.c.state, operations.c.reason_kind, operations.c.reason.label("op_reason"))
    .join(operations, operations.c.id == operation_nodes.c.operation)
    .where(operation_nodes.c.node == sa.bindparam("node_name"), operations.c.state.not_in(_SHUT))
    .order_by(operations.c.created)
)


def explain(connection: Connection, name: str, now: datetime) -> list[str]:
    """Raises PreconditionError for a node that the ledger never saw."""
    row = connection.execute(sa.select(nodes).where(nodes.c.name == name)).one_or_none()
    if row is None:
        raise PreconditionError("not in the ledger: the first operation takes in what the fleet file names", node=name)
    lines = [f"{row.state} since {row.since:%F %T} UTC" + (f": {row.reason}" if row.reason else "")]
    if row.absent:
        lines.append("no longer in the fleet file: no operation may take it")
    if row.cordoned is not None:
        lines.append(f"cordoned, not by gpufleet: {row.cordoned}")
    lease = connection.execute(sa.select(leases).where(leases.c.node == name)).one_or_none()
    if lease is not None:
        found = f"cordoned ({lease.before_reason or 'no reason given'})" if lease.before_cordoned else "not cordoned"
        lines.append(f"held by {lease.operation} since {lease.since:%F %T} UTC; found {lease.before_state}, {found}")
    waiting = _operations(connection, name, lines)
    if lease is None and waiting and not row.absent:
        lines += _room(connection, name, waiting, now)
    return lines


def _operations(connection: Connection, name: str, lines: list[str]) -> str | None:
    """Add a line for each open operation; the first one for which the node is still pending."""
    pending: str | None = None
    for work in connection.execute(_work, {"node_name": name}):
        line = f"{work.operation} wave {work.wave} position {work.position}: {work.status}"
        line += f" ({work.reason})" if work.reason else ""
        line += f"; waits for {work.waiting_for}" if work.waiting_for else ""
        line += f"; attempts {work.attempts}" if work.attempts else ""
        lines.append(line)
        if work.reason_kind != ReasonKind.NONE or work.op_reason:
            lines.append(f"{work.operation} is {work.state} ({work.reason_kind}): {work.op_reason}")
        if pending is None and work.status == NodeStatus.PENDING:
            pending = work.operation
    return pending


def _room(connection: Connection, name: str, operation: str, now: datetime) -> list[str]:
    """Would the budget let the node go now?"""
    unit = read_nodes(connection, [name])
    views = {node.pool: pool_view(connection, node.pool, now) for node in unit.values()}
    answer = decide(budget_view(connection, operation, unit, views), [name])
    return [f"{answer.reason_kind}: {answer.text}"] if isinstance(answer, Refused) else ["the budget has room for it"]

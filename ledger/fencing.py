"""Only the newest runner of an operation may change anything: its token proves it."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import LeaseLost, PreconditionError
from ledger.schema import leases, operations

_operation: sa.BindParameter[str] = sa.bindparam("operation_id")
_token = sa.select(operations.c.token, operations.c.digest).where(operations.c.id == _operation)
_token_and_lease = (
    sa.select(operations.c.token, operations.c.digest, leases.c.operation.label("owner"))
    .select_from(operations.outerjoin(leases, leases.c.node == sa.bindparam("node_name")))
    .where(operations.c.id == _operation)
)
_bore_fruit = sa.update(operations).where(operations.c.id == _operation, operations.c.fruitless > 0).values(fruitless=0)
_DIGEST_SHOWN = 16


def check_token(connection: Connection, operation: str, token: int) -> str:
    """The start of the plan's digest. Raises LeaseLost when a newer runner has taken over."""
    row = connection.execute(_token, {"operation_id": operation}).one_or_none()
    if row is None:
        raise unknown_operation(operation)
    _compare(operation, token, row.token)
    return str(row.digest)[:_DIGEST_SHOWN]


def check_lease(connection: Connection, operation: str, token: int, node: str) -> str:
    """As check_token; raises LeaseLost also where `operation` does not own `node`."""
    row = connection.execute(_token_and_lease, {"operation_id": operation, "node_name": node}).one_or_none()
    if row is None:
        raise unknown_operation(operation)
    _compare(operation, token, row.token)
    if row.owner != operation:
        owner = f"{row.owner} does" if row.owner else "nobody does"
        text = f"{operation} does not hold this node, {owner}; acquire it before touching it"
        raise LeaseLost(text, node=node, operation=operation)
    return str(row.digest)[:_DIGEST_SHOWN]


def note_progress(connection: Connection, operation: str) -> None:
    """Something of the operation was finished: its runners do not die in vain."""
    connection.execute(_bore_fruit, {"operation_id": operation})


def unknown_operation(operation: str) -> PreconditionError:
    return PreconditionError(f"no operation {operation!r}; `gpufleet status` lists them", operation=operation)


def _compare(operation: str, mine: int, newest: int) -> None:
    if mine != newest:
        text = f"another runner took over {operation} (token {newest}, this one has {mine}); stop here"
        raise LeaseLost(text, operation=operation)

"""The breaker of a pool: too many nodes lost too fast stops everything but reads until a person resets it.

Counted are members that left service within the window, by operations and by faults, since the last
reset, and are still out. A node that came back is no loss.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.budget import PoolLimits, PoolView, breaker_text, over_breaker
from fleet.errors import PreconditionError
from fleet.model import NodeState
from ledger.database import Transaction
from ledger.schema import nodes, pools

is_member = sa.and_(nodes.c.in_service_since.is_not(None), sa.not_(nodes.c.absent), nodes.c.state != NodeState.RETIRED)
_pool = sa.select(pools).where(pools.c.name == sa.bindparam("pool_name"))
_total = sa.select(sa.func.count()).where(nodes.c.pool == sa.bindparam("pool_name"), is_member)
_recent = (
    sa.select(nodes.c.name)
    .where(nodes.c.pool == sa.bindparam("pool_name"), is_member, nodes.c.left_at > sa.bindparam("after"))
    .order_by(nodes.c.name)
)


def pool_view(connection: Connection, pool: str, now: datetime) -> PoolView:
    """The pool as the budget sees it."""
    row = connection.execute(_pool, {"pool_name": pool}).one_or_none()
    if row is None:
        raise PreconditionError(f"no pool {pool!r} in the ledger; add it to the fleet file")
    limits = PoolLimits(
        row.capacity_floor,
        row.domain_limit,
        row.breaker_share,
        row.breaker_window_seconds,
        row.breaker_floor_nodes,
    )
    after = now - timedelta(seconds=limits.breaker_window_seconds)
    if row.reset_at is not None:
        after = max(after, row.reset_at)
    recent = connection.execute(_recent, {"pool_name": pool, "after": after}).scalars().all()
    total = connection.execute(_total, {"pool_name": pool}).scalar_one()
    return PoolView(limits, total, tuple(recent), row.tripped_text)


def trip_if_over(tx: Transaction, pool: str) -> PoolView:
    """Trip the pool's breaker where it has lost too many; the view afterwards."""
    view = pool_view(tx.connection, pool, tx.now)
    if view.tripped is not None or not over_breaker(view.limits, view.total, len(view.recent)):
        return view
    text = breaker_text(pool, view)
    change = sa.update(pools).where(pools.c.name == pool).values(tripped_at=tx.now, tripped_text=text)
    tx.connection.execute(change)
    tx.record("breaker", "breaker.trip", pool, {"text": text, "nodes": list(view.recent)})
    return PoolView(view.limits, view.total, view.recent, text)


def reset(tx: Transaction, pool: str, actor: str, reason: str) -> None:
    """Let operations go on; what was lost before now no longer counts."""
    view = pool_view(tx.connection, pool, tx.now)
    change = sa.update(pools).where(pools.c.name == pool)
    tx.connection.execute(change.values(tripped_at=None, tripped_text=None, reset_at=tx.now))
    tx.record(actor, "breaker.reset", pool, {"was": view.tripped, "reason": reason})

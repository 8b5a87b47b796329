"""The budget's view of nodes, read from the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.budget import BudgetView, PoolView, Standing
from fleet.errors import PreconditionError
from fleet.model import NodeState
from ledger.breakers import is_member
from ledger.schema import TableRow, is_out, leases, nodes, racks

# Unpacked by position in _standing: at 80 nodes out, attribute access would cost more than the query.
_columns = (
    nodes.c.name,
    nodes.c.pool,
    nodes.c.rack,
    nodes.c.nvlink_domain,
    nodes.c.power_domain,
    nodes.c.state,
    nodes.c.reason,
    nodes.c.cordoned,
    nodes.c.absent,
    is_member.label("member"),
)
_named = (
    sa.select(*_columns, leases.c.operation)
    .select_from(nodes.outerjoin(leases, leases.c.node == nodes.c.name))
    .where(nodes.c.name.in_(sa.bindparam("names", expanding=True)))
)
_nearby = sa.or_(
    nodes.c.rack.in_(sa.bindparam("racks", expanding=True)),
    nodes.c.pool.in_(sa.bindparam("pools", expanding=True)),
)
# A leased node counts even when the fleet file no longer names it: its rack is disturbed all the same.
_owner = sa.select(leases.c.operation).where(leases.c.node == nodes.c.name).scalar_subquery()
_leased = sa.select(*_columns, _owner.label("operation")).where(
    nodes.c.name.in_(sa.select(leases.c.node)),
    nodes.c.in_service_since.is_not(None),
    nodes.c.state != NodeState.RETIRED,
    _nearby,
)
_unleased = sa.select(*_columns, sa.null().label("operation")).where(
    is_out, is_member, _nearby, nodes.c.name.not_in(sa.select(leases.c.node))
)
_out = sa.union_all(_leased, _unleased)
_limits = sa.select(racks).where(racks.c.name.in_(sa.bindparam("racks", expanding=True)))


_Fields = tuple[str, str, str, str | None, str | None, str, str, str | None, bool, bool, str | None]


def read_nodes(connection: Connection, names: Sequence[str]) -> dict[str, Standing]:
    """Raises PreconditionError for a node that the fleet file does not name (any more)."""
    rows = [_standing(row) for row in connection.execute(_named, {"names": list(names)})]
    found = {row.name: row for row in rows}
    for name in names:
        if name not in found or (found[name].absent and found[name].leased_by is None):
            raise PreconditionError("is not in the fleet file; add it, or plan without it", node=name)
    return found


def budget_view(
    connection: Connection, operation: str, unit: Mapping[str, Standing], pools: Mapping[str, PoolView]
) -> BudgetView:
    """What `fleet.budget.decide` needs for `unit`."""
    racks_touched = sorted({node.rack for node in unit.values()})
    near = {"racks": racks_touched, "pools": sorted({node.pool for node in unit.values()})}
    out = tuple(_standing(row) for row in connection.execute(_out, near))
    limits = {row.name: row.node_limit for row in connection.execute(_limits, {"racks": racks_touched})}
    return BudgetView(operation, unit, out, limits, pools)


def _standing(row: TableRow) -> Standing:
    name, pool, rack, nvlink, power, state, reason, cordoned, absent, member, leased_by = cast(_Fields, tuple(row))
    out = _why_out(state, reason, cordoned, leased_by)
    return Standing(name, pool, rack, bool(member), out, leased_by, nvlink, power, bool(absent))


def _why_out(state: str, reason: str, cordoned: str | None, leased_by: str | None) -> str | None:
    if leased_by is not None:
        return leased_by if state == NodeState.IN_SERVICE else f"{leased_by}, {state}"
    if state != NodeState.IN_SERVICE:
        return f"{state}: {reason}" if reason else state
    return None if cordoned is None else f"cordoned: {cordoned}"

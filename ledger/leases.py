"""One owner per node, granted in one transaction with the disruption budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from fleet.budget import Granted, Refused, Standing
from fleet.errors import LeaseLost, PreconditionError
from fleet.model import NodeState
from fleet.ownership import Before, Lease
from ledger import breakers
from ledger.database import Database, Transaction
from ledger.explain import explain
from ledger.fencing import check_lease, check_token
from ledger.room import Room
from ledger.schema import TableRow, leases, nodes, pools

_one = sa.select(leases).where(leases.c.node == sa.bindparam("node_name"))
_of_operation = sa.select(leases).where(leases.c.operation == sa.bindparam("operation_id")).order_by(leases.c.node)
_delete = sa.delete(leases).where(leases.c.node == sa.bindparam("node_name"))
_insert = sa.insert(leases)
_leave = sa.update(nodes).where(nodes.c.name == sa.bindparam("node_name")).values(left_at=sa.bindparam("at"))
_mark = sa.update(nodes).where(nodes.c.name == sa.bindparam("node_name")).values(cordoned=sa.bindparam("cordon"))
_came_back = (
    sa.update(nodes)
    .where(
        nodes.c.name == sa.bindparam("node_name"),
        nodes.c.state == NodeState.IN_SERVICE,
        nodes.c.left_at.is_not(None),
    )
    .values(left_at=None)
)


_person_has_it = (
    sa.update(nodes)
    .where(nodes.c.name == sa.bindparam("node_name"), nodes.c.state != NodeState.IN_SERVICE)
    .values(state=NodeState.IN_SERVICE, reason=sa.bindparam("why"), since=sa.bindparam("at"), left_at=None)
)


class Leases:
    """Ownership of nodes."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def acquire(
        self, operation: str, token: int, unit: Sequence[str], before: Mapping[str, Before]
    ) -> Granted | Refused:
        """Own all nodes of `unit`, or none of them.

        `before` has what was there for every node. Nodes that the operation owns already stay as they are
        and keep their first `before`, so a restarted runner may ask again. A refusal is a value and is not
        audited: it is asked for again and again. Raises LeaseLost when another runner took over, and
        PreconditionError for a node that is not in the fleet file.
        """
        return self.acquire_each(operation, token, [(unit, before)])[0]

    def acquire_each(
        self, operation: str, token: int, units: Sequence[tuple[Sequence[str], Mapping[str, Before]]]
    ) -> list[Granted | Refused]:
        """As `acquire`, for several units one after the other in one transaction: a turn to write is waited for."""
        with self._db.write() as tx:
            plan = check_token(tx.connection, operation, token)
            room = Room(tx, operation, [name for unit, _ in units for name in unit])
            return [_acquire(tx, room, token, plan, unit, before) for unit, before in units]

    def release(self, operation: str, token: int, *names: str) -> None:
        """Give nodes up; once more does nothing.

        Raises LeaseLost when another runner took over or another operation owns one of them.
        """
        with self._db.write() as tx:
            for node in names:
                row = tx.connection.execute(_one, {"node_name": node}).one_or_none()
                if row is None:
                    check_token(tx.connection, operation, token)
                    continue
                plan = check_lease(tx.connection, operation, token, node)
                _give_up(tx, row)
                tx.record(f"{operation}#{token}", "lease.release", node, {"plan": plan})

    def take_back(self, node: str, actor: str, reason: str) -> Lease | None:
        """A person takes the node out of the operation's hands; the lease that ended, None where none was.

        Whatever step it was at, the node counts as in service: the person answers for it now. The
        operation's next journal entry on the node raises LeaseLost. The node counts as the person's
        from here on: no cordon of ours is kept in the ledger.
        """
        with self._db.write() as tx:
            row = tx.connection.execute(_one, {"node_name": node}).one_or_none()
            if row is None:
                return None
            _give_up(tx, row, keep_cordon=False)
            tx.connection.execute(_person_has_it, {"node_name": node, "why": reason, "at": tx.now})
            tx.record(actor, "lease.take_back", node, {"operation": row.operation, "reason": reason})
            return _lease(row)

    def lease(self, node: str) -> Lease | None:
        """Who owns the node, None where nobody does."""
        with self._db.read() as connection:
            row = connection.execute(_one, {"node_name": node}).one_or_none()
        return None if row is None else _lease(row)

    def held_by(self, operation: str) -> tuple[Lease, ...]:
        """The operation's leases, by node."""
        with self._db.read() as connection:
            return tuple(_lease(row) for row in connection.execute(_of_operation, {"operation_id": operation}))

    def set_external_slots(self, racks: Mapping[str, str]) -> None:
        """Remember, by node, the rack of whose limit in Prefect it has a slot. Raises LeaseLost without a lease."""
        with self._db.write() as tx:
            for node, rack in racks.items():
                change = sa.update(leases).where(leases.c.node == node).values(external_slot=rack)
                if not tx.connection.execute(change).rowcount:
                    raise LeaseLost("nobody holds this node", node=node)

    def slots_held(self) -> Counter[str]:
        """Rack → how many slots of its limit in Prefect are held, whatever the operation."""
        query = sa.select(leases.c.external_slot).where(leases.c.external_slot.is_not(None))
        with self._db.read() as connection:
            return Counter(connection.execute(query).scalars())

    def tripped(self) -> dict[str, str]:
        """Pools whose breaker is tripped, with what tripped it."""
        query = sa.select(pools.c.name, pools.c.tripped_text).where(pools.c.tripped_text.is_not(None))
        with self._db.read() as connection:
            return {row.name: row.tripped_text for row in connection.execute(query.order_by(pools.c.name))}

    def reset_breaker(self, pool: str, actor: str, reason: str) -> None:
        """Let operations on the pool go on; losses before now no longer count.

        Raises PreconditionError for an unknown pool or without a reason.
        """
        if not reason.strip():
            raise PreconditionError(f"say why the breaker of {pool} may be reset")
        with self._db.write() as tx:
            breakers.reset(tx, pool, actor, reason)

    def explain(self, node: str) -> list[str]:
        """Why the node stands where it stands and what it waits for, a line each."""
        with self._db.read() as connection:
            return explain(connection, node, self._db.clock.now())


def _acquire(
    tx: Transaction, room: Room, token: int, plan: str, unit: Sequence[str], before: Mapping[str, Before]
) -> Granted | Refused:
    answer = room.ask(unit)
    if isinstance(answer, Granted):
        evidence = {"unit": list(answer.nodes), "plan": plan}
        for name in answer.fresh:
            _take(tx, room.operation, room.standing(name), before[name])
            found = {"cordoned": before[name].cordoned, "reason": before[name].reason}
            found |= {"by": before[name].reason_by, "state": before[name].state}
            tx.record(f"{room.operation}#{token}", "lease.acquire", name, {**evidence, "before": found})
            room.leave(name, before[name].cordoned)
    return answer


def _take(tx: Transaction, operation: str, node: Standing, before: Before) -> None:
    row = {
        "node": node.name,
        "operation": operation,
        "since": tx.now,
        "before_cordoned": before.cordoned,
        "before_reason": before.reason,
        "before_by": before.reason_by,
        "before_state": before.state,
    }
    tx.connection.execute(_insert, row)
    if node.member and node.out is None and not before.cordoned:
        tx.connection.execute(_leave, {"node_name": node.name, "at": tx.now})


def _give_up(tx: Transaction, row: TableRow, keep_cordon: bool = True) -> None:
    """The node stands as it was found: what somebody else cordoned before stays so marked."""
    tx.connection.execute(_delete, {"node_name": row.node})
    cordon = None
    if keep_cordon and row.before_cordoned:
        cordon = " ".join(part for part in (row.before_by, row.before_reason) if part) or "by somebody"
    tx.connection.execute(_mark, {"node_name": row.node, "cordon": cordon})
    tx.connection.execute(_came_back, {"node_name": row.node})


def _lease(row: TableRow) -> Lease:
    before = Before(row.before_cordoned, row.before_reason, row.before_by, NodeState(row.before_state))
    return Lease(row.node, row.operation, row.since, before, row.external_slot)

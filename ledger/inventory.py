"""What the fleet is: nodes, racks, pools, and firmware as last read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.budget import PoolLimits
from fleet.errors import ConfigurationError, LeaseLost, PreconditionError
from fleet.lifecycle import check_move
from fleet.model import FirmwareComponent, FirmwareRole, Node, NodeState
from ledger.breakers import trip_if_over
from ledger.database import Database, Transaction
from ledger.schema import TableRow, firmware, leases, nodes, pools, racks

_ADDRESS = ("pool", "rack", "model", "bmc", "ssh", "unit", "nvlink_domain", "power_domain")
_node_with_lease = sa.select(nodes, leases.c.operation.label("operation")).select_from(
    nodes.outerjoin(leases, leases.c.node == nodes.c.name)
)
_one_node = _node_with_lease.where(nodes.c.name == sa.bindparam("node_name"))
_update_node = sa.update(nodes).where(nodes.c.name == sa.bindparam("node_name"))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node and where it stands. `operation` holds its lease; `cordoned` is a cordon that is not ours."""

    node: Node
    state: NodeState
    reason: str
    since: datetime
    operation: str | None
    in_service_since: datetime | None
    cordoned: str | None
    absent: bool

    @property
    def name(self) -> str:
        return self.node.name


class Inventory:
    """Nodes and their states. `actor` is written to the audit where no operation acts."""

    def __init__(self, database: Database, actor: str) -> None:
        self._db = database
        self._actor = actor

    def sync(
        self,
        fleet: Sequence[Node],
        rack_limits: Mapping[str, int],
        pool_limits: Mapping[str, PoolLimits],
        new_state: NodeState = NodeState.IN_SERVICE,
    ) -> None:
        """Take over the fleet file; nothing is written when nothing differs.

        New nodes start in `new_state`; a node that the file no longer names keeps its row and history and
        is marked absent. Raises ConfigurationError for a node whose rack or pool has no limits.
        """
        for node in fleet:
            if node.rack not in rack_limits or node.pool not in pool_limits:
                raise ConfigurationError("its rack or its pool has no limits; add them", node=node.name)
        with self._db.write() as tx:
            _sync_limits(tx, self._actor, rack_limits, pool_limits)
            known = {row.name: row for row in tx.connection.execute(sa.select(nodes))}
            wanted = {node.name: node for node in fleet}
            added = [node for name, node in wanted.items() if name not in known]
            changed = [node for name, node in wanted.items() if name in known and _differs(node, known[name])]
            gone = [name for name, row in known.items() if name not in wanted and not row.absent]
            if added:
                tx.connection.execute(sa.insert(nodes), [_new_row(node, new_state, tx.now) for node in added])
            for node in changed:
                tx.connection.execute(_update_node, {"node_name": node.name, **_address(node), "absent": False})
            for name in gone:
                tx.connection.execute(_update_node, {"node_name": name, "absent": True})
            if added or changed or gone:
                evidence = {
                    "added": [node.name for node in added],
                    "changed": {node.name: _address(node) for node in changed},
                    "absent": gone,
                    "state": new_state,
                }
                tx.record(self._actor, "inventory.sync", "fleet", evidence)

    def nodes(
        self, pool: str | None = None, rack: str | None = None, state: NodeState | None = None
    ) -> tuple[NodeRecord, ...]:
        """The nodes of the fleet file, by name; absent ones only through `node`."""
        query = _node_with_lease.where(sa.not_(nodes.c.absent)).order_by(nodes.c.name)
        for column, value in ((nodes.c.pool, pool), (nodes.c.rack, rack), (nodes.c.state, state)):
            if value is not None:
                query = query.where(column == value)
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(query))

    def node(self, name: str) -> NodeRecord:
        """Raises PreconditionError for a name that the ledger never saw."""
        with self._db.read() as connection:
            return _record(_row(connection, name))

    def move(self, node: str, new: NodeState, reason: str, operation: str | None = None) -> None:
        """Put a node into another state.

        Raises PreconditionError for an illegal move, LeaseLost where `operation` does not own the node. A
        node that an operation owns can be moved by nobody else, except into quarantine.
        """
        with self._db.write() as tx:
            row = _row(tx.connection, node)
            _check_owner(node, row.operation, new, operation)
            old = NodeState(row.state)
            check_move(node, old, new)
            if new is old and row.reason == reason:
                return
            values: dict[str, object] = {"state": new, "reason": reason}
            if new is not old:
                values["since"] = tx.now
            values |= _service_marks(row, new, tx.now)
            tx.connection.execute(_update_node, {"node_name": node, **values})
            evidence = {"from": old, "to": new, "reason": reason}
            tx.record(operation or self._actor, "node.move", node, evidence)
            if "left_at" in values and values["left_at"] is not None:
                trip_if_over(tx, row.pool)

    def states(self, names: Sequence[str]) -> dict[str, NodeState]:
        """Each node's state now. Raises PreconditionError for one that is not known."""
        query = sa.select(nodes.c.name, nodes.c.state).where(nodes.c.name.in_(names))
        with self._db.read() as connection:
            found = {row.name: NodeState(row.state) for row in connection.execute(query)}
        for name in names:
            if name not in found:
                raise PreconditionError("the ledger knows no such node", node=name)
        return found

    def record_cordons(self, cordons: Mapping[str, str]) -> None:
        """Which nodes other people cordoned, as name → who and why; all others are taken as not cordoned.

        Such nodes count against the budget. Nodes that an operation owns are left alone: its own cordon
        is not news.
        """
        with self._db.write() as tx:
            rows = tx.connection.execute(
                sa.select(nodes.c.name, nodes.c.cordoned)
                .select_from(nodes.outerjoin(leases, leases.c.node == nodes.c.name))
                .where(leases.c.node.is_(None))
            )
            changes = {row.name: cordons.get(row.name) for row in rows if cordons.get(row.name) != row.cordoned}
            for name, cordon in changes.items():
                tx.connection.execute(_update_node, {"node_name": name, "cordoned": cordon})
            if changes:
                tx.record(self._actor, "node.cordons", "fleet", {"changed": changes})

    def record_firmware(self, node: str, components: Sequence[FirmwareComponent]) -> None:
        """Keep the inventory just read from the node's BMC; only what differs is written."""
        with self._db.write() as tx:
            _row(tx.connection, node)
            stored = {row.id: row for row in tx.connection.execute(_firmware, {"node_name": node})}
            read = {component.id: component for component in components}
            changed = [c for c in read.values() if c.id not in stored or _component(stored[c.id]) != c]
            gone = [id for id in stored if id not in read]
            stale = [id for id in stored if id in gone or any(c.id == id for c in changed)]
            if stale:
                tx.connection.execute(_drop_firmware, [{"node_name": node, "component": id} for id in stale])
            if changed:
                rows = [{"node": node, "since": tx.now, **asdict(component)} for component in changed]
                tx.connection.execute(sa.insert(firmware), rows)
            if changed or gone:
                evidence: dict[str, object] = {"gone": gone} if gone else {}
                evidence["versions"] = {c.id: c.version for c in changed if c.role is FirmwareRole.ACTIVE}
                tx.record(self._actor, "node.firmware", node, evidence)

    def firmware(self, node: str) -> tuple[FirmwareComponent, ...]:
        """The inventory as last read, by id; empty where it was never read."""
        with self._db.read() as connection:
            return tuple(_component(row) for row in connection.execute(_firmware, {"node_name": node}))


_firmware = sa.select(firmware).where(firmware.c.node == sa.bindparam("node_name")).order_by(firmware.c.id)
_drop_firmware = sa.delete(firmware).where(
    firmware.c.node == sa.bindparam("node_name"), firmware.c.id == sa.bindparam("component")
)


def _row(connection: Connection, name: str) -> TableRow:
    row = connection.execute(_one_node, {"node_name": name}).one_or_none()
    if row is None:
        raise PreconditionError("not in the ledger: the first operation takes in what the fleet file names", node=name)
    return row


def _record(row: TableRow) -> NodeRecord:
    return NodeRecord(
        node=Node(row.name, **{key: getattr(row, key) for key in _ADDRESS}),
        state=NodeState(row.state),
        reason=row.reason,
        since=row.since,
        operation=row.operation,
        in_service_since=row.in_service_since,
        cordoned=row.cordoned,
        absent=row.absent,
    )


def _component(row: TableRow) -> FirmwareComponent:
    return FirmwareComponent(
        id=row.id,
        version=row.version,
        staged=row.staged,
        role=FirmwareRole(row.role),
        state=row.state,
        health=row.health,
        updateable=row.updateable,
        uri=row.uri,
        name=row.name,
    )


def _address(node: Node) -> dict[str, str | int | None]:
    return {key: getattr(node, key) for key in _ADDRESS}


def _differs(node: Node, row: TableRow) -> bool:
    return bool(row.absent) or any(getattr(row, key) != value for key, value in _address(node).items())


def _new_row(node: Node, state: NodeState, now: datetime) -> dict[str, object]:
    return {
        "name": node.name,
        **_address(node),
        "state": state,
        "reason": "",
        "since": now,
        "first_seen": now,
        "in_service_since": now if state is NodeState.IN_SERVICE else None,
        "absent": False,
    }


def _service_marks(row: TableRow, new: NodeState, now: datetime) -> dict[str, object]:
    """When the node left service, for the breaker; and when it first came into it."""
    marks: dict[str, object] = {}
    if new is NodeState.IN_SERVICE:
        if row.in_service_since is None:
            marks["in_service_since"] = now
        if row.operation is None:
            marks["left_at"] = None
    elif row.state == NodeState.IN_SERVICE and row.operation is None and row.cordoned is None:
        marks["left_at"] = now
    return marks


def _check_owner(node: str, owner: str | None, new: NodeState, operation: str | None) -> None:
    if operation is not None and owner != operation:
        text = f"{operation} does not hold this node, {owner or 'nobody'} does; acquire it before touching it"
        raise LeaseLost(text, node=node, operation=operation)
    if operation is None and owner is not None and new is not NodeState.QUARANTINED:
        raise PreconditionError(f"is held by {owner}; halt or abort that operation first", node=node)


def _sync_limits(
    tx: Transaction, actor: str, rack_limits: Mapping[str, int], pool_limits: Mapping[str, PoolLimits]
) -> None:
    """Racks and pools that the file no longer names keep their last limits: nodes may still be there."""
    known_racks = {row.name: row.node_limit for row in tx.connection.execute(sa.select(racks))}
    for rack, limit in rack_limits.items():
        if rack not in known_racks:
            tx.connection.execute(sa.insert(racks), {"name": rack, "node_limit": limit})
        elif known_racks[rack] != limit:
            tx.connection.execute(sa.update(racks).where(racks.c.name == rack).values(node_limit=limit))
    known_pools = {row.name: row for row in tx.connection.execute(sa.select(pools))}
    changed = {rack: limit for rack, limit in rack_limits.items() if known_racks.get(rack) != limit}
    changed_pools: dict[str, dict[str, object]] = {}
    for pool, limits in pool_limits.items():
        values = asdict(limits)
        if pool not in known_pools:
            tx.connection.execute(sa.insert(pools), {"name": pool, **values})
        elif any(getattr(known_pools[pool], key) != value for key, value in values.items()):
            tx.connection.execute(sa.update(pools).where(pools.c.name == pool).values(values))
        else:
            continue
        changed_pools[pool] = values
    if changed or changed_pools:
        tx.record(actor, "limits.sync", "fleet", {"racks": changed, "pools": changed_pools})

"""The tables. A change here needs a migration; a test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Dialect, Row
from sqlalchemy.types import TypeDecorator

HEAD = "0004"
"""The newest migration, known without loading Alembic."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(at: datetime) -> int:
    """Microseconds since 1970 (UTC). Raises TypeError for a time without a zone."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


class Time(TypeDecorator[datetime]):
    """A moment as an integer of microseconds: exact, and alike on every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, _: Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


def clean_text(text: str) -> str:
    """What a database cannot store (NUL, lone surrogates) replaced; machines do send such texts."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


class Words(TypeDecorator[str]):
    """A text from outside, cleaned."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _: Dialect) -> str | None:
        return None if value is None else clean_text(value)


TableRow = Row[tuple[object, ...]]
metadata = sa.MetaData()

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

racks = sa.Table(
    "racks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("node_limit", sa.Integer, nullable=False),
)

pools = sa.Table(
    "pools",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("capacity_floor", sa.Float, nullable=False),
    sa.Column("domain_limit", sa.Integer, nullable=False),
    sa.Column("breaker_share", sa.Float, nullable=False),
    sa.Column("breaker_window_seconds", sa.Float, nullable=False),
    sa.Column("breaker_floor_nodes", sa.Integer, nullable=False),
    sa.Column("tripped_at", Time),
    sa.Column("tripped_text", Words),
    sa.Column("reset_at", Time),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("rack", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("bmc", sa.Text, nullable=False),
    sa.Column("ssh", sa.Text, nullable=False),
    sa.Column("unit", sa.Integer),
    sa.Column("nvlink_domain", sa.Text),
    sa.Column("power_domain", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("since", Time, nullable=False),
    sa.Column("first_seen", Time, nullable=False),
    sa.Column("in_service_since", Time),
    sa.Column("left_at", Time),
    sa.Column("cordoned", Words),
    sa.Column("absent", sa.Boolean, nullable=False),
    sa.Index("nodes_by_pool", "pool", "absent", "state", "in_service_since"),
    sa.Index("nodes_by_leaving", "left_at"),
)

# Literal text, so that the databases can use the partial index.
is_out = sa.text("(nodes.state <> 'in_service' OR nodes.cordoned IS NOT NULL)")
sa.Index("nodes_out", nodes.c.name, sqlite_where=is_out, postgresql_where=is_out)

firmware = sa.Table(
    "firmware",
    metadata,
    sa.Column("node", sa.Text, sa.ForeignKey("nodes.name"), primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("version", Words),
    sa.Column("staged", Words),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("state", Words, nullable=False),
    sa.Column("health", Words),
    sa.Column("updateable", sa.Boolean),
    sa.Column("uri", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("since", Time, nullable=False),
)

baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("pool", sa.Text, sa.ForeignKey("pools.name"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("actor", Words, nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Index("baselines_by_pool", "pool", "kind", "id"),
)

operations = sa.Table(
    "operations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason_kind", sa.Text, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("since", Time, nullable=False),
    sa.Column("control", sa.Text),
    sa.Column("control_actor", Words),
    sa.Column("control_reason", Words),
    sa.Column("control_wave", sa.Integer),
    sa.Column("control_at", Time),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("fruitless", sa.Integer, nullable=False),
    sa.Column("runner_host", sa.Text),
    sa.Column("runner_pid", sa.Integer),
    sa.Column("runner_started", sa.Float),
    sa.Column("runner_flow_run", sa.Text),
    sa.Column("heartbeat", Time),
    sa.Column("flow_run", sa.Text),
)

wave_marks = sa.Table(
    "wave_marks",
    metadata,
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), primary_key=True),
    sa.Column("wave", sa.Integer, primary_key=True),
    sa.Column("mark", sa.Text, primary_key=True),
    sa.Column("at", Time, nullable=False),
)

operation_nodes = sa.Table(
    "operation_nodes",
    metadata,
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), primary_key=True),
    sa.Column("node", sa.Text, sa.ForeignKey("nodes.name"), primary_key=True),
    sa.Column("wave", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("waiting_for", Words),
    sa.Column("started", Time),
    sa.Column("finished", Time),
    sa.Index("operation_nodes_by_node", "node"),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("node", sa.Text, sa.ForeignKey("nodes.name"), primary_key=True),
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), nullable=False, index=True),
    sa.Column("since", Time, nullable=False),
    sa.Column("before_cordoned", sa.Boolean, nullable=False),
    sa.Column("before_reason", Words),
    sa.Column("before_by", Words),
    sa.Column("before_state", sa.Text, nullable=False),
    sa.Column("external_slot", sa.Text),
)

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("begun", Time, nullable=False),
    sa.Column("intent", sa.Text, nullable=False),
    sa.Column("ended", Time),
    sa.Column("outcome", sa.Text),
    sa.Column("result", sa.Text),
    sa.Index("journal_by_node", "operation", "node"),
)

gates = sa.Table(
    "gates",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), nullable=False),
    sa.Column("wave", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("required", sa.Integer, nullable=False),
    sa.Column("roles", sa.Text, nullable=False),
    sa.Column("opened", Time, nullable=False),
    sa.Column("deadline", Time, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.UniqueConstraint("operation", "wave", "round", name="one_gate_per_round"),
)

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("gate", _Id, sa.ForeignKey("gates.id"), nullable=False, index=True),
    sa.Column("at", Time, nullable=False),
    sa.Column("principal", Words, nullable=False),
    sa.Column("roles", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text),
    sa.Column("signature", sa.Text),
    sa.Column("comment", Words, nullable=False),
    sa.Column("signed", sa.Boolean, nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("prev_hash", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)

audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)

"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_inventory()
    _create_baselines()
    _create_operations()
    _create_work()
    _create_approvals()
    _create_audit()


def downgrade() -> None:
    raise NotImplementedError("restore the copy of the ledger from before the upgrade")


def _id() -> sa.BigInteger:
    """SQLite numbers rows by itself only for INTEGER."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _create_inventory() -> None:
    op.create_table(
        "racks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("node_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capacity_floor", sa.Float(), nullable=False),
        sa.Column("domain_limit", sa.Integer(), nullable=False),
        sa.Column("breaker_share", sa.Float(), nullable=False),
        sa.Column("breaker_window_seconds", sa.Float(), nullable=False),
        sa.Column("breaker_floor_nodes", sa.Integer(), nullable=False),
        sa.Column("tripped_at", sa.BigInteger()),
        sa.Column("tripped_text", sa.Text()),
        sa.Column("reset_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("rack", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("bmc", sa.Text(), nullable=False),
        sa.Column("ssh", sa.Text(), nullable=False),
        sa.Column("unit", sa.Integer()),
        sa.Column("nvlink_domain", sa.Text()),
        sa.Column("power_domain", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("in_service_since", sa.BigInteger()),
        sa.Column("left_at", sa.BigInteger()),
        sa.Column("cordoned", sa.Text()),
        sa.Column("absent", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("nodes_by_pool", "nodes", ["pool", "absent", "state", "in_service_since"])
    op.create_index("nodes_by_leaving", "nodes", ["left_at"])
    out = sa.text("(state <> 'in_service' OR cordoned IS NOT NULL)")
    op.create_index("nodes_out", "nodes", ["name"], sqlite_where=out, postgresql_where=out)
    op.create_table(
        "firmware",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text()),
        sa.Column("staged", sa.Text()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("health", sa.Text()),
        sa.Column("updateable", sa.Boolean()),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"]),
        sa.PrimaryKeyConstraint("node", "id"),
    )


def _create_baselines() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", _id(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool"], ["pools.name"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("baselines_by_pool", "baselines", ["pool", "kind", "id"])


def _create_operations() -> None:
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason_kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("control", sa.Text()),
        sa.Column("control_actor", sa.Text()),
        sa.Column("control_reason", sa.Text()),
        sa.Column("control_wave", sa.Integer()),
        sa.Column("control_at", sa.BigInteger()),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("fruitless", sa.Integer(), nullable=False),
        sa.Column("runner_host", sa.Text()),
        sa.Column("runner_pid", sa.Integer()),
        sa.Column("runner_started", sa.Float()),
        sa.Column("runner_flow_run", sa.Text()),
        sa.Column("heartbeat", sa.BigInteger()),
        sa.Column("flow_run", sa.Text()),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_work() -> None:
    op.create_table(
        "wave_marks",
        sa.Column("operation", sa.Text(), sa.ForeignKey("operations.id"), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "wave", "mark"),
    )
    op.create_table(
        "operation_nodes",
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("waiting_for", sa.Text()),
        sa.Column("started", sa.BigInteger()),
        sa.Column("finished", sa.BigInteger()),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"]),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
        sa.PrimaryKeyConstraint("operation", "node"),
    )
    op.create_index("operation_nodes_by_node", "operation_nodes", ["node"])
    op.create_table(
        "leases",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("before_cordoned", sa.Boolean(), nullable=False),
        sa.Column("before_reason", sa.Text()),
        sa.Column("before_by", sa.Text()),
        sa.Column("before_state", sa.Text(), nullable=False),
        sa.Column("external_slot", sa.Text()),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"]),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_index("ix_leases_operation", "leases", ["operation"])
    op.create_table(
        "journal",
        sa.Column("id", _id(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("ended", sa.BigInteger()),
        sa.Column("outcome", sa.Text()),
        sa.Column("result", sa.Text()),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("journal_by_node", "journal", ["operation", "node"])


def _create_approvals() -> None:
    op.create_table(
        "gates",
        sa.Column("id", _id(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("required", sa.Integer(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("opened", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("operation", "wave", "round", name="one_gate_per_round"),
    )
    op.create_table(
        "approvals",
        sa.Column("id", _id(), nullable=False),
        sa.Column("gate", _id(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text()),
        sa.Column("signature", sa.Text()),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("signed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["gate"], ["gates.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_approvals_gate", "approvals", ["gate"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", _id(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("prev_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute(sa.text("INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, :genesis)").bindparams(genesis=bytes(32)))

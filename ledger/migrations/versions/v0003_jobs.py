"""What operations said and did to jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "job_asks",
        sa.Column("id", _id(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("announced_at", sa.BigInteger(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("signalled_at", sa.BigInteger()),
        sa.Column("signal", sa.Text()),
        sa.Column("released_at", sa.BigInteger()),
        sa.Column("released", sa.Text()),
        sa.Column("confirmed_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
    )
    op.create_index("job_asks_by_job", "job_asks", ["operation", "job"])
    op.create_table(
        "job_disturbances",
        sa.Column("id", _id(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("ask", _id(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("how", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer()),
        sa.Column("lost_gpu_hours", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
        sa.ForeignKeyConstraint(["ask"], ["job_asks.id"]),
    )
    op.create_index("job_disturbances_by_job", "job_disturbances", ["job", "at"])
    op.create_table(
        "job_consents",
        sa.Column("id", _id(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("consent", sa.Boolean(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_consents_by_job", "job_consents", ["job", "id"])


def downgrade() -> None:
    raise NotImplementedError("restore the copy of the ledger from before the upgrade")


def _id() -> sa.BigInteger:
    """SQLite numbers rows by itself only for INTEGER."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")

"""What was found at each look at a change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "verdicts",
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("look", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("samples", sa.Text()),
        sa.PrimaryKeyConstraint("operation", "wave", "look"),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"]),
    )


def downgrade() -> None:
    raise NotImplementedError("restore the copy of the ledger from before the upgrade")

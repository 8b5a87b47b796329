"""What was read: readings, parts and their places, facts over time, and numbers in tiers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _create_readings()
    _create_parts()
    _create_facts()
    _create_samples()


def downgrade() -> None:
    raise NotImplementedError("restore the copy of the ledger from before the upgrade")


def _id(name: str, nullable: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, nullable=nullable, autoincrement=False)


def _create_readings() -> None:
    op.create_table(
        "readings",
        _id("id"),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        _id("layout", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("node", "source", name="one_reading_per_source"),
    )


def _create_parts() -> None:
    op.create_table(
        "parts",
        _id("id"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("serial", sa.Text()),
        sa.Column("uuid", sa.Text()),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for column in ("key", "serial", "uuid"):
        op.create_index(f"parts_by_{column}", "parts", [column])
    op.create_table(
        "placements",
        _id("id"),
        _id("part"),
        _id("reading"),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.Column("seen_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["part"], ["parts.id"]),
        sa.ForeignKeyConstraint(["reading"], ["readings.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("placements_by_part", "placements", ["part"])
    op.create_index("placements_by_reading", "placements", ["reading", "until"])
    op.create_table(
        "part_conflicts",
        _id("id"),
        _id("part"),
        _id("reading"),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.ForeignKeyConstraint(["part"], ["parts.id"]),
        sa.ForeignKeyConstraint(["reading"], ["readings.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("part_conflicts_by_reading", "part_conflicts", ["reading", "until"])


def _create_facts() -> None:
    op.create_table(
        "known",
        _id("id"),
        _id("reading"),
        sa.Column("source", sa.Text(), nullable=False),
        _id("part", nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("unknown", sa.Text(), nullable=False),
        sa.Column("last_values", sa.Text(), nullable=False),
        sa.Column("changed", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["reading"], ["readings.id"]),
        sa.ForeignKeyConstraint(["part"], ["parts.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("known_by_reading", "known", ["reading"])
    op.create_index("known_by_part", "known", ["part"])
    op.create_table(
        "past_facts",
        _id("id"),
        _id("known"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["known"], ["known.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("past_facts_by_name", "past_facts", ["known", "name", "since"])


def _create_samples() -> None:
    op.create_table(
        "sample_layouts",
        _id("id"),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "samples",
        sa.Column("minute", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reading", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("layout", sa.Integer(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("minute", "reading", "at"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollups",
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reading", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("layout", sa.Integer(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tier", "bucket", "reading"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollup_marks",
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("mark", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tier"),
    )

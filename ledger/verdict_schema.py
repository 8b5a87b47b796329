"""The table of what was found at each look at a change. It belongs to `ledger.schema`."""

from __future__ import annotations

import sqlalchemy as sa

from ledger.schema import Time, metadata

# One row for each look at one wave's data; `samples` is what the verdict was computed from, where it is kept.
verdicts = sa.Table(
    "verdicts",
    metadata,
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), primary_key=True),
    sa.Column("wave", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("look", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("samples", sa.Text),
)

"""The tables of what was read: by whom and when, which part sat where, and numbers. They belong to `ledger.schema`.

Every id here is given by the one writer (newest + 1), so that rows can name each other before they are written.
"""

from __future__ import annotations

import sqlalchemy as sa

from ledger.schema import Time, Words, metadata

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A node as one source tells of it. An unchanged reading changes `last_seen` here and nothing else.
readings = sa.Table(
    "readings",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("first_seen", Time, nullable=False),
    sa.Column("last_seen", Time, nullable=False),
    sa.Column("layout", _Id),
    sa.UniqueConstraint("node", "source", name="one_reading_per_source"),
)

parts = sa.Table(
    "parts",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", Words, nullable=False),
    sa.Column("serial", Words),
    sa.Column("uuid", Words),
    sa.Column("first_seen", Time, nullable=False),
    sa.Index("parts_by_key", "key"),
    sa.Index("parts_by_serial", "serial"),
    sa.Index("parts_by_uuid", "uuid"),
)

# `seen_at` is empty while the reading's newest look still finds the part there: then it is the reading's last_seen.
placements = sa.Table(
    "placements",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("part", _Id, sa.ForeignKey("parts.id"), nullable=False),
    sa.Column("reading", _Id, sa.ForeignKey("readings.id"), nullable=False),
    sa.Column("slot", Words, nullable=False),
    sa.Column("since", Time, nullable=False),
    sa.Column("until", Time),
    sa.Column("seen_at", Time),
    sa.Index("placements_by_part", "part"),
    sa.Index("placements_by_reading", "reading", "until"),
)

part_conflicts = sa.Table(
    "part_conflicts",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("part", _Id, sa.ForeignKey("parts.id"), nullable=False),
    sa.Column("reading", _Id, sa.ForeignKey("readings.id"), nullable=False),
    sa.Column("slot", Words, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("since", Time, nullable=False),
    sa.Column("until", Time),
    sa.Index("part_conflicts_by_reading", "reading", "until"),
)

# What one source knows now of a node (`part` empty) or a part, as JSON texts: name → value, name → reason,
# name → value before it became unknown, name → microseconds of its last change where that is not `first_seen`.
known = sa.Table(
    "known",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("reading", _Id, sa.ForeignKey("readings.id"), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("part", _Id, sa.ForeignKey("parts.id")),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("unknown", sa.Text, nullable=False),
    sa.Column("last_values", sa.Text, nullable=False),
    sa.Column("changed", sa.Text, nullable=False),
    sa.Column("first_seen", Time, nullable=False),
    sa.Index("known_by_reading", "reading"),
    sa.Index("known_by_part", "part"),
)

# Intervals that ended. `value` is empty where the fact was unknown, for `reason`.
past_facts = sa.Table(
    "past_facts",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("known", _Id, sa.ForeignKey("known.id"), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("value", Words),
    sa.Column("reason", Words),
    sa.Column("since", Time, nullable=False),
    sa.Column("until", Time, nullable=False),
    sa.Column("last_seen", Time, nullable=False),
    sa.Index("past_facts_by_name", "known", "name", "since"),
)

sample_layouts = sa.Table(
    "sample_layouts",
    metadata,
    sa.Column("id", _Id, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("columns", sa.Text, nullable=False),
)

# In order of time first: a sweep then appends to a few pages instead of touching one page per node.
samples = sa.Table(
    "samples",
    metadata,
    sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("reading", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("layout", sa.Integer, nullable=False),
    sa.Column("numbers", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# `tier` is hour or day, `bucket` the number of hours or days since 1970 (UTC).
rollups = sa.Table(
    "rollups",
    metadata,
    sa.Column("tier", sa.Text, primary_key=True),
    sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("reading", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("layout", sa.Integer, nullable=False),
    sa.Column("numbers", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# All buckets of `tier` before `mark` are rolled up.
rollup_marks = sa.Table(
    "rollup_marks",
    metadata,
    sa.Column("tier", sa.Text, primary_key=True),
    sa.Column("mark", sa.Integer, nullable=False),
)

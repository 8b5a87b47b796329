"""Thinning numbers out: raw samples for hours, then an hour in one row for days, then a day in one row for months."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import Database
from ledger.knowledge_schema import readings, rollup_marks, rollups, samples
from ledger.sample_codec import NAN, Summary, combine, pack_summary, summarise, unpack, unpack_summary
from ledger.sample_rows import DAY, HOUR, HOURS_GONE, MINUTE, RAW_GONE, UNITS, Layout, Layouts, read_mark
from ledger.schema import to_micros

_GRACE = 10 * MINUTE  # a span is rolled up when it has been over for so long
_BUCKETS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Tiers:
    """For how long numbers are kept, and how many nodes one transaction rolls up."""

    raw: timedelta = timedelta(hours=12)
    hourly: timedelta = timedelta(days=14)
    daily: timedelta = timedelta(days=400)
    batch_nodes: int = 100


@dataclass(frozen=True, slots=True)
class Thinned:
    """What one call did, in rows. `done` is False where its batches were used up before the work."""

    hours: int
    days: int
    deleted: int
    done: bool


class Retention:
    """Rolls up and deletes, in short transactions, between which others write."""

    def __init__(self, database: Database, layouts: Layouts) -> None:
        self._db = database
        self._layouts = layouts

    def thin(self, tiers: Tiers | None = None, most_batches: int = 1000) -> Thinned:
        """Roll up every span that is over, and delete what is older than its tier keeps and is rolled up.

        May be stopped at any moment and called again; a span that was begun is done anew. Numbers that are not
        rolled up yet are never deleted. A sample that comes after its hour was rolled up is not taken.
        """
        kept, now, left = tiers or Tiers(), to_micros(self._db.clock.now()), most_batches
        over = (now - _GRACE) // HOUR
        hours, left = self._roll_up("hour", over, kept.batch_nodes, left)
        days, left = self._roll_up("day", over // 24, kept.batch_nodes, left) if left else (0, 0)
        deleted, left = self._delete(kept, now, left) if left else (0, 0)
        return Thinned(hours, days, deleted, left > 0)

    def _roll_up(self, tier: str, end: int, nodes: int, left: int) -> tuple[int, int]:
        """Write the buckets before `end` that are missing; returns the rows written and the batches left."""
        written = 0
        while left:
            with self._db.read() as connection:
                bucket = _next_bucket(connection, tier, end)
                newest: int = connection.execute(sa.select(sa.func.max(readings.c.id))).scalar_one() or 0
            if bucket is None:
                self._mark(tier, end)
                break
            for first in range(1, newest + 1, nodes):
                if not left:
                    return written, 0
                written += self._batch(tier, bucket, first, first + nodes)
                left -= 1
            self._mark(tier, bucket + 1)
        return written, left

    def _delete(self, tiers: Tiers, now: int, left: int) -> tuple[int, int]:
        """Drop what is too old, a few buckets at a time; returns the rows dropped and the batches left."""
        with self._db.read() as connection:
            marks = {tier: read_mark(connection, tier) for tier in UNITS}
        raw_end = min((now - _micros(tiers.raw)) // HOUR, marks["hour"])
        hours_end = min((now - _micros(tiers.hourly)) // DAY, marks["day"])
        days_end = (now - _micros(tiers.daily)) // DAY
        self._mark(RAW_GONE, raw_end)
        self._mark(HOURS_GONE, hours_end)
        deleted = 0
        for table, column, where, end in (
            (samples, samples.c.minute, sa.true(), raw_end * 60),
            (rollups, rollups.c.bucket, rollups.c.tier == "hour", hours_end * 24),
            (rollups, rollups.c.bucket, rollups.c.tier == "day", days_end),
        ):
            oldest = sa.select(column).where(where).order_by(column).limit(1)
            while left:
                with self._db.read() as connection:
                    first: int | None = connection.execute(oldest).scalar_one_or_none()
                if first is None or first >= end:
                    break
                step = sa.delete(table).where(where, column < min(first + _BUCKETS_AT_ONCE, end))
                with self._db.write() as tx:
                    deleted += tx.connection.execute(step).rowcount
                left -= 1
        return deleted, left

    def _batch(self, tier: str, bucket: int, first: int, end: int) -> int:
        """Roll one bucket up for the readings `first` to before `end`, reading outside the write."""
        with self._db.read() as connection:
            read = self._hour if tier == "hour" else self._day
            rows = read(connection, bucket, first, end)
        same = sa.delete(rollups).where(
            rollups.c.tier == tier,
            rollups.c.bucket == bucket,
            rollups.c.reading >= first,
            rollups.c.reading < end,
        )
        if rows:
            with self._db.write() as tx:
                tx.connection.execute(same)
                tx.connection.execute(sa.insert(rollups), rows)
        return len(rows)

    def _hour(self, connection: Connection, hour: int, first: int, end: int) -> list[dict[str, object]]:
        minutes = range(hour * HOUR // MINUTE, (hour + 1) * HOUR // MINUTE)
        query = (
            sa.select(samples.c.reading, samples.c.layout, samples.c.numbers)
            .where(samples.c.minute.in_(minutes), samples.c.reading >= first, samples.c.reading < end)
            .order_by(samples.c.reading, samples.c.at)
        )
        found = []
        for reading, group in groupby(connection.execute(query).all(), key=_reading):
            rows = list(group)
            layouts = self._layouts.get(connection, {row[1] for row in rows})
            newest = layouts[rows[-1][1]]
            sweeps = [_adapted(unpack(row[2]), layouts[row[1]], newest) for row in rows]
            found.append(_row("hour", hour, reading, newest, summarise(sweeps)))
        return found

    def _day(self, connection: Connection, day: int, first: int, end: int) -> list[dict[str, object]]:
        query = (
            sa.select(rollups.c.reading, rollups.c.layout, rollups.c.numbers)
            .where(rollups.c.tier == "hour", rollups.c.bucket.in_(range(day * 24, day * 24 + 24)))
            .where(rollups.c.reading >= first, rollups.c.reading < end)
            .order_by(rollups.c.reading, rollups.c.bucket)
        )
        found = []
        for reading, group in groupby(connection.execute(query).all(), key=_reading):
            rows = list(group)
            layouts = self._layouts.get(connection, {row[1] for row in rows})
            newest = layouts[rows[-1][1]]
            hours = [_adapted_summary(unpack_summary(row[2]), layouts[row[1]], newest) for row in rows]
            found.append(_row("day", day, reading, newest, combine(hours)))
        return found

    def _mark(self, tier: str, mark: int) -> None:
        """Marks only go forward."""
        with self._db.read() as connection:
            if mark <= read_mark(connection, tier):
                return
        with self._db.write() as tx:
            known = read_mark(tx.connection, tier)
            if not known:
                tx.connection.execute(sa.insert(rollup_marks), {"tier": tier, "mark": mark})
            elif known < mark:
                tx.connection.execute(sa.update(rollup_marks).where(rollup_marks.c.tier == tier).values(mark=mark))


def _next_bucket(connection: Connection, tier: str, end: int) -> int | None:
    """The first bucket that has something to roll up, from the mark on; None where the next one is not over."""
    mark = read_mark(connection, tier)
    if tier == "hour":
        query = sa.select(samples.c.minute).where(samples.c.minute >= mark * HOUR // MINUTE).order_by(samples.c.minute)
        per_bucket = HOUR // MINUTE
    else:
        hours = sa.select(rollups.c.bucket).where(rollups.c.tier == "hour", rollups.c.bucket >= mark * 24)
        query, per_bucket = hours.order_by(rollups.c.bucket), 24
    first: int | None = connection.execute(query.limit(1)).scalar_one_or_none()
    return None if first is None or first // per_bucket >= end else first // per_bucket


def _micros(kept: timedelta) -> int:
    return kept // timedelta(microseconds=1)


def _reading(row: sa.Row[int, int, bytes]) -> int:
    return row[0]


def _row(tier: str, bucket: int, reading: int, layout: Layout, summary: Summary) -> dict[str, object]:
    numbers = pack_summary(summary)
    return {"tier": tier, "bucket": bucket, "reading": reading, "layout": layout.id, "numbers": numbers}


def _adapted(values: Sequence[float], own: Layout, newest: Layout, fill: float = NAN) -> Sequence[float]:
    """The values in the newest layout's order. A layout only grows at its end, unless it grew beyond measure."""
    if own.columns == newest.columns[: len(own.columns)]:
        return values if own.id == newest.id else [*values, *[fill] * (len(newest.columns) - len(own.columns))]
    by_column = dict(zip(own.columns, values, strict=True))
    return [by_column.get(column, fill) for column in newest.columns]


def _adapted_summary(summary: Summary, own: Layout, newest: Layout) -> Summary:
    if own.id == newest.id:
        return summary
    return Summary(
        counts=_adapted(summary.counts, own, newest, 0.0),
        minima=_adapted(summary.minima, own, newest),
        means=_adapted(summary.means, own, newest),
        maxima=_adapted(summary.maxima, own, newest),
        lasts=_adapted(summary.lasts, own, newest),
    )

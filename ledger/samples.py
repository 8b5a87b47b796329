"""Numbers over time, whatever tier they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.database import Database
from ledger.knowledge_schema import placements, readings, rollups, samples
from ledger.parts import chunks, one_part
from ledger.sample_codec import pick
from ledger.sample_rows import DAY, HOUR, HOURS_GONE, MINUTE, RAW_GONE, UNITS, Layouts, read_mark
from ledger.schema import from_micros, to_micros


@dataclass(frozen=True, slots=True)
class Point:
    """A number at a moment, or over `span` from `at` on. `count` numbers went in; a span without any has no point."""

    at: datetime
    span: timedelta
    count: int
    minimum: float
    mean: float
    maximum: float
    last: float


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a counter grew between two points; None where it went backwards: it was reset in between."""

    since: datetime
    until: datetime
    per_second: float | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Where a subject's numbers are to be found, and from when to when (microseconds since 1970)."""

    reading: int
    kind: str | None
    slot: str
    since: int
    until: int

    def cut(self, since: int | None = None, until: int | None = None) -> _Stretch:
        first = self.since if since is None else max(self.since, since)
        last = self.until if until is None else min(self.until, until)
        return replace(self, since=first, until=last)

    def buckets(self, unit: int, bounds: tuple[int, int]) -> range:
        """The buckets that the stretch touches, no more than there are."""
        return range(max(self.since // unit, bounds[0]), min(-(-self.until // unit), bounds[1] + 1))


class Samples:
    """Reading numbers. They come in with `Facts.record` and are thinned out by `Retention`."""

    def __init__(self, database: Database, layouts: Layouts) -> None:
        self._db = database
        self._layouts = layouts

    def series(
        self, subject: str, name: str, since: datetime, until: datetime, source: str = "probe"
    ) -> tuple[Point, ...]:
        """The number `name` of a subject from `since` to before `until`, oldest first; empty where none was read.

        `subject` is a node, a slot ("gpu-0001/0000:3b:00.0"), or a part by serial, UUID or key: then through
        every node that it sat in. Where raw samples are gone there are hours, and before those days; a span is
        given whole where part of it is asked for. Raises PreconditionError for a subject that was never read.
        """
        with self._db.read() as connection:
            points = [
                point
                for stretch in _stretches(connection, subject, since, until, source)
                for point in self._points(connection, stretch, name)
            ]
        return tuple(sorted(points, key=lambda point: (point.at, point.span)))

    def _points(self, connection: Connection, where: _Stretch, name: str) -> Iterator[Point]:
        raw = _bounds(connection, samples.c.minute)
        hours = _bounds(connection, rollups.c.bucket, rollups.c.tier == "hour")
        days = _bounds(connection, rollups.c.bucket, rollups.c.tier == "day")
        raw_from, hours_from = read_mark(connection, RAW_GONE) * HOUR, read_mark(connection, HOURS_GONE) * DAY
        if raw_from < hours_from:  # raw samples are kept longer than hours: begin with the first whole day of them
            raw_from = hours_from = -(-raw_from // DAY) * DAY
        if days is not None:
            yield from self._spans(connection, where.cut(until=hours_from), name, "day", days)
        if hours is not None:
            yield from self._spans(connection, where.cut(hours_from, raw_from), name, "hour", hours)
        if raw is not None:
            yield from self._raw(connection, where.cut(raw_from), name, raw)

    def _raw(self, connection: Connection, where: _Stretch, name: str, bounds: tuple[int, int]) -> Iterator[Point]:
        query = sa.select(samples.c.at, samples.c.layout, samples.c.numbers).where(
            samples.c.reading == where.reading, samples.c.at >= where.since, samples.c.at < where.until
        )
        for some in chunks(where.buckets(MINUTE, bounds)):
            rows = connection.execute(query.where(samples.c.minute.in_(some))).all()
            for at, block, column, _ in self._found(connection, rows, where, name):
                (value,) = pick(block, (column,))
                if value == value:
                    yield Point(from_micros(at), timedelta(), 1, value, value, value, value)

    def _spans(
        self, connection: Connection, where: _Stretch, name: str, tier: str, bounds: tuple[int, int]
    ) -> Iterator[Point]:
        unit = UNITS[tier]
        query = sa.select(rollups.c.bucket, rollups.c.layout, rollups.c.numbers).where(
            rollups.c.tier == tier, rollups.c.reading == where.reading
        )
        for some in chunks(where.buckets(unit, bounds)):
            rows = connection.execute(query.where(rollups.c.bucket.in_(some))).all()
            for bucket, block, column, width in self._found(connection, rows, where, name):
                count, low, mean, high, last = pick(block, [column + width * part for part in range(5)])
                if count:
                    at, span = from_micros(bucket * unit), timedelta(microseconds=unit)
                    yield Point(at, span, int(count), low, min(max(mean, low), high), high, last)

    def _found(
        self, connection: Connection, rows: Sequence[sa.Row[int, int, bytes]], where: _Stretch, name: str
    ) -> Iterator[tuple[int, bytes, int, int]]:
        """Time, block, column and number of columns of each row that has the number."""
        layouts = self._layouts.get(connection, {row[1] for row in rows})
        columns = {id: layout.find(where.slot, name, where.kind) for id, layout in layouts.items()}
        for at, layout, block in rows:
            column = columns[layout]
            if column is not None:
                yield at, block, column, len(layouts[layout].columns)


def rates(points: Sequence[Point]) -> tuple[Rate, ...]:
    """The growth of a counter from each point's last value to the next one's.

    When the last value of a span was read is taken from its count: a span's numbers came evenly.
    """
    found = []
    for before, after in pairwise(points):
        since, until = _last_at(before), _last_at(after)
        reset = after.minimum < before.last or after.last < before.last
        seconds = (until - since).total_seconds()
        per_second = None if reset or seconds <= 0 else (after.last - before.last) / seconds
        found.append(Rate(since, until, per_second))
    return tuple(found)


def _last_at(point: Point) -> datetime:
    return point.at + point.span - point.span / point.count


def _stretches(
    connection: Connection, subject: str, since: datetime, until: datetime, source: str
) -> tuple[_Stretch, ...]:
    first, last = to_micros(since), to_micros(until)
    node, _, slot = subject.partition("/")
    for name, place, kind in ((subject, "", ""), (node, slot, None)):
        rows = connection.execute(sa.select(readings.c.id, readings.c.source).where(readings.c.node == name)).all()
        if rows:
            return tuple(_Stretch(row.id, kind, place, first, last) for row in rows if row.source == source)
    part = one_part(connection, subject)
    query = (
        sa.select(placements)
        .join(readings, readings.c.id == placements.c.reading)
        .where(placements.c.part == part.id, readings.c.source == source)
    )
    return tuple(
        _Stretch(row.reading, part.kind, row.slot, max(first, to_micros(row.since)), _end(row.until, last))
        for row in connection.execute(query)
    )


def _end(until: datetime | None, last: int) -> int:
    return last if until is None else min(last, to_micros(until))


def _bounds(
    connection: Connection, column: sa.Column[int], where: sa.ColumnElement[bool] | None = None
) -> tuple[int, int] | None:
    """The least and the greatest, each by one step into the index; None for an empty table."""
    query = sa.select(column) if where is None else sa.select(column).where(where)
    first: int | None = connection.execute(query.order_by(column).limit(1)).scalar_one_or_none()
    last: int | None = connection.execute(query.order_by(column.desc()).limit(1)).scalar_one_or_none()
    return None if first is None or last is None else (first, last)

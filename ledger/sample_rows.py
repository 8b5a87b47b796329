"""Writing samples: one row per node, source and sweep, its numbers in the order of a layout that nodes share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.facts import NodeFacts
from ledger.knowledge_schema import readings, rollup_marks, sample_layouts, samples
from ledger.parts import chunks, next_id
from ledger.sample_codec import NAN, pack
from ledger.schema import clean_text, to_micros

MINUTE = 60_000_000  # microseconds
HOUR = 60 * MINUTE
DAY = 24 * HOUR
UNITS = {"hour": HOUR, "day": DAY}
RAW_GONE, HOURS_GONE = "raw gone", "hours gone"  # marks: what lies before is deleted, or about to be
_LARGEST = 1e38  # what a mean of four bytes can hold
_MOST_COLUMNS = 4096

Column = tuple[str, str, str]
"""Kind and slot of the part (both empty for the node itself), and the number's name."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which number stands where in a block."""

    id: int
    columns: tuple[Column, ...]
    places: Mapping[tuple[str, str], Mapping[str, int]]

    def find(self, slot: str, name: str, kind: str | None = None) -> int | None:
        """The column of a number; None where no such number was ever read."""
        for (own_kind, own_slot), names in self.places.items():
            if own_slot == slot and kind in (None, own_kind) and name in names:
                return names[name]
        return None


class Layouts:
    """Layouts as they are stored; one that was read once is kept, for it never changes."""

    def __init__(self) -> None:
        self._kept: dict[int, Layout] = {}

    def get(self, connection: Connection, ids: Iterable[int]) -> dict[int, Layout]:
        wanted = set(ids)
        for some in chunks(wanted - self._kept.keys()):
            for row in connection.execute(sa.select(sample_layouts).where(sample_layouts.c.id.in_(some))):
                self._kept[row.id] = layout(
                    row.id, [(kind, slot, name) for kind, slot, name in json.loads(row.columns)]
                )
        return {id: self._kept[id] for id in wanted}


@dataclass(frozen=True, slots=True)
class Taken:
    """A reading whose numbers are to be kept; `layout` is the one of its last sample."""

    id: int
    reading: NodeFacts
    layout: int | None


def layout(id: int, columns: Sequence[Column]) -> Layout:
    places: dict[tuple[str, str], dict[str, int]] = {}
    for index, (kind, slot, name) in enumerate(columns):
        places.setdefault((kind, slot), {})[name] = index
    return Layout(id, tuple(columns), places)


def write_samples(connection: Connection, taken: Sequence[Taken], layouts: Layouts) -> tuple[str, ...]:
    """Keep the numbers of these readings; returns the nodes whose numbers came too late: their hour is rolled up."""
    mark = read_mark(connection, "hour")
    with_numbers = [one for one in taken if one.reading.numbers or any(part.numbers for part in one.reading.parts)]
    late = [one for one in with_numbers if to_micros(one.reading.at) // HOUR < mark]
    kept = [one for one in with_numbers if one not in late] if late else with_numbers
    rows, moved, fresh = [], [], _Fresh(connection)
    known = layouts.get(connection, {one.layout for one in kept if one.layout is not None})
    for one in kept:
        used = None if one.layout is None else known[one.layout]
        numbers = None if used is None else _numbers(one.reading, used)
        if used is None or numbers is None:
            used = fresh.grown(used, one.reading)
            numbers = _numbers(one.reading, used)
            assert numbers is not None
            moved.append({"row": one.id, "layout": used.id})
        at = to_micros(one.reading.at)
        rows.append({"minute": at // MINUTE, "reading": one.id, "at": at, "layout": used.id, "numbers": pack(numbers)})
    if rows:
        connection.execute(sa.insert(samples), rows)
    if moved:
        connection.execute(sa.update(readings).where(readings.c.id == sa.bindparam("row")), moved)
    return tuple(one.reading.node for one in late)


class _Fresh:
    """Layouts that this write needs and that may not be stored yet. Not kept: the write may still fail."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._made: dict[tuple[Column, ...], Layout] = {}

    def grown(self, old: Layout | None, reading: NodeFacts) -> Layout:
        """A layout with the old columns first and room for all of the reading's."""
        before = () if old is None else old.columns
        read = _columns(reading)
        columns = (*before, *sorted(read - set(before), key=_by_name))
        if len(columns) > _MOST_COLUMNS:
            columns = tuple(sorted(read, key=_by_name))
        if columns not in self._made:
            self._made[columns] = layout(self._stored(columns), columns)
        return self._made[columns]

    def _stored(self, columns: tuple[Column, ...]) -> int:
        text = json.dumps(columns, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).digest()
        query = sa.select(sample_layouts.c.id).where(sample_layouts.c.digest == digest)
        found: int | None = self._connection.execute(query).scalar_one_or_none()
        if found is not None:
            return found
        new = next_id(self._connection, sample_layouts)
        self._connection.execute(sa.insert(sample_layouts), {"id": new, "digest": digest, "columns": text})
        return new


def _by_name(column: Column) -> tuple[str, str, str]:
    """The same number of all parts side by side: they resemble each other, and deflate better so."""
    return column[2], column[0], column[1]


def _columns(reading: NodeFacts) -> set[Column]:
    own = {("", "", clean_text(name)) for name in reading.numbers}
    return own | {
        (part.kind, clean_text(part.slot), clean_text(name)) for part in reading.parts for name in part.numbers
    }


def _numbers(reading: NodeFacts, used: Layout) -> list[float] | None:
    """The numbers in the layout's order; None where it has no room for one of them."""
    numbers = [NAN] * len(used.columns)
    told = [(("", ""), reading.numbers), *(((p.kind, clean_text(p.slot)), p.numbers) for p in reading.parts)]
    for place, values in told:
        if not values:
            continue
        names = used.places.get(place)
        if names is None:
            return None
        for name, value in values.items():
            index = names.get(name)
            if index is None:
                index = names.get(clean_text(name))
            if index is None:
                return None
            if value is not None and math.isfinite(value) and abs(value) < _LARGEST:
                numbers[index] = value
    return numbers


def read_mark(connection: Connection, tier: str) -> int:
    """All buckets of the tier before this one are rolled up; 0 where none is. For RAW_GONE hours, HOURS_GONE days."""
    query = sa.select(rollup_marks.c.mark).where(rollup_marks.c.tier == tier)
    found: int | None = connection.execute(query).scalar_one_or_none()
    return found or 0

"""Parts and where they sat: a GPU, NIC, disk or memory module keeps its history through every node it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import PreconditionError
from ledger.database import Database
from ledger.knowledge_schema import part_conflicts, parts, placements, readings
from ledger.schema import TableRow

_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """`key` names it: kind and serial; where the serial is not told or shared by a board, the UUID; else the slot.

    `kind` is gpu, nic, disk, dimm … A NIC's `uuid` is its MAC address or GUID, a disk's its World Wide Name. The
    `serial` of a memory module has its part number before it: each maker counts for itself.
    """

    id: int
    kind: str
    key: str
    serial: str | None
    uuid: str | None
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class Placement:
    """A part's time in a slot, as `source` tells it. `until` is None while nothing says that it left.

    `last_seen` may lie long before now: a part that is only not seen any more has not left.
    """

    part: str
    node: str
    source: str
    slot: str
    since: datetime
    until: datetime | None
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class Conflict:
    """`node` tells of a part in `slot` that `holder` tells of too. The part stays where it was: at `holder`."""

    part: str
    node: str
    source: str
    slot: str
    holder: str
    since: datetime


_last_seen = sa.func.coalesce(placements.c.seen_at, readings.c.last_seen, type_=readings.c.last_seen.type)
_placed = (
    sa.select(
        parts.c.key,
        readings.c.node,
        readings.c.source,
        placements.c.slot,
        placements.c.since,
        placements.c.until,
        _last_seen.label("last_seen"),
    )
    .join(parts, parts.c.id == placements.c.part)
    .join(readings, readings.c.id == placements.c.reading)
    .order_by(placements.c.since, placements.c.id)
)
_conflicts = (
    sa.select(
        parts.c.key,
        readings.c.node,
        readings.c.source,
        part_conflicts.c.slot,
        part_conflicts.c.holder,
        part_conflicts.c.since,
    )
    .join(parts, parts.c.id == part_conflicts.c.part)
    .join(readings, readings.c.id == part_conflicts.c.reading)
    .where(part_conflicts.c.until.is_(None))
    .order_by(part_conflicts.c.id)
)


class Parts:
    """Looking parts up. They come in with `Facts.record`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, text: str) -> tuple[Part, ...]:
        """Parts whose serial, UUID or key `text` is; several only where a board's parts share its serial.

        A memory module is also found by its bare serial.
        """
        with self._db.read() as connection:
            return find_parts(connection, text)

    def get(self, text: str) -> Part:
        """The one part of this serial, UUID or key. Raises PreconditionError where there is none, or are several."""
        with self._db.read() as connection:
            return one_part(connection, text)

    def placements(self, text: str) -> tuple[Placement, ...]:
        """Where the part sat, oldest first. Raises PreconditionError as `get` does."""
        with self._db.read() as connection:
            part = one_part(connection, text)
            rows = connection.execute(_placed.where(placements.c.part == part.id))
            return tuple(Placement(*row) for row in rows)

    def in_node(self, node: str, slot: str | None = None) -> tuple[Placement, ...]:
        """What sat in the node (or in one of its slots) over time, oldest first; empty for an unknown node."""
        query = _placed.where(readings.c.node == node)
        with self._db.read() as connection:
            rows = connection.execute(query if slot is None else query.where(placements.c.slot == slot))
            return tuple(Placement(*row) for row in rows)

    def conflicts(self) -> tuple[Conflict, ...]:
        """Parts that two nodes tell of now, oldest conflict first."""
        with self._db.read() as connection:
            return tuple(Conflict(*row) for row in connection.execute(_conflicts))


def find_parts(connection: Connection, text: str) -> tuple[Part, ...]:
    of_module = sa.and_(parts.c.kind == "dimm", parts.c.serial.endswith(f" {text}", autoescape=True))
    same = sa.or_(parts.c.serial == text, parts.c.uuid == text, parts.c.key == text, of_module)
    return tuple(part_of(row) for row in connection.execute(sa.select(parts).where(same).order_by(parts.c.id)))


def one_part(connection: Connection, text: str) -> Part:
    found = find_parts(connection, text)
    named = [part for part in found if part.key == text] or found
    if not named:
        raise PreconditionError(f"no part {text!r}: no sweep has read one with this serial, UUID or key")
    if len(named) > 1:
        keys = ", ".join(part.uuid or part.key for part in named[:8])
        raise PreconditionError(f"{text!r} names {len(named)} parts; say which: {keys}")
    return named[0]


def part_of(row: TableRow) -> Part:
    return Part(row.id, row.kind, row.key, row.serial, row.uuid, row.first_seen)


T = TypeVar("T")


def chunks(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """Pieces that fit into one IN (…) of either database."""
    listed = list(dict.fromkeys(values))
    for start in range(0, len(listed), _CHUNK):
        yield listed[start : start + _CHUNK]


def next_id(connection: Connection, table: sa.Table) -> int:
    """Free for the one writer, and all after it."""
    newest: int | None = connection.execute(sa.select(sa.func.max(table.c.id))).scalar_one()
    return (newest or 0) + 1

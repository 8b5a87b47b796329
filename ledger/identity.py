"""Which part a reading speaks of: by serial, else by UUID, else the one that sits in the slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.facts import NodeFacts, PartFacts
from ledger.knowledge_schema import parts
from ledger.parts import chunks, next_id
from ledger.schema import TableRow, clean_text


@dataclass(slots=True)
class Item:
    """A row of `parts`."""

    id: int
    kind: str
    key: str
    serial: str | None
    uuid: str | None
    first_seen: datetime
    stored: bool = True
    changed: bool = False


class Identities:
    """The parts that a batch of readings can speak of, in memory until `save`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._items: dict[int, Item] = {}
        self._by_serial: dict[tuple[str, str], list[Item]] = defaultdict(list)
        self._by_uuid: dict[tuple[str, str], list[Item]] = defaultdict(list)
        self._next = next_id(connection, parts)

    def load(self, readings: Iterable[NodeFacts], sitting: Iterable[int]) -> None:
        """Fetch the parts of these ids, and those with a serial or UUID that the readings name."""
        told = [part for reading in readings for part in reading.parts]
        wanted: tuple[tuple[sa.Column[object], set[object]], ...] = (
            (parts.c.id, set(sitting)),
            (parts.c.serial, {clean_text(part.serial) for part in told if part.serial}),
            (parts.c.uuid, {clean_text(part.uuid) for part in told if part.uuid}),
        )
        for column, values in wanted:
            for some in chunks(values):
                for row in self._connection.execute(sa.select(parts).where(column.in_(some)).order_by(parts.c.id)):
                    self._take(row)

    def ids(self) -> list[int]:
        return list(self._items)

    def key(self, part: int) -> str:
        return self._items[part].key

    def kind(self, part: int) -> str:
        return self._items[part].kind

    def identify(self, reading: NodeFacts, told: PartFacts, sitting: int | None) -> int:
        """The part's id; `sitting` is the part that sat in this slot at the last look.

        A part that tells neither serial nor UUID is taken for the one that sat there, and so is one that tells
        more than before and contradicts nothing. A serial that several parts of one reading bear is their
        board's: those go by UUID.
        """
        shared = bool(told.serial) and _bearers(reading, told) > 1
        occupant = None if sitting is None else self._items[sitting]
        item = self._same(told, occupant, shared)
        if item is None and occupant is not None and _agree(occupant, told):
            item = occupant
        if item is None:
            item = Item(self._next, told.kind, "", None, None, reading.at, stored=False)
            item.key = clean_text(f"{told.kind}:slot {reading.node}/{told.slot}")
            self._next += 1
            self._items[item.id] = item
        self._learn(item, told, shared)
        return item.id

    def save(self) -> None:
        """Write what is new or has changed."""
        items = self._items.values()
        new = [_values(item) | {"id": item.id, "first_seen": item.first_seen} for item in items if not item.stored]
        changed = [_values(item) | {"row": item.id} for item in items if item.stored and item.changed]
        if new:
            self._connection.execute(sa.insert(parts), new)
        if changed:
            self._connection.execute(sa.update(parts).where(parts.c.id == sa.bindparam("row")), changed)

    def _take(self, row: TableRow) -> None:
        if row.id in self._items:
            return
        item = self._items[row.id] = Item(row.id, row.kind, row.key, row.serial, row.uuid, row.first_seen)
        if item.serial:
            self._by_serial[item.kind, item.serial].append(item)
        if item.uuid:
            self._by_uuid[item.kind, item.uuid].append(item)

    def _same(self, told: PartFacts, occupant: Item | None, shared: bool) -> Item | None:
        """The known part with this serial, else with this UUID and no other serial."""
        serial, uuid = clean_text(told.serial or ""), clean_text(told.uuid or "")
        bearers = self._by_serial[told.kind, serial] if serial else []
        exact = [item for item in bearers if uuid and item.uuid == uuid]
        if exact or (len(bearers) == 1 and not shared):
            return (exact or bearers)[0]
        if occupant in bearers and not uuid:
            return occupant
        named = self._by_uuid[told.kind, uuid] if uuid else []
        return next((item for item in named if not serial or item.serial in (None, serial)), None)

    def _learn(self, item: Item, told: PartFacts, shared: bool) -> None:
        before = (item.key, item.serial, item.uuid)
        serial, uuid = clean_text(told.serial or ""), clean_text(told.uuid or "")
        if serial and item.serial != serial:
            item.serial = serial
            self._by_serial[item.kind, serial].append(item)
        if uuid and item.uuid != uuid:
            item.uuid = uuid
            self._by_uuid[item.kind, uuid].append(item)
        of_board = shared or (item.serial is not None and len(self._by_serial[item.kind, item.serial]) > 1)
        name = item.uuid if item.uuid and of_board else item.serial or item.uuid
        if name:
            item.key = f"{item.kind}:{name}"
        item.changed |= before != (item.key, item.serial, item.uuid)


def _bearers(reading: NodeFacts, told: PartFacts) -> int:
    """How many different UUIDs of the reading go with this part's serial."""
    return len({p.uuid for p in reading.parts if p.uuid and (p.kind, p.serial) == (told.kind, told.serial)})


def _agree(item: Item, told: PartFacts) -> bool:
    """Does nothing that the part tells of itself contradict what is known of it?"""
    serial, uuid = clean_text(told.serial or ""), clean_text(told.uuid or "")
    return (not serial or item.serial in (None, serial)) and (not uuid or item.uuid in (None, uuid))


def _values(item: Item) -> dict[str, object]:
    return {"kind": item.kind, "key": item.key, "serial": item.serial, "uuid": item.uuid}

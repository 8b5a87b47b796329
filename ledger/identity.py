"""Which part a reading speaks of: by serial, else by UUID, else the one that sits in the slot.

A serial names a part only while nothing else bears it. NVIDIA's is the board's, so GPUs of one board share it and go
by UUID. One that bears a shared serial and tells no UUID is the part that sits in its slot, and goes by the slot where
none does: which of the serial's bearers it is cannot be told.
"""

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
        """Fetch the parts of these ids, those that the readings name, and all that share a name with one of them."""
        told = [part for reading in readings for part in reading.parts]
        wanted = {("serial", clean_text(part.serial)) for part in told if part.serial}
        wanted |= {("uuid", clean_text(part.uuid)) for part in told if part.uuid}
        self._fetch("id", sitting)
        asked: set[tuple[str, str]] = set()
        while fresh := (wanted | self._names()) - asked:
            for column in ("serial", "uuid"):
                self._fetch(column, (name for of, name in fresh if of == column))
            asked |= fresh

    def ids(self) -> list[int]:
        return list(self._items)

    def key(self, part: int) -> str:
        return self._items[part].key

    def kind(self, part: int) -> str:
        return self._items[part].kind

    def identify(self, reading: NodeFacts, told: PartFacts, sitting: int | None) -> int:
        """The part's id; `sitting` is the part that sat in this slot at the last look.

        A part that tells neither serial nor UUID is taken for the one that sat there, and so is one that tells
        more than before and contradicts nothing.
        """
        shared = bool(told.serial) and _bearers(reading, told) > 1
        item = self._same(told, None if sitting is None else self._items[sitting], shared)
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

    def _fetch(self, column: str, values: Iterable[int | str]) -> None:
        for some in chunks(values):
            query = sa.select(parts).where(parts.c[column].in_(some)).order_by(parts.c.id)
            for row in self._connection.execute(query):
                self._take(row)

    def _names(self) -> set[tuple[str, str]]:
        """Every serial and UUID of the parts that are here."""
        items = self._items.values()
        names = {("serial", item.serial) for item in items if item.serial}
        return names | {("uuid", item.uuid) for item in items if item.uuid}

    def _take(self, row: TableRow) -> None:
        if row.id in self._items:
            return
        item = self._items[row.id] = Item(row.id, row.kind, row.key, row.serial, row.uuid, row.first_seen)
        if item.serial:
            self._by_serial[item.kind, item.serial].append(item)
        if item.uuid:
            self._by_uuid[item.kind, item.uuid].append(item)

    def _same(self, told: PartFacts, occupant: Item | None, shared: bool) -> Item | None:
        """The known part that this is, None for one that was never seen.

        What the slot's occupant told before counts for it as long as nothing contradicts: so no two parts ever come
        to have the same serial and UUID.
        """
        serial, uuid = clean_text(told.serial or ""), clean_text(told.uuid or "")
        staying = occupant if occupant is not None and _agree(occupant, serial, uuid) else None
        if staying is not None and not uuid:
            uuid = staying.uuid or ""
        bearers = self._by_serial[told.kind, serial] if serial else []
        exact = next((item for item in bearers if uuid and item.uuid == uuid), None)
        if exact is not None:
            return exact
        if len(bearers) == 1 and not shared:
            return bearers[0]
        named = [item for item in self._by_uuid[told.kind, uuid] if item.uuid == uuid] if uuid else []
        fitting = [item for item in named if not serial or item.serial in (None, serial)]
        return staying if staying in fitting or not fitting else fitting[0]

    def _learn(self, item: Item, told: PartFacts, shared: bool) -> None:
        """Take over what it tells. A part that has neither a serial of its own nor a UUID keeps the key that it has."""
        before = (item.key, item.serial, item.uuid)
        serial, uuid = clean_text(told.serial or ""), clean_text(told.uuid or "")
        if serial and item.serial != serial:
            item.serial = serial
            self._by_serial[item.kind, serial].append(item)
        if uuid and item.uuid != uuid:
            item.uuid = uuid
            self._by_uuid[item.kind, uuid].append(item)
        alone = item.serial is not None and not shared and len(self._by_serial[item.kind, item.serial]) == 1
        name = item.serial if alone else item.uuid
        if name:
            item.key = f"{item.kind}:{name}"
        item.changed |= before != (item.key, item.serial, item.uuid)


def _bearers(reading: NodeFacts, told: PartFacts) -> int:
    """How many different UUIDs of the reading go with this part's serial."""
    return len({p.uuid for p in reading.parts if p.uuid and (p.kind, p.serial) == (told.kind, told.serial)})


def _agree(item: Item, serial: str, uuid: str) -> bool:
    """Does nothing that a part tells of itself (empty: not told) contradict what is known of this one?"""
    return (not serial or item.serial in (None, serial)) and (not uuid or item.uuid in (None, uuid))


def _values(item: Item) -> dict[str, object]:
    return {"kind": item.kind, "key": item.key, "serial": item.serial, "uuid": item.uuid}

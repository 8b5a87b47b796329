"""What a batch of readings says about where parts sit. Within the caller's write transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.facts import NodeFacts, PartFacts
from ledger.identity import Identities
from ledger.knowledge_schema import part_conflicts, parts, placements, readings
from ledger.parts import Conflict, chunks, next_id
from ledger.schema import TableRow, clean_text

EMPTY = "empty"
"""A node fact `slot.<kind>.<slot>` with this value says that the slot was seen to hold nothing."""


@dataclass(slots=True)
class Look:
    """One reading under way: its row's id, and when the same source last told of the node (None: never)."""

    id: int
    reading: NodeFacts
    seen_before: datetime | None
    claims: list[tuple[int, PartFacts]] = field(default_factory=list)  # the part's id, and what was read of it
    parts: list[tuple[int, PartFacts]] = field(default_factory=list)  # the claims that hold
    moves: list[dict[str, str]] = field(default_factory=list)  # for the audit
    conflicts: list[Conflict] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """An open row of `placements`; `node` and `seen` (when it was last told of) are its reading's."""

    id: int
    part: int
    reading: int
    slot: str
    since: datetime
    until: datetime | None
    seen_at: datetime | None
    node: str
    seen: datetime
    stored: bool = True


class Placing:
    """Where the parts of a batch sit, in memory until the end of `settle`.

    A node claims a part where its newest reading lists it and is not older than `window`. A part that another
    node claims is not moved: it is a conflict. A place ends when another part is read in its slot, when its
    part is read elsewhere, or when the slot was seen to be empty; never because nothing was read.
    """

    def __init__(self, connection: Connection, looks: Sequence[Look], window: timedelta) -> None:
        self._connection = connection
        self._looks = looks
        self._window = window
        self._by_part: dict[int, list[Place]] = defaultdict(list)
        self._by_reading: dict[int, list[Place]] = defaultdict(list)
        self._known: set[int] = set()
        self._touched: dict[int, Place] = {}
        self._overruled: set[int] = set()  # readings that must be looked at again, even if they say the same
        self._next = next_id(connection, placements)
        self.last_sights: dict[int, datetime] = {}  # of a part, before this batch
        self.moved_from: dict[str, list[dict[str, str]]] = defaultdict(list)  # nodes that another's reading changed
        self.identities = Identities(connection)
        self._load()

    def settle(self) -> None:
        """Decide for the whole batch: first what each node gave up, then who has what."""
        for look in self._looks:
            self._identify(look)
        for look in self._looks:
            self._give_up(look)
        for look in self._looks:
            for part, told in look.claims:
                self._claim(look, part, told)
        self.identities.save()
        self._save_places()
        self._save_conflicts()

    def _load(self) -> None:
        self._fetch(placements.c.reading, (look.id for look in self._looks))
        self.identities.load((look.reading for look in self._looks), list(self._by_part))
        self._fetch(placements.c.part, self.identities.ids())

    def _fetch(self, column: sa.Column[int], values: Iterable[int]) -> None:
        query = (
            sa.select(placements, readings.c.node, readings.c.last_seen)
            .join(readings, readings.c.id == placements.c.reading)
            .where(placements.c.until.is_(None))
            .order_by(placements.c.id)
        )
        for some in chunks(values):
            for row in self._connection.execute(query.where(column.in_(some))):
                if row.id not in self._known:
                    self._known.add(row.id)
                    self._add(_place(row))

    def _add(self, place: Place) -> None:
        self._by_part[place.part].append(place)
        self._by_reading[place.reading].append(place)

    def _identify(self, look: Look) -> None:
        kind = self.identities.kind
        sitting = {(kind(place.part), place.slot): place.part for place in self._by_reading[look.id]}
        for told in look.reading.parts:
            slot = (told.kind, clean_text(told.slot))
            look.claims.append((self.identities.identify(look.reading, told, sitting.get(slot)), told))

    def _give_up(self, look: Look) -> None:
        """End the places that the node's own reading denies, and mark those that it says nothing of."""
        claimed = {(told.kind, clean_text(told.slot)): part for part, told in look.claims}
        slots = {part: slot for (_, slot), part in claimed.items()}
        for place in self._by_reading[look.id]:
            kind = self.identities.kind(place.part)
            seen = place.seen_at or look.seen_before or look.reading.at
            self.last_sights[place.part] = max(seen, self.last_sights.get(place.part, seen))
            holder = claimed.get((kind, place.slot))
            if holder == place.part:
                self._see(place, None)
                continue
            self._see(place, seen)
            if holder is not None:
                self._close(look, place, "another part is in its slot")
            elif place.part in slots:
                self._close(look, place, f"moved to slot {slots[place.part]}")
            elif look.reading.facts.get(f"slot.{kind}.{place.slot}") == EMPTY:
                self._close(look, place, "its slot was seen empty")

    def _claim(self, look: Look, part: int, told: PartFacts) -> None:
        slot, at = clean_text(told.slot), look.reading.at
        open_now = [place for place in self._by_part[part] if place.until is None]
        own = [place for place in open_now if place.reading == look.id]
        others = [place for place in open_now if place.node != look.reading.node]
        rival = next((place for place in others if self._claims(place, at)), None)
        if own and own[0].slot != slot:
            rival = own[0]
        if rival is not None and not any(place.slot == slot for place in own):
            key, source = self.identities.key(part), look.reading.source
            look.conflicts.append(Conflict(key, look.reading.node, source, slot, rival.node, at))
            return
        look.parts.append((part, told))
        if own:
            return
        for place in others:
            self.last_sights[part] = place.seen_at or place.seen
            self._see(place, self.last_sights[part])
            self._close(look, place, f"read in {look.reading.node}")
        self._open(look, part, slot)

    def _claims(self, place: Place, at: datetime) -> bool:
        return place.seen_at is None and at - place.seen <= self._window

    def _open(self, look: Look, part: int, slot: str) -> None:
        at, node = look.reading.at, look.reading.node
        place = Place(self._next, part, look.id, slot, at, None, None, node, at, stored=False)
        self._next += 1
        self._add(place)
        self._touched[place.id] = place
        look.moves.append({"part": self.identities.key(part), "in": slot})

    def _see(self, place: Place, at: datetime | None) -> None:
        if place.seen_at != at:
            place.seen_at = at
            self._touched[place.id] = place

    def _close(self, look: Look, place: Place, why: str) -> None:
        place.until = look.reading.at
        self._touched[place.id] = place
        move = {"part": self.identities.key(place.part), "out": place.slot, "why": why}
        if place.node == look.reading.node:
            look.moves.append(move)
        else:
            self.moved_from[place.node].append(move)
            self._overruled.add(place.reading)

    def _save_places(self) -> None:
        places = self._touched.values()
        new = [
            {"id": p.id, "part": p.part, "reading": p.reading, "slot": p.slot, **_times(p)}
            for p in places
            if not p.stored
        ]
        changed = [{"row": p.id, **_times(p)} for p in places if p.stored]
        if new:
            self._connection.execute(sa.insert(placements), new)
        if changed:
            self._connection.execute(sa.update(placements).where(placements.c.id == sa.bindparam("row")), changed)
        for some in chunks(self._overruled):
            again = sa.update(readings).where(readings.c.id.in_(some))
            self._connection.execute(again.values(digest=b""))

    def _save_conflicts(self) -> None:
        """Open what is new, close what is over; one that goes on keeps its `since`."""
        stored = open_conflicts(self._connection, [look.id for look in self._looks])
        number = next_id(self._connection, part_conflicts)
        for look in self._looks:
            kept = {(row.key, row.slot, row.holder): row for row in stored.get(look.id, ())}
            ids = {self.identities.key(part): part for part, _ in look.claims}
            for index, conflict in enumerate(look.conflicts):
                old = kept.pop((conflict.part, conflict.slot, conflict.holder), None)
                if old is not None:
                    look.conflicts[index] = replace(conflict, since=old.since)
                    continue
                row = {"id": number, "part": ids[conflict.part], "reading": look.id, "since": conflict.since}
                row |= {"slot": conflict.slot, "holder": conflict.holder}
                self._connection.execute(sa.insert(part_conflicts), row)
                number += 1
                look.moves.append({"part": conflict.part, "in": conflict.slot, "conflict": conflict.holder})
            if kept:
                over = part_conflicts.c.id.in_([row.id for row in kept.values()])
                self._connection.execute(sa.update(part_conflicts).where(over).values(until=look.reading.at))
                look.moves += [{"part": key, "in": slot, "settled": holder} for key, slot, holder in kept]


def open_conflicts(connection: Connection, looks: Iterable[int]) -> dict[int, list[TableRow]]:
    """The open rows of `part_conflicts` by reading, with the part's key."""
    query = sa.select(part_conflicts, parts.c.key).join(parts, parts.c.id == part_conflicts.c.part)
    query = query.where(part_conflicts.c.until.is_(None)).order_by(part_conflicts.c.id)
    found: dict[int, list[TableRow]] = defaultdict(list)
    for some in chunks(looks):
        for row in connection.execute(query.where(part_conflicts.c.reading.in_(some))):
            found[row.reading].append(row)
    return found


def _place(row: TableRow) -> Place:
    return Place(
        id=row.id,
        part=row.part,
        reading=row.reading,
        slot=row.slot,
        since=row.since,
        until=row.until,
        seen_at=row.seen_at,
        node=row.node,
        seen=row.last_seen,
    )


def _times(place: Place) -> dict[str, datetime | None]:
    return {"since": place.since, "until": place.until, "seen_at": place.seen_at}

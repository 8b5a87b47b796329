"""What was read of nodes and parts, and since when: only what changes is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.facts import NodeFacts
from ledger.database import Database, Transaction
from ledger.fact_rows import FactChange, write_facts
from ledger.knowledge_schema import readings
from ledger.known import reading_digest
from ledger.parts import Conflict, chunks, next_id
from ledger.placing import Look, Placing, open_conflicts
from ledger.sample_rows import Layouts, Taken, write_samples
from ledger.schema import TableRow, clean_text

_MOST_IN_AUDIT = 100  # changes of one node in one record
_LONGEST_IN_AUDIT = 200  # letters of one value
_MOST_AHEAD = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one `record` found. `arrived` are nodes that no source told of before; they have no `changes`.

    `conflicts` are those of the nodes in this call, as long as they last. `skipped` says of a node why its
    reading was not taken, or not its numbers.
    """

    arrived: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: int = 0
    changes: tuple[FactChange, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    arrived: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    changes: list[FactChange] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Work:
    """The readings of a round that are taken, and what that changes in `readings`."""

    tally: _Tally
    next_reading: int
    looks: list[Look] = field(default_factory=list)  # those that may say something new
    taken: list[Taken] = field(default_factory=list)
    added: list[dict[str, object]] = field(default_factory=list)
    touched: list[dict[str, object]] = field(default_factory=list)

    def begin(self, reading: NodeFacts, digest: bytes) -> None:
        """The first reading of its node and source."""
        row = {"id": self.next_reading, "node": reading.node, "source": reading.source, "digest": digest}
        self.added.append({**row, "first_seen": reading.at, "last_seen": reading.at})
        self.looks.append(Look(self.next_reading, reading, None))
        self.taken.append(Taken(self.next_reading, reading, None))
        self.next_reading += 1

    def go_on(self, reading: NodeFacts, digest: bytes, row: TableRow, again: bool) -> None:
        """A newer reading; `again` has it looked at even where it says the same as before."""
        self.touched.append({"row": row.id, "last_seen": reading.at, "digest": digest})
        self.taken.append(Taken(row.id, reading, row.layout))
        if again or digest != row.digest:
            self.looks.append(Look(row.id, reading, row.last_seen))
        else:
            self.tally.unchanged += 1

    def save(self, connection: Connection) -> None:
        if self.added:
            connection.execute(sa.insert(readings), self.added)
        if self.touched:
            connection.execute(_touch, self.touched)


_Prepared = tuple[NodeFacts, bytes]
_touch = sa.update(readings).where(readings.c.id == sa.bindparam("row"))


class Recorder:
    """Takes readings in. `actor` is written to the audit."""

    def __init__(self, database: Database, actor: str, layouts: Layouts, claim_window: timedelta) -> None:
        self._db = database
        self._actor = actor
        self._layouts = layouts
        self._window = claim_window

    def record(self, facts: Iterable[NodeFacts]) -> Recorded:
        """Keep what was read of many nodes, in one transaction.

        A node that is as it was costs one small update. Per changed node there is one audit record. A reading
        that is older than the newest one of its node and source is not taken, nor is one that lies over an hour
        ahead of the ledger's clock; the same reading once more changes nothing.
        """
        rounds = _rounds([(reading, reading_digest(reading)) for reading in facts])
        tally = _Tally()
        with self._db.write() as tx:
            for prepared in rounds:
                self._round(tx, prepared, tally)
        return Recorded(
            arrived=tuple(tally.arrived),
            changed=tuple(dict.fromkeys(tally.changed)),
            unchanged=tally.unchanged,
            changes=tuple(tally.changes),
            conflicts=tuple(tally.conflicts),
            skipped=tally.skipped,
        )

    def _round(self, tx: Transaction, prepared: Sequence[_Prepared], tally: _Tally) -> None:
        """One reading of each node and source."""
        stored = _stored(tx.connection, {reading.node for reading, _ in prepared})
        told_before = {node for node, _ in stored}
        work = _Work(tally, next_id(tx.connection, readings))
        disputed = open_conflicts(tx.connection, (row.id for row in stored.values()))
        for reading, digest in prepared:
            row = stored.get((reading.node, reading.source))
            why = _why_not(reading, row, tx)
            if why is not None:
                tally.skipped[reading.node] = why
            elif row is None:
                work.begin(reading, digest)
            elif reading.at == row.last_seen:  # told once already
                tally.unchanged += 1
            else:
                work.go_on(reading, digest, row, again=row.id in disputed)
        work.save(tx.connection)
        tally.arrived += dict.fromkeys(look.reading.node for look in work.looks if look.reading.node not in told_before)
        for node in write_samples(tx.connection, work.taken, self._layouts):
            tally.skipped[node] = "its numbers are of an hour that is rolled up already"
        if work.looks:
            self._take(tx, work.looks, told_before, tally)

    def _take(self, tx: Transaction, looks: Sequence[Look], told_before: set[str], tally: _Tally) -> None:
        """What has changed: places, facts, audit."""
        placing = Placing(tx.connection, looks, self._window)
        placing.settle()
        found = write_facts(tx.connection, looks, placing)
        for look in looks:
            node = look.reading.node
            changes = found[look.id]
            tally.conflicts += look.conflicts
            if look.seen_before is None:
                evidence: dict[str, object] = {
                    "first": True,
                    "facts": len(look.reading.facts),
                    "of_parts": len(look.parts),
                }
            elif changes or look.moves:
                evidence = {"changed": _evidence(changes)} if changes else {}
                tally.changes += changes
            else:
                continue
            if node in told_before:
                tally.changed.append(node)
            if look.moves:
                evidence["parts"] = look.moves
            tx.record(self._actor, "node.facts", node, {"source": look.reading.source, **evidence})
        for node, moves in placing.moved_from.items():
            tally.changed.append(node)
            tx.record(self._actor, "node.facts", node, {"parts": moves})


def _rounds(prepared: Iterable[_Prepared]) -> list[list[_Prepared]]:
    """Several readings of one node and source go one after the other, the oldest first."""
    rounds: list[list[_Prepared]] = []
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for reading, digest in sorted(prepared, key=lambda one: one[0].at):
        key = (reading.node, reading.source)
        if seen[key] == len(rounds):
            rounds.append([])
        rounds[seen[key]].append((reading, digest))
        seen[key] += 1
    return rounds


def _stored(connection: Connection, nodes: set[str]) -> dict[tuple[str, str], TableRow]:
    return {
        (row.node, row.source): row
        for some in chunks(nodes)
        for row in connection.execute(sa.select(readings).where(readings.c.node.in_(some)))
    }


def _why_not(reading: NodeFacts, row: TableRow | None, tx: Transaction) -> str | None:
    if reading.at > tx.now + _MOST_AHEAD:
        return f"its reading is of {reading.at:%F %T} UTC, which is yet to come"
    if row is not None and reading.at < row.last_seen:
        return f"its reading of {reading.at:%F %T} UTC is older than what is known ({row.last_seen:%F %T} UTC)"
    return None


def _evidence(changes: Sequence[FactChange]) -> list[dict[str, str | None]]:
    shown = [
        {"part": c.part, "name": c.name, "from": _cut(c.old), "to": _cut(c.new), "unknown": _cut(c.reason)}
        for c in changes[:_MOST_IN_AUDIT]
    ]
    if len(changes) > _MOST_IN_AUDIT:
        shown.append({"name": f"and {len(changes) - _MOST_IN_AUDIT} more"})
    return [{key: value for key, value in entry.items() if value is not None} for entry in shown]


def _cut(text: str | None) -> str | None:
    return None if text is None else clean_text(text[:_LONGEST_IN_AUDIT])

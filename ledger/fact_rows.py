"""Writing facts: the newest values of a subject in one row, and a row for every interval that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.knowledge_schema import known, past_facts
from ledger.known import Past, Update, first, from_row, to_values, update
from ledger.parts import chunks, next_id
from ledger.placing import Look, Placing
from ledger.schema import TableRow


@dataclass(frozen=True, slots=True)
class FactChange:
    """`part` is a part's key, None for the node. None for a value: not known (`reason`), or not there (no reason)."""

    node: str
    part: str | None
    name: str
    old: str | None
    new: str | None
    reason: str | None


_Rows = Mapping[tuple[int | None, str | int], TableRow]


@dataclass(slots=True)
class _Writing:
    """Rows to be written."""

    next_known: int
    next_past: int
    new: list[dict[str, object]] = field(default_factory=list)
    changed: list[dict[str, object]] = field(default_factory=list)
    past: list[dict[str, object]] = field(default_factory=list)

    def begin(self, look: Look, part: int | None, facts: Mapping[str, str], unknown: Mapping[str, str]) -> None:
        row = {"id": self.next_known, "reading": look.id, "source": look.reading.source, "part": part}
        self.new.append(row | to_values(first(facts, unknown, look.reading.at)))
        self.next_known += 1

    def end(self, known_id: int, past: Past) -> None:
        times = {"since": past.since, "until": past.until, "last_seen": past.last_seen}
        told = {"name": past.name, "value": past.value, "reason": past.reason}
        self.past.append({"id": self.next_past, "known": known_id, **told, **times})
        self.next_past += 1

    def save(self, connection: Connection) -> None:
        if self.new:
            connection.execute(sa.insert(known), self.new)
        if self.changed:
            connection.execute(sa.update(known).where(known.c.id == sa.bindparam("row")), self.changed)
        if self.past:
            connection.execute(sa.insert(past_facts), self.past)


def write_facts(connection: Connection, looks: Sequence[Look], placing: Placing) -> dict[int, list[FactChange]]:
    """Take in what the readings tell of nodes and of the parts that are theirs; the changes by reading."""
    rows = _rows(connection, looks)
    writing = _Writing(next_id(connection, known), next_id(connection, past_facts))
    result: dict[int, list[FactChange]] = {look.id: [] for look in looks}
    for look in looks:
        told = [(None, look.reading.facts, look.reading.unknown), *((id, p.facts, p.unknown) for id, p in look.parts)]
        for part, facts, unknown in told:
            row = rows.get((part, look.id if part is None else look.reading.source))
            if row is None:
                writing.begin(look, part, facts, unknown)
                continue
            seen = look.seen_before if part is None else placing.last_sights.get(part)
            made = _update(writing, row, look, facts, unknown, seen)
            key = None if part is None else placing.identities.key(part)
            result[look.id] += _changes(look.reading.node, key, made)
    writing.save(connection)
    return result


def _update(
    writing: _Writing,
    row: TableRow,
    look: Look,
    facts: Mapping[str, str],
    unknown: Mapping[str, str],
    seen: datetime | None,
) -> Update:
    before = from_row(row)
    made = update(before, facts, unknown, look.reading.at, seen or before.first_seen)
    if made.known != before or row.reading != look.id:
        writing.changed.append({"row": row.id, "reading": look.id, **to_values(made.known)})
    for past in made.past:
        writing.end(row.id, past)
    return made


def _rows(connection: Connection, looks: Sequence[Look]) -> _Rows:
    """What is known of the nodes, by (None, reading), and of the parts, by (part, source)."""
    found: dict[tuple[int | None, str | int], TableRow] = {}
    for some in chunks(look.id for look in looks if look.seen_before is not None):
        query = sa.select(known).where(known.c.reading.in_(some), known.c.part.is_(None))
        found |= {(None, row.reading): row for row in connection.execute(query)}
    for parts in chunks(part for look in looks for part, _ in look.parts):
        query = sa.select(known).where(known.c.part.in_(parts))
        found |= {(row.part, row.source): row for row in connection.execute(query)}
    return found


def _changes(node: str, part: str | None, made: Update) -> list[FactChange]:
    reasons = made.known.unknown
    return [FactChange(node, part, name, old, new, reasons.get(name)) for name, (old, new) in made.changes.items()]

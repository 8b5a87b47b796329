"""Facts at a moment and over time, and a node's state at a moment."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.model import NodeState
from ledger.knowledge_schema import known, past_facts, placements, readings
from ledger.known import Known, from_row, rank
from ledger.schema import audit, nodes, to_micros


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and how long it held. `value` None: not known, for `reason`; `last_value` is what it was before.

    `until` is None where it still holds; `last_seen` is when it was last read so.
    """

    value: str | None
    reason: str | None
    since: datetime
    until: datetime | None
    last_seen: datetime
    source: str
    last_value: str | None = None


def facts_at(
    connection: Connection, subjects: sa.ColumnElement[bool], when: datetime
) -> dict[int | None, dict[str, Fact]]:
    """The facts at `when` of every part (None: the node) that `subjects` picks from `known`."""
    over = sa.and_(past_facts.c.since <= when, past_facts.c.until > when)
    told: dict[int | None, dict[str, list[Fact]]] = defaultdict(lambda: defaultdict(list))
    for part, name, fact in _all(connection, subjects, over):
        if fact.since <= when and (fact.until is None or fact.until > when):
            told[part][name].append(fact)
    return {part: {name: _best(facts) for name, facts in sorted(names.items())} for part, names in told.items()}


def intervals(connection: Connection, subjects: sa.ColumnElement[bool], name: str) -> list[Fact]:
    """Every interval of one fact, oldest first."""
    found = _all(connection, subjects, past_facts.c.name == name)
    return sorted((fact for _, own, fact in found if own == name), key=lambda fact: (fact.since, rank(fact.source)))


def _all(
    connection: Connection, subjects: sa.ColumnElement[bool], past: sa.ColumnElement[bool]
) -> Iterable[tuple[int | None, str, Fact]]:
    """Part, name and fact: everything that holds now, and what ended as `past` picks it."""
    ended = (
        sa.select(past_facts, known.c.part, known.c.source)
        .join(known, known.c.id == past_facts.c.known)
        .where(subjects, past)
        .order_by(past_facts.c.since)
    )
    before: dict[tuple[int, str], str] = {}
    for row in connection.execute(ended):
        if row.value is not None:
            before[row.known, row.name] = row.value
        last = None if row.value is not None else before.get((row.known, row.name))
        yield row.part, row.name, Fact(row.value, row.reason, row.since, row.until, row.last_seen, row.source, last)
    now = sa.select(known, readings.c.last_seen).join(readings, readings.c.id == known.c.reading).where(subjects)
    rows = connection.execute(now).all()
    sights = _sights(connection, {row.part for row in rows if row.part is not None})
    for row in rows:
        seen = sights.get((row.part, row.source), row.last_seen)
        for name, fact in _open(from_row(row), seen, row.source):
            yield row.part, name, fact


def _open(told: Known, seen: datetime, source: str) -> Iterable[tuple[str, Fact]]:
    for name, value in told.facts.items():
        yield name, Fact(value, None, told.since(name), None, seen, source)
    for name, reason in told.unknown.items():
        yield name, Fact(None, reason, told.since(name), None, seen, source, told.last_values.get(name))


def _sights(connection: Connection, parts: set[int]) -> dict[tuple[int, str], datetime]:
    """When each part was last read, by part and source: at its newest place."""
    query = (
        sa.select(placements.c.part, placements.c.seen_at, readings.c.source, readings.c.last_seen)
        .join(readings, readings.c.id == placements.c.reading)
        .where(placements.c.part.in_(parts))
        .order_by(placements.c.since, placements.c.id)
    )
    return {(row.part, row.source): row.seen_at or row.last_seen for row in connection.execute(query)}


def _best(facts: list[Fact]) -> Fact:
    """Known before unknown, then the most believed source."""
    return min(facts, key=lambda fact: (fact.value is None, rank(fact.source), fact.source))


def state_at(connection: Connection, node: str, when: datetime) -> NodeState | None:
    """The node's state at `when` as the audit tells it; None where it does not."""
    row = connection.execute(sa.select(nodes).where(nodes.c.name == node)).one_or_none()
    if row is None or when < row.first_seen:
        return None
    if when >= row.since:
        return NodeState(row.state)
    moves = sa.select(audit.c.action, audit.c.payload).where(
        audit.c.subject == node, audit.c.action.in_(("node.move", "lease.take_back"))
    )
    moment = to_micros(when)
    before = connection.execute(moves.where(audit.c.at <= moment).order_by(audit.c.seq.desc()).limit(1)).one_or_none()
    if before is not None:
        return NodeState.IN_SERVICE if before.action == "lease.take_back" else _state(before.payload, "to")
    after = connection.execute(moves.where(audit.c.at > moment).order_by(audit.c.seq).limit(1)).one_or_none()
    return None if after is None or after.action != "node.move" else _state(after.payload, "from")


def _state(payload: str, which: str) -> NodeState | None:
    told = json.loads(payload).get(which)
    return NodeState(told) if told in set(NodeState) else None

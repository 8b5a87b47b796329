"""What is and was known of nodes and their parts: now, at a date, and one fact over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import PreconditionError
from fleet.facts import NodeFacts
from fleet.model import NodeState
from ledger.database import Database
from ledger.knowledge_schema import known, parts, placements, readings
from ledger.known import Known, merge, rank, read_known
from ledger.parts import chunks, find_parts
from ledger.past import Fact, facts_at, intervals, state_at
from ledger.recording import Recorded, Recorder
from ledger.sample_rows import Layouts


@dataclass(frozen=True, slots=True)
class PartNow:
    """A part in its slot; `slot` is as its most believed source names it, `seen` when it was last read there.

    `missing` is true where no source's newest reading lists it: what is known of it is then of `seen`, not of now.
    """

    kind: str
    key: str
    serial: str | None
    uuid: str | None
    slot: str
    seen: datetime
    missing: bool
    known: Known


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node as it is known now; `seen` says for each source when it was last read."""

    node: str
    seen: Mapping[str, datetime]
    known: Known
    parts: tuple[PartNow, ...]


@dataclass(frozen=True, slots=True)
class PartThen:
    """A part that sat in a slot at that time. `source` names the slot; another source may name it otherwise."""

    kind: str
    key: str
    serial: str | None
    uuid: str | None
    slot: str
    source: str
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class NodeThen:
    """A node at `at`. `state` is None where the audit does not tell it; no fact is there before the first reading."""

    node: str
    at: datetime
    state: NodeState | None
    first_seen: datetime
    facts: Mapping[str, Fact]
    parts: tuple[PartThen, ...]


class Facts:
    """Facts and parts of all nodes. `claim_window`: for how long a node's word on where a part sits stands."""

    def __init__(
        self, database: Database, actor: str, layouts: Layouts, claim_window: timedelta = timedelta(hours=1)
    ) -> None:
        self._db = database
        self._recorder = Recorder(database, actor, layouts, claim_window)

    def record(self, facts: Iterable[NodeFacts]) -> Recorded:
        """Keep what was read of many nodes, in one transaction; see `Recorder.record`.

        Raises TransientError where the ledger does not answer: nothing is kept, and the call may be repeated.
        """
        return self._recorder.record(facts)

    def current(self, nodes: Collection[str] | None = None, kinds: Collection[str] | None = None) -> list[NodeNow]:
        """What is known now, by node name; only of `nodes` and, for parts, of `kinds` where given.

        A node that no source ever told of is not in the list.
        """
        query = _current if kinds is None else _current.where(sa.or_(known.c.part.is_(None), parts.c.kind.in_(kinds)))
        with self._db.read() as connection:
            if nodes is None:
                rows = connection.execute(query).all()
            else:
                rows = [
                    row for some in chunks(nodes) for row in connection.execute(query.where(readings.c.node.in_(some)))
                ]
        by_node: dict[str, list[_Told]] = defaultdict(list)
        for row in rows:
            told = _Told(*cast(_Columns, tuple(row)))
            by_node[told.node].append(told)
        return [_node_now(node, by_node[node]) for node in sorted(by_node)]

    def at(self, node: str, when: datetime | None = None) -> NodeThen:
        """Everything known of the node at `when` (now where not given).

        Raises PreconditionError for a node that no source ever told of.
        """
        moment = when or self._db.clock.now()
        with self._db.read() as connection:
            rows = connection.execute(sa.select(readings).where(readings.c.node == node)).all()
            if not rows:
                raise PreconditionError("nothing was ever read of this node; a sweep reads it", node=node)
            looks = {row.id: row.source for row in rows}
            own = facts_at(connection, sa.and_(known.c.part.is_(None), known.c.reading.in_(looks)), moment)
            return NodeThen(
                node=node,
                at=moment,
                state=state_at(connection, node, moment),
                first_seen=min(row.first_seen for row in rows),
                facts=own.get(None, {}),
                parts=_parts_at(connection, looks, moment),
            )

    def history(self, subject: str, name: str, source: str | None = None) -> tuple[Fact, ...]:
        """One fact of a node, or of a part by serial, UUID or key: its intervals, oldest first.

        Raises PreconditionError for a subject that was never read; a fact that was never told has no intervals.
        """
        with self._db.read() as connection:
            looks = connection.execute(sa.select(readings.c.id).where(readings.c.node == subject)).scalars().all()
            found = [] if looks else [part.id for part in find_parts(connection, subject)]
            if not looks and not found:
                raise PreconditionError(f"no node and no part {subject!r} was ever read")
            where = sa.and_(known.c.part.is_(None), known.c.reading.in_(looks)) if looks else known.c.part.in_(found)
            told = intervals(connection, where, name)
        return tuple(fact for fact in told if source in (None, fact.source))


_open_place = sa.and_(
    placements.c.part == known.c.part, placements.c.reading == known.c.reading, placements.c.until.is_(None)
)
_current = (
    sa.select(
        readings.c.node,
        readings.c.source,
        readings.c.last_seen,
        known.c.part,
        known.c.first_seen,
        known.c.facts,
        known.c.unknown,
        known.c.last_values,
        known.c.changed,
        parts.c.kind,
        parts.c.key,
        parts.c.serial,
        parts.c.uuid,
        placements.c.slot,
        placements.c.seen_at,
    )
    .select_from(
        known.join(readings, readings.c.id == known.c.reading)
        .outerjoin(parts, parts.c.id == known.c.part)
        .outerjoin(placements, _open_place)
    )
    .where(sa.or_(known.c.part.is_(None), placements.c.id.is_not(None)))
)

_Columns = tuple[
    str, str, datetime, int | None, datetime, str, str, str, str, str, str, str | None, str | None, str, datetime | None
]


@dataclass(frozen=True, slots=True)
class _Told:
    """A row of `_current`; everything from `kind` on is the part's."""

    node: str
    source: str
    last_seen: datetime
    part: int | None
    first_seen: datetime
    facts: str
    unknown: str
    last_values: str
    changed: str
    kind: str
    key: str
    serial: str | None
    uuid: str | None
    slot: str
    seen_at: datetime | None

    def known(self) -> Known:
        return read_known(self.first_seen, self.facts, self.unknown, self.last_values, self.changed)


def _node_now(node: str, told: Sequence[_Told]) -> NodeNow:
    own = [(one.source, one.known()) for one in told if one.part is None]
    by_part: dict[int, list[_Told]] = defaultdict(list)
    for one in told:
        if one.part is not None:
            by_part[one.part].append(one)
    found = sorted((_part_now(rows) for rows in by_part.values()), key=lambda part: (part.kind, part.slot, part.key))
    seen = {one.source: one.last_seen for one in told}
    return NodeNow(node, seen, merge(own) if own else Known(min(seen.values())), tuple(found))


def _part_now(told: Sequence[_Told]) -> PartNow:
    best = told[0] if len(told) == 1 else min(told, key=lambda one: (rank(one.source), one.source))
    return PartNow(
        kind=best.kind,
        key=best.key,
        serial=best.serial,
        uuid=best.uuid,
        slot=best.slot,
        seen=max([one.seen_at or one.last_seen for one in told]),
        missing=None not in [one.seen_at for one in told],
        known=merge([(one.source, one.known()) for one in told]),
    )


def _parts_at(connection: Connection, looks: Mapping[int, str], when: datetime) -> tuple[PartThen, ...]:
    sat = sa.and_(placements.c.since <= when, sa.or_(placements.c.until.is_(None), placements.c.until > when))
    query = (
        sa.select(parts, placements.c.slot, placements.c.reading)
        .join(placements, placements.c.part == parts.c.id)
        .where(placements.c.reading.in_(looks), sat)
    )
    best: dict[int, tuple[int, PartThen]] = {}
    rows = connection.execute(query).all()
    told = facts_at(connection, known.c.part.in_([row.id for row in rows]), when)
    for row in rows:
        source = looks[row.reading]
        part = PartThen(row.kind, row.key, row.serial, row.uuid, row.slot, source, told.get(row.id, {}))
        if row.id not in best or rank(source) < best[row.id][0]:
            best[row.id] = (rank(source), part)
    return tuple(sorted((part for _, part in best.values()), key=lambda part: (part.kind, part.slot, part.key)))

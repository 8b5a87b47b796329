"""How often nodes in service failed: unplanned events that would have stopped a job on the node.

What counts, at the moment it was first seen:

  quarantined   a move to quarantine out of service, or while the node's work was still leaving
  health        a node that was well is read with fatal health: it or one of its GPUs is lost until somebody acts
  unreachable   two sweeps or more, over ten minutes, found no way to the host (Slurm gives a silent node up, and its
                jobs with it, after SlurmdTimeout, by default 300 s)
  scheduler     the scheduler has it down, not responding, unexpectedly rebooted or short of a GPU, though nobody had
                cordoned it

Signs of one node that overlap, or follow each other within an hour, are one failure. A node counts for itself, also
where one cause took several. What does not count: whatever is found while the node is out of service, in an
operation's hands after its drain, or cordoned by somebody; a failure from before the node was first read; and a moment
at which more than half of all nodes became unreachable together, as then it is the way to them that was lost. An error
that ends a job and leaves the node usable is not kept by its code: the count is a least one.

Node-days are those of nodes in service that a sweep reads, without the time for which a failure lasts. They run from a
node's first to its newest reading: that the sweep stood still in between is not seen.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.findings import Severity
from fleet.json_values import object_at, text_at, texts_at
from fleet.model import NodeState
from ledger.knowledge_schema import known, past_facts, readings
from ledger.known import from_row
from ledger.schema import TableRow, audit, from_micros, nodes, to_micros

if TYPE_CHECKING:
    from ledger.ledger import Ledger

_SERVES = frozenset({NodeState.IN_SERVICE.value, NodeState.DRAINING.value})  # work can be on it
_SAME_FAILURE = timedelta(hours=1)
_SILENT = timedelta(minutes=10)
_TOGETHER = timedelta(minutes=15)
_FEWEST_TOGETHER = 3
_SETTLES = timedelta(minutes=15)  # a node that came back may be down until its scheduler has heard from it
_HEALTH, _PROBE = "health", "probe.state"
_UNREACHABLE = "unreachable"
_ACTIONS = ("node.move", "node.cordons", "lease.take_back", "inventory.sync")
# The reasons that slurmctld writes for a node that went away under its jobs (SchedMD/slurm, node_mgr.c).
_LOST = re.compile(
    r"^down$|^cordoned by [^:]*: *(not responding|node unexpectedly rebooted|.*count reported lower than configured)",
    re.IGNORECASE,
)

_Span = tuple[datetime, datetime]


class Sign(StrEnum):
    """By what a failure was first seen."""

    QUARANTINED = "quarantined"
    HEALTH = "health"
    UNREACHABLE = "unreachable"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """`text` is what was seen, as the ledger has it."""

    node: str
    at: datetime
    sign: Sign
    text: str


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The failures in a window, oldest first. `nodes` were read and in service in it, for `node_days` together.

    `way_lost` counts nodes that became unreachable together with most others, and were not counted.
    """

    since: datetime
    until: datetime
    failures: tuple[NodeFailure, ...]
    nodes: int
    node_days: float
    way_lost: int


def read_failures(ledger: Ledger, since: datetime, until: datetime) -> FailureCount:
    """Failures of the whole fleet from `since` to `until`. Times carry a zone. Raises TransientError."""
    with ledger._database.read() as connection:
        stories = {row.name: _Story(row) for row in connection.execute(sa.select(nodes))}
        for row in _records(connection, since, until):
            _tell(stories, from_micros(row.at), row.action, row.subject, json.loads(row.payload))
        for node, name, fact in _facts(connection, since, until):
            if node in stories:
                stories[node].facts[name].append(fact)
        for look in connection.execute(_looks):
            if look.node in stories:
                stories[look.node].read = (look.first_seen, look.last_seen)
    return _count(stories, since, until)


@dataclass(frozen=True, slots=True)
class _Fact:
    """An interval of a fact. `value` None: not known."""

    value: str | None
    since: datetime
    until: datetime
    last_seen: datetime


@dataclass(slots=True)
class _Switch:
    """Something that is so or not, over time; `before` is how it was until the first change."""

    before: bool
    changes: list[tuple[datetime, bool]] = field(default_factory=list)

    def turn(self, at: datetime, on: bool, before: bool) -> None:
        """`before` is what the change tells of the time before it."""
        if not self.changes:
            self.before = before
        self.changes.append((at, on))

    def spans(self, since: datetime, until: datetime) -> list[_Span]:
        """When it was so."""
        spans: list[_Span] = []
        begun = since if self.before else None
        for at, on in self.changes:
            if on and begun is None:
                begun = at
            elif not on and begun is not None:
                spans.append((begun, at))
                begun = None
        return spans if begun is None else [*spans, (begun, until)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A sign, and for how long it lasted."""

    begun: datetime
    ended: datetime
    sign: Sign
    text: str


class _Story:
    """What the ledger tells of one node; a change that it does not tell of is taken for none."""

    def __init__(self, row: TableRow) -> None:
        self.serves = _Switch(row.state in _SERVES)
        self.present = _Switch(not row.absent)
        self.free = _Switch(row.cordoned is None)
        self.first_seen: datetime = row.first_seen
        self.read: _Span | None = None
        self.quarantined: list[_Seen] = []
        self.cordons: list[tuple[datetime, str | None]] = []
        self.facts: defaultdict[str, list[_Fact]] = defaultdict(list)

    def service(self, since: datetime, until: datetime) -> list[_Span]:
        """When it was in service, nobody else had cordoned it, and a sweep read it."""
        if self.read is None:
            return []
        spans = [(max(since, self.first_seen, self.read[0]), min(until, self.read[1]))]
        for switch in (self.serves, self.present, self.free):
            spans = _both(spans, switch.spans(since, until))
        return spans


def _tell(stories: Mapping[str, _Story], at: datetime, action: str, subject: str, payload: object) -> None:
    """Take in one record of the audit."""
    if action == "inventory.sync":
        gone, there = texts_at(payload, "absent"), object_at(payload, "changed")
        for name in chain(gone, there):
            if name in stories:
                stories[name].present.turn(at, name in there, True)
    elif action == "node.cordons":
        for name, text in object_at(payload, "changed").items():
            if name in stories:
                stories[name].free.turn(at, text is None, text is not None)
                stories[name].cordons.append((at, text if isinstance(text, str) else None))
    elif subject in stories and action == "lease.take_back":
        stories[subject].serves.turn(at, True, False)
    elif subject in stories:
        served, serves = (text_at(payload, key) in _SERVES for key in ("from", "to"))
        stories[subject].serves.turn(at, serves, served)
        if served and text_at(payload, "to") == NodeState.QUARANTINED:
            seen = _Seen(at, at, Sign.QUARANTINED, text_at(payload, "reason") or "")
            stories[subject].quarantined.append(seen)


def _count(stories: Mapping[str, _Story], since: datetime, until: datetime) -> FailureCount:
    service = {name: story.service(since, until) for name, story in stories.items()}
    watched = sum(bool(spans) for spans in service.values())
    silent = {name: list(_unreachable(story)) for name, story in stories.items()}
    begun = [seen.begun for name, found in silent.items() for seen in found if _was_in(service[name], seen.begun)]
    lost = _lost_together(sorted(begun), watched)
    failures: list[NodeFailure] = []
    total = timedelta()
    for name, story in stories.items():
        own = [seen for seen in silent[name] if seen.begun not in lost]
        found = _episodes([*own, *story.quarantined, *_unwell(story, until), *_seen_lost(story, until)])
        failures += [NodeFailure(name, e.begun, e.sign, e.text) for e in found if _was_in(service[name], e.begun)]
        total += _length(service[name]) - _length(_both(service[name], [(e.begun, e.ended) for e in found]))
    failures.sort(key=lambda failure: (failure.at, failure.node))
    node_days = total / timedelta(days=1)
    return FailureCount(since, until, tuple(failures), watched, node_days, sum(at in lost for at in begun))


def _unwell(story: _Story, until: datetime) -> Iterator[_Seen]:
    """Fatal health, until the node is read well again; one that was never read well has not failed in service."""
    well, text = False, ""
    begun: datetime | None = None
    for fact in story.facts[_HEALTH]:
        if fact.value is None:
            continue
        if not fact.value.startswith(Severity.FATAL.value):
            if begun is not None:
                yield _Seen(begun, fact.since, Sign.HEALTH, text)
            well, begun = True, None
        elif well:
            well, begun, text = False, fact.since, fact.value
    if begun is not None:
        yield _Seen(begun, until, Sign.HEALTH, text)


def _unreachable(story: _Story) -> Iterator[_Seen]:
    for fact in story.facts[_PROBE]:
        silent = fact.last_seen - fact.since
        if fact.value == _UNREACHABLE and silent >= _SILENT:
            text = f"no sweep reached its host for {silent // timedelta(minutes=1)} min"
            yield _Seen(fact.since, fact.until, Sign.UNREACHABLE, text)


def _seen_lost(story: _Story, until: datetime) -> Iterator[_Seen]:
    """What the scheduler says of it, unless it has just come back and its scheduler has not heard from it yet."""
    ends = [*(at for at, _ in story.cordons[1:]), until]
    returned = [at for at, on in story.serves.changes if on]
    for (at, text), ended in zip(story.cordons, ends, strict=False):
        settles = any(timedelta() <= at - back < _SETTLES for back in returned)
        if text is not None and _LOST.match(text) and not settles:
            yield _Seen(at, ended, Sign.SCHEDULER, text)


def _lost_together(begun: Sequence[datetime], watched: int) -> frozenset[datetime]:
    """The moments at which more than half of all nodes became unreachable within one sweep or so."""
    most = max(_FEWEST_TOGETHER - 1, watched / 2)
    return frozenset(
        at for at in begun if bisect_right(begun, at + _TOGETHER) - bisect_left(begun, at - _TOGETHER) > most
    )


def _episodes(signs: Iterable[_Seen]) -> list[_Seen]:
    """Signs that belong together as one, which bears the name of the first."""
    found: list[_Seen] = []
    for seen in sorted(signs, key=lambda one: (one.begun, one.sign)):
        if found and seen.begun - found[-1].ended <= _SAME_FAILURE:
            first = found[-1]
            found[-1] = _Seen(first.begun, max(first.ended, seen.ended), first.sign, first.text)
        else:
            found.append(seen)
    return found


def _both(first: Sequence[_Span], second: Sequence[_Span]) -> list[_Span]:
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return [(begin, end) for begin, end in pairs if begin < end]


def _length(spans: Iterable[_Span]) -> timedelta:
    return sum((end - begin for begin, end in spans), timedelta())


def _was_in(service: Sequence[_Span], at: datetime) -> bool:
    """Was it in service until then? The event itself may have ended that."""
    return any(begin < at <= end for begin, end in service)


def _records(connection: Connection, since: datetime, until: datetime) -> Iterable[TableRow]:
    """What the audit tells in the window of where nodes stood."""
    query = sa.select(audit.c.at, audit.c.action, audit.c.subject, audit.c.payload).where(
        audit.c.seq >= _first_record(connection, to_micros(since)),
        audit.c.at.between(to_micros(since), to_micros(until)),
        audit.c.action.in_(_ACTIONS),
    )
    return connection.execute(query.order_by(audit.c.seq))


def _first_record(connection: Connection, micros: int) -> int:
    """The number of the first record at or after that time: no index leads there, so the way is halved."""
    low, high = 1, (connection.execute(sa.select(sa.func.max(audit.c.seq))).scalar() or 0) + 1
    at = sa.select(audit.c.at).where(audit.c.seq >= sa.bindparam("number")).order_by(audit.c.seq).limit(1)
    while low < high:
        middle = (low + high) // 2
        found = connection.execute(at, {"number": middle}).scalar()
        if found is None or found >= micros:
            high = middle
        else:
            low = middle + 1
    return low


_of_probe = sa.and_(known.c.part.is_(None), known.c.source == "probe")
_now = (
    sa.select(known, readings.c.node, readings.c.last_seen)
    .join(readings, readings.c.id == known.c.reading)
    .where(_of_probe)
)
_looks = sa.select(readings.c.node, readings.c.first_seen, readings.c.last_seen).where(readings.c.source == "probe")


def _facts(connection: Connection, since: datetime, until: datetime) -> Iterator[tuple[str, str, _Fact]]:
    """The intervals of what the sweep tells of nodes, each fact's oldest first: those that ended, then what holds."""
    ended = (
        sa.select(past_facts, readings.c.node)
        .join(known, known.c.id == past_facts.c.known)
        .join(readings, readings.c.id == known.c.reading)
        .where(_of_probe, past_facts.c.name.in_((_HEALTH, _PROBE)), past_facts.c.until > since)
        .order_by(past_facts.c.since)
    )
    for row in connection.execute(ended):
        yield row.node, row.name, _Fact(row.value, row.since, row.until, row.last_seen)
    for row in connection.execute(_now):
        told = from_row(row)
        for name in (_HEALTH, _PROBE):
            if name in told.facts or name in told.unknown:
                yield row.node, name, _Fact(told.facts.get(name), told.since(name), until, row.last_seen)

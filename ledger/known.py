"""What one source knows of one subject, and what a newer reading changes in it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.facts import NodeFacts
from ledger.schema import TableRow, clean_text, from_micros, to_micros

SOURCES = ("probe", "bmc", "scheduler", "file")
"""Who is believed first where two sources know the same fact."""

NOTHING_READ = "nothing was read"


@dataclass(frozen=True, slots=True)
class Known:
    """The newest values. A name stands in `facts` or, with the reason, in `unknown`; never in both.

    `last_values` holds what a fact was before it became unknown. `changed` holds microseconds since 1970 of a
    fact's last change, where that is later than `first_seen`.
    """

    first_seen: datetime
    facts: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    last_values: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)

    def since(self, name: str) -> datetime:
        """Since when the fact has its value, or is unknown."""
        micros = self.changed.get(name)
        return self.first_seen if micros is None else from_micros(micros)


@dataclass(frozen=True, slots=True)
class Past:
    """An interval that ended: `value` None where the fact was unknown, for `reason`."""

    name: str
    value: str | None
    reason: str | None
    since: datetime
    until: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class Update:
    """What a reading makes of what was known: the new values and the intervals that ended."""

    known: Known
    past: tuple[Past, ...]
    changes: Mapping[str, tuple[str | None, str | None]]  # name → value before and after; None is not known


def first(facts: Mapping[str, str], unknown: Mapping[str, str], at: datetime) -> Known:
    """What is known after the first reading."""
    known = _clean(facts)
    return Known(at, known, {name: reason for name, reason in _clean(unknown).items() if name not in known})


def _clean(told: Mapping[str, str]) -> dict[str, str]:
    everything = "".join((*told, *told.values()))  # one look instead of one a text: nearly all are clean
    if clean_text(everything) is everything:
        return dict(told)
    return {clean_text(name): clean_text(value) for name, value in told.items()}


def update(old: Known, facts: Mapping[str, str], unknown: Mapping[str, str], at: datetime, seen: datetime) -> Update:
    """Take in a reading of time `at`; `seen` is the time of the one before.

    A name that was known and now stands neither in `facts` nor in `unknown` is gone: its interval ends. It is
    unknown instead where a name in `unknown` that ends with * covers it (`service.*`, `*`), and where the reading
    has no fact at all: that tells nothing of any.
    """
    new = first(facts, unknown, at)
    reasons = _spread(old, new)
    changed, last = dict(old.changed), dict(old.last_values)
    past: list[Past] = []
    changes: dict[str, tuple[str | None, str | None]] = {}
    for name in {**old.facts, **old.unknown, **new.facts, **reasons}:
        before, after = old.facts.get(name), new.facts.get(name)
        was_there, is_there = before is not None or name in old.unknown, after is not None or name in reasons
        if before == after and was_there == is_there:
            continue
        if was_there:
            past.append(Past(name, before, old.unknown.get(name), old.since(name), at, seen))
        changed[name] = to_micros(at)
        if before is not None or after is not None:
            changes[name] = (before, after)
        last.pop(name, None)
        if before is not None and is_there and after is None:
            last[name] = before
        if not is_there:
            del changed[name]
    return Update(Known(old.first_seen, new.facts, reasons, last, changed), tuple(past), changes)


def _spread(old: Known, new: Known) -> dict[str, str]:
    """The unknown names of the reading, and of those known before the ones that it says nothing of."""
    reasons = dict(new.unknown)
    families = [(name[:-1], reason) for name, reason in new.unknown.items() if name.endswith("*")]
    if not new.facts:
        families.append(("", next(iter(new.unknown.values()), NOTHING_READ)))
    for prefix, reason in families:
        for name in {**old.facts, **old.unknown}:
            if name.startswith(prefix) and name not in new.facts and not name.endswith("*"):
                reasons.setdefault(name, reason)
    return reasons


def merge(told: Sequence[tuple[str, Known]]) -> Known:
    """One view of what several sources know: known before unknown, then in the order of SOURCES."""
    if len(told) == 1:
        return told[0][1]
    facts: dict[str, str] = {}
    unknown: dict[str, str] = {}
    last: dict[str, str] = {}
    since: dict[str, int] = {}
    for _, known in reversed(in_order(told)):
        for name, reason in known.unknown.items():
            if name not in facts:
                unknown[name] = reason
                since[name] = to_micros(known.since(name))
                if name in known.last_values:
                    last[name] = known.last_values[name]
        for name, value in known.facts.items():
            unknown.pop(name, None)
            last.pop(name, None)
            facts[name] = value
            since[name] = to_micros(known.since(name))
    return Known(min(known.first_seen for _, known in told), facts, unknown, last, since)


def in_order(told: Iterable[tuple[str, Known]]) -> list[tuple[str, Known]]:
    """The most believed source first; sources that SOURCES does not name come last, by name."""
    return sorted(told, key=lambda item: (rank(item[0]), item[0]))


def rank(source: str) -> int:
    return SOURCES.index(source) if source in SOURCES else len(SOURCES)


def from_row(row: TableRow) -> Known:
    """A row of `known`."""
    return read_known(row.first_seen, row.facts, row.unknown, row.last_values, row.changed)


def read_known(first_seen: datetime, facts: str, unknown: str, last_values: str, changed: str) -> Known:
    """What the columns of `known` hold."""
    return Known(first_seen, _texts(facts), _texts(unknown), _texts(last_values), _micros(changed))


def to_values(known: Known) -> dict[str, object]:
    """The columns of `known` that hold it."""
    return {
        "facts": json.dumps(dict(known.facts), separators=(",", ":")),
        "unknown": json.dumps(dict(known.unknown), separators=(",", ":")),
        "last_values": json.dumps(dict(known.last_values), separators=(",", ":")),
        "changed": json.dumps(dict(known.changed), separators=(",", ":")),
        "first_seen": known.first_seen,
    }


def reading_digest(reading: NodeFacts) -> bytes:
    """16 bytes over everything that seldom changes: facts, unknown and parts, not the numbers."""
    parts = sorted(reading.parts, key=lambda part: (part.kind, part.slot))
    told = [
        [dict(reading.facts), dict(reading.unknown)],
        [[p.kind, p.slot, p.serial, p.uuid, dict(p.facts), dict(p.unknown)] for p in parts],
    ]
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).digest()


_decode = json.JSONDecoder().raw_decode  # json.loads without its checks: these texts are our own


def _texts(text: str) -> dict[str, str]:
    loaded: dict[str, str] = {} if text == "{}" else _decode(text)[0]
    return loaded


def _micros(text: str) -> dict[str, int]:
    loaded: dict[str, int] = {} if text == "{}" else _decode(text)[0]
    return loaded

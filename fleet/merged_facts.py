"""One view of each node out of what the probe, the BMC and the scheduler told of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce

from fleet.facts import NodeFacts, PartFacts

_NOTHING = frozenset({"", "n/a", "[n/a]", "na", "unknown", "[unknown]", "unknown error", "[unknown error]", "null"})


def merge_facts(facts: Iterable[NodeFacts]) -> dict[str, NodeFacts]:
    """By node: of each source the newest reading, and over all sources the newest value of each fact.

    A source that could not read a fact takes nothing from one that did. A part in a slot where a newer reading has
    another one is gone. The order of `facts` does not matter.
    """
    newest: defaultdict[str, dict[str, NodeFacts]] = defaultdict(dict)
    for reading in facts:
        kept = newest[reading.node].get(reading.source)
        if kept is None or (kept.at, repr(kept)) < (reading.at, repr(reading)):
            newest[reading.node][reading.source] = reading
    return {
        node: reduce(_over, sorted(by_source.values(), key=lambda reading: (reading.at, reading.source)))
        for node, by_source in newest.items()
    }


def told(facts: Mapping[str, str], name: str) -> str | None:
    """The value of a fact; None also for what only stands for a value."""
    value = facts.get(name)
    return None if value is None or value.strip().lower() in _NOTHING else value


def _over(older: NodeFacts, newer: NodeFacts) -> NodeFacts:
    gone = {(part.kind, part.slot) for part in newer.parts}
    known = {part.key: part for part in older.parts}
    parts = [_part_over(known.get(part.key), part) for part in newer.parts]
    keys = {part.key for part in newer.parts}
    parts += [p for p in older.parts if p.key not in keys and (p.kind, p.slot) not in gone]
    return NodeFacts(
        node=newer.node,
        at=newer.at,
        source=f"{older.source}, {newer.source}",
        facts={**older.facts, **newer.facts},
        unknown=_unknown(older, newer),
        numbers={**older.numbers, **newer.numbers},
        parts=tuple(parts),
    )


def _part_over(older: PartFacts | None, newer: PartFacts) -> PartFacts:
    if older is None:
        return newer
    return PartFacts(
        kind=newer.kind,
        slot=newer.slot,
        serial=newer.serial,
        uuid=newer.uuid or older.uuid,
        facts={**older.facts, **newer.facts},
        unknown=_unknown(older, newer),
        numbers={**older.numbers, **newer.numbers},
    )


def _unknown(older: NodeFacts | PartFacts, newer: NodeFacts | PartFacts) -> dict[str, str]:
    reasons = {**older.unknown, **newer.unknown}
    return {name: why for name, why in reasons.items() if name not in older.facts and name not in newer.facts}

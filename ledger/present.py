"""What the ledger knows now, in the shape that drift is judged from."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fleet.drift import NODE, Since
from fleet.facts import NodeFacts, PartFacts
from ledger.facts import NodeNow, PartNow


def present_facts(found: Iterable[NodeNow]) -> tuple[tuple[NodeFacts, ...], Since]:
    """The nodes' facts, and since when each has its value or is unknown.

    A part that the newest reading of none of its sources shows is unknown: what it was set to once says nothing.
    """
    facts: list[NodeFacts] = []
    since: dict[tuple[str, str, str], datetime] = {}
    for now in found:
        parts = tuple(_part(part, now) for part in now.parts)
        for key, known in ((NODE, now.known), *((part.key, part.known) for part in now.parts)):
            since |= {(now.node, key, name): known.since(name) for name in (*known.facts, *known.unknown)}
        source, at = ", ".join(sorted(now.seen)), max(now.seen.values())
        facts.append(NodeFacts(now.node, at, source, now.known.facts, now.known.unknown, parts=parts))
    return tuple(facts), since


def _part(part: PartNow, now: NodeNow) -> PartFacts:
    if not part.missing:
        return PartFacts(part.kind, part.slot, part.serial, part.uuid, part.known.facts, part.known.unknown)
    why = now.known.unknown.get("probe") or "the newest reading does not show it"
    unknown = {"*": f"{why}; last read {part.seen:%F %H:%M}"}
    return PartFacts(part.kind, part.slot, part.serial, part.uuid, {}, unknown)

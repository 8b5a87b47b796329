"""What the ledger knows now, in the shape that drift is judged from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from fleet.drift import NODE, Since
from fleet.facts import NodeFacts, PartFacts
from ledger.facts import NodeNow, PartNow

STALE_AFTER = timedelta(hours=24)  # four readings of a BMC by default, and 288 of a host


def present_facts(
    found: Iterable[NodeNow], now: datetime | None = None, stale_after: timedelta = STALE_AFTER
) -> tuple[tuple[NodeFacts, ...], Since]:
    """The nodes' facts, and since when each has its value or is unknown.

    A node that no source read within `stale_after` before `now` is unknown: what was so a month ago says little.
    A part that the newest reading of none of its sources shows is unknown: what it was set to once says nothing.
    """
    facts: list[NodeFacts] = []
    since: dict[tuple[str, str, str], datetime] = {}
    for node in found:
        source, at = ", ".join(sorted(node.seen)), max(node.seen.values())
        if now is not None and now - at > stale_after:
            facts.append(NodeFacts(node.node, at, source, {}, {"*": f"not read since {at:%F %H:%M} UTC"}))
            continue
        parts = tuple(_part(part, node) for part in node.parts)
        for key, known in ((NODE, node.known), *((drift_key(part), part.known) for part in node.parts)):
            since |= {(node.node, key, name): known.since(name) for name in (*known.facts, *known.unknown)}
        facts.append(NodeFacts(node.node, at, source, node.known.facts, node.known.unknown, parts=parts))
    return tuple(facts), since


def drift_key(part: PartNow) -> str:
    """What a row of drift calls this part."""
    return _told(part, {}, {}).key


def _part(part: PartNow, now: NodeNow) -> PartFacts:
    if not part.missing:
        return _told(part, part.known.facts, part.known.unknown)
    why = now.known.unknown.get("probe") or "the newest reading does not show it"
    return _told(part, {}, {"*": f"{why}; last read {part.seen:%F %H:%M}"})


def _told(part: PartNow, facts: Mapping[str, str], unknown: Mapping[str, str]) -> PartFacts:
    """A serial that names no part, as several bear it, is left out: its GPUs would be one."""
    serial = part.serial if part.key == f"{part.kind}:{part.serial}" else None
    return PartFacts(part.kind, part.slot, serial, part.uuid, facts, unknown)

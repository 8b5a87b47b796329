"""The part of `gpufleet node` that tells of what sits in the node besides GPUs, and of what sat there before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.session import console, plain_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ledger import Fact, PartThen, Placement

# Of each kind the facts that name a part and its state; --json has them all.
_SHOWN: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nic": ("NICs", ("interfaces", "model", "firmware", "mac", "guid", "state", "rate", "pcie_width")),
    "disk": ("disks", ("name", "model", "firmware", "size_bytes", "state")),
    "dimm": ("memory modules", ("part_number", "size_mib", "configured_mts", "manufacturer")),
}
_TIMES = ("there since (UTC)", "seen (UTC)")
_FORMER_SHOWN = 20
LISTED = frozenset(_SHOWN)
"""Kinds of part that have a line each in a table of their kind."""


def show_parts(parts: Sequence[PartThen], places: Sequence[Placement], at: datetime) -> None:
    """A table for each kind: since when the part that was there at `at` was in its slot, and when it was last seen."""
    there = [place for place in places if place.since <= at and (place.until is None or place.until > at)]
    since = {(place.part, place.slot): place.since for place in there}
    for kind, (title, facts) in _SHOWN.items():
        found = [part for part in parts if part.kind == kind]
        if found:
            told = [name for name in facts if any(name in part.facts for part in found)]
            console.print(f"\n{title}", highlight=False)
            console.print(plain_table(("slot", "known by", *told, *_TIMES), _cells(found, told, since)))


def show_former(places: Sequence[Placement], at: datetime) -> None:
    """What left the node or its slot before `at`, the newest first."""
    left = former(places, at)
    if not left:
        return
    console.print("\nparts that were here", highlight=False)
    rows = ((p.slot, p.part, f"{p.since:%F %H:%M}", f"{p.until:%F %H:%M}" if p.until else "") for p in left)
    console.print(plain_table(("slot", "part", "from (UTC)", "until (UTC)"), [*rows][:_FORMER_SHOWN]))
    if len(left) > _FORMER_SHOWN:
        console.print(f"and {len(left) - _FORMER_SHOWN} more; --json has them all", highlight=False)


def former(places: Sequence[Placement], at: datetime) -> list[Placement]:
    """Places that had ended at `at`, the newest end first."""
    ended = [(place.until, place) for place in places if place.until is not None and place.until <= at]
    return [place for _, place in sorted(ended, key=lambda pair: pair[0], reverse=True)]


def former_json(places: Sequence[Placement], at: datetime) -> list[dict[str, object]]:
    return [
        {
            "part": place.part,
            "slot": place.slot,
            "source": place.source,
            "since": place.since.isoformat(),
            "until": None if place.until is None else place.until.isoformat(),
        }
        for place in former(places, at)
    ]


def _cells(
    parts: Sequence[PartThen], told: Sequence[str], since: Mapping[tuple[str, str], datetime]
) -> Iterable[tuple[str, ...]]:
    for part in parts:
        place = since.get((part.key, part.slot))
        seen = max((fact.last_seen for fact in part.facts.values()), default=None)
        times = (f"{time:%F %H:%M}" if time else "?" for time in (place, seen))
        yield part.slot, part.serial or part.uuid or "?", *(_text(part.facts.get(name)) for name in told), *times


def _text(fact: Fact | None) -> str:
    """A value; a ? for what was not read, nothing for what such a part does not have."""
    return "" if fact is None else fact.value or "?"

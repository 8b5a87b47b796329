"""Where one component stands between its old and its new version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fleet.bundle import Bundle, BundleEntry
from fleet.model import FirmwareComponent, FirmwareRole
from fleet.plan import Change
from fleet.versions import Relation, compare


class Progress(StrEnum):
    ACTIVE = "active"  # runs the desired version
    STAGED = "staged"  # has it written, waits for its reset
    OLD = "old"
    UNKNOWN = "unknown"  # not readable now


@dataclass(frozen=True, slots=True)
class Stage:
    """Entries that are flashed one after the other and then activated together."""

    entries: tuple[BundleEntry, ...]


def stages(bundle: Bundle) -> tuple[Stage, ...]:
    """A stage ends behind an entry that must be active before the next one is flashed."""
    found: list[Stage] = []
    part: list[BundleEntry] = []
    for entry in bundle.entries:
        part.append(entry)
        if entry.activate_first:
            found.append(Stage(tuple(part)))
            part = []
    return (*found, Stage(tuple(part))) if part else tuple(found)


def progress(change: Change, inventory: Iterable[FirmwareComponent]) -> Progress:
    """The hardware's word on one change. A component that is gone or unreadable is UNKNOWN."""
    component = next((c for c in inventory if c.id == change.component), None)
    if component is None or component.role is not FirmwareRole.ACTIVE or component.version is None:
        return Progress.UNKNOWN
    if compare(component.version, change.desired) is Relation.EQUAL:
        return Progress.ACTIVE
    if component.staged is not None and compare(component.staged, change.desired) is Relation.EQUAL:
        return Progress.STAGED
    return Progress.OLD


def not_yet(
    changes: Iterable[Change], inventory: tuple[FirmwareComponent, ...], wanted: frozenset[Progress]
) -> tuple[tuple[Change, Progress], ...]:
    """The changes that are in none of the `wanted` places, with where they are."""
    placed = ((change, progress(change, inventory)) for change in changes)
    return tuple((change, place) for change, place in placed if place not in wanted)

"""Hardware that the fleet has not seen before, and the payload of the event that starts its intake.

Two sightings are the same hardware by system serial, else by MAC address, else by UUID, else by place: the BMC's
address or the node's name. A serial decides alone: another serial in a known place is other hardware. A UUID that
several addresses give at once names none of them (some vendors ship every BMC with the same one).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fleet.canonical import digest
from fleet.errors import ConfigurationError
from fleet.hardware import Hardware, Where, uuid_of
from fleet.inventory_addresses import address_key
from fleet.json_values import JsonObject, object_at, text_at, texts_at, value_at

EVENT = "gpufleet.hardware.arrived"
PAYLOAD_VERSION = 1


class ArrivalSource(StrEnum):
    """Who saw it."""

    DISCOVERY = "discovery"  # a BMC answered in an address range
    NETBOX = "netbox"
    SWEEP = "sweep"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Arrival:
    """Hardware that is new. `replaces` is the node that was known in its place. `seen_at` is in UTC."""

    hardware: Hardware
    source: ArrivalSource
    seen_at: datetime
    replaces: str | None = None

    @property
    def key(self) -> str:
        """16 hex digits that name the hardware, from the strongest mark that is known of it."""
        seen = self.hardware
        place = address_key("bmc", seen.bmc) if seen.bmc else (seen.node or "")
        kind, mark = seen.marks[0] if seen.marks else ("place", place)
        return digest({kind: mark})[:16]


@dataclass(frozen=True, slots=True)
class Moved:
    """Known hardware whose BMC answers at another address than the known one."""

    hardware: Hardware
    known: Hardware


@dataclass(frozen=True, slots=True)
class Doubt:
    """Hardware in a known place whose marks are not the known ones, without a serial that would decide."""

    hardware: Hardware
    known: Hardware
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was seen, against what is known. `recognised` counts the hardware that is known, moved or not."""

    arrivals: tuple[Arrival, ...] = ()
    moved: tuple[Moved, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    recognised: int = 0


def compare(
    seen: Iterable[Hardware], known: Iterable[Hardware], source: ArrivalSource, seen_at: datetime
) -> Comparison:
    """What of `seen` is new.

    `known` is the inventory's hardware and whatever was announced before: the caller keeps that, for the same
    hardware must not arrive twice.
    """
    index = _Index(known)
    arrivals: list[Arrival] = []
    moved: list[Moved] = []
    doubts: list[Doubt] = []
    recognised = 0
    for hardware in _without_shared_uuids(tuple(seen)):
        if not hardware.named:
            continue
        same, there = index.same(hardware), index.in_place(hardware)
        doubt = None if same or there is None else _doubt(hardware, there)
        if doubt is not None:
            doubts.append(doubt)
        elif (found := same or there) is not None and not _other_serial(hardware, found):
            recognised += 1
            new = any(arrival.hardware is found for arrival in arrivals)
            if _elsewhere(hardware, found) and not new and not _is_at_home(hardware, found, there):
                moved.append(Moved(hardware, found))
        else:
            arrivals.append(Arrival(hardware, source, seen_at, None if there is None else there.node))
            index.add(hardware)
    return Comparison(tuple(arrivals), tuple(moved), tuple(doubts), recognised)


class _Index:
    """Known hardware by each of its marks, and by its place."""

    def __init__(self, known: Iterable[Hardware]) -> None:
        self._by_mark: dict[tuple[str, str], Hardware] = {}
        self._by_address: dict[str, Hardware] = {}
        self._by_name: dict[str, Hardware] = {}
        for hardware in known:
            self.add(hardware)

    def add(self, hardware: Hardware) -> None:
        """Later hardware in a place replaces earlier: it is what is there now. A mark is rather a named node's."""
        for mark in hardware.marks:
            if self._by_mark.setdefault(mark, hardware).node is None and hardware.node is not None:
                self._by_mark[mark] = hardware
        if hardware.bmc:
            self._by_address[address_key("bmc", hardware.bmc)] = hardware
        if hardware.node:
            self._by_name[hardware.node.casefold()] = hardware

    def same(self, hardware: Hardware) -> Hardware | None:
        """The known hardware that shares the strongest mark, unless the serials say otherwise."""
        found = (self._by_mark.get(mark) for mark in hardware.marks)
        return next((known for known in found if known is not None and not _other_serial(hardware, known)), None)

    def in_place(self, hardware: Hardware) -> Hardware | None:
        """What is known at its BMC's address, else under its name."""
        there = self._by_address.get(address_key("bmc", hardware.bmc)) if hardware.bmc else None
        return there or (self._by_name.get(hardware.node.casefold()) if hardware.node else None)


def _other_serial(one: Hardware, other: Hardware) -> bool:
    """Do both tell their serial, and not the same one?"""
    return bool(one.serial and other.serial and one.serial.casefold() != other.serial.casefold())


def _elsewhere(hardware: Hardware, known: Hardware) -> bool:
    if not hardware.bmc or not known.bmc:
        return False
    return address_key("bmc", hardware.bmc) != address_key("bmc", known.bmc)


def _is_at_home(hardware: Hardware, known: Hardware, there: Hardware | None) -> bool:
    """Does this address belong to the same hardware? A BMC may have several, and an announced one is given a node."""
    if there is None:
        return False
    return known.node is None or there.node == known.node or bool(set(there.marks) & set(hardware.marks))


def _doubt(hardware: Hardware, known: Hardware) -> Doubt | None:
    """None where the serials decide, or where no mark can be compared."""
    kinds = {kind for kind, _ in hardware.marks} & {kind for kind, _ in known.marks}
    if not kinds or "serial" in kinds:
        return None
    what = " and ".join(sorted(kinds))
    text = f"{hardware.label} is in the place of {known.label} and tells another {what}; its serial would decide"
    return Doubt(hardware, known, text)


def _without_shared_uuids(seen: Sequence[Hardware]) -> list[Hardware]:
    count = Counter(uuid_of(hardware.uuid) for hardware in seen)
    return [
        replace(hardware, uuid=None) if hardware.uuid and count[uuid_of(hardware.uuid)] > 1 else hardware
        for hardware in seen
    ]


def payload_of(arrival: Arrival) -> dict[str, object]:
    """The event's payload, for JSON; `read_payload` reads it back. Within one version keys are only added."""
    seen = arrival.hardware
    return {
        "version": PAYLOAD_VERSION,
        "hardware": arrival.key,
        "node": seen.node,
        "bmc": seen.bmc,
        "serials": dict(seen.serials or {}),
        "uuid": seen.uuid,
        "macs": list(seen.macs),
        "vendor": seen.vendor,
        "model": seen.model,
        "where": {"site": seen.where.site, "rack": seen.where.rack, "unit": seen.where.unit},
        "certificate_sha256": seen.certificate_sha256,
        "source": arrival.source.value,
        "seen_at": arrival.seen_at.isoformat(),
        "replaces": arrival.replaces,
    }


def read_payload(payload: JsonObject) -> Arrival:
    """An arrival from its payload. Raises ConfigurationError for another version or what cannot be read."""
    version = value_at(payload, "version")
    if version != PAYLOAD_VERSION:
        raise ConfigurationError(f"an arrival of version {version!r}; this reads version {PAYLOAD_VERSION}")
    try:
        seen_at = datetime.fromisoformat(text_at(payload, "seen_at") or "")
        source = ArrivalSource(text_at(payload, "source") or "")
    except ValueError as error:
        raise ConfigurationError(f"an arrival that cannot be read: {error}") from error
    hardware = _hardware(payload)
    if not hardware.named or seen_at.tzinfo is None:
        raise ConfigurationError("an arrival that names no hardware, or a time without its zone")
    return Arrival(hardware, source, seen_at, text_at(payload, "replaces"))


def _hardware(payload: JsonObject) -> Hardware:
    unit = value_at(payload, "where", "unit")
    return Hardware(
        node=text_at(payload, "node"),
        bmc=text_at(payload, "bmc"),
        serials={key: value for key, value in object_at(payload, "serials").items() if isinstance(value, str)},
        uuid=text_at(payload, "uuid"),
        macs=texts_at(payload, "macs"),
        vendor=text_at(payload, "vendor"),
        model=text_at(payload, "model"),
        where=Where(
            text_at(payload, "where", "site"),
            text_at(payload, "where", "rack"),
            unit if isinstance(unit, int) and not isinstance(unit, bool) else None,
        ),
        certificate_sha256=text_at(payload, "certificate_sha256"),
    )

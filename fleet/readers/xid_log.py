"""The Xids of one log as events: alike lines as one, a GPU lost without its Xid, and what a reset or boot ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS, gpu_address
from fleet.readers.plain_text import evidence
from fleet.readers.xid import XidEvent, merged, read_xid
from fleet.readers.xid_judgement import contradiction

_LOST = re.compile(
    rf"NVRM:.*?\bGPU\s+(?:at\s+)?(?:PCI:)?(?P<device>{ADDRESS}).*?(?:has\s+)?fallen\s+off\s+the\s+bus", re.IGNORECASE
)
_TIED = re.compile(rf"GPU at (?:PCI:)?(?P<device>{ADDRESS}):\s*(?P<uuid>GPU-[0-9a-fA-F-]{{8,40}})")
_RESET = re.compile(r"GPU reset (?:occurred|executed|completed).{0,20}?(?P<uuid>GPU-[0-9a-fA-F-]{8,40})", re.IGNORECASE)
_BOOT = tuple(f"Linux version {digit}" for digit in range(10))


class XidLog:
    """Takes a log's records in their order; `events` then are the faults, `unknown` what cannot be told."""

    def __init__(self) -> None:
        self._unknown: list[str] = []
        self._events: list[XidEvent] = []
        self._open: dict[str | None, dict[str, dict[int, int]]] = {}  # host, GPU and code to the event's place
        self._uuids: dict[str, str] = {}

    def take(self, record: LogRecord, window: str) -> bool:
        """Whether the record is an Xid or tells of a lost GPU; `window` is its message with what follows at once."""
        read = read_xid(record)
        if isinstance(read, str):
            self._unknown.append(read)
            return True
        event = read or _lost(record, window)
        if event is not None:
            self._add(event)
            return True
        self._note(record)
        return False

    def events(self) -> tuple[XidEvent, ...]:
        """The faults, in the order of their first lines."""
        return tuple(self._events)

    def unknown(self) -> tuple[str, ...]:
        """Lines that could not be read, and those whose words contradict their code."""
        return (*self._unknown, *(said for said in map(contradiction, self._events) if said))

    def address_of(self, subject: str) -> str | None:
        """The address of the GPU that a subject names by its UUID ("gpu GPU-dae4…"), where the log tells it."""
        return self._uuids.get(subject.removeprefix("gpu ").lower())

    def _add(self, event: XidEvent) -> None:
        codes = self._open.setdefault(event.host, {}).setdefault(event.device, {})
        place = codes.get(event.code)
        if place is None:
            codes[event.code] = len(self._events)
            self._events.append(event)
        else:
            self._events[place] = merged(self._events[place], event)

    def _note(self, record: LogRecord) -> None:
        message = record.message
        if message.startswith(_BOOT):
            ended = self._open.pop(record.host, {})
            for codes in ended.values():
                self._end("a reboot", codes)
            if ended and not record.host:
                self._unknown.append(
                    f"line {record.number}: whether the same host starts here, which ends what stands above: "
                    "the log names no host"
                )
        if "GPU" not in message:
            return
        tied = _TIED.search(message)
        if tied:
            self._uuids[tied["uuid"].lower()] = gpu_address(tied["device"]) or ""
        uuid = reset_gpu(message)
        if uuid is None:
            return
        device = self._uuids.get(uuid.lower())
        if device:
            self._end("a reset of the GPU", self._open.get(record.host, {}).pop(device, {}))
        elif any(self._open.values()):
            self._unknown.append(f"line {record.number}: which GPU was reset: the log ties {uuid} to no address")

    def _end(self, by: str, codes: Mapping[int, int]) -> None:
        """Marks open events as ended; the same fault later is a new event."""
        for place in codes.values():
            self._events[place] = replace(self._events[place], cleared_by=by)


def reset_gpu(message: str) -> str | None:
    """The UUID of the GPU that the message says was reset; None for other messages."""
    found = _RESET.search(message) if "GPU-" in message else None
    return found["uuid"] if found else None


def _lost(record: LogRecord, window: str) -> XidEvent | None:
    """A GPU that fell off the bus, told without an Xid, in one record or over several."""
    if "NVRM:" not in record.message:
        return None
    found = _LOST.search(window if "The NVIDIA GPU" in record.message else record.message)
    device = gpu_address(found["device"]) if found else None
    if found is None or device is None or "GPU" not in record.message:
        return None
    return XidEvent(
        79,
        device,
        "GPU has fallen off the bus.",
        evidence(record.line if "off the bus" in record.message else window),
        record.number,
        implied=True,
        time=record.time,
        seconds=record.seconds,
        last_seconds=record.seconds,
        host=record.host,
    )

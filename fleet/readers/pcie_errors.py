"""PCIe errors in a kernel log: Advanced Error Reporting, containment and hot plug, one event a device and severity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.findings import Action, Severity
from fleet.readers.line_rules import LineEvent, part_name
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS, device_address, gpu_address, requester_address
from fleet.readers.plain_text import evidence

_HOW = r"(?P<how>Corrected|Correctable|Uncorrected|Uncorrectable|Non-?Fatal|Fatal)(?:\s*\((?P<degree>[\w-]+)\))?"
_REPORT = re.compile(rf"PCIe Bus Error:\s*severity=\s*{_HOW}(?:,\s*type=(?P<type>[^,(]+))?", re.IGNORECASE)
_RECEIVED = re.compile(
    rf"AER:\s*(?:Multiple )?{_HOW} errors?(?: message)? received:?\s*(?:from )?"
    rf"(?P<source>{ADDRESS}|id=[0-9a-fA-F]{{4}})?",
    re.IGNORECASE,
)
_CONTAINED = re.compile(r"DPC: (?:containment event|unmasked uncorrectable error)", re.IGNORECASE)
_LOST_SLOT = re.compile(r"pciehp:?.*?Slot\((?P<slot>[^)]*)\): (?P<what>Link Down|Card not present)", re.IGNORECASE)
_SPEAKER = re.compile(rf"(?P<driver>[\w-]+) (?P<device>{ADDRESS}):")
_BIT = re.compile(r":\s+\[\s*\d+\]\s+(?P<name>[A-Za-z][\w /()-]*?)(?:\s+\(First\))?\s*$")
_FOLLOWS = re.compile(
    r"device \[[0-9a-f]{4}:[0-9a-f]{4}\]|no AER-aware driver|can't recover|device recovery|TLP Header|\baer_\w+:"
)
_KINDS = {"pcieport": "port", "nvidia": "gpu", "mlx5_core": "nic", "nvme": "nvme"}
_NEAR_RECORDS = 12


@dataclass(frozen=True, slots=True)
class _Open:
    """The report that the lines after it continue."""

    place: int
    event: LineEvent


def read_pcie_errors(records: Sequence[LogRecord]) -> tuple[LineEvent, ...]:
    """Every report of a PCIe error, with the errors' names and the GPUs that its lines name (in `related`)."""
    events: list[LineEvent] = []
    last: _Open | None = None
    for place, record in enumerate(records):
        message = record.message
        if not ("[" in message or "AER" in message or "PCI" in message or "DPC" in message or "pciehp" in message):
            continue
        speaker = _SPEAKER.search(message)
        event = _report(record, speaker)
        if event is not None:
            if last is not None and last.event.count == 0 and _same(last.event, event):
                events.pop()
            events.append(event)
            last = _Open(place, event)
        elif last is not None and place - last.place <= _NEAR_RECORDS and speaker is not None:
            more = _continued(last.event, message, speaker)
            events[-1] = more
            last = _Open(last.place, more)
    return tuple(replace(event, count=max(event.count, 1)) for event in events)


def _same(announced: LineEvent, detailed: LineEvent) -> bool:
    """Whether the line that details an error is of the one that was announced just before."""
    addresses = {gpu_address(event.subject.split(" ")[1]) for event in (announced, detailed)}
    return announced.code == detailed.code and len(addresses) == 1


def _report(record: LogRecord, speaker: re.Match[str] | None) -> LineEvent | None:
    """The event of a line that reports an error; its count is 0 where the line that details it is yet to come."""
    message = record.message
    device = device_address(speaker["device"]) if speaker else record.device
    driver = speaker["driver"] if speaker else ""
    report = _REPORT.search(message)
    if report:
        kind = f"{report['type'].strip()} error" if report["type"] else "error"
        return _event(record, _code(report["how"], report["degree"]), driver, device, f"PCIe {kind}.", 1)
    received = _RECEIVED.search(message)
    if received:
        source = received["source"] or ""
        if source.startswith("id="):
            source = requester_address(source[3:], (device or "0000:").split(":")[0]) or ""
        driver = driver if not source or device_address(source) == device else ""
        return _event(record, _code(received["how"], received["degree"]), driver, source or device, "PCIe error.", 0)
    if _CONTAINED.search(message):
        return _event(record, "pcie.contained", driver, device, "The port cut its link off to contain an error.", 1)
    lost = _LOST_SLOT.search(message)
    if lost:
        said = f"The card in slot {lost['slot']} is gone: {lost['what'].lower()}."
        return _event(record, "pcie.slot_lost", driver, device, said, 1)
    return None


def _code(how: str, degree: str | None) -> str:
    word = (degree or how).lower().replace("-", "")
    if word.startswith("correct"):
        return "pcie.aer_corrected"
    return {"fatal": "pcie.aer_fatal", "nonfatal": "pcie.aer_nonfatal"}.get(word, "pcie.aer_uncorrected")


def _event(record: LogRecord, code: str, driver: str, device: str | None, said: str, count: int) -> LineEvent:
    severity, action = Severity.ERROR, Action.CHECK_LINK
    if code == "pcie.aer_corrected":
        severity, action = Severity.INFO, Action.WATCH
        said = f"{said} Corrected by the link itself: only its rate matters."
    elif code in ("pcie.aer_fatal", "pcie.contained", "pcie.slot_lost"):
        severity = Severity.FATAL
    elif code == "pcie.aer_nonfatal":
        said = f"{said} Not corrected, and the link stayed up."
    related = gpu_address(device) if driver == "nvidia" and device else None
    return LineEvent(
        code,
        part_name(_KINDS.get(driver, "pci"), device or ""),
        severity,
        action,
        said,
        evidence(record.line),
        record.number,
        record.seconds,
        record.seconds,
        record.host,
        count,
        (related,) if related else (),
    )


def _continued(event: LineEvent, message: str, speaker: re.Match[str]) -> LineEvent:
    """The event with the error's name or the GPU that a following line adds."""
    bit = _BIT.search(message)
    if bit and bit["name"] not in event.text:
        return replace(event, text=f"{event.text} {bit['name'].strip()}.")
    gpu = gpu_address(speaker["device"])
    if speaker["driver"] == "nvidia" and gpu and _FOLLOWS.search(message) and gpu not in event.related:
        return replace(event, related=(*event.related, gpu))
    return event

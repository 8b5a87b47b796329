"""What the kernel says of the node's hardware besides its GPUs: memory, processors, PCIe, network, disks, itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from fleet.findings import Action, Severity
from fleet.readers.hardware_rules import HARDWARE_RULES
from fleet.readers.line_rules import LineEvent, part_name
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS
from fleet.readers.pcie_errors import read_pcie_errors
from fleet.readers.plain_text import evidence

_EDAC = re.compile(r"EDAC (?P<mc>MC\d+): (?:(?P<count>\d+) )?(?P<kind>CE|UE)\b(?P<rest>.*)")
_DIMM = re.compile(r"\bon (?P<dimm>\S+)|label \"(?P<label>[^\"]+)\"")
_BANK = re.compile(r"Machine Check(?: Exception| Event)?: \w+ Bank (?P<bank>\d+): (?P<status>[0-9a-fA-F]{16})")
_UNCORRECTED = 1 << 61  # bit UC of a bank's status: Intel SDM volume 3B, 15.3.2.2; the same in AMD's MCA_STATUS
_APEI = re.compile(r"(?:\{(?P<record>\d+)\})?\[Hardware Error\]:\s*(?P<said>.*)")
_APEI_START = re.compile(r"Hardware error from APEI|event severity:", re.IGNORECASE)
_APEI_SEVERITIES: Mapping[str, tuple[str, Severity, Action]] = {
    "corrected": ("corrected", Severity.INFO, Action.WATCH),
    "info": ("info", Severity.INFO, Action.NONE),
    "recoverable": ("uncorrected", Severity.ERROR, Action.RUN_DIAGNOSTICS),
    "fatal": ("fatal", Severity.FATAL, Action.RUN_DIAGNOSTICS),
}
_VENDOR_KINDS = {0x10DE: "gpu", 0x144D: "nvme", 0x15B3: "nic", 0x1344: "nvme", 0x1C5C: "nvme", 0x1E0F: "nvme"}
_CLASS_KINDS = {"0108": "nvme", "0207": "nic", "0200": "nic", "0302": "gpu", "0604": "port"}


def read_hardware_errors(records: Sequence[LogRecord]) -> tuple[LineEvent, ...]:
    """Every event, in the order of the lines; alike ones are not made one yet."""
    events = [*read_pcie_errors(records), *_firmware_records(records)]
    ended: set[str] = set()
    for record in records:
        event = _memory(record) or _machine_check(record) or HARDWARE_RULES.event(record, record.message)
        if event is not None and not _told_before(event, ended):
            events.append(event)
    return tuple(sorted(events, key=lambda event: event.line))


def _told_before(event: LineEvent, ended: set[str]) -> bool:
    """Whether an earlier line told of the same process that memory ran out for; the kernel prints two of each."""
    pid = re.search(r"[Pp]rocess (\d+) \(|,pid=(\d+)", event.evidence) if event.code == "kernel.oom" else None
    if pid is None:
        return False
    number = pid[1] or pid[2]
    if number in ended:
        return True
    ended.add(number)
    return False


def _machine_check(record: LogRecord) -> LineEvent | None:
    """A machine check with its bank's status: one bit of it says whether it was corrected."""
    found = _BANK.search(record.message) if "Bank" in record.message else None
    if found is None:
        return None
    uncorrected = bool(int(found["status"], 16) & _UNCORRECTED)
    return LineEvent(
        "cpu.mce_uncorrected" if uncorrected else "cpu.mce_corrected",
        "node",
        Severity.ERROR if uncorrected else Severity.INFO,
        Action.RUN_DIAGNOSTICS if uncorrected else Action.WATCH,
        f"A machine check in bank {found['bank']}, {'not ' if uncorrected else ''}corrected.",
        evidence(record.line),
        record.number,
        record.seconds,
        record.seconds,
        record.host,
    )


def _memory(record: LogRecord) -> LineEvent | None:
    """EDAC's count of corrected (CE) or uncorrected (UE) errors of one DIMM."""
    found = _EDAC.search(record.message) if "EDAC" in record.message else None
    if found is None:
        return None
    dimm = _DIMM.search(found["rest"])
    corrected = found["kind"] == "CE"
    return LineEvent(
        "memory.corrected" if corrected else "memory.uncorrected",
        f"dimm {(dimm['dimm'] or dimm['label']) if dimm else found['mc']}",
        Severity.INFO if corrected else Severity.ERROR,
        Action.WATCH if corrected else Action.REPLACE_PART,
        "Corrected memory errors: only their rate matters."
        if corrected
        else "Memory errors that could not be corrected.",
        evidence(record.line),
        record.number,
        record.seconds,
        record.seconds,
        record.host,
        max(int((found["count"] or "1")[:9]), 1),
    )


def _firmware_records(records: Sequence[LogRecord]) -> Iterator[LineEvent]:
    """Errors that the platform's firmware reported (ACPI APEI): the lines of one record are one event."""
    said: list[str] = []
    first: LogRecord | None = None
    key: str | None = None
    for record in records:
        found = _APEI.search(record.message) if "[Hardware Error]" in record.message else None
        if found is None:
            continue
        starts = found["said"].startswith("Hardware error from APEI") or (first and found["record"] != key)
        if first is not None and starts:
            yield from _firmware_event(first, said)
            first = None
        if first is None and _APEI_START.search(found["said"]):
            first, said, key = record, [], found["record"]
        said.append(found["said"])
    if first is not None:
        yield from _firmware_event(first, said)


def _firmware_event(first: LogRecord, said: Sequence[str]) -> Iterator[LineEvent]:
    whole = "\n".join(said)
    how = re.search(r"event severity:\s*(\w+)", whole)
    if how is None:
        return
    word, severity, action = _APEI_SEVERITIES.get(how[1].lower(), ("unknown", Severity.WARNING, Action.INVESTIGATE))
    address = re.search(rf"device_id:\s*(?P<device>{ADDRESS})", whole)
    section = re.search(r"section_type:\s*(.+)", whole)
    of_memory = "memory" in (section[1].lower() if section else "")
    yield LineEvent(
        f"{'memory' if of_memory else 'pcie' if address else 'hardware'}.firmware_{word}",
        part_name(_kind(whole), address["device"]) if address else _memory_name(whole) if of_memory else "node",
        severity,
        Action.CHECK_LINK if address and word == "uncorrected" else action,
        f"The firmware reports a hardware error, {how[1].lower()}{': ' + section[1].strip() if section else ''}.",
        evidence(first.line, *said[1:]),
        first.number,
        first.seconds,
        first.seconds,
        first.host,
    )


def _kind(whole: str) -> str:
    """What a PCIe device is, by its class, else by its vendor; "pci" where neither tells."""
    code = re.search(r"class_code:\s*(?:0x)?([0-9a-fA-F]{4})", whole)
    vendor = re.search(r"vendor_id:\s*0x([0-9a-fA-F]{4})", whole)
    kind = _CLASS_KINDS.get(code[1]) if code else None
    return kind or (_VENDOR_KINDS.get(int(vendor[1], 16)) if vendor else None) or "pci"


def _memory_name(whole: str) -> str:
    dimm = re.search(r"DIMM location:\s*(\S.*)", whole)
    return f"dimm {dimm[1].strip()}" if dimm else "node"

"""A kernel log as typed events and findings: Xids, SXids, lost GPUs, the driver's words, PCIe, memory, the rest.

Takes dmesg in all its formats, journalctl, syslog and /dev/kmsg (see `log_records`). Alike lines are one event with
a count. A log without a fault does not say that the hardware is well: `explain` names that as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.causes import Found, ordered
from fleet.readers.driver_lines import loaded_version, read_driver_line
from fleet.readers.fabric_manager import read_fabric_records
from fleet.readers.hardware_errors import read_hardware_errors
from fleet.readers.line_rules import LineEvent, merge_events
from fleet.readers.log_records import LogRecord, read_records
from fleet.readers.pci_address import ADDRESS, gpu_address
from fleet.readers.plain_text import LineStart, evidence
from fleet.readers.sxid import SxidEvent, merge_sxids, read_sxid
from fleet.readers.xid import XidEvent
from fleet.readers.xid_log import XidLog, reset_gpu

KIND = "kernel_log"

# A mark of a kernel log, each behind a word that it cannot be without: most texts have none of the words.
_MARKS: tuple[tuple[str, LineStart | re.Pattern[str]], ...] = (
    ("NVRM: ", re.compile(r"NVRM: ")),
    ("SXid (", re.compile(r"\bSXid \(")),
    ("Xid (", LineStart(r"[ \t]*Xid \(")),
    ("GPU reset ", re.compile(r"GPU reset \w+: GPU-")),
    ("PCIe Bus Error", re.compile(r"PCIe Bus Error")),
    ("[Hardware Error]", re.compile(r"\[Hardware Error\]")),
    ("EDAC ", re.compile(r"\bEDAC \w+:")),
    ("AER: ", re.compile(r"\bAER: ")),
    ("mce: ", re.compile(r"\bmce: ")),
    ("kernel: ", re.compile(r"\d\d:\d\d\S{0,24}\s{1,3}(?:\S{1,255}\s)?kernel: ")),
    ("kernel: [", LineStart(r"(?:\S{1,255} )?kernel: \[")),
    ("kern", LineStart(r"kern\s{0,3}:\w+\s{0,3}:")),
    (";", LineStart(r"\d{1,3},\d+,\d+,[^;\n]{0,40};")),
    ("[", LineStart(r"[ \t]*(?:<\d{1,3}>)?\[ *\d+[.,]\d{3,}\]\s?\S")),
    ("[", LineStart(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")),
    ("_core", re.compile(r"\bmlx[45]_core(?: [0-9a-f:.]{7,16})?(?: \w{1,15})?: ")),
    ("nouveau ", re.compile(r"\bnouveau [0-9a-f]{4}:[0-9a-f:.]{5,12}: ")),
    ("nvidia ", re.compile(r"\bnvidia [0-9a-f]{4}:[0-9a-f:.]{5,12}: ")),
    ("pcieport ", re.compile(r"\bpcieport [0-9a-f]{4}:[0-9a-f:.]{5,12}: ")),
    (": module ", re.compile(r"\bnvidia\w{0,12}: module ")),
    ("Out of memory: Kill", re.compile(r"\bOut of memory: Kill")),
    ("blocked for more than", re.compile(r"\bINFO: task .{1,40} blocked for more than")),
    ('"_TRANSPORT"', re.compile(r'"_TRANSPORT"\s?:\s?"kernel"')),
    ('"SYSLOG_IDENTIFIER"', re.compile(r'"SYSLOG_IDENTIFIER"\s?:\s?"kernel"')),
    ('"dmesg"', LineStart(r'[ \t]*\{\s?"dmesg"\s?:')),
)
_OTHER_KINDS = re.compile(r"\A\s*(?:<\?xml|<!DOCTYPE|NodeName=|JobId=|=+NVSMI LOG)")
_LIMITED = re.compile(rf"Rate limiting GSP RPC error prints.*?(?:PCI:)?(?P<device>{ADDRESS})")
_SUPPRESSED = re.compile(
    r"\d+ (?:callbacks|messages|output lines) suppressed|Suppressed \d+ messages|Missed \d+ kernel messages|"
    r"\d+ printk messages dropped"
)
_SERIAL = re.compile(r"GPU Board Serial Number:\s*(?P<serial>\w+)")
_BEGINS = re.compile(rf"The NVIDIA GPU|\bXid\b|API mismatch|GPU (?:at )?(?:PCI:)?{ADDRESS}")
_WINDOW_RECORDS = 4


@dataclass(frozen=True, slots=True)
class KernelLog:
    """What a kernel log tells.

    `gpus` are facts by GPU address ("uuid", "serial"); `driver` is the version of the module that loaded last, and
    `open_module` whether it is the open one (None: not said). `unknown` are texts on what cannot be told.
    """

    records: int
    xids: tuple[XidEvent, ...]
    sxids: tuple[SxidEvent, ...]
    events: tuple[LineEvent, ...]
    gpus: Mapping[str, Mapping[str, str]]
    driver: str | None
    open_module: bool | None
    unknown: tuple[str, ...]


def recognises(text: str) -> bool:
    """Whether the text has lines that only a kernel log has."""
    if _OTHER_KINDS.match(text) is not None:
        return False
    return any(word in text and mark.search(text) is not None for word, mark in _MARKS)


def explain(text: str) -> Explanation:
    """Every fault that the log tells, causes first."""
    log = read_kernel_log(text)
    findings = findings_of(log)
    node: dict[str, str] = {}
    if log.driver:
        node = {"driver": log.driver, "kernel_module": "open" if log.open_module else "closed"}
    subjects = [Subject("node", node)] if node else []
    names = dict.fromkeys([f"gpu {address}" for address in log.gpus] + [finding.subject for finding in findings])
    subjects += [Subject(name, log.gpus.get(name.removeprefix("gpu "), {})) for name in names if name != "node"]
    unknown = log.unknown
    if not findings:
        unknown = (*unknown, "whether the hardware is well: the log tells of no fault, and that is all it can tell")
    return Explanation(KIND, tuple(subjects), findings, unknown)


def findings_of(log: KernelLog) -> tuple[Finding, ...]:
    """The log's events as findings: the gravest incident first, and in each the cause before what follows from it."""
    found = [Found(x.finding(), x.line, x.host, x.seconds, x.last_seconds) for x in log.xids]
    found += [Found(s.finding(), s.line, s.host, s.seconds, s.last_seconds, (), s.of_a_link) for s in log.sxids]
    found += [Found(e.finding(), e.line, e.host, e.seconds, e.last_seconds, e.related) for e in log.events]
    return ordered(sorted(found, key=lambda each: each.line))


def read_kernel_log(text: str) -> KernelLog:
    """The typed reading of a kernel log; any text gives one."""
    records = read_records(text)
    xids = XidLog()
    sxids: list[SxidEvent] = []
    events: list[LineEvent] = []
    unknown: list[str] = []
    driver: tuple[str, bool] | None = None
    for place, record in enumerate(records):
        window = _window(records, place)
        if xids.take(record, window):
            continue
        sxid = read_sxid(record)
        if isinstance(sxid, SxidEvent):
            sxids.append(sxid)
            continue
        if isinstance(sxid, str):
            unknown.append(sxid)
        driver = loaded_version(record.message) or driver
        event = read_driver_line(record, window) or _reset(record)
        if event is not None:
            events.append(event)
        unknown += _left_out(record)
    fabric = read_fabric_records(records)
    events += [*read_hardware_errors(records), *fabric.events]
    return KernelLog(
        len(records),
        xids.events(),
        merge_sxids([*sxids, *fabric.sxids]),
        _known(merge_events(events), xids),
        _gpu_facts(records),
        driver[0] if driver else None,
        driver[1] if driver else None,
        _unique((*xids.unknown(), *unknown, *fabric.unknown, *_nameless(events))),
    )


def _window(records: Sequence[LogRecord], place: int) -> str:
    """A driver's message that goes over several records, as one line."""
    first = records[place].message
    if "NVRM:" not in first:
        return first
    parts = [first.strip()]
    for record in records[place + 1 : place + 1 + _WINDOW_RECORDS]:
        message = record.message.strip()
        if "NVRM:" not in message or _BEGINS.search(message):
            break
        parts.append(message.split("NVRM:", 1)[1].strip())
    return " ".join(parts)


def _reset(record: LogRecord) -> LineEvent | None:
    uuid = reset_gpu(record.message)
    if uuid is None:
        return None
    return LineEvent(
        "gpu.reset",
        f"gpu {uuid}",
        Severity.INFO,
        Action.NONE,
        "The GPU was reset: what was wrong with it before is over unless it comes again.",
        evidence(record.line),
        record.number,
        record.seconds,
        record.seconds,
        record.host,
    )


def _left_out(record: LogRecord) -> list[str]:
    message = record.message
    limited = _LIMITED.search(message) if "Rate limiting GSP" in message else None
    if limited:
        return [f"how often gpu {gpu_address(limited['device'])} failed: lines are left out after line {record.number}"]
    left = "uppressed" in message or "Missed" in message or "dropped" in message
    suppressed = _SUPPRESSED.search(message) if left else None
    return [f"line {record.number}: what was not logged: {suppressed[0]}"] if suppressed else []


def _known(events: Sequence[LineEvent], xids: XidLog) -> tuple[LineEvent, ...]:
    """The events with the GPU's address where they only have its UUID and the log ties the two together."""
    return tuple(
        replace(event, subject=f"gpu {xids.address_of(event.subject)}") if xids.address_of(event.subject) else event
        for event in events
    )


def _nameless(events: Sequence[LineEvent]) -> list[str]:
    kinds = {event.subject: event.line for event in reversed(events) if event.subject.endswith(" unknown")}
    return [
        f"line {line}: which {subject.split()[0]} it is: the line has no address" for subject, line in kinds.items()
    ]


def _gpu_facts(records: Sequence[LogRecord]) -> Mapping[str, Mapping[str, str]]:
    gpus: dict[str, dict[str, str]] = {}
    last: str | None = None
    for record in records:
        if "NVRM:" not in record.message:
            continue
        tied = re.search(rf"GPU at (?:PCI:)?(?P<device>{ADDRESS}):\s*(?P<uuid>GPU-[0-9a-fA-F-]+)", record.message)
        serial = _SERIAL.search(record.message)
        if tied:
            last = gpu_address(tied["device"])
            gpus[last or "unknown"] = {"uuid": tied["uuid"]}
        elif serial and last:
            gpus[last]["serial"] = serial["serial"]
    return gpus


def _unique(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))

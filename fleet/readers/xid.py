"""Xid lines of the NVIDIA driver (390 to 610): one line read, alike lines made one event, and what it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fleet.findings import Finding
from fleet.health_catalog import NvlinkRule, nvlink_rule
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS, gpu_address
from fleet.readers.plain_text import evidence
from fleet.readers.xid_judgement import judge

_LINE = re.compile(
    r"(?:NVRM:.{0,24}?|^\s*)\bXid\s*\((?P<where>[^()]{1,80})\)\s*:\s*(?P<code>\d{1,6})(?P<comma>\s*[,:]\s*|\s*$|\s+)(?P<rest>.*)"
)
_BROKEN = re.compile(r"NVRM:.{0,24}?\bXid\b")
_PROCESS = re.compile(r"pid='?(?P<pid>\d+|<?unknown>?|[^,']{0,16})'?(?:,\s*name=(?P<name>.{0,40}?))?(?:,\s*|$)")
_MIG = re.compile(r"GPU-I:\s*(?P<gi>\d+)")
_NVLINK = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]*(?:/[A-Z0-9_]+)*)\s+(?:(?P<how>(?:Link\s+)?(?:Non-?fatal|Fatal))\s+)?(?:XC\d+\s+)?(?:i\d+\s+)?"
    r"Link\s+(?P<link>-?\d+)\s*\((?P<registers>[^)]*)(?P<end>\)?)",
    re.IGNORECASE,
)
_RECOVERY = re.compile(
    r"recovery action changed from\s+0x(?P<old>[0-9a-f]+).*?to\s+0x(?P<new>[0-9a-f]+)", re.IGNORECASE
)
_PLACE = re.compile(r"GPC\s*(?P<gpc>\d+)\s*,\s*TPC\s*(?P<tpc>\d+)")
_KEPT = 256  # processes and places of one event: more tell nothing more
_NVLINK5 = range(144, 151)


@dataclass(frozen=True, slots=True)
class NvlinkFault:
    """What an NVLink 5 Xid (144 to 150) tells; `fatal` and `link` are None where the line does not say.

    `registers` are as printed: interrupt information, error status, and up to four more. `rule` is the catalogue's
    row for them, None where it has none.
    """

    unit: str
    fatal: bool | None
    link: int | None
    registers: tuple[int, ...]
    rule: NvlinkRule | None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One fault that a GPU reported: alike lines of one GPU, `count` of them, the first in `evidence`.

    `device` is the GPU's address without function ("0000:3b:00"). `pid` and `process` are None where the driver did
    not know them. `implied` says that no line has the code itself (a GPU that fell off the bus without its Xid).
    `seconds` and `last_seconds` are the times of the first and last line since boot, where known; `recovery` are the
    old and new recovery action of Xid 154; `cleared_by` what ended the fault, if anything did.
    """

    code: int
    device: str
    text: str
    evidence: str
    line: int
    pid: int | None = None
    process: str | None = None
    mig_instance: str | None = None
    nvlink: NvlinkFault | None = None
    recovery: tuple[int, int] | None = None
    implied: bool = False
    count: int = 1
    time: str | None = None
    seconds: float | None = None
    last_seconds: float | None = None
    host: str | None = None
    pids: frozenset[int] = frozenset()
    places: frozenset[tuple[str, int]] = frozenset()
    cleared_by: str | None = None

    def finding(self) -> Finding:
        """What the event means and asks for, by the catalogue and by what its own text adds."""
        severity, action, text = judge(self)
        return Finding(f"gpu {self.device}", f"xid.{self.code}", severity, action, self.evidence, text)


def read_xid(record: LogRecord) -> XidEvent | str | None:
    """The Xid in a record; why it cannot be read, as a text; None where the record has none."""
    found = _LINE.search(record.message) if "Xid" in record.message else None
    if found is None:
        return (
            f"line {record.number}: an Xid line that cannot be read"
            if "NVRM:" in record.message and _BROKEN.search(record.message)
            else None
        )
    where = re.search(ADDRESS, found["where"])
    device = gpu_address(where[0]) if where else gpu_address(found["where"].split()[0])
    if device is None:
        return f"line {record.number}: an Xid {found['code']} of a GPU whose address cannot be read"
    if record.cut and not found["rest"] and "," not in found["comma"]:
        return f"line {record.number}: an Xid of gpu {device} whose code may be cut off"
    return _event(record, int(found["code"]), device, found["where"], found["rest"])


def _event(record: LogRecord, code: int, device: str, where: str, rest: str) -> XidEvent:
    process = _PROCESS.match(rest)
    text = rest[process.end() :] if process else rest
    pid = int(process["pid"]) if process and re.fullmatch(r"[0-9]{1,10}", process["pid"]) else None
    name = process["name"] if process else None
    mig = _MIG.search(where)
    recovery = _RECOVERY.search(text) if code == 154 else None
    place = _PLACE.search(text)
    return XidEvent(
        code,
        device,
        text.strip(),
        evidence(record.line),
        record.number,
        pid,
        None if name in (None, "", "<unknown>") else name,
        mig["gi"] if mig else None,
        _nvlink(code, text) if code in _NVLINK5 else None,
        (int(recovery["old"], 16), int(recovery["new"], 16)) if recovery else None,
        time=record.time,
        seconds=record.seconds,
        last_seconds=record.seconds,
        host=record.host,
        pids=frozenset() if pid is None else frozenset({pid}),
        places=frozenset({(f"GPC {place['gpc']} TPC {place['tpc']}", pid)})
        if place and pid is not None
        else frozenset(),
    )


def _nvlink(code: int, text: str) -> NvlinkFault | None:
    found = _NVLINK.search(text)
    if found is None:
        return None
    words = re.findall(r"0x\s*([0-9a-fA-F]{1,8})\b", found["registers"])
    if not found["end"] and words and len(words[-1]) < 8:
        words.pop()
    registers = tuple(int(word, 16) for word in words)
    link = int(found["link"])
    rule = nvlink_rule(code, found["unit"], registers[0], registers[1]) if len(registers) > 1 else None
    how = (found["how"] or "").lower()
    return NvlinkFault(
        found["unit"], not how.startswith("non") if how else None, link if link >= 0 else None, registers, rule
    )


def merged(first: XidEvent, again: XidEvent) -> XidEvent:
    """One event of two alike ones (same host, GPU and code); what the first does not know comes from the second.

    Of NVLink faults and recovery actions the graver and the later stand.
    """
    nvlink = first.nvlink
    if again.nvlink and (nvlink is None or (_asks_reset(again.nvlink) and not _asks_reset(nvlink))):
        nvlink = again.nvlink
    keep = first if not first.implied else replace(again, line=first.line, seconds=first.seconds, time=first.time)
    return replace(
        keep,
        text=keep.text if again.code not in (63, 64, 94, 95) else _graver_text(keep.text, again.text),
        pid=first.pid if first.pid is not None else again.pid,
        process=first.process or again.process,
        mig_instance=first.mig_instance or again.mig_instance,
        nvlink=nvlink,
        recovery=again.recovery or first.recovery,
        last_seconds=again.last_seconds if again.last_seconds is not None else first.last_seconds,
        count=first.count if first.implied or again.implied else first.count + again.count,
        pids=first.pids if len(first.pids) >= _KEPT else first.pids | again.pids,
        places=first.places if len(first.places) >= _KEPT else first.places | again.places,
    )


def _asks_reset(fault: NvlinkFault) -> bool:
    return fault.rule.resolution == "RESET_GPU" if fault.rule else bool(fault.fatal)


def _graver_text(first: str, second: str) -> str:
    return max(
        first, second, key=lambda text: bool(re.search(r"RST: Yes|fail|all reserved|activate", text, re.IGNORECASE))
    )

"""What NVIDIA's fabric manager says, in its own log, in the journal, or by `systemctl status`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.findings import Action, Explanation, Severity, Subject
from fleet.readers.causes import Found, ordered
from fleet.readers.line_rules import LineEvent, RuleTable, merge_events, rule
from fleet.readers.log_records import LogRecord, read_records
from fleet.readers.pci_address import ADDRESS, device_address
from fleet.readers.plain_text import any_of, evidence
from fleet.readers.sxid import SxidEvent, merge_sxids

KIND = "fabric_manager_log"

_SPEAKS = re.compile(r"[Ff]abric ?[Mm]anager|FABRIC ?MANAGER")
_LOG_LINE = re.compile(r"\[(?P<level>INFO|WARNING|ERROR|CRITICAL|DEBUG)\s*\]\s*\[tid \d+\]\s*(?P<said>.*)")
_KERNEL = re.compile(r"NVRM:|nvidia-nvswitch\d+:|\bkernel: |^[ \t]*\[ *\d+\.\d{3,}\]", re.MULTILINE)
_VERSION = re.compile(r"Fabric Manager version (?:is )?:?\s*(?P<version>\d+(?:\.\d+)+)", re.IGNORECASE)
_CONFIGURED = re.compile(r"successfully configured all the available", re.IGNORECASE)
_NOTHING_TO_DO = re.compile(r"NV_WARN_NOTHING_TO_DO")
_SWITCH_ERROR = re.compile(
    rf"NVSwitch (?P<how>(?:non-?)?fatal) error (?P<code>\d+).*?pci bus id (?P<device>{ADDRESS})"
    r"(?:.*?port (?P<port>\d+))?",
    re.IGNORECASE,
)
_SERVICE_FAILED = "fabric_manager.service_failed"

_WORDS = ("version", "switch", "topology", "train", "nvlink", "degraded", "gpu", "fabric", "active:", "fail")
_RULES = (
    rule(
        r"driver interface version (?P<manager>\S+) do.{1,10}match with driver version (?P<driver>\d[\d.]*\d)",
        "fabric_manager.version_mismatch",
        Severity.ERROR,
        Action.UPDATE_SOFTWARE,
        "node",
        "Fabric manager {manager} and driver {driver} must be of exactly the same version: install the equal one. "
        "Until then CUDA fails with error 802 on nodes with NVSwitches.",
    ),
    rule(
        r"do.{1,10}match with any supported (?:system )?topology|number of NVSwitches.*(?:match|expected)",
        "fabric_manager.topology_mismatch",
        Severity.ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "The GPUs and NVSwitches present are none of the platforms that the fabric manager knows: one may be missing.",
    ),
    rule(
        r"(?:training|trained?)\b.*\bfail|fail\w*\b.*\btrain|NVLinks?.*(?:not trained|not active|went down)",
        "fabric_manager.link_training_failed",
        Severity.ERROR,
        Action.CHECK_LINK,
        "node",
        "An NVLink between a GPU and an NVSwitch could not be trained.",
    ),
    rule(
        r"\bdegraded\b",
        "fabric_manager.degraded",
        Severity.ERROR,
        Action.RUN_DIAGNOSTICS,
        "node",
        "The NVLink fabric runs with fewer links, switches or GPUs than it should.",
    ),
    rule(
        r"detected GPU (?P<how>(?:non-?)?fatal).*error|GPU.*NVLink.*fatal error",
        "fabric_manager.gpu_link_error",
        Severity.ERROR,
        Action.CHECK_LINK,
        "node",
        "The fabric manager saw a fault of a GPU's NVLink.",
    ),
    rule(
        r"fabric ?manager\S*: (?:Failed with result|Control process exited|Main process exited)|"
        r"Failed to start .*fabric ?manager|Active: failed",
        _SERVICE_FAILED,
        Severity.ERROR,
        Action.RESTART_SERVICE,
        "node",
        "The fabric manager's service failed: on nodes with NVSwitches no CUDA work can start.",
    ),
    rule(
        r"Active: inactive",
        "fabric_manager.not_running",
        Severity.WARNING,
        Action.INVESTIGATE,
        "node",
        "The fabric manager does not run: right only on nodes without NVSwitches.",
    ),
    rule(
        r"abort\w* fabric ?manager|fabric ?manager.*(?:exiting|terminat)|failed.*\bNV_ERR_\w+|"
        r"failed to (?:initiali[sz]e|open|start)",
        "fabric_manager.failed",
        Severity.ERROR,
        Action.RESTART_SERVICE,
        "node",
        "The fabric manager stopped with an error.",
    ),
)
_TABLE = RuleTable(_WORDS, _RULES)


@dataclass(frozen=True, slots=True)
class FabricManagerLog:
    """What was read. `configured` is True once the fabric was set up, None where the text does not say.

    `nothing_to_do` says that the NVSwitch driver found no switch: right on nodes without them, a fault on others.
    """

    version: str | None
    configured: bool | None
    nothing_to_do: bool
    events: tuple[LineEvent, ...]
    sxids: tuple[SxidEvent, ...]
    unknown: tuple[str, ...]


def recognises(text: str) -> bool:
    """Whether the text is the fabric manager's: its log, its journal lines, or its service's status."""
    if not any_of(("abric", "ABRIC", "[tid "), text):
        return False
    if _SPEAKS.search(text) is None and _LOG_LINE.search(text) is None:
        return False
    return _KERNEL.search(text) is None and (_LOG_LINE.search(text) is not None or _speaks_at_start(text))


def explain(text: str) -> Explanation:
    """The findings of a fabric manager's text; a text without any says nothing of the fabric's health."""
    log = read_fabric_manager_log(text)
    facts = {"fabric_manager": log.version} if log.version else {}
    if log.configured:
        facts["fabric"] = "configured"
    found = [Found(event.finding(), event.line, event.host) for event in log.events]
    findings = ordered(found + [Found(sxid.finding(), sxid.line, sxid.host) for sxid in log.sxids])
    switches = tuple(Subject(name) for name in dict.fromkeys(f.subject for f in findings) if name != "node")
    unknown = log.unknown
    if not findings and not log.configured and not log.nothing_to_do:
        unknown = (*unknown, "whether the fabric is set up: no line says so")
    return Explanation(KIND, (Subject("node", facts), *switches), findings, unknown)


def read_fabric_manager_log(text: str) -> FabricManagerLog:
    """The typed reading of a fabric manager's text."""
    return read_fabric_records(read_records(text))


def read_fabric_records(records: Sequence[LogRecord]) -> FabricManagerLog:
    """The same from records of any log: only those that the fabric manager or its service wrote are read."""
    version: str | None = None
    configured: bool | None = None
    nothing: list[int] = []
    events: list[LineEvent] = []
    sxids: list[SxidEvent] = []
    own_log = any(_of_own_log(record) for record in records)
    for record in records:
        if not (_speaks(record.line) or (own_log and _is_own(record))):
            continue
        said = _VERSION.search(record.message)
        version = said["version"] if said else version
        configured = True if _CONFIGURED.search(record.message) else configured
        if _NOTHING_TO_DO.search(record.message):
            nothing.append(record.number)
            continue
        sxid = _switch_error(record)
        if sxid is not None:
            sxids.append(sxid)
            continue
        event = _TABLE.event(record, record.message) or _other_error(record)
        if event is not None:
            events.append(event)
    if nothing:
        events = [event for event in events if event.code != _SERVICE_FAILED]
    unknown = tuple(
        f"line {number}: whether this node should have NVSwitches: the fabric manager found none, which is right on a "
        "node without them and a fault on one with them"
        for number in nothing[:1]
    )
    return FabricManagerLog(version, configured, bool(nothing), merge_events(events), merge_sxids(sxids), unknown)


def _speaks_at_start(text: str) -> bool:
    """Whether some line is the fabric manager's own, and not one that only names it."""
    records = read_records(text[:200_000])
    return any(_wrote(record) for record in records)


def _wrote(record: LogRecord) -> bool:
    program = (record.program or "").lower()
    said = re.match(
        r"\W{0,4}(?:nv-fabricmanager|nvidia-fabricmanager(?:\.service)?\b|fabric manager (?:version|NVIDIA GPU))",
        record.message.strip(),
        re.IGNORECASE,
    )
    return "fabricmanager" in program or said is not None


def _of_own_log(record: LogRecord) -> bool:
    return "fabricmanager.service" in record.line or (
        "[tid " in record.message and bool(_LOG_LINE.match(record.message))
    )


def _speaks(line: str) -> bool:
    return ("abric" in line or "ABRIC" in line) and _SPEAKS.search(line) is not None


def _is_own(record: LogRecord) -> bool:
    return bool(_LOG_LINE.match(record.message) or re.match(r"\s*Active: ", record.message))


def _switch_error(record: LogRecord) -> SxidEvent | None:
    """A fault of an NVSwitch that the fabric manager repeats: the number is the SXid."""
    found = _SWITCH_ERROR.search(record.message)
    if found is None or len(found["code"]) > 7:
        return None
    return SxidEvent(
        int(found["code"]),
        device_address(found["device"]),
        record.message,
        evidence(record.line),
        record.number,
        not found["how"].lower().startswith("non"),
        (int(found["port"][:6]),) if found["port"] else (),
        seconds=record.seconds,
        last_seconds=record.seconds,
        host=record.host,
    )


def _other_error(record: LogRecord) -> LineEvent | None:
    """A line of the log's own level ERROR that no rule knows."""
    found = _LOG_LINE.match(record.message)
    if found is None or found["level"] not in ("ERROR", "CRITICAL"):
        return None
    return LineEvent(
        "fabric_manager.error",
        "node",
        Severity.WARNING,
        Action.INVESTIGATE,
        "The fabric manager logged an error that no rule knows.",
        evidence(record.line),
        record.number,
        record.seconds,
        record.seconds,
        record.host,
    )

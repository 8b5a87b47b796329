"""`dcgmi health -c` as JSON or as a table, and the health events that monitors make of it.

It knows only the watches that were switched on, and not the recovery action of NVML: a GPU that must be reset can be
"Healthy" here (NVIDIA/DCGM issue 263). Source of the layout: NVIDIA/DCGM dcgmi/Health.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.json_values import JsonObject, object_at, text_at
from fleet.readers.dcgm_diag import entity_name
from fleet.readers.dcgm_errors import finding
from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import any_of, plain_lines

KIND = "dcgm_health"


@dataclass(frozen=True, slots=True)
class HealthIncident:
    """What one system of one part says: `status` is DCGM's word ("Warning", "Failure"), None where there is none."""

    entity: str
    system: str
    status: str | None
    text: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`overall` is DCGM's word ("Healthy", "Warning", "Failure"), None where the text has none."""

    overall: str | None
    incidents: tuple[HealthIncident, ...] = ()
    complete: bool = True


_EVENT = re.compile(r"ErrorCode:\s*(DCGM_FR_\w+)(?:\s+(GPU|CPU|NVSWITCH)\s*:\s*(\d+))?\s*(.*)", re.IGNORECASE)
_LOGGED = re.compile(r"Detected an? (\w+) in health system (\w+): '?(.*?)'?$")
_SIGNS = re.compile(
    r"\|\s*(?:Overall Health|Health Monitor Report)\s*\||\"Overall Health\"\s*:|Detected an? \w+ in health system \w+:"
)
_ROW = re.compile(r"\|([^|]*)\|([^|]*)(?:\||$)")


def recognises(text: str) -> bool:
    """Is it a health report, or events of a health watch?"""
    if any_of(("Overall Health", "Health Monitor Report", "health system"), text) and _SIGNS.search(text):
        return True
    return "errorcode" in text.lower() and _EVENT.search(text) is not None


def read_health(text: str) -> HealthReport:
    """The report. Text without one gives a report whose `overall` is None."""
    found = find_json(text, lambda value: isinstance(value, Mapping) and "body" in value)
    if found is not None:
        body = object_at(found.value, "body")
        incidents = tuple(one for group in body for one in _of_group(str(group), object_at(body, group)))
        return HealthReport(text_at(body, "Overall Health", "value"), incidents, found.complete)
    lines = plain_lines(text)
    events = tuple(_of_events(lines))
    return HealthReport(None, events) if events else _of_table(lines)


def _of_group(group: str, tree: JsonObject) -> Iterable[HealthIncident]:
    parts = object_at(tree, "children")
    for part in parts:
        digits = re.search(r"\d+", str(part))
        entity = entity_name(group, digits[0] if digits else str(part))
        systems = object_at(parts, part, "children", "Errors", "children") or object_at(parts, part, "children")
        for system in systems:
            messages = tuple(_texts(systems[system]))
            status = text_at(systems, system, "value")
            text = " ".join(message for message in messages if message != status)
            yield HealthIncident(entity, str(system), status, text)
        if not systems:
            yield HealthIncident(entity, "all", text_at(parts, part, "value"), "")


def _texts(tree: object, depth: int = 0) -> Iterable[str]:
    """Every text below a node: where DCGM keeps the message differs between versions."""
    if isinstance(tree, str):
        yield tree
    elif depth < 20 and isinstance(tree, Mapping | list):
        for inner in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _texts(inner, depth + 1)


def _of_events(lines: tuple[str, ...]) -> Iterable[HealthIncident]:
    for number, line in enumerate(lines):
        event = _EVENT.search(line)
        logged = _LOGGED.search(line)
        if event:
            entity = entity_name(event[2], event[3]) if event[2] else "node"
            more = lines[number + 1] if number + 1 < len(lines) and not _EVENT.search(lines[number + 1]) else ""
            system = re.match(r"\s*(\w+)=", line)
            yield HealthIncident(entity, system[1] if system else "", None, f"{event[1]}: {event[4]} {more}".strip())
        elif logged:
            gpu = re.search(r"GPU (\d+)", logged[3])
            entity = entity_name("gpu", gpu[1]) if gpu else "node"
            yield HealthIncident(entity, logged[2], logged[1].capitalize(), logged[3])


def _of_table(lines: tuple[str, ...]) -> HealthReport:
    overall: str | None = None
    group, part = "gpu", ""
    found: list[HealthIncident] = []
    for line in lines:
        row = _ROW.search(line)
        if row is None:
            continue
        left, right = row[1].strip(), row[2].strip()
        name = left.removeprefix("->").strip()
        if name == "Overall Health":
            overall = right.removeprefix("=>").strip() or None
        elif re.fullmatch(r"GPU|CPU|NvSwitch|GPU_I|GPU_CI|Switch|NvLink", name, re.IGNORECASE):
            group = name
        elif re.fullmatch(r"(?:GPU |CPU )?\d+|GPU ID: ?\d+", name):
            part = re.findall(r"\d+", name)[0]
        elif name and name.casefold() not in ("errors", "health monitor report"):
            found.append(HealthIncident(entity_name(group, part) if part else "node", name, right or None, ""))
        elif not left and right and found:
            found[-1] = replace(found[-1], text=f"{found[-1].text} {right}".strip())
    return HealthReport(overall, tuple(found), complete=overall is not None)


_IMEX = (
    "Whether IMEX is meant to run here: on a single HGX node, on idle GB200 or GB300 nodes without a compute domain, "
    "and where the DRA driver keeps its own IMEX daemons, this does not apply; in an active multi-node NVLink domain "
    "it is real."
)


def explain(text: str) -> Explanation:
    """The report for a person."""
    report = read_health(text)
    unknown = ["Watches that were not switched on, and the GPU's recovery action, are not in DCGM's health report."]
    if report.overall is None and not report.incidents:
        unknown.append("The overall health: the text has none.")
    if not report.complete:
        unknown.append("The text ends before the report's end.")
    if any("IMEX" in incident.text for incident in report.incidents):
        unknown.append(_IMEX)
    if any("NvLink" in one.text and "down" in one.text for one in report.incidents):
        unknown.append("Whether this GPU has NVLink at all: DCGM says its links are down also without a bridge.")
    parts = dict.fromkeys(incident.entity for incident in report.incidents if incident.entity != "node")
    facts = {"overall health": report.overall} if report.overall else {}
    return Explanation(
        kind=KIND,
        subjects=(Subject("node", facts), *(Subject(part) for part in parts)),
        findings=health_findings(report),
        unknown=tuple(unknown),
    )


def health_findings(report: HealthReport) -> tuple[Finding, ...]:
    """One for each incident. IMEX is a warning at most: it is a fault only in a multi-node NVLink domain."""
    found = [_finding(incident) for incident in report.incidents if not _is_well(incident.status)]
    if not found and report.overall is not None and not _is_well(report.overall):
        found.append(finding("node", f"Overall Health: {report.overall}", failed=report.overall == "Failure"))
    return tuple(dict.fromkeys(found))


def _is_well(status: str | None) -> bool:
    return status is not None and status.casefold() in ("healthy", "pass", "ok")


def _finding(incident: HealthIncident) -> Finding:
    words = ": ".join(part for part in (incident.system, incident.status, incident.text) if part)
    failed = incident.status is None or incident.status.casefold() != "warning"
    found = finding(incident.entity, words, failed=failed)
    if found.code == "dcgm.imex_unhealthy":
        return replace(found, severity=Severity.WARNING, action=Action.INVESTIGATE)
    if not failed and found.severity is Severity.ERROR:
        return replace(found, severity=Severity.WARNING)
    return found

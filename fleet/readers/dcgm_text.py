"""What dcgmi prints as text: the table of a diagnostic, its errors, `discovery -l` and `dmon`.

Source of the layouts: NVIDIA/DCGM dcgmi/Diag.cpp, Query.cpp and DeviceMonitor.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.dcgm_diag import DiagReport, entities_in, entity_name, explain_diag
from fleet.readers.dcgm_errors import finding
from fleet.readers.dcgm_metrics import known_value, xid_finding
from fleet.readers.dcgm_table import has_table, read_diag_table
from fleet.readers.plain_text import LineStart, any_of, evidence, plain_lines

_ERRORS = re.compile(
    r"requested tests? (?:was|were) not found|health watches not enabled|dcgmi: (?:command )?not found"
    r"|(?:bad )?connection (?:to|with) .{0,200}?host ?engine|host ?engine connection invalid"
    r"|nv-?hostengine.{0,200}?(?:not running|failed)|profiling module returned"
    r"|diag(?:nostic)? .{0,200}?(?:already running|timed out|interrupted|terminated|aborted)|error when .{0,200}?diag",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\bunable to (?:complete|run|find|establish|connect|create|retrieve|get|set|check)\b"
    r"|error (?:setting|watching|starting)\b|unrecoverable error|received signal",
    re.IGNORECASE,
)
_MENTIONED = ("dcgm", "host engine", "hostengine", "diagnostic", "health watches", "profiling module")
_COMPLAINED = (
    *("found", "not enabled", "connection", "not running", "failed", "returned", "running", "timed out", "interrupted"),
    *("terminated", "aborted", "error", "unable", "signal"),
)
_ENTITY = LineStart(r"[ \t]*#[ \t]*Entity\b")
_FOUND = LineStart(r"\d+ GPUs? found\.")
_MENTIONS = re.compile(r"dcgm|host ?engine|diagnostic|health watches|profiling module", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DiscoveredPart:
    """A part that `dcgmi discovery -l` lists: `facts` are its lines, "Name" and "PCI Bus ID" among them."""

    name: str
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Discovery:
    """What DCGM sees. `counts` are the numbers that it states itself, by kind ("gpu": 8)."""

    counts: Mapping[str, int]
    parts: tuple[DiscoveredPart, ...]


@dataclass(frozen=True, slots=True)
class MonitorRow:
    """One line of `dcgmi dmon`: values by the short name of the field; None for N/A and DCGM's blanks."""

    entity: str
    values: Mapping[str, float | None]


def recognises(text: str) -> bool:
    """Is it text of dcgmi (but the NVLink table, which has a reader of its own)?"""
    return (
        has_table(text)
        or ("Entity" in text and _ENTITY.search(text) is not None)
        or (" found." in text and _FOUND.search(text) is not None)
        or ("Device Information" in text and re.search(r"\|\s*GPU ID\s*\|\s*Device Information", text) is not None)
        or any(True for _ in dcgm_complaints(text))
        or bool(read_policy_violations(text))
    )


def dcgm_complaints(text: str) -> Iterable[str]:
    """The lines in which dcgmi says that it could not do what it was asked; vague ones only where they name DCGM."""
    if not any_of(_MENTIONED, text.lower()):
        return
    for line in plain_lines(text):
        if not any_of(_COMPLAINED, line.lower()):
            continue
        own = line.lstrip().startswith("Error") or _MENTIONS.search(line)
        if not line.lstrip().startswith(("|", "#")) and (_ERRORS.search(line) or (own and _VAGUE.search(line))):
            yield line.strip()


def read_diag_text(text: str) -> DiagReport:
    """A run by its table and by what dcgmi complained of; `complete` is False where there is no table at all."""
    report = read_diag_table(text)
    complaints = tuple(dict.fromkeys(evidence(line) for line in dcgm_complaints(text)))
    if not report.tests and not complaints:
        complaints = ("the output holds no table of a diagnostic",)
    return replace(report, errors=(*report.errors, *complaints), complete=report.complete if report.tests else False)


_POLICY = re.compile(r"\bviolated? (?:the )?policy|policy violation|violated policy manager", re.IGNORECASE)


def read_policy_violations(text: str) -> tuple[str, ...]:
    """The lines in which `dcgmi policy --reg` tells of a violated policy, each with the count on the next."""
    if "polic" not in text.lower():
        return ()
    lines = [line.strip() for line in plain_lines(text)]
    return tuple(
        evidence(line, *(more for more in lines[at + 1 : at + 2] if ":" in more))
        for at, line in enumerate(lines)
        if _POLICY.search(line)
    )


_COUNT = re.compile(r"^[^\S\n]*(\d+) (GPU|NvSwitch|Switch|CPU)(?:e?s)? found\.?", re.IGNORECASE | re.MULTILINE)
_CELLS = re.compile(r"\|([^|]*)\|([^|]*)(?:\||$)")


def read_discovery(text: str) -> Discovery:
    """What `dcgmi discovery -l` lists. Text without it gives no counts and no parts."""
    counts: dict[str, int] = {}
    parts: list[tuple[str, dict[str, str]]] = []
    kind = "gpu"
    for line in plain_lines(text):
        count, cells = _COUNT.search(line), _CELLS.search(line)
        if count:
            kind = count[2].casefold().removeprefix("nv")
            counts[kind] = int(count[1][:6])
        elif cells:
            heading = re.match(r"(GPU|Switch|CPU) ID", cells[1].strip(), re.IGNORECASE)
            kind = heading[1].casefold() if heading else kind
            if re.fullmatch(r"\d{1,4}", cells[1].strip()):
                parts.append((entity_name(kind, int(cells[1])), {}))
            key, colon, value = cells[2].partition(":")
            if parts and colon and value.strip():
                parts[-1][1][key.strip()] = value.strip()
    return Discovery(counts, tuple(DiscoveredPart(name, facts) for name, facts in parts))


def read_monitor(text: str) -> tuple[MonitorRow, ...]:
    """The rows of `dcgmi dmon`, in order; the same entity comes once per sample."""
    names: list[str] = []
    rows = []
    for line in plain_lines(text):
        words = line.split()
        if re.match(r"\s*#\s*Entity\b", line):
            names = words[words.index("#Entity") + 1 :] if "#Entity" in words else words[2:]
            continue
        row = re.match(r"\s*(GPU(?:-I|-CI)?|CPU|Switch|NvSwitch|Link)[ :]\s*(\d{1,6})\s+(.*\S)", line, re.IGNORECASE)
        if names and row:
            values = {name: known_value(word) for name, word in zip(names, row[3].split(), strict=False)}
            rows.append(MonitorRow(entity_name(row[1], row[2]), values))
    return tuple(rows)


def explain(text: str) -> Explanation:
    """What of it there is, for a person."""
    discovery, rows, violations = read_discovery(text), read_monitor(text), read_policy_violations(text)
    if rows:
        return _explain_monitor(rows)
    if discovery.parts or discovery.counts:
        return _explain_discovery(discovery)
    if violations:
        found = (finding(next(iter(entities_in(line)), "node"), line) for line in violations)
        unknown = ("Which GPU violated the policy, where the line names none.",)
        return Explanation("dcgm_policy", (Subject("node"),), tuple(dict.fromkeys(found)), unknown)
    explained = explain_diag(read_diag_text(text))
    return replace(explained, kind="dcgm_diag" if has_table(text) else "dcgm_error")


def _explain_discovery(discovery: Discovery) -> Explanation:
    findings = []
    for kind, count in discovery.counts.items():
        shown = len({part.name for part in discovery.parts if part.name.startswith(f"{kind} ")})
        if count and shown and shown != count:
            stated = f"{count} {kind} found, {shown} listed"
            findings.append(
                Finding("node", "dcgm.count_mismatch", Severity.ERROR, Action.INVESTIGATE, stated, "Parts are missing.")
            )
        if count == 0 and kind == "gpu":
            findings.append(
                Finding("node", "gpu.none", Severity.ERROR, Action.INVESTIGATE, "0 GPUs found", "DCGM sees no GPU.")
            )
    return Explanation(
        kind="dcgm_discovery",
        subjects=tuple(Subject(part.name, part.facts) for part in discovery.parts),
        findings=tuple(findings),
        unknown=("How many GPUs this model of node must have, and whether the listed ones are well.",),
    )


def _explain_monitor(rows: tuple[MonitorRow, ...]) -> Explanation:
    last = {row.entity: row for row in rows}
    xids = dict.fromkeys(
        (row.entity, name, int(xid))
        for row in rows  # of all samples: they may be of several hosts, one after the other
        for name, xid in row.values.items()
        if name in ("XIDER", "XIDE") and xid is not None and 0 < xid < 100000
    )
    said = "It was the last Xid of this GPU; this says not when it was: look at the kernel log."
    findings = tuple(xid_finding(entity, xid, f"{name}={xid}", said) for entity, name, xid in xids)
    blank = [f"{row.entity} {name}: no value" for row in last.values() for name, v in row.values.items() if v is None]
    return Explanation(
        kind="dcgm_monitor",
        subjects=tuple(
            Subject(row.entity, {name: f"{value:g}" for name, value in row.values.items() if value is not None})
            for row in last.values()
        ),
        findings=findings,
        unknown=tuple(blank),
    )

"""What Slurm prints of nodes and jobs: scontrol, sinfo and the JSON of 20.11 to 25.11."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleet.drain_reasons import DrainOwner, read_drain_reason
from fleet.errors import FleetError
from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.hostlist import compress
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.readers.json_in_text import all_json
from fleet.readers.plain_text import LineStart, any_of
from fleet.readers.slurm_sections import (
    ERROR,
    Listing,
    Section,
    read_sinfo_table,
    read_squeue_table,
    sections,
    table_of,
)
from fleet.slurm import gpus_in, holds_nodes, read_scontrol_jobs, read_scontrol_nodes
from fleet.slurm_json import read_json_jobs, read_json_nodes
from fleet.slurm_state import read_state

_NODES = LineStart(r"[^\S\n]*NodeName=\S+")
_JOBS = LineStart(r"[^\S\n]*JobId=\d+")
_HEADERS = re.compile(r"^[^\S\n]*(?=[A-Z])[^\n]*\b(?:STATE|ST)\b[^\n]*$", re.MULTILINE)
_SHOWN = 300
_ROWS = 10  # of a table that are named where they cannot be read
_GPUS_UNKNOWN = "how many GPUs it has"
_USED = re.compile(r"NodeName=(\S+)(?:(?!NodeName=)[^\0])*?\bGresUsed=(\S+)")


def recognises(text: str) -> bool:
    """Whether the text is one of Slurm's listings of nodes or jobs, as text or JSON, or its error line."""
    if ("NodeName=" in text and _NODES.search(text)) or ("JobId=" in text and _JOBS.search(text)):
        return True
    if any_of(("NODELIST", "PARTITION", "HOSTNAME"), text) and any(table_of(m[0]) for m in _HEADERS.finditer(text)):
        return True
    if "error:" in text and any(ERROR.match(line) for line in text.split("\n") if "error:" in line):
        return True
    return any(True for _ in _documents(text))


def explain(text: str) -> Explanation:
    """Every node and job that the listings name; each listing is read for itself."""
    parts = [_explain_json(document) for document in _documents(text)]
    parts += [_explain_section(section) for section in sections(text)]
    if not parts:
        return Explanation("slurm", unknown=("what the scheduler holds: no listing of it can be read",))
    return parts[0] if len(parts) == 1 else _together(parts)


def _explain_section(section: Section) -> Explanation:
    text = section.text
    try:
        if section.listing is Listing.NODES:
            used = {match[1]: match[2] for match in _USED.finditer(text)}
            return _explain_nodes(read_scontrol_nodes(_flush(text)), used)
        if section.listing is Listing.JOBS:
            return _explain_jobs(read_scontrol_jobs(_flush(text)), ())
        if section.listing is Listing.SINFO:
            nodes, torn = read_sinfo_table(text)
            found = _explain_nodes(nodes, {})
            return replace(found, unknown=(*found.unknown, *_torn("sinfo", torn)))
        if section.listing is Listing.SQUEUE:
            return _explain_squeue(text)
    except FleetError as error:  # a record that was cut off
        return Explanation("slurm", unknown=(f"what the scheduler holds: {error.message}",))
    return _explain_error(text)


def _flush(text: str) -> str:
    """The records at the start of their lines."""
    return re.sub(r"^[^\S\n]+(?=(?:NodeName|JobId)=)", "", text, flags=re.MULTILINE)


def _together(parts: list[Explanation]) -> Explanation:
    """Several listings as one answer: what one does not know of a node or job, another may.

    Where two say different things nobody can tell which is true: the fact is unknown, with what each says.
    """
    said: dict[str, dict[str, dict[str, None]]] = {}
    for part in parts:
        for subject in part.subjects:
            known = said.setdefault(subject.name, {})
            for name, value in subject.facts.items():
                known.setdefault(name, {})[value] = None
    facts = {subject: {name: _one(values) for name, values in known.items()} for subject, known in said.items()}
    counted = {f"{name}: {_GPUS_UNKNOWN}" for name, known in facts.items() if known.get("gpus", "unknown").isdecimal()}
    unknown = dict.fromkeys(line for part in parts for line in part.unknown)
    found = {(finding.subject, finding.code): finding for part in reversed(parts) for finding in part.findings}
    order = dict.fromkeys((finding.subject, finding.code) for part in parts for finding in part.findings)
    return Explanation(
        kind="+".join(dict.fromkeys(part.kind for part in parts)),
        subjects=tuple(Subject(name, known) for name, known in facts.items()),
        findings=tuple(found[key] for key in order),
        unknown=tuple(line for line in unknown if line not in counted),
    )


def _one(values: Iterable[str]) -> str:
    known = [value for value in values if value != "unknown"] or ["unknown"]
    return known[0] if len(known) == 1 else f"unknown: {' / '.join(known)}"


def _documents(text: str) -> Iterator[Mapping[str, object]]:
    """The JSON objects with Slurm's nodes or jobs; what stands between them is passed over."""
    if not any_of(('"nodes"', '"jobs"'), text):
        return
    for parsed in all_json(text):
        listed = isinstance(parsed, dict) and any(isinstance(parsed.get(key), list) for key in ("nodes", "jobs"))
        if (
            isinstance(parsed, dict)
            and listed
            and ("meta" in parsed or "errors" in parsed or _looks_like_slurm(parsed))
        ):
            yield parsed


def _looks_like_slurm(document: Mapping[str, object]) -> bool:
    items = document.get("nodes") or document.get("jobs")
    first = items[0] if isinstance(items, list) and items else None
    return isinstance(first, dict) and bool({"state", "job_state", "job_id"} & first.keys())


def _explain_json(document: Mapping[str, object]) -> Explanation:
    try:
        if isinstance(document.get("nodes"), list):
            return _explain_nodes(read_json_nodes(json.dumps(document)), _used_in_json(document))
        jobs = read_json_jobs(json.dumps(document))
    except FleetError as error:
        return Explanation("slurm", unknown=(f"what the scheduler holds: {error.message}",))
    errors = document.get("errors")
    gone = ("whether the job ended: the controller has forgotten it; ask sacct",) if errors and not jobs else ()
    return _explain_jobs(jobs, gone)


def _used_in_json(document: Mapping[str, object]) -> dict[str, str]:
    items = document.get("nodes")
    nodes = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return {str(n.get("name") or n.get("hostname")): str(n["gres_used"]) for n in nodes if n.get("gres_used")}


def _explain_nodes(nodes: Mapping[str, SchedulerNode], used: Mapping[str, str]) -> Explanation:
    if not nodes:
        return Explanation("slurm-nodes", unknown=("the nodes: none is listed",))
    subjects = tuple(Subject(name, _node_facts(node, used.get(name))) for name, node in nodes.items())
    findings = tuple(finding for node in nodes.values() for finding in _node_findings(node))
    unknown = tuple(text for node in nodes.values() for text in _node_unknown(node))
    return Explanation("slurm-nodes", subjects, findings, unknown)


def _node_facts(node: SchedulerNode, used: str | None) -> dict[str, str]:
    reading = read_state(node.flags)
    facts = {
        "state": node.state.value,
        "flags": "+".join(sorted(node.flags)),
        "cordoned": "yes" if node.cordoned else "no",
        "accepts work": _word(reading.accepts_work),
        "free of work": _word(reading.quiet),
        "gpus": "unknown" if node.gpus is None else str(node.gpus),
    }
    busy = gpus_in(used) if used else None
    facts |= {} if busy is None else {"gpus in use": str(busy)}
    if node.reason:
        why = read_drain_reason(node.reason)
        facts |= {"reason": node.reason, "reason by": node.reason_by or "unknown", "drain is of": why.owner.value}
    return facts


def _word(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _node_findings(node: SchedulerNode) -> Iterator[Finding]:
    evidence = f"State={'+'.join(sorted(node.flags))} Reason={node.reason or ''}"[:_SHOWN]
    why = read_drain_reason(node.reason)
    if node.cordoned:
        drained = read_state(node.flags).quiet
        code = "slurm.drained" if drained else "slurm.draining"
        severity = Severity.ERROR if why.owner in (DrainOwner.SCHEDULER, DrainOwner.HEALTH_CHECK) else Severity.WARNING
        yield Finding(node.name, code, severity, why.action, evidence, f"{why.meaning}; never lift another's drain")
    if node.state is SchedulerState.DOWN or "NOT_RESPONDING" in node.flags:
        text = (
            "does not answer: whether work runs there cannot be told" if "NOT_RESPONDING" in node.flags else "is down"
        )
        action = why.action if node.reason and not node.cordoned else Action.INVESTIGATE
        yield Finding(node.name, "slurm.down", Severity.ERROR, action, evidence, text)
    if "COMPLETING" in node.flags:
        yield Finding(
            node.name, "slurm.completing", Severity.INFO, Action.WAIT, evidence, "a job still ends there: not empty"
        )
    if "INVALID_REG" in node.flags:
        text = "slurmd registered with less than slurm.conf says"
        yield Finding(node.name, "slurm.invalid_registration", Severity.ERROR, Action.RUN_DIAGNOSTICS, evidence, text)
    if "PLANNED" in node.flags:
        text = "backfill has reserved it for a job that will start there"
        yield Finding(node.name, "slurm.planned", Severity.INFO, Action.NONE, evidence, text)


def _node_unknown(node: SchedulerNode) -> Iterator[str]:
    if node.state is SchedulerState.UNKNOWN:
        yield f"{node.name}: its state ({'+'.join(sorted(node.flags)) or 'none given'})"
    if node.gpus is None:
        yield f"{node.name}: {_GPUS_UNKNOWN}"


def _explain_jobs(jobs: tuple[Job, ...], unknown: tuple[str, ...]) -> Explanation:
    subjects = tuple(Subject(f"job {job.id}", _job_facts(job)) for job in jobs)
    findings = tuple(_held(job) for job in jobs if job.nodes and not holds_nodes(job.state))
    missing = tuple(f"job {job.id}: how many GPUs it holds" for job in jobs if job.gpus is None)
    nothing = () if jobs or unknown else ("the jobs: none is listed, which is no proof that none runs",)
    return Explanation("slurm-jobs", subjects, findings, (*unknown, *missing, *nothing))


def _explain_squeue(text: str) -> Explanation:
    jobs, torn = read_squeue_table(text)
    found = _explain_jobs(jobs, ())
    gpus = ("how many GPUs the jobs hold: squeue's table does not say",) if jobs else ()
    left = tuple(line for line in found.unknown if not line.startswith("job "))
    return replace(found, unknown=(*left, *gpus, *_torn("squeue", torn)))


def _torn(command: str, rows: Sequence[str]) -> tuple[str, ...]:
    more = (f"{len(rows) - _ROWS} more rows of {command}'s table",) if len(rows) > _ROWS else ()
    return (*(f"a row of {command}'s table: {row}" for row in rows[:_ROWS]), *more)


def _job_facts(job: Job) -> dict[str, str]:
    facts = {
        "state": job.state,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "nodes": f"{compress(job.nodes)} ({len(job.nodes)})" if job.nodes else "none",
        "holds its nodes": "yes" if job.nodes and holds_nodes(job.state) else "no",
        "gpus": "unknown" if job.gpus is None else str(job.gpus),
        "elapsed": "unknown" if job.elapsed_seconds is None else f"{job.elapsed_seconds:.0f} s",
        "time limit": "unknown" if job.limit_seconds is None else f"{job.limit_seconds:.0f} s",
        "comment": job.comment,
    }
    return {key: value for key, value in facts.items() if value}


def _held(job: Job) -> Finding:
    evidence = f"JobState={job.state} Nodes={compress(job.nodes)}"[:_SHOWN]
    text = "the job is over; its nodes are listed for the record"
    return Finding(f"job {job.id}", "slurm.job_over", Severity.INFO, Action.NONE, evidence, text)


def _explain_error(text: str) -> Explanation:
    match = ERROR.match(text.strip())
    line = match["text"].strip() if match else text.strip()[:_SHOWN]
    finding = Finding(
        "scheduler", "slurm.error", Severity.ERROR, Action.INVESTIGATE, line[:_SHOWN], "Slurm gave no answer"
    )
    return Explanation(
        "slurm-error", (Subject("scheduler"),), (finding,), ("the state of nodes and jobs: not to be read as empty",)
    )

"""The listings in one text of Slurm's: records of nodes and jobs, tables of sinfo and squeue, errors, in any order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleet.errors import FleetError
from fleet.hostlist import expand
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.slurm import duration_seconds, holds_nodes, read_sinfo
from fleet.slurm_state import read_state


class Listing(StrEnum):
    """What a section is."""

    NODES = "scontrol show node"
    JOBS = "scontrol show job"
    SINFO = "sinfo"
    SQUEUE = "squeue"
    ERROR = "error"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one listing; a table begins with its header."""

    listing: Listing
    text: str


ERROR = re.compile(r"^(?:\S{1,80}: )?(?:scontrol|squeue|sinfo|slurm_\w{1,60})(?:: error:| error:)\s*(?P<text>.+)$")
_NODE = re.compile(r"[^\S\n]*NodeName=\S+")
_JOB = re.compile(r"[^\S\n]*JobId=\d+")
_OTHER = re.compile(r"[A-Z]\w{1,30}(?:Name|Id)=\S")
_JOB_WORDS = frozenset({"JOBID", "JOBID:", "JOB_ID"})
_TABLES = (Listing.SINFO, Listing.SQUEUE)

_STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}  # source: `man squeue`, JOB STATE CODES
_LONG = frozenset(_STATES.values())


def table_of(line: str) -> Listing | None:
    """Which table a header line begins, None for any other line."""
    words = line.split()
    if len(words) < 2 or not words[0].isupper() or not all(word[:1].isupper() for word in words):
        return None
    if _JOB_WORDS & set(words) and {"ST", "STATE", "NODELIST", "NODELIST(REASON)"} & set(words):
        return Listing.SQUEUE
    return (
        Listing.SINFO if "STATE" in words and {"NODELIST", "HOSTNAMES", "HOSTNAME", "PARTITION"} & set(words) else None
    )


def sections(text: str) -> tuple[Section, ...]:
    """The listings in their order; text that is of none is left out. A table goes on until another listing begins."""
    found: list[tuple[Listing, list[str]]] = []
    current: list[str] | None = None
    for line in text.split("\n"):
        begins = _begins(line)
        same = found and begins is found[-1][0] and begins not in _TABLES and begins is not Listing.ERROR
        if begins is not None and not (same and current is not None):
            current = []
            found.append((begins, current))
        elif begins is None and found and found[-1][0] is Listing.ERROR:
            current = None
        if current is not None:
            current.append(line)
    return tuple(Section(listing, "\n".join(lines) + "\n") for listing, lines in found if listing is not Listing.OTHER)


def _begins(line: str) -> Listing | None:
    if "=" in line:
        if _NODE.match(line):
            return Listing.NODES
        if _JOB.match(line):
            return Listing.JOBS
        if _OTHER.match(line):
            return Listing.OTHER
    if "error:" in line and ERROR.match(line):
        return Listing.ERROR
    return table_of(line)


def read_sinfo_table(text: str) -> tuple[Mapping[str, SchedulerNode], tuple[str, ...]]:
    """The nodes of a table that sinfo printed, and the rows that cannot be read.

    Behind a blank line may stand words that are none of sinfo's: there a row must have a state that is known. Raises
    ConfigurationError where the table has no columns for nodes and states.
    """
    lines = text.split("\n")
    header = lines[0].split()
    rows: list[str] = []
    torn: list[str] = []
    blank = False
    for line in lines[1:]:
        cells = line.split()
        blank = blank or not cells
        if not cells:
            continue
        own = dict(zip(header, cells, strict=False))
        whole = len(cells) >= len(header) and _expands(own.get("NODELIST", ""))
        if whole and not (blank and read_state(own.get("STATE", "")).state is SchedulerState.UNKNOWN):
            rows.append(line)
        else:
            torn.append(line.strip()[:120])
    return read_sinfo("\n".join([lines[0], *rows])), tuple(torn)


def _expands(hosts: str) -> bool:
    try:
        return bool(expand(hosts))
    except FleetError:
        return False


def read_squeue_table(text: str) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The jobs of a table that squeue printed, and the rows that cannot be read."""
    lines = [line for line in text.split("\n") if line.strip()]
    header = lines[0].split() if lines else []
    jobs: list[Job] = []
    torn: list[str] = []
    for line in lines[1:]:
        cells = _cells(line, header)
        job = _job(cells) if cells else None
        if job is None:
            torn.append(line.strip()[:120])
        else:
            jobs.append(job)
    return tuple(jobs), tuple(torn)


def _cells(line: str, header: Sequence[str]) -> dict[str, str] | None:
    """The cells by their heading. A job's name may hold blanks, and so may the reason at the end of the row."""
    words = line.split()
    place = next((at for at, name in enumerate(header) if name in ("ST", "STATE")), None)
    if place is None or len(words) < len(header) - 1:
        return None
    shift = next(
        (n for n in range(len(words) - place) if words[place + n] in _STATES or words[place + n] in _LONG), None
    )
    named = next((at for at, name in enumerate(header) if name == "NAME" and at < place), None)
    if shift is None or (shift and named is None):
        return None
    if shift and named is not None:
        words = [*words[:named], " ".join(words[named : named + shift + 1]), *words[named + shift + 1 :]]
    last = len(header) - 1
    return dict(zip(header, [*words[:last], " ".join(words[last:])], strict=False))


def _job(cells: dict[str, str]) -> Job | None:
    ident = next((cells[name] for name in ("JOBID", "JOB_ID") if name in cells), "")
    state = cells.get("ST") or cells.get("STATE") or ""
    state = _STATES.get(state, state)
    where = cells.get("NODELIST(REASON)") or cells.get("NODELIST") or ""
    try:
        nodes = expand(where) if holds_nodes(state) and not where.startswith("(") else ()
    except FleetError:
        return None
    if not ident:
        return None
    return Job(
        id=ident,
        name=cells.get("NAME", ""),
        user=cells.get("USER", ""),
        state=state,
        nodes=nodes,
        gpus=None,
        elapsed_seconds=duration_seconds(cells.get("TIME", "")),
        limit_seconds=duration_seconds(cells.get("TIME_LIMIT", "")),
        comment="",
        account=cells.get("ACCOUNT", ""),
        partition=cells.get("PARTITION", ""),
    )

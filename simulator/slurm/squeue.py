"""The squeue command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fleet.hostlist import compress, expand
from simulator.clock import SimClock
from simulator.slurm.arguments import Options, Parsed, parse
from simulator.slurm.controller import Controller
from simulator.slurm.records import JobState, SlurmJob
from simulator.slurm.reply import UNREACHABLE, Reply, failure
from simulator.slurm.show import end_time, job_cpus, job_tres, run_seconds
from simulator.slurm.words import Column, clock_text, short_duration, table, user_id

_OPTIONS = Options(
    "squeue",
    takes=frozenset(
        {"format", "Format", "nodelist", "states", "jobs", "user", "partition", "name", "account", "reservation"}
    ),
    flags=frozenset({"noheader", "long", "all", "me", "array", "steps"}),
    short={"h": "noheader", "o": "format", "O": "Format", "w": "nodelist", "t": "states", "j": "jobs"}
    | {"u": "user", "p": "partition", "n": "name", "A": "account", "l": "long", "a": "all", "r": "array"}
    | {"R": "reservation", "s": "steps"},
)
_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_STEP_DEFAULT = "%.15i %.8j %.9P %.8u %.9M %N"
_LIVE = {JobState.PENDING, JobState.RUNNING, JobState.COMPLETING}
_FIELD = re.compile(r"([A-Za-z-]+)(?::(\.)?(\d+)?)?")
_OTHER_STATES = (
    "SUSPENDED S CONFIGURING CF STOPPED ST SIGNALING SI STAGE_OUT SO RESIZING RS PREEMPTED PR BOOT_FAIL BF "
    "DEADLINE DL OUT_OF_MEMORY OOM SPECIAL_EXIT SE REQUEUED RQ REQUEUE_HOLD RH RESV_DEL_HOLD RD REVOKED RV"
)
_KNOWN_STATES = {*JobState, *(state.compact for state in JobState), *_OTHER_STATES.split()}


@dataclass(frozen=True, slots=True)
class _Row:
    job: SlurmJob
    clock: SimClock


def _nodes(row: _Row) -> str:
    return compress(row.job.nodes) if row.job.state is not JobState.PENDING else ""


def _where(row: _Row) -> str:
    return f"({row.job.reason})" if row.job.state is JobState.PENDING else _nodes(row)


def _left(row: _Row) -> str:
    limit = row.job.limit_seconds
    return "UNLIMITED" if limit is None else short_duration(max(0.0, limit - run_seconds(row.job, row.clock)))


def _start(row: _Row) -> str:
    job = row.job
    waits = job.eligible if job.state is JobState.PENDING and job.restarts else None
    return clock_text(row.clock, job.started if job.started is not None else waits, "N/A")


def _end(row: _Row) -> str:
    running = row.job.state is JobState.RUNNING
    return clock_text(row.clock, end_time(row.job), "NONE" if running else "N/A")


def _gres(row: _Row) -> str:
    return f"gres:gpu:{row.job.request.gpus}" if row.job.request.gpus else "N/A"


_COLUMNS: dict[str, Column[_Row]] = {
    "i": Column("JOBID", lambda row: row.job.shown_id),
    "A": Column("JOBID", lambda row: str(row.job.id)),
    "j": Column("NAME", lambda row: row.job.request.name),
    "u": Column("USER", lambda row: row.job.request.user),
    "U": Column("UID", lambda row: str(user_id(row.job.request.user))),
    "T": Column("STATE", lambda row: str(row.job.state)),
    "t": Column("ST", lambda row: row.job.state.compact),
    "N": Column("NODELIST", _nodes),
    "D": Column("NODES", lambda row: str(row.job.request.nodes)),
    "b": Column("TRES_PER_NODE", _gres),
    "M": Column("TIME", lambda row: short_duration(run_seconds(row.job, row.clock))),
    "l": Column("TIME_LIMIT", lambda row: short_duration(row.job.limit_seconds)),
    "L": Column("TIME_LEFT", _left),
    "k": Column("COMMENT", lambda row: row.job.comment or "(null)"),
    "a": Column("ACCOUNT", lambda row: row.job.request.account or "(null)"),
    "P": Column("PARTITION", lambda row: row.job.request.partition),
    "R": Column("NODELIST(REASON)", _where),
    "r": Column("REASON", lambda row: row.job.reason),
    "S": Column("START_TIME", _start),
    "e": Column("END_TIME", _end),
    "V": Column("SUBMIT_TIME", lambda row: clock_text(row.clock, row.job.submitted)),
    "C": Column("CPUS", lambda row: str(job_cpus(row.job))),
    "B": Column("EXEC_HOST", lambda row: row.job.nodes[0] if row.job.nodes else "n/a"),
    "v": Column("RESERVATION", lambda row: row.job.reservation or "(null)"),
    "f": Column("FEATURES", lambda row: row.job.request.constraint or "(null)"),
    "Q": Column("PRIORITY", lambda row: str(0 if row.job.held else 4294901760 - row.job.id)),
    "q": Column("QOS", lambda _: "(null)"),
    "o": Column("COMMAND", lambda row: row.job.request.command),
    "Z": Column("WORK_DIR", lambda row: row.job.request.workdir),
    "m": Column("MIN_MEMORY", lambda _: "0"),
}

_NAMED: dict[str, tuple[str, Callable[[_Row], str]]] = {
    "jobid": ("JOBID", _COLUMNS["A"].value),
    "jobarrayid": ("JOBID", _COLUMNS["i"].value),
    "name": ("NAME", _COLUMNS["j"].value),
    "username": ("USER", _COLUMNS["u"].value),
    "userid": ("UID", _COLUMNS["U"].value),
    "state": ("STATE", _COLUMNS["T"].value),
    "statecompact": ("ST", _COLUMNS["t"].value),
    "nodelist": ("NODELIST", _nodes),
    "numnodes": ("NODES", _COLUMNS["D"].value),
    "numtasks": ("TASKS", _COLUMNS["D"].value),
    "numcpus": ("CPUS", _COLUMNS["C"].value),
    "tres-alloc": ("TRES_ALLOC", lambda row: job_tres(row.job)),
    "tres-per-node": ("TRES_PER_NODE", _gres),
    "tres-per-job": ("TRES_PER_JOB", lambda _: "N/A"),
    "tres-per-task": ("TRES_PER_TASK", lambda _: "N/A"),
    "gres": ("TRES_PER_NODE", _gres),
    "timeused": ("TIME", _COLUMNS["M"].value),
    "timelimit": ("TIME_LIMIT", _COLUMNS["l"].value),
    "timeleft": ("TIME_LEFT", _left),
    "comment": ("COMMENT", _COLUMNS["k"].value),
    "account": ("ACCOUNT", _COLUMNS["a"].value),
    "partition": ("PARTITION", _COLUMNS["P"].value),
    "reason": ("REASON", _COLUMNS["r"].value),
    "reasonlist": ("NODELIST(REASON)", _where),
    "submittime": ("SUBMIT_TIME", _COLUMNS["V"].value),
    "starttime": ("START_TIME", _start),
    "endtime": ("END_TIME", _end),
    "requeue": ("REQUEUE", lambda row: str(int(row.job.request.requeue))),
    "restartcnt": ("RESTART_COUNT", lambda row: str(row.job.restarts)),
    "batchhost": ("EXEC_HOST", _COLUMNS["B"].value),
    "command": ("COMMAND", _COLUMNS["o"].value),
    "workdir": ("WORK_DIR", _COLUMNS["Z"].value),
    "reservation": ("RESERVATION", _COLUMNS["v"].value),
    "feature": ("FEATURES", _COLUMNS["f"].value),
    "priority": ("PRIORITY", _COLUMNS["Q"].value),
}


@dataclass(frozen=True, slots=True)
class _Step:
    id: str
    name: str
    row: _Row
    nodes: tuple[str, ...]


_STEP_COLUMNS: dict[str, Column[_Step]] = {
    "i": Column("STEPID", lambda step: step.id),
    "j": Column("NAME", lambda step: step.name),
    "P": Column("PARTITION", lambda step: step.row.job.request.partition),
    "u": Column("USER", lambda step: step.row.job.request.user),
    "M": Column("TIME", lambda step: short_duration(run_seconds(step.row.job, step.row.clock))),
    "N": Column("NODELIST", lambda step: compress(step.nodes)),
}


def _steps(row: _Row) -> list[_Step]:
    """What runs of a job: the step of its script, where it starts one, and the batch shell."""
    job = row.job
    if job.state is not JobState.RUNNING:
        return []
    own = [_Step(f"{job.shown_id}.0", "srun", row, job.nodes)] if job.request.has_steps else []
    return [*own, _Step(f"{job.shown_id}.batch", "batch", row, job.nodes[:1])]


def squeue(controller: Controller, arguments: list[str]) -> Reply:
    """Raises UsageError, ValueError."""
    parsed = parse(arguments, _OPTIONS)
    if not controller.reachable:
        return failure(f"slurm_load_jobs error: {UNREACHABLE}\n")
    asked = parsed.values.get("jobs")
    if asked and not any(job.is_named(asked.split(",")) for job in controller.jobs.values()):
        return failure("slurm_load_jobs error: Invalid job id specified\n")
    if parsed.has("nodelist"):
        for name in expand(parsed.values["nodelist"]):
            if name not in controller.nodes:
                return failure(f"squeue: error: Invalid node name {name}\n")
    clock = controller.timers.clock
    rows = [_Row(job, clock) for job in controller.jobs.values() if _wanted(job, parsed)]
    rows.sort(key=lambda row: (row.job.request.partition, row.job.state.compact, row.job.id))
    header = not parsed.has("noheader")
    if parsed.has("steps"):
        steps = [step for row in rows for step in _steps(row)]
        return Reply(0, table(parsed.values.get("format", _STEP_DEFAULT), _STEP_COLUMNS, steps, header, "squeue"))
    if parsed.has("Format"):
        return Reply(0, _wide(parsed.values["Format"], rows, header))
    title = clock.wall().strftime("%a %b %d %H:%M:%S %Y\n") if parsed.has("long") and header else ""
    text = parsed.values.get("format") or (_LONG if parsed.has("long") else _DEFAULT)
    return Reply(0, title + table(text, _COLUMNS, rows, header, "squeue"))


def _wanted(job: SlurmJob, parsed: Parsed) -> bool:
    values, request = parsed.values, job.request
    equal = {
        "user": request.user,
        "partition": request.partition,
        "name": request.name,
        "account": request.account,
        "reservation": job.reservation,
    }
    if any(name in values and value not in values[name].split(",") for name, value in equal.items()):
        return False
    if "jobs" in values and not job.is_named(values["jobs"].split(",")):
        return False
    if "nodelist" in values and not (job.holds_nodes and set(expand(values["nodelist"])) & set(job.nodes)):
        return False
    return _state_wanted(job, values.get("states"))


def _state_wanted(job: SlurmJob, states: str | None) -> bool:
    if states is None:
        return job.state in _LIVE
    words = {word.strip().upper() for word in states.split(",")}
    if "ALL" in words:
        return True
    wrong = sorted(words - _KNOWN_STATES)
    if wrong:
        raise ValueError(f"squeue: error: Invalid job state specified: {wrong[0]}")
    return bool(words & {str(job.state), job.state.compact})


def _wide(text: str, rows: list[_Row], header: bool) -> str:
    """`-O`: named columns of fixed width, 20 where no other is given."""
    cells: list[tuple[str, Callable[[_Row], str], int, bool]] = []
    for part in text.split(","):
        found = _FIELD.fullmatch(part.strip())
        if found is None or found[1].lower() not in _NAMED:
            raise ValueError(f"squeue: error: Invalid job format specification: {part}")
        title, value = _NAMED[found[1].lower()]
        cells.append((title, value, int(found[3] or 20), found[2] is not None))
    lines = [[title for title, *_ in cells]] if header else []
    lines += [[value(row) for _, value, *_ in cells] for row in rows]
    return "".join(
        "".join(_fill(text, width, right) for text, (_, _, width, right) in zip(line, cells, strict=True)) + "\n"
        for line in lines
    )


def _fill(text: str, width: int, right: bool) -> str:
    return text[:width].rjust(width) if right else text[:width].ljust(width)

"""Readers for what Slurm's commands print: `scontrol show node`, `scontrol show job`, `squeue`, `sinfo`.

Pure: text in, values out. Order and shape of the records: slurm_sprint_node_table and
slurm_sprint_job_info of Slurm 22.05, read back from a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.hostlist import expand
from fleet.model import Job, SchedulerNode
from fleet.slurm_state import read_state

JOB_FIELDS = ("%i", "%T", "%N", "%D", "%M", "%l", "%b", "%a", "%P", "%u", "%j", "%k")
"""The fields of `squeue_format`, in order; what people may fill in freely comes last.

`%i` is the id that names one task or part (`5_3`, `7+1`); `%A` of an array's last task is the id of the whole array.
"""

HOLDING_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"
"""For `squeue --states`: the job states that hold nodes; all are known from Slurm 18.08 on."""

_ENDED = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"})
_ENDED |= {"OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED"}
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})

_NOTHING = frozenset({"", "(null)", "n/a", "none"})
_NEVER = _NOTHING | {"unknown"}  # how a time is printed that is not set
_VALUE = re.compile(r"\S*")
_STAMP = re.compile(r" \[([^\[\]@\s]+)@([^\[\]\s]+)\](?=$|\s*\n| {8}|\s+(?:Comment|Extra|Instance\w+|Res\w+)=)")
_AFTER_REASON = re.compile(r"\s(?:Comment|Extra|InstanceId|InstanceType|ResumeAfterTime|ReservationName)=")
_NODE_START = re.compile(r"NodeName=(?=\S+\s)")
_JOB_START = re.compile(r"JobId=(?=\d)")
_GPU_GRES = re.compile(r"(?:gres[:/])?gpu(?::(?=.*\D)[^:=]+)?(?:[:=](?P<count>\d{1,9}))?")


@lru_cache(maxsize=1024)
def gpus_in(text: str) -> int | None:
    """GPUs of a GRES or TRES text: `gpu:8`, `gpu:a100:4,gpu:h100:2(IDX:2-3)`, `cpu=4,gres/gpu=64`.

    None where no GPU is named: an empty text of a node that never registered is not "no GPU". A TRES
    text names the total and again each model; the total counts.
    """
    total = re.search(r"(?:^|,)gres/gpu=(\d{1,9})(?!\d)", text)
    if total:
        return int(total[1])
    entries = re.sub(r"\([^)]*\)", "", text).split(",")
    counts = [int(match["count"] or 1) for entry in entries if (match := _GPU_GRES.fullmatch(entry.strip()))]
    return sum(counts) if counts else None


def duration_seconds(text: str) -> float | None:
    """Seconds of `2-05:32:24`, `10:00` or `0:03`; None for UNLIMITED, NOT_SET, INVALID, N/A …"""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def holds_nodes(state: str) -> bool:
    """Does a job in this state (upper case) hold its nodes? COMPLETING does; a state not known does."""
    return state not in _ENDED and state not in _WAITING


def read_scontrol_nodes(text: str) -> dict[str, SchedulerNode]:
    """Read `scontrol show node`, with or without `-o`; empty where no record is in the text.

    Raises SchedulerUnreachable where a record is cut off before its state.
    """
    nodes: dict[str, SchedulerNode] = {}
    for record in _records(text, _NODE_START):
        node = _read_node(record)
        nodes.setdefault(node.name, node)
    return nodes


def _records(text: str, start: re.Pattern[str]) -> list[str]:
    found = (match.start() for match in start.finditer(text))
    marks = [*(at for at in found if at == 0 or text[at - 1] == "\n"), len(text)]
    return [text[begin:end] for begin, end in pairwise(marks)]


@lru_cache(maxsize=20_000)  # a fleet is read each few seconds, and most of its records are as they were
def _read_node(record: str) -> SchedulerNode:
    name = _value(record, "NodeName=")
    cut = record.find("Reason=", record.find("State="))
    head, reason = (record[:cut], record[cut + len("Reason=") :]) if cut > 0 else (record, "")
    state = _value(head, " State=")
    if not state:
        raise SchedulerUnreachable("scontrol's answer is cut off before this node's state; ask again", node=name)
    gpus = gpus_in(_value(head, " Gres="))
    if gpus is None:
        gpus = gpus_in(_value(head, " CfgTRES="))
    features = read_features(_value(head, " ActiveFeatures=") or _value(head, " AvailableFeatures="))
    started = _value(head, " SlurmdStartTime=")
    registered = started if started.lower() not in _NEVER else None
    return _node(name, state, gpus, _read_reason(reason), features, registered)


def read_features(text: str) -> frozenset[str]:
    """A node's features: `h100,fw=1.2,nvlink`; none for Slurm's words for nothing."""
    return frozenset(word for word in text.split(",") if word and word.lower() not in _NOTHING)


def _value(record: str, key: str) -> str:
    """What follows `key`, up to a blank; "" where it is missing."""
    at = record.find(key)
    found = _VALUE.match(record, at + len(key)) if at >= 0 else None
    return found[0] if found else ""


def _node(
    name: str,
    words: str | list[str],
    gpus: int | None,
    reason: tuple[str | None, str | None, str | None] = (None, None, None),
    features: frozenset[str] = frozenset(),
    registered: str | None = None,
) -> SchedulerNode:
    seen = read_state(words)
    return SchedulerNode(name, seen.state, seen.flags, seen.cordoned, *reason, gpus, features, registered)


def _read_reason(text: str) -> tuple[str | None, str | None, str | None]:
    """The reason, who set it and when. Slurm puts the stamp after the reason's first line."""
    stamp = _STAMP.search(text)
    first, rest = (text[: stamp.start()], text[stamp.end() :]) if stamp else (text, "")
    by, at = (stamp[1], stamp[2]) if stamp else (None, None)
    tail = rest if stamp else first
    after = _AFTER_REASON.search(tail)
    tail = tail[: after.start()] if after else tail
    if stamp is None:
        first, tail = tail.strip(), ""
    more = [line.strip() for line in re.split(r"\n| {8}", tail) if line.strip()]
    reason = "\n".join([first, *more])
    return (reason, by, at) if reason else (None, None, None)


def read_scontrol_jobs(text: str) -> tuple[Job, ...]:
    """Read `scontrol show job`, with or without `-o`. `nodes` holds only the nodes that the job holds.

    A job's comment may look like further fields: the first of each name counts, and the comment is
    read to the next line that is a field.
    """
    return tuple(_read_job(record) for record in _records(text, _JOB_START))


def _read_job(record: str) -> Job:
    def field(name: str, pattern: str = r"(\S*)") -> str:
        match = re.search(rf"(?:^|\s){name}={pattern}", record)
        return match[1] if match and match[1].lower() not in _NOTHING else ""

    comment = field(
        "Comment", r"(.*?)(?=\s+(?:AdminComment|SystemComment|StdErr|StdIn|StdOut|Power|TresPer\w+)=|\s*\Z)"
    )
    if "\n" in record.strip():
        comment = _multiline_comment(record)
    state = field("JobState")
    if not state:
        raise SchedulerUnreachable("scontrol's answer is cut off before this job's state; ask again")
    nodes = expand(field("NodeList")) if holds_nodes(state) else ()
    gpus = gpus_in(field("AllocTRES") or field("TRES"))
    if gpus is None:
        gpus = job_gpus(field("TresPerNode"), field("NumNodes"))
    return Job(
        id=field("JobId"),
        name=field("JobName", r"(.*?)(?=\s+UserId=)"),
        user=field("UserId").split("(")[0],
        state=state,
        nodes=nodes,
        gpus=gpus,
        elapsed_seconds=duration_seconds(field("RunTime")),
        limit_seconds=duration_seconds(field("TimeLimit")),
        comment=comment,
        account=field("Account"),
        partition=field("Partition"),
        requeue={"1": True, "0": False}.get(field("Requeue")),
    )


def _multiline_comment(record: str) -> str:
    match = re.search(r"\n   Comment=(.*?)\s?(?=\n   [A-Z]\w+=|\s*\Z)", record, re.DOTALL)
    return match[1] if match and match[1].lower() not in _NOTHING else ""


def job_gpus(per_node: str, node_count: str) -> int | None:
    """GPUs of a job from what it asked for per node; None where it asked in another way."""
    gpus = gpus_in(per_node)
    return gpus * int(node_count) if gpus is not None and node_count.isdigit() else None


def squeue_format(mark: str) -> str:
    """`squeue -o` format whose fields are set apart by `mark`, a text that nobody can guess.

    A comment or a job name may hold any delimiter and line breaks; only an unguessable one is safe.
    """
    return mark + mark.join(JOB_FIELDS) + mark


def read_squeue(text: str, mark: str) -> tuple[Job, ...]:
    """Read what `squeue -o squeue_format(mark)` printed, header included.

    Raises SchedulerUnreachable where the header or the end of a record is missing: an answer that
    was cut off is not "no jobs".
    """
    parts = text.split(mark)
    width = len(JOB_FIELDS) + 1
    if len(parts) % width != 1 or len(parts) <= width or parts[1] != "JOBID" or parts[-1].strip():
        raise SchedulerUnreachable("squeue's answer is empty or cut off; ask again")
    rows = [parts[at + 1 : at + width] for at in range(width, len(parts) - 1, width)]
    return tuple(_squeue_job(row) for row in rows)


def _squeue_job(row: list[str]) -> Job:
    job, state, nodes, count, elapsed, limit, tres, account, partition, user, name, comment = (
        "" if value.strip().lower() in _NOTHING else value for value in row
    )
    try:
        names = expand(nodes) if holds_nodes(state) else ()
    except ConfigurationError as error:
        raise SchedulerUnreachable(f"squeue names the nodes of job {job} in an unknown way: {error.message}") from error
    return Job(
        id=job,
        name=name,
        user=user,
        state=state,
        nodes=names,
        gpus=job_gpus(tres, count),
        elapsed_seconds=duration_seconds(elapsed),
        limit_seconds=duration_seconds(limit),
        comment=comment,
        account=account,
        partition=partition,
    )


def read_sinfo(text: str) -> dict[str, SchedulerNode]:
    """Read a `sinfo` table with a NODELIST and a STATE column, e.g. the default one.

    A node in two partitions has one state; where two rows differ, all their words are kept.
    Raises ConfigurationError where the columns are missing.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    header = lines[0].split() if lines else []
    if not {"NODELIST", "STATE"} <= set(header):
        raise ConfigurationError("not a table of sinfo: it needs a header with NODELIST and STATE")
    words: dict[str, set[str]] = {}
    for name, state in _sinfo_rows(lines[1:], header):
        words.setdefault(name, set()).add(state)
    return {name: _node(name, sorted(states), None) for name, states in words.items()}


def _sinfo_rows(lines: list[str], header: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        cells = line.split()
        if len(cells) >= len(header):
            for name in expand(cells[header.index("NODELIST")]):
                yield name, cells[header.index("STATE")]

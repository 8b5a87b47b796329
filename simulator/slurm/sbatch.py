"""The sbatch and scancel commands."""

from __future__ import annotations

import re
import shlex
import signal as signals
from pathlib import Path

from fleet.hostlist import expand
from simulator.slurm.arguments import Options, Parsed, parse
from simulator.slurm.controller import Controller
from simulator.slurm.records import FINISHED, JobRequest, JobState, SlurmError
from simulator.slurm.reply import UNREACHABLE, Reply, failure
from simulator.slurm.words import parse_limit

_WITH_VALUE = (
    "nodes gres gpus-per-node gpus time comment signal job-name partition account output error chdir wrap ntasks "
    "ntasks-per-node cpus-per-task mem constraint reservation dependency uid nodelist exclude open-mode export "
    "mail-type qos nice begin array"
)
_SBATCH = Options(
    "sbatch",
    takes=frozenset(_WITH_VALUE.split()),
    flags=frozenset({"requeue", "no-requeue", "exclusive", "parsable", "hold", "quiet", "oversubscribe"}),
    short={"N": "nodes", "t": "time", "J": "job-name", "p": "partition", "A": "account", "o": "output"}
    | {"e": "error", "D": "chdir", "n": "ntasks", "c": "cpus-per-task", "C": "constraint", "d": "dependency"}
    | {"w": "nodelist", "x": "exclude", "q": "qos", "H": "hold", "Q": "quiet", "s": "oversubscribe", "a": "array"},
)
_SCANCEL = Options(
    "scancel",
    takes=frozenset({"signal", "user", "name", "partition", "state", "account", "nodelist"}),
    flags=frozenset({"batch", "full", "quiet", "verbose", "hurry", "me", "ctld"}),
    short={"s": "signal", "b": "batch", "f": "full", "u": "user", "n": "name", "p": "partition"}
    | {"t": "state", "A": "account", "w": "nodelist", "Q": "quiet", "v": "verbose"},
)


def sbatch(controller: Controller, arguments: list[str], user: str, stdin: str, files: Path | None) -> Reply:
    """Raises UsageError, ValueError."""
    line = parse(arguments, _SBATCH)
    command = line.words[0] if line.words else "(null)"
    script = line.values.get("wrap")
    if script is None:
        script = stdin if command == "(null)" else _read(command, files)
    if script is None:
        return failure(f"sbatch: error: Unable to open file {command}\n")
    if not script.strip():
        return failure("sbatch: error: Batch script is empty!\n")
    if not script.startswith("#!") and not line.has("wrap"):
        return failure(
            "sbatch: error: This does not look like a batch script.  The first\n"
            "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
            "sbatch: error: For instance: #!/bin/sh\n"
        )
    merged = _directives(script)
    merged.values |= line.values
    request = _request(controller, merged, user, script, command)
    tasks = _tasks(merged.values.get("array"))
    if not controller.reachable:
        return failure(f"sbatch: error: Batch job submission failed: {UNREACHABLE}\n")
    try:
        jobs = [controller.submit(request) for _ in tasks]
    except SlurmError as error:
        what = f"sbatch: error: invalid partition specified: {request.partition}\n" if "partition" in str(error) else ""
        return failure(f"{what}sbatch: error: Batch job submission failed: {error}\n")
    first = jobs[0].id
    for job, task in zip(jobs, tasks, strict=True):
        job.held = merged.has("hold")
        job.task = None if task is None else (first, task)
    return Reply(0, f"{first}\n" if merged.has("parsable") else f"Submitted batch job {first}\n")


def _read(command: str, files: Path | None) -> str | None:
    if files is None:
        return None
    path = (files / command.lstrip("/")).resolve()
    inside = path.is_relative_to(files.resolve()) and path.is_file()
    return path.read_text(encoding="utf-8", errors="replace") if inside else None


def _directives(script: str) -> Parsed:
    """The #SBATCH lines before the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return parse(words, _SBATCH)


def _request(controller: Controller, options: Parsed, user: str, script: str, command: str) -> JobRequest:
    values = options.values
    wrapped = options.has("wrap")
    name = "wrap" if wrapped else ("sbatch" if command == "(null)" else command.rpartition("/")[2])
    return JobRequest(
        name=values.get("job-name", name),
        partition=values.get("partition", controller.partitions[0]),
        nodes=_count(values.get("nodes", "1"), "--nodes"),
        gpus=_gpus(values),
        user=user,
        account=values.get("account", ""),
        comment=values.get("comment", ""),
        limit_seconds=_limit(values.get("time")),
        requeue=not options.has("no-requeue"),
        exclusive=options.has("exclusive"),
        signal=values.get("signal", ""),
        script=script,
        command=command,
        required=expand(values.get("nodelist", "")),
        constraint=values.get("constraint", ""),
        reservation=values.get("reservation", ""),
        begin_after=_begin(values.get("begin", "now")),
        workdir=values.get("chdir", "/root" if user == "root" else f"/home/{user}"),
    )


def _tasks(array: str | None) -> list[int | None]:
    """`0-3,7`: the numbers of an array's tasks; one job without a number where there is none."""
    if array is None:
        return [None]
    spans = [re.fullmatch(r"(\d+)(?:-(\d+))?", part) for part in array.split(",")]
    numbers: list[int | None] = [n for span in spans if span for n in range(int(span[1]), int(span[2] or span[1]) + 1)]
    if None in spans or not numbers:
        raise ValueError("sbatch: error: Batch job submission failed: Invalid job array specification")
    return numbers


def _begin(text: str) -> float:
    """`now`, `now+60`: seconds from now."""
    found = re.fullmatch(r"now(?:\+(\d+))?", text)
    if found is None:
        raise ValueError(f'sbatch: error: Invalid time specification "{text}"')
    return float(found[1] or 0)


def _limit(text: str | None) -> float | None:
    try:
        return None if text is None else parse_limit(text)
    except ValueError as error:
        raise ValueError("sbatch: error: Invalid --time specification") from error


def _count(text: str, option: str) -> int:
    """`4` or `4-8`: the simulator gives the least."""
    found = re.fullmatch(r"(\d+)(?:-\d+)?", text)
    if found is None or int(found[1]) == 0:
        raise ValueError(f'sbatch: error: "{text}" is not a valid node count for {option}')
    return int(found[1])


def _gpus(values: dict[str, str]) -> int:
    """GPUs per node of --gpus-per-node, else of --gres=gpu[:type][:count]."""
    text = values.get("gpus-per-node")
    if text is None:
        found = re.search(r"(?:^|,)(?:gres:)?gpu(?P<rest>(?::[^,]*)?)", values.get("gres", ""))
        if found is None:
            return 0
        text = found["rest"].lstrip(":") or "1"
    last = text.rpartition(":")[2]
    return int(last) if last.isdigit() else 1


def scancel(controller: Controller, arguments: list[str], user: str) -> Reply:
    """Without a signal the jobs end; with one they are told. Raises UsageError."""
    parsed = parse(arguments, _SCANCEL)
    name = parsed.values.get("signal")
    if name is not None:
        name = _signal_name(name)
        if name is None:
            return failure(f"Unknown job signal: {parsed.values['signal']}\n")
    by_filter = [key for key in ("user", "name", "partition", "state", "account", "nodelist") if parsed.has(key)]
    if not parsed.words and not by_filter and not parsed.has("me"):
        return failure("scancel: error: No job identification provided\n")
    asked = [part.partition(".")[0] for word in parsed.words for part in word.split(",")]  # `5.0`: its steps
    if not controller.reachable:
        return failure("".join(f"scancel: error: Kill job error on job id {id_}: {UNREACHABLE}\n" for id_ in asked), 8)
    if name is not None and name not in {"TERM", "KILL"}:
        refused = _cannot_signal(controller, asked)
        if refused is not None:
            return refused
    for job in list(controller.jobs.values()):
        if (asked and not job.is_named(asked)) or not _matches(job.request, job.state, parsed, user):
            continue
        if name is None or name in {"TERM", "KILL"}:
            controller.cancel(job)
        else:
            full, batch = parsed.has("full"), parsed.has("batch")
            controller.signal(job, name, batch=batch or full, steps=full or not batch)
    return Reply(0)


def _cannot_signal(controller: Controller, asked: list[str]) -> Reply | None:
    for text in asked:
        job = controller.find(text)
        start = f"scancel: error: Kill job error on job id {text}: "
        if job is None or job.state in FINISHED:
            return failure(f"{start}Invalid job id specified\n")
        if job.state is JobState.PENDING:
            return failure(f"{start}Job can not be altered now, try again later\n", 228)
    return None


def _matches(request: JobRequest, state: JobState, parsed: Parsed, user: str) -> bool:
    wanted = dict(parsed.values)
    if parsed.has("me"):
        wanted["user"] = user
    have = {"user": request.user, "name": request.name, "partition": request.partition, "account": request.account}
    have["state"] = str(state)
    return all(key not in wanted or value in wanted[key].split(",") for key, value in have.items())


def _signal_name(text: str) -> str | None:
    word = text.upper().removeprefix("SIG")
    if word.isdigit():
        try:
            return signals.Signals(int(word)).name.removeprefix("SIG")
        except ValueError:
            return None
    return word if f"SIG{word}" in signals.Signals.__members__ else None

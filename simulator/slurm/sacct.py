"""The sacct command, as far as the accounting keeps what a job was submitted with, as sacct and slurmdbd 22.05.8 print
it. No environment is kept: its jobs have none."""

from __future__ import annotations

import shlex

from simulator.slurm.arguments import Options, parse
from simulator.slurm.controller import Controller
from simulator.slurm.records import SlurmJob
from simulator.slurm.reply import Reply, failure

_OPTIONS = Options(
    "sacct",
    takes=frozenset({"jobs", "format"}),
    flags=frozenset({"noheader", "parsable", "parsable2", "allocations", "env-vars", "batch-script"}),
    short={"j": "jobs", "o": "format", "n": "noheader", "p": "parsable", "P": "parsable2", "X": "allocations"}
    | {"B": "batch-script"},
)
_RULE = "-" * 80


def sacct(controller: Controller, arguments: list[str]) -> Reply:
    """Raises UsageError, ValueError."""
    parsed = parse(arguments, _OPTIONS)
    if not controller.settings.accounting:
        return failure("Slurm accounting storage is disabled\n")
    asked = parsed.values.get("jobs", "").split(",")
    jobs = [job for job in controller.jobs.values() if job.is_named(asked)]
    if parsed.has("env-vars"):
        title = "Environment used for {} (must be batch to display)"
        return Reply(0, "".join(f"{title.format(job.id)}\n{_RULE}\nNONE\n\n" for job in jobs))
    if parsed.has("batch-script"):
        return Reply(0, "".join(f"Batch Script for {job.id}\n{_RULE}\n{job.request.script}\n" for job in jobs))
    names = parsed.values.get("format", "JobID").split(",")
    rows = [[_field(name, job) for name in names] for job in jobs]
    lines = rows if parsed.has("noheader") else [names, *rows]
    return Reply(0, "".join("|".join(line) + "\n" for line in lines))


def _field(name: str, job: SlurmJob) -> str:
    match name.lower():
        case "jobid":
            return job.shown_id
        case "state":
            return str(job.state)
        case "submitline":
            return _submit_line(job)
    raise ValueError(f'sacct: fatal: Invalid field requested: "{name}"')


def _submit_line(job: SlurmJob) -> str:
    signal = [f"--signal={job.request.signal}"] if job.request.signal else []
    return shlex.join(["sbatch", f"--nodes={job.request.nodes}", *signal, job.request.command])

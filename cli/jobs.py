"""`gpufleet jobs`: what each running job has saved, how often it does, and whether that suits the fleet."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cli.filters import check_known
from cli.session import FleetOption, JsonOption, console, counted, exits, open_fleet, plain_table, print_json
from fleet.checkpoint_json import checkpoint_to_json
from fleet.checkpoint_policy import policy_for
from fleet.checkpoint_readers.values import NewestCheckpoint
from fleet.checkpoints import lost_hours
from fleet.job_intervals import (
    Fit,
    FleetRate,
    JobInterval,
    age_seconds,
    fleet_rate,
    gpu_hours,
    judge_job,
    last_words,
    span_words,
)
from fleet.json_values import printable
from fleet.model import Job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from blocks.fleet import Fleet
    from ledger.failures import FailureCount

_READERS = 16
_COLUMNS = (
    *("job", "owner", "partition", "nodes", "GPUs", "last checkpoint", "writes every", "recommended"),
    *("stop now costs", "consent", "not before (UTC)", "verdict"),
)
_CONSENT = {True: "yes", False: "no", None: ""}


@dataclass(frozen=True, slots=True)
class _Row:
    """`not_before`: until then no operation stops it again. `lost`: GPU-hours that stopping it now costs."""

    job: Job
    checkpoint: NewestCheckpoint
    found: JobInterval
    lost: float | None
    consent: bool | None
    not_before: datetime | None


@exits
def jobs(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Only these; 77 stands for all tasks of array 77.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3660, help="Count the fleet's failures over so long.")] = 30,
    write_seconds: Annotated[
        float | None,
        typer.Option("--write-seconds", min=0.001, help="How long a write takes where no job's files show it."),
    ] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """What each running job has saved, how often it writes, and whether that suits the fleet's failure rate.

    The recommended interval is Daly's, for the job's nodes, how long a write takes, and how often a node in service
    fails. A ~ stands before what is assumed or only said by the job, a ? for what is not known. A verdict allows 2 %
    of the job's time.

    Example: gpufleet jobs

    Example: gpufleet jobs 4711 --days 90 --write-seconds 60

    Exit codes: 0; 2 no such fleet; 4 scheduler unreachable; 6 no such job runs on this fleet's nodes.
    """
    opened = open_fleet(fleet)
    from ledger.failures import read_failures

    running = _running(opened, wanted or ())
    now = opened.clock.now()
    failures = read_failures(opened.ledger(), now - timedelta(days=days), now)
    rate = fleet_rate(len(failures.failures), failures.node_days)
    rows = _read(opened, running, rate, write_seconds)
    if as_json:
        print_json({"failure_rate": _rate_json(failures, rate), "jobs": [_job_json(row, now) for row in rows]})
        return
    if rows:
        console.print(plain_table(_COLUMNS, (_cells(row, now) for row in rows)))
    for line in (_summary(rows), *_rate_lines(failures, rate, days)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _running(fleet: Fleet, wanted: Collection[str]) -> list[Job]:
    """The jobs that hold nodes of the fleet. Raises PreconditionError for one that is not among them."""
    ours = {entry.name for entry in fleet.spec().nodes}
    found = {job.id: job for job in fleet.scheduler().read_jobs() if not ours.isdisjoint(job.nodes)}
    whole = {_whole_job(ident) for ident in found}
    check_known("running job", wanted, {*found, *whole})
    asked = [job for job in found.values() if not wanted or job.id in wanted or _whole_job(job.id) in wanted]
    return sorted(asked, key=lambda job: (job.partition, [int(part) for part in re.findall("[0-9]+", job.id)], job.id))


def _whole_job(ident: str) -> str:
    """The array or the heterogeneous job that this one is a part of, as Slurm names them: 77_3, 77+1."""
    return re.sub(r"[_+][0-9]+$", "", ident)


def _read(fleet: Fleet, running: list[Job], rate: FleetRate, write_seconds: float | None) -> list[_Row]:
    """Every job's checkpoints, many storage folders at once. Nothing is said to the jobs."""
    settings, ledger, shared = fleet.spec().drain, fleet.ledger(), fleet.jobs()
    again = settings.disturb_again_after
    stopped = ledger.jobs.last_disturbed((job.id for job in running), fleet.clock.now() - again)

    def read(job: Job) -> _Row:
        said = shared.said(job)
        newest = shared.newest(job, said)
        given = ledger.jobs.consent(job.id)
        policy = policy_for(job, settings.policies(), said if given is None else replace(said, consent=given.consent))
        return _Row(
            job=job,
            checkpoint=newest,
            found=judge_job(job, newest, said.interval, rate, write_seconds),
            lost=lost_hours(job, newest, fleet.clock.now()),
            consent=policy.consent,
            not_before=stopped[job.id] + again if job.id in stopped else None,
        )

    with ThreadPoolExecutor(_READERS, thread_name_prefix="jobs") as executor:
        return list(executor.map(read, running))


def _cells(row: _Row, now: datetime) -> tuple[str, ...]:
    job, found = row.job, row.found
    name = job.id if job.state == "RUNNING" else f"{job.id} ({job.state.lower()})"
    guessed = found.write_seconds is not None and not found.write_measured
    cells = (
        *(name, job.user, job.partition, str(len(job.nodes)), "?" if job.gpus is None else str(job.gpus)),
        last_words(row.checkpoint, now),
        _marked(found.interval_seconds, not found.interval_measured),
        _marked(found.recommended_seconds, guessed),
        "?" if row.lost is None else f"{gpu_hours(row.lost)} GPU-h",
        _CONSENT[row.consent],
        "" if row.not_before is None else f"{row.not_before:%F %H:%M}",
        found.text,
    )
    return tuple(" ".join(str(printable(cell)).split()) for cell in cells)


def _marked(seconds: float | None, assumed: bool) -> str:
    return ("~" if assumed and seconds is not None else "") + span_words(seconds)


def _summary(rows: list[_Row]) -> str:
    """`3 jobs: 1 suits, 2 unknown; the intervals of 1 job lose about 38.4 GPU-hours per day`."""
    if not rows:
        return "no job runs on nodes of this fleet"
    fits = Counter(row.found.fit for row in rows)
    listed = ", ".join(f"{fits[fit]} {fit.value}" for fit in Fit if fits[fit])
    bad = [row.found for row in rows if row.found.fit in (Fit.TOO_RARE, Fit.TOO_OFTEN)]
    lost = sum(one.lost_gpu_hours_a_day or 0.0 for one in bad)
    losing = f"; those that do not suit lose about {gpu_hours(lost)} GPU-hours per day" if lost else ""
    return f"{counted(len(rows), 'job')}: {listed}{losing}"


def _rate_lines(failures: FailureCount, rate: FleetRate, days: int) -> Iterable[str]:
    signs = Counter(failure.sign.value for failure in failures.failures)
    listed = f" ({', '.join(f'{number} {sign}' for sign, number in signs.most_common())})" if signs else ""
    yield f"failures of {counted(failures.nodes, 'node')} in the last {counted(days, 'day')}{listed}: {rate.text}"
    if failures.way_lost:
        yield f"not counted: {counted(failures.way_lost, 'node')} that became unreachable together with most others"


def _rate_json(failures: FailureCount, rate: FleetRate) -> dict[str, object]:
    return {
        "per_1000_node_days": rate.per_1000_node_days,
        "assumed": rate.assumed,
        "limits": rate.limits,
        "failures": rate.failures,
        "node_days": round(rate.node_days, 3),
        "nodes": failures.nodes,
        "since": failures.since.isoformat(),
        "until": failures.until.isoformat(),
        "unreachable_together": failures.way_lost,
        "seen": [
            {"node": one.node, "at": one.at.isoformat(), "sign": one.sign.value, "text": one.text}
            for one in failures.failures
        ],
    }


def _job_json(row: _Row, now: datetime) -> dict[str, object]:
    job, found = row.job, row.found
    return {
        "job": job.id,
        "name": job.name,
        "owner": job.user,
        "account": job.account,
        "partition": job.partition,
        "state": job.state,
        "nodes": len(job.nodes),
        "gpus": job.gpus,
        "checkpoint": checkpoint_to_json(row.checkpoint) | {"age_seconds": age_seconds(row.checkpoint, now)},
        "interval_seconds": found.interval_seconds,
        "interval_measured": found.interval_measured,
        "write_seconds": found.write_seconds,
        "write_measured": found.write_measured,
        "mtbf_seconds": found.mtbf_seconds,
        "recommended_seconds": found.recommended_seconds,
        "verdict": found.fit.value,
        "firm": found.firm,
        "lost_share": found.lost_share,
        "lost_gpu_hours_per_day": found.lost_gpu_hours_a_day,
        "text": found.text,
        "stop_now_gpu_hours": row.lost,
        "consent": row.consent,
        "not_before": None if row.not_before is None else row.not_before.isoformat(),
    }

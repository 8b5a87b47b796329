"""The jobs that a plan has to do with, and what stopping each now would lose."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from blocks.fleet import Fleet
from fleet.checkpoints import lost_hours
from fleet.job_waves import RunningJob
from fleet.model import Job

_READERS = 16


def read_running_jobs(fleet: Fleet, nodes: Collection[str]) -> tuple[RunningJob, ...]:
    """Every job that holds one of `nodes`; a loss that cannot be told is None. Nothing is said to the jobs.

    Raises SchedulerUnreachable.
    """
    look = fleet.scheduler().look()
    wanted = set(nodes)
    jobs = {job.id: job for name, found in look.jobs.items() if name in wanted for job in found}
    settings, now = fleet.spec().drain, fleet.clock.now()
    stopped = fleet.ledger().jobs.last_disturbed(jobs, now - settings.disturb_again_after)

    def read(job: Job) -> RunningJob:
        last = stopped.get(job.id)
        until = None if last is None else last + settings.disturb_again_after
        return RunningJob(job.id, job.nodes, job.gpus, _loss(fleet, job), last, until)

    if not fleet.jobs().reads_checkpoints:
        return tuple(read(job) for job in jobs.values())
    with ThreadPoolExecutor(_READERS, thread_name_prefix="jobs") as executor:
        return tuple(executor.map(read, jobs.values()))


def _loss(fleet: Fleet, job: Job) -> float | None:
    jobs = fleet.jobs()
    return lost_hours(job, jobs.newest(job, jobs.said(job)), fleet.clock.now()) if jobs.reads_checkpoints else None

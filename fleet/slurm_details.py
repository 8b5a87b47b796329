"""What `squeue -o` has no letter for, from `squeue -O`: a job's GPUs however it asked for them, and its requeue mark.

All columns are known to Slurm 21.08 to 25.11; none holds a text that people write, so fixed widths are safe. What a
job asked for with `--signal` is in none of squeue's columns, nor in `scontrol show job`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.model import Job
from fleet.slurm import gpus_in, job_gpus

_COLUMNS = (
    ("JobArrayID", 24),
    ("NumNodes", 12),
    ("NumTasks", 12),
    ("Requeue", 8),
    ("tres-alloc", 200),
    ("tres-per-node", 120),
    ("tres-per-job", 120),
    ("tres-per-task", 120),
)
_REQUEUE = {"1": True, "YES": True, "0": False, "NO": False}


@dataclass(frozen=True, slots=True)
class JobDetail:
    """`gpus`: of the whole job. None is "not told"."""

    gpus: int | None
    requeue: bool | None


def squeue_detail_format() -> str:
    """The `squeue -O` format."""
    return ",".join(f"{column}:{width}" for column, width in _COLUMNS)


def read_job_details(text: str) -> dict[str, JobDetail]:
    """Details by job id from `squeue -O squeue_detail_format()`, header included; a line that is cut off tells less."""
    found: dict[str, JobDetail] = {}
    for line in text.splitlines()[1:]:
        cells, at = [], 0
        for _, width in _COLUMNS:
            cells.append(line[at : at + width].strip())
            at += width
        job, nodes, tasks, requeue, allocated, per_node, per_job, per_task = cells
        told = (gpus_in(allocated), job_gpus(per_node, nodes), gpus_in(per_job), job_gpus(per_task, tasks))
        gpus = next((count for count in told if count is not None), None)
        if job:
            found[job] = JobDetail(gpus, _REQUEUE.get(requeue.upper()))
    return found


def with_details(jobs: tuple[Job, ...], details: dict[str, JobDetail]) -> tuple[Job, ...]:
    """Fill in what the jobs do not tell themselves."""
    return tuple(_with(job, details.get(job.id)) for job in jobs)


def _with(job: Job, detail: JobDetail | None) -> Job:
    if detail is None:
        return job
    return replace(
        job,
        gpus=job.gpus if job.gpus is not None else detail.gpus,
        requeue=job.requeue if job.requeue is not None else detail.requeue,
    )

"""Training jobs: what they do once Slurm has started them, and a seeded stream of them.

A job works, writes a checkpoint on an interval and on USR1, and begins again at its newest complete
checkpoint after a requeue. Its comment says where and how: `ckpt=FOLDER;kind=megatron;interval=180;signal=USR1`.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.slurm.controller import Controller
from simulator.slurm.records import JobRequest, JobState, SlurmJob
from simulator.timers import Action, Timers
from simulator.truth import TruthLog

WRITE_SECONDS = 8.0  # simulated, for one checkpoint
STEP_SECONDS = 2.0  # simulated, for one training iteration
DEFAULT_WORK = 600.0
FINAL = frozenset({"cancelled", "time limit"})  # causes after which a job does not start again
DEFAULT_INTERVAL = 300.0


@dataclass
class _Work:
    """`saved` and `done` are seconds of work; `mark` is the simulated second from which work would be lost."""

    total: float
    interval: float | None
    signal: str | None
    folder: Path | None
    saved: float = 0.0
    began: float = 0.0
    mark: float = 0.0
    writing: bool = False
    timers: tuple[Action, ...] = ()


def read_comment(comment: str) -> dict[str, str]:
    """`a=1;b=2` → its pairs; anything else is left out."""
    return dict(pair.split("=", 1) for pair in comment.split(";") if "=" in pair)


class JobPrograms:
    """The running programs of a controller's jobs. `storage` None keeps no files."""

    def __init__(self, controller: Controller, timers: Timers, truth: TruthLog, storage: Path | None) -> None:
        self._controller = controller
        self._timers = timers
        self._truth = truth
        self._storage = storage
        self._works: dict[int, _Work] = {}
        controller.programs = self

    def started(self, job: SlurmJob) -> None:
        work = self._works.get(job.id)
        if work is None:
            work = self._works[job.id] = self._plan(job)
        now = self._timers.now()
        work.began = work.mark = now
        work.writing = False
        self._truth.write("job_start", job=job.id, nodes=job.nodes, gpus=_gpus(job), restarts=job.restarts)
        end = self._timers.after(work.total - work.saved, lambda: self._controller.end(job))
        work.timers = (end,)
        self._plan_checkpoint(job, work)

    def signalled(self, job: SlurmJob, signal: str) -> None:
        work = self._works[job.id]
        if signal == work.signal and not work.writing:
            self._checkpoint(job, work)

    def ended(self, job: SlurmJob) -> None:
        self._stop(self._works.pop(job.id))
        self._truth.write("job_end", job=job.id, nodes=job.nodes, gpus=_gpus(job))

    def killed(self, job: SlurmJob, cause: str) -> None:
        work = self._works[job.id]
        self._stop(work)
        lost = round(self._timers.now() - work.mark, 3)
        self._truth.write("job_killed", job=job.id, nodes=job.nodes, gpus=_gpus(job), lost_seconds=lost, cause=cause)

    def _stop(self, work: _Work) -> None:
        for cancel in work.timers:
            cancel()
        work.timers = ()

    def _plan(self, job: SlurmJob) -> _Work:
        said = read_comment(job.comment)
        sleeps = [float(found) for found in re.findall(r"\bsleep\s+(\d+(?:\.\d+)?)", job.request.script)]
        interval = float(said.get("interval", DEFAULT_INTERVAL)) if "ckpt" in said else None
        return _Work(sum(sleeps) or DEFAULT_WORK, interval, said.get("signal", "USR1"), self._folder(said.get("ckpt")))

    def _folder(self, text: str | None) -> Path | None:
        """The job's own folder, where it lies inside the storage."""
        if text is None or self._storage is None:
            return None
        folder = Path(text)
        return folder if folder.is_relative_to(self._storage) and ".." not in folder.parts else None

    def _plan_checkpoint(self, job: SlurmJob, work: _Work) -> None:
        if work.interval is not None:
            due = self._timers.after(work.interval, lambda: self._checkpoint(job, work))
            work.timers = (work.timers[0], due)

    def _checkpoint(self, job: SlurmJob, work: _Work) -> None:
        """Begin to write; the checkpoint counts from here, but only once it is complete."""
        work.writing = True
        begun = self._timers.now()
        for cancel in work.timers[1:]:
            cancel()
        done = self._timers.after(WRITE_SECONDS, lambda: self._complete(job, work, begun))
        work.timers = (work.timers[0], done)

    def _complete(self, job: SlurmJob, work: _Work, begun: float) -> None:
        work.writing = False
        work.saved += begun - work.mark
        work.mark = begun
        step = int(work.saved / STEP_SECONDS)
        if work.folder is not None:
            write_megatron(work.folder, step)
        self._truth.write("checkpoint", job=job.id, step=step)
        self._plan_checkpoint(job, work)


def write_megatron(folder: Path, step: int) -> None:
    """One Megatron checkpoint: the step's folder first, the pointer to it last; the one before goes."""
    new = folder / f"iter_{step:07d}"
    old = [path for path in folder.glob("iter_*") if path != new]
    (new / "mp_rank_00").mkdir(parents=True, exist_ok=True)
    (new / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"\x80\x02")
    pointer = folder / "latest_checkpointed_iteration.txt"
    fresh = pointer.with_suffix(".tmp")
    fresh.write_text(f"{step}")
    fresh.replace(pointer)
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _gpus(job: SlurmJob) -> int:
    return job.request.nodes * job.request.gpus


class JobStream:
    """Submits jobs so that they hold about `load` of each partition's usable nodes.

    `shares` gives a partition's share of multi-node work: 0 is single-node jobs only. Durations are
    simulated seconds.
    """

    PERIOD = 20.0
    SHORTEST, LONGEST = 400.0, 1800.0
    USERS = (("mlee", "vision"), ("asato", "llm"), ("jroth", "llm"), ("kdiaz", "speech"))

    def __init__(
        self, controller: Controller, timers: Timers, seed: int, shares: Mapping[str, float], storage: Path | None
    ) -> None:
        self._controller = controller
        self._timers = timers
        self._rng = random.Random(f"{seed} jobs")
        self._shares = shares
        self._storage = storage
        self._load = 0.7

    def start(self) -> None:
        self._tick()

    def _tick(self) -> None:
        for partition in self._shares:
            self._fill(partition)
        self._timers.after(self.PERIOD, self._tick)

    def _fill(self, partition: str) -> None:
        nodes = self._controller.nodes_of(partition)
        usable = sum(node.usable for node in nodes)
        asked = sum(
            job.request.nodes
            for job in self._controller.jobs.values()
            if job.request.partition == partition and (job.holds_nodes or job.state is JobState.PENDING)
        )
        largest = max(1, min(32, int(len(nodes) * self._shares[partition]) or 1))
        while asked < self._load * usable:
            size = min(self._rng.randint(1, largest), usable)
            asked += size
            self._submit(partition, size, nodes[0].machine.gpus)

    def _submit(self, partition: str, size: int, gpus: int) -> None:
        rng = self._rng
        work = rng.uniform(self.SHORTEST, self.LONGEST)
        user, account = rng.choice(self.USERS)
        name = f"{partition}-{rng.getrandbits(32):08x}"
        folder = f"ckpt={self._storage / name};kind=megatron;" if self._storage else "ckpt=/none;"
        self._controller.submit(
            JobRequest(
                name=name,
                partition=partition,
                nodes=size,
                gpus=gpus,
                user=user,
                account=account,
                comment=f"{folder}interval={rng.randint(120, 300)};signal=USR1",
                limit_seconds=work * 1.5 + 600,
                exclusive=True,
                signal="B:USR1@120",
                script=f"#!/bin/sh\nsleep {work:.0f}\n",
                command=f"/home/{user}/train.sh",
                workdir=f"/home/{user}",
            )
        )

"""A seeded stream of training jobs for a real Slurm: the nth job of a seed is the same in every run.

Seconds are real ones, as Slurm's are. What a job does is in `simulator/train.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from simulator.checkpoint_files import WRITERS
from simulator.clock import SimClock
from simulator.real_shell import RealCommands
from simulator.truth import TruthLog

SIZES = (1, 1, 1, 2, 2, 3, 4, 8)
LARGEST = max(SIZES)
_LOAD = 0.85  # of a partition's nodes that are asked for while there are jobs to submit
_PERIOD_SECONDS = 1.0
_WARNING_SECONDS = 60  # before the time limit, by sbatch --signal
_USERS = (("mlee", "vision"), ("asato", "llm"), ("jroth", "llm"), ("kdiaz", "speech"))
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class JobLoad:
    """`count` jobs in all, None without end; `mean_seconds` of work each, half to one and a half of that."""

    count: int | None = None
    mean_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Seconds are real. `signal`: it writes a checkpoint on USR1, and says so."""

    name: str
    partition: str
    nodes: int
    kind: str
    account: str
    work_seconds: float
    interval_seconds: float
    write_seconds: float
    signal: bool

    def comment(self, storage: Path) -> str:
        """What the job says of itself, as owners are asked to write it."""
        place = storage / self.name / "beacon.json" if self.kind == "beacon" else storage / self.name
        asked = "USR1" if self.signal else "none"
        return f"ckpt={place};kind={self.kind};interval={self.interval_seconds:.0f};signal={asked}"


def draw_jobs(seed: int, partition: str, nodes: int, load: JobLoad) -> Iterator[TrainingJob]:
    """The jobs of a partition with `nodes` nodes, without end. One in four takes no signal."""
    rng = random.Random(f"{seed} real jobs {partition}")
    kinds = sorted(WRITERS)
    sizes = [size for size in SIZES if size <= nodes]
    while True:
        rng.shuffle(kinds)
        for kind in kinds:
            user, account = rng.choice(_USERS)
            yield TrainingJob(
                name=f"{user}-{rng.getrandbits(32):08x}",
                partition=partition,
                nodes=rng.choice(sizes),
                kind=kind,
                account=account,
                work_seconds=round(load.mean_seconds * rng.uniform(0.5, 1.5), 1),
                interval_seconds=float(max(4, round(load.mean_seconds * rng.uniform(0.1, 0.3)))),
                write_seconds=round(rng.uniform(0.5, 2.0), 1),
                signal=rng.random() < 0.75,
            )


class RealJobStream:
    """Submits jobs so that about `_LOAD` of each partition's nodes are asked for."""

    def __init__(
        self,
        commands: RealCommands,
        partitions: Mapping[str, int],
        gpus: int,
        seed: int,
        load: JobLoad,
        folder: Path,
        clock: SimClock,
        truth: TruthLog,
    ) -> None:
        self._commands = commands
        self._partitions = dict(partitions)
        self._gpus = gpus
        self._seed = seed
        self._load = load
        self._storage = folder / "storage"
        self._script = folder / "train.sh"
        self._outputs = folder / "job-output"
        self._clock = clock
        self._truth = truth
        self._truth_file = folder / "truth.jsonl"

    async def run(self) -> None:
        """Until every job is submitted; without a count until it is cancelled."""
        self._outputs.mkdir(exist_ok=True)
        self._script.write_text(_SCRIPT.format(python=sys.executable, root=str(_ROOT)))
        await asyncio.gather(*(self._fill(name, nodes) for name, nodes in self._partitions.items()))

    async def _fill(self, partition: str, nodes: int) -> None:
        jobs = draw_jobs(self._seed, partition, nodes, self._load)
        for job in islice(jobs, self._share(partition)):
            while not await self._has_room(job):
                await asyncio.sleep(_PERIOD_SECONDS)
            await self._submit(job)

    def _share(self, partition: str) -> int | None:
        """The partition's part of all jobs, by its size; the first one has the rest."""
        if self._load.count is None:
            return None
        total = sum(self._partitions.values())
        shares = {name: round(self._load.count * nodes / total) for name, nodes in self._partitions.items()}
        first = next(iter(shares))
        shares[first] += self._load.count - sum(shares.values())
        return shares[partition]

    async def _has_room(self, job: TrainingJob) -> bool:
        told = await self._commands.run(["squeue", "-h", "-p", job.partition, "-o", "%D"])
        if told.code != 0:
            return False
        asked = sum(int(word) for word in told.stdout.split() if word.isdigit())
        return asked == 0 or asked + job.nodes <= max(1, round(_LOAD * self._partitions[job.partition]))

    async def _submit(self, job: TrainingJob) -> None:
        """Once more until Slurm takes it: a controller that is away comes back."""
        while (reply := await self._commands.run(self._words(job))).code != 0:
            self._truth.write("submit_refused", name=job.name, reason=reply.stderr.strip())
            await asyncio.sleep(_PERIOD_SECONDS)

    def _words(self, job: TrainingJob) -> list[str]:
        warned = [f"--signal=B:USR1@{_WARNING_SECONDS}"] if job.signal else []
        limit_minutes = math.ceil((job.work_seconds * 3 + 600) / 60)
        options = {
            "--job-name": job.name,
            "--partition": job.partition,
            "--nodes": job.nodes,
            "--account": job.account,
            "--gres": f"gpu:{self._gpus}",
            "--time": limit_minutes,
            "--comment": job.comment(self._storage),
            "--output": self._outputs / "%j.out",
            "--open-mode": "append",
            "--chdir": "/",
        }
        given = [f"{name}={value}" for name, value in options.items()]
        program = {
            "--kind": job.kind,
            "--folder": self._storage / job.name,
            "--work": job.work_seconds,
            "--interval": job.interval_seconds,
            "--write": job.write_seconds,
            "--truth": self._truth_file,
            "--epoch": self._clock.real_start,
            "--scale": self._clock.scale,
        }
        told = [f"{name}={value}" for name, value in program.items()]
        return ["sbatch", "--parsable", "--requeue", "--exclusive", *warned, *given, str(self._script), *told]


_SCRIPT = """\
#!{python} -IS
import sys

sys.path.insert(0, {root!r})
from simulator.train import main

main()
"""

"""The simulated Slurm for the contract suites: without an event loop, on a clock that each command moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapters.slurm import SlurmScheduler
from fleet.ports import Host
from simulator.machine import Machine, Timing
from simulator.slurm import Controller, Reply, Shell
from simulator.slurm.controller import Settings
from simulator.timers import VirtualClock, VirtualTimers
from simulator.truth import TruthLog

NODES = 8


class SimulatedSlurm:
    """Each command lets two simulated seconds pass, so that waiting needs no clock."""

    def __init__(self, folder: Path) -> None:
        clock = VirtualClock()
        truth = TruthLog(folder / "truth.jsonl", clock)
        self.timers = VirtualTimers(clock)
        self.machines = {
            name: Machine(name, "r1", "train", "HGX-H100-8", 8, clock, truth, Timing())
            for name in (f"gpu{n:04d}" for n in range(1, NODES + 1))
        }
        settings = Settings(slurmd_timeout=30, ping_interval=10, return_to_service=1, accounting=False)
        self.controller = Controller([*self.machines.values()], ("train",), self.timers, truth, settings)
        self.shell = Shell(self.controller)

    def run(self, *words: str, stdin: str = "") -> Reply:
        self.timers.advance(2)
        return self.shell.run(list(words), "root", stdin)

    def lose(self, node: str) -> None:
        self.machines[node].power_off()


@dataclass
class SimulatedHost:
    """The controller host's shell as the adapter sees it."""

    slurm: SimulatedSlurm

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> _Result:
        reply = self.slurm.run(*arguments)
        return _Result(reply.code, reply.stdout, reply.stderr)

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Result:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class SimulatedBench:
    slurm: SimulatedSlurm
    scheduler: SlurmScheduler
    host: Host

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self.slurm.machines)

    def submit(self, script: str, *options: str) -> str:
        reply = self.slurm.run("sbatch", "--parsable", *options, stdin=f"#!/bin/sh\n{script}\n")
        assert reply.code == 0, reply
        return reply.stdout.strip()

    def cancel(self, job: str) -> None:
        self.slurm.run("scancel", job)

"""A simulated fleet whose scheduler is a real Slurm: one slurmd per machine, alive while the machine is up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.model import SchedulerNode
from fleet.slurm import read_scontrol_nodes
from simulator.background import Background
from simulator.machine import Machine
from simulator.real_jobs import JobLoad, RealJobStream
from simulator.real_shell import RealCommands, RealControllerHost
from simulator.real_slurm import ClusterSettings, RealSlurm, SlurmFailed, missing_parts
from simulator.truth import TruthLog

_WATCH_SECONDS = 0.5  # real, between two looks at the nodes' states; longer where they are many
_WATCHED_NODES_PER_SECOND = 500
_LONGEST_SOCKET = 107  # bytes in a Unix socket's path


@dataclass(frozen=True, slots=True)
class RealOptions:
    """How the real Slurm runs; seconds are real ones."""

    slurmd_timeout_seconds: int = 30
    load: JobLoad = field(default_factory=JobLoad)


class RealSite:
    """Starts the Slurm, follows the machines, tells the truth log of cordons, and submits jobs.

    Raises ConfigurationError where Slurm is not installed, or its socket's path would be too long.
    """

    def __init__(
        self,
        options: RealOptions,
        return_to_service: int,
        machines: Mapping[str, Machine],
        truth: TruthLog,
        folder: Path,
        seed: int,
    ) -> None:
        missing = missing_parts()
        if missing is not None:
            raise ConfigurationError(f"no real Slurm can be started here: {missing}")
        place = folder / "slurm"
        if len(str(place / "munge.sock").encode()) > _LONGEST_SOCKET:
            raise ConfigurationError(f"{place} is too long a path for munge's socket; give a shorter --dir")
        place.mkdir(exist_ok=True)
        pools: dict[str, list[str]] = defaultdict(list)
        for machine in machines.values():
            pools[machine.pool].append(machine.name)
        first = next(iter(machines.values()))
        settings = ClusterSettings(options.slurmd_timeout_seconds, return_to_service)
        self.slurm = RealSlurm(place, pools, first.gpus, settings)
        self.commands = RealCommands(self.slurm.environment)
        self.shell = RealControllerHost(self.commands)
        sizes = {pool: len(names) for pool, names in pools.items()}
        self._stream = RealJobStream(self.commands, sizes, first.gpus, seed, options.load, folder, first.clock, truth)
        self._machines = dict(machines)
        self._truth = truth
        self._locks = {name: asyncio.Lock() for name in machines}
        self._closed: set[str] = set()
        self._background = Background()

    async def start(self, jobs: bool) -> None:
        """Raises OSError where the Slurm does not come up."""
        try:
            await asyncio.to_thread(self.slurm.start)
        except SlurmFailed as error:
            raise OSError(str(error)) from error
        for machine in self._machines.values():
            machine.listeners.append(self._machine_changed)
        self._background.spawn(self._watch())
        if jobs:
            self._background.spawn(self._stream.run())

    async def stop(self) -> None:
        await self._background.stop()
        await asyncio.to_thread(self.slurm.stop)

    async def failure(self) -> BaseException:
        """Waits until machines, cordons or jobs can no longer be followed, and says why."""
        return await self._background.failure()

    def _machine_changed(self, machine: Machine) -> None:
        self._background.spawn(self._follow(machine.name, machine.up))

    async def _follow(self, name: str, up: bool) -> None:
        """Changes of one machine are followed one after the other."""
        async with self._locks[name]:
            if up:
                await asyncio.to_thread(self.slurm.start_node, name, True)
                return
            for job in sorted(await asyncio.to_thread(self.slurm.lose_node, name)):
                self._truth.write("job_killed", job=job, cause=f"{name} lost its power")

    async def _watch(self) -> None:
        """Cordons and uncordons of everybody, as Slurm shows them."""
        pause = max(_WATCH_SECONDS, len(self._machines) / _WATCHED_NODES_PER_SECOND)
        while True:
            reply = await self.commands.run(["scontrol", "show", "node", "-o"])
            if reply.code == 0:
                with contextlib.suppress(SchedulerUnreachable):  # an answer that was cut off
                    self._note(read_scontrol_nodes(reply.stdout))
            await asyncio.sleep(pause)

    def _note(self, nodes: Mapping[str, SchedulerNode]) -> None:
        closed = {name for name, node in nodes.items() if node.cordoned or "DOWN" in node.flags}
        known = closed | (self._closed - nodes.keys())
        for name in sorted(self._closed - known):
            self._log("uncordon", name, None, "")
        for name in sorted(known - self._closed):
            self._log("cordon", name, nodes[name].reason_by, nodes[name].reason or "")
        self._closed = known

    def _log(self, event: str, name: str, by: str | None, reason: str) -> None:
        self._truth.write(event, name, self._machines[name].rack, by=by or "", reason=reason)

"""One simulated GPU host on a bench whose time passes only in commands and by `advance`; a fleet.ports.FileHost."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from unit.bmc_bench import StepClock

from adapters.probe import Probe
from adapters.ssh_files import CHECK_AND_MOVE, MAKE_FOLDER, RECEIVE, folder_of
from fleet.node_reading import NodeReading
from simulator.host.faults import parse_driver_faults
from simulator.host.performance import Performance
from simulator.host.releases import deb_version, driver_debs
from simulator.host.state import Site
from simulator.hosts import GpuHost
from simulator.machine import Machine, Timing
from simulator.slurm.reply import Reply
from simulator.truth import TruthLog

NODE = "gpu-0001"
ENVIRONMENT = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l")
OPTIONS = ("-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
HOLDERS = ("nvidia-dcgm", "dcgm-exporter", "nvidia-fabricmanager", "nvidia-persistenced")
MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")


class HostBench:
    """`drivers` is the section of a faults file; `jobs` are the scheduler's jobs on the node."""

    def __init__(self, folder: Path, drivers: str = "{}", gpus: int = 8, node: str = NODE) -> None:
        self.clock = StepClock()
        self._path = folder / "truth.jsonl"
        self.jobs: list[tuple[int, str]] = []
        self.machine = Machine(
            node, "r1", "train", "HGX-H100-8", gpus, self.clock, TruthLog(self._path, self.clock), Timing(jitter=0.0)
        )
        faults = parse_driver_faults(f"drivers: {drivers}\n", "faults.yaml", [node, "gpu-0002"], 7)
        site = Site(7, faults, Performance(7), {node: 12})
        self.host = GpuHost(self.machine, lambda: ["96.00.74.00.01"] * gpus, site, lambda: self.jobs)
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Nothing is waited for; what still runs is left where it is."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Reply:
        return self._loop.run_until_complete(self._finished(shlex.join(arguments), b""))

    def ask(self, *arguments: str) -> Reply:
        return self.run(arguments)

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        for script, words, stdin in (
            (MAKE_FOLDER, (folder_of(path),), b""),
            (RECEIVE, (f"{path}.new",), content),
            (CHECK_AND_MOVE, (f"{path}.new", path, digest), b""),
        ):
            line = shlex.join(("sh", "-c", script, "sh", *words))
            assert self._loop.run_until_complete(self._finished(line, stdin)).code == 0

    async def _finished(self, line: str, stdin: bytes) -> Reply:
        """The answer; time passes until it is there."""
        answer = self.host.run(line, "root", stdin)
        if isinstance(answer, Reply):
            return answer
        waited = asyncio.ensure_future(answer)
        while not waited.done():
            await self.clock.advance(0.5)
        return waited.result()

    def advance(self, seconds: float) -> None:
        self._loop.run_until_complete(self.clock.advance(seconds))

    def do(self, change: Callable[[], None]) -> None:
        """Something that happens to the machine: its timers need the running loop."""

        async def go() -> None:
            change()

        self._loop.run_until_complete(go())

    def probe(self) -> NodeReading:
        return Probe(self, self.machine.name).read()

    def start_job(self, name: str, *command: str) -> None:
        assert self.ask("sh", "-c", "script", "gpufleet-job-start", name, *command) == Reply(0)

    def read_job(self, name: str) -> dict[str, object]:
        told = json.loads(self.ask("sh", "-c", "script", "gpufleet-job-read", name).stdout)
        assert isinstance(told, dict)
        return told

    def install(self, release: str, name: str = "install") -> dict[str, object]:
        """The whole driver by apt, as a job that is waited for."""
        self.start_job(name, *ENVIRONMENT, "apt-get", *install_words(release))
        self.advance(120)
        return self.read_job(name)

    def packages_broken(self) -> bool:
        return bool(self.host.packages.unfinished())

    def stop_holders(self) -> None:
        for unit in HOLDERS:
            assert self.ask("systemctl", "stop", unit).code == 0

    def start_holders(self) -> list[int]:
        return [self.ask("systemctl", "start", unit).code for unit in reversed(HOLDERS)]

    def reload(self) -> Reply:
        """Unload and load; the answer that tells most."""
        removed = self.ask("modprobe", "-r", *MODULES)
        if removed.code:
            return removed
        loaded = self.ask("modprobe", "nvidia")
        return loaded if loaded.code else self.ask("modprobe", "nvidia_uvm")

    def truth(self, event: str) -> list[dict[str, object]]:
        if not self._path.exists():
            return []
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


def install_words(release: str) -> list[str]:
    pins = [f"{name}={version}" for name, version in driver_debs(release).items()]
    return ["-o", "Dpkg::Options::=--force-confold", "install", *OPTIONS, *pins]


def version(release: str) -> str:
    return deb_version(release)

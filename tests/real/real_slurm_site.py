"""A simulated fleet on a real Slurm, for tests that roll out on it; started and driven through the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from blocks.fleet import Fleet
from simulator.slurm_conf import PATH
from tests.flows.operated_site import ROOT, Site, free_port

NODES = 16


@dataclass
class RealSlurmSite(Site):
    """`slurm_conf` is that of the real Slurm: `slurm` asks it past gpufleet."""

    slurm_conf: str = ""

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(fleet_file=str(self.file))

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, "SLURM_CONF": self.slurm_conf, "LC_ALL": "C.UTF-8"}

    def slurm(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def start_now(self, job: str) -> None:
        """A requeued job need not wait its two minutes; one that has begun meanwhile is fine too."""
        command = ("scontrol", "update", f"job={job}", "starttime=now")
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 or "no longer pending" in done.stderr, done.stderr

    def state(self, node: str) -> str:
        """As sinfo says it: idle, drained, down* …"""
        return self.slurm("sinfo", "-h", "-N", "-n", node, "-o", "%T").strip()

    def reason(self, node: str) -> str:
        return self.slurm("sinfo", "-h", "-N", "-n", node, "-o", "%E").strip()

    def show(self, node: str) -> str:
        return self.slurm("scontrol", "show", "node", "-o", node).strip()

    def slurmd_age_seconds(self, node: str) -> float:
        pid = self.slurmd(node)
        assert pid is not None
        return time.time() - psutil.Process(pid).create_time()

    def slurmd(self, node: str) -> int | None:
        """The process that is the node's slurmd; None where it has none."""
        return self._daemon("slurmd", node)

    def kill_controller(self) -> None:
        """slurmctld dies at once, with what it had not saved yet."""
        pid = self._daemon("slurmctld")
        assert pid is not None
        psutil.Process(pid).kill()
        self.wait("slurmctld is gone", lambda: self._daemon("slurmctld") is None)

    def start_controller(self) -> None:
        """After `kill_controller`; the simulator ends it with its own daemons."""
        log = (Path(self.slurm_conf).parent / "slurmctld.out").open("ab")
        with log:
            command = ["slurmctld", "-D"]
            subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait("slurmctld answers", self._answers)

    def _answers(self) -> bool:
        done = subprocess.run(["scontrol", "ping"], env=self.environment, capture_output=True, check=False)
        return done.returncode == 0

    def _daemon(self, name: str, last: str = "") -> int | None:
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[:2] == [name, "-D"] and last in ("", words[-1]) and self._is_ours(process):
                return int(process.pid)
        return None

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("SLURM_CONF") == self.slurm_conf
        except psutil.Error:
            return False


@contextmanager
def real_slurm_site(folder: Path, *options: str, nodes: int = NODES, racks: int = 4) -> Iterator[RealSlurmSite]:
    """Simulator and Slurm run until the end of the `with` block; Prefect is not started. `options` are those of
    `gpufleet simulate`."""
    given = ["--slurm", "real", "--nodes", str(nodes), "--racks", str(racks), "--dir", str(folder), *options]
    folder.parent.mkdir(parents=True, exist_ok=True)
    log_file = folder.with_suffix(".log")
    with log_file.open("wb") as log:
        command = [sys.executable, "-m", "cli", "simulate", *given]
        simulator = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ})
    try:
        deadline = time.monotonic() + 120
        while not (folder / "simulator.json").is_file():
            assert simulator.poll() is None, f"the simulator ended:\n{log_file.read_text()}"
            assert time.monotonic() < deadline, f"the simulator did not start:\n{log_file.read_text()}"
            time.sleep(0.1)
        record = json.loads((folder / "simulator.json").read_text())
        yield RealSlurmSite(folder, free_port(), slurm_conf=record["slurm_conf"])
    finally:
        simulator.terminate()
        simulator.wait(timeout=60)

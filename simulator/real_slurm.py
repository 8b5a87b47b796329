"""A real Slurm on this machine: munged, slurmctld and one slurmd per node, on loopback and free ports."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from simulator.slurm_conf import PATH, ClusterSettings, missing_parts, write_configuration

__all__ = ["ClusterSettings", "RealSlurm", "SlurmFailed", "missing_parts"]

_LOST_AGAIN_SECONDS = 0.3  # a step that was being started when its node was lost shows itself within this
_NODES_AT_ONCE = 32  # slurmd that are started before the first of them is waited for


class SlurmFailed(RuntimeError):
    """A daemon did not start, or a command was refused; with its words."""


class RealSlurm:
    """One cluster of nodes with `gpus` fake GPUs each; all its files are under `folder`.

    `nodes` is a number (partition `train`, nodes gpu0001 …) or the nodes of each partition, the default one first.
    Daemons that an earlier cluster left running in this folder are ended.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int | Mapping[str, Sequence[str]] = 16,
        gpus: int = 8,
        settings: ClusterSettings | None = None,
    ) -> None:
        self.folder = folder
        self.gpus = gpus
        self.settings = settings or ClusterSettings()
        if isinstance(nodes, int):
            nodes = {"train": [f"gpu{index:04d}" for index in range(1, nodes + 1)]}
        self.partitions = {name: tuple(own) for name, own in nodes.items()}
        self.node_names = tuple(sorted(name for own in self.partitions.values() for name in own))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            "PATH": PATH,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, seconds: float | None = None) -> None:
        """Start everything, and wait until every node is idle, at most `seconds` (default: by the number of nodes).

        Raises SlurmFailed, and OSError where ports or device nodes cannot be had; nothing is left running then.
        """
        try:
            self._end_processes()
            write_configuration(self.folder, self.partitions, self.gpus, self.settings)
            self._start_munge()
            self.start_controller("-c")
            for place, name in enumerate(self.node_names):
                self.start_node(name)
                if place % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                    pid_file = self.folder / f"slurmd-{name}.pid"
                    self.wait_for(f"slurmd of {name}", pid_file.exists, 60.0)
            wait = seconds or 60.0 + len(self.node_names) / 5
            self.wait_for("every node idle", lambda: self._idle() == len(self.node_names), wait)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every daemon, and the job steps, which outlive their slurmd."""
        for daemon in self._daemons.values():
            daemon.kill()
        for name in (*self._daemons,):
            self.stop_daemon(name)
        self._end_processes()

    def command(self, *arguments: str, text: str | None = None) -> str:
        """Run one Slurm command; its standard output. Raises SlurmFailed with its words if it fails."""
        done = subprocess.run(  # noqa: S603
            arguments,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise SlurmFailed(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """`sbatch` with the job's output thrown away; the job's id."""
        text = f"#!/bin/sh\n{script}\n"
        out = self.command("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options, text=text)
        return out.strip().split(";")[0]

    def start_controller(self, *options: str) -> None:
        self._start("slurmctld", "slurmctld", "-D", *options)
        self.wait_for("the controller", self._ping, 30.0)

    def start_node(self, name: str, rebooted: bool = False) -> None:
        """Start a node's slurmd; it registers a moment later. `rebooted`: it tells of a boot just now."""
        boot = ("-b",) if rebooted else ()
        self._start(name, "slurmd", "-D", *boot, "-N", name)

    def lose_node(self, name: str) -> frozenset[int]:
        """The node loses its power: slurmd and all that runs there are killed, and tell nobody.

        The ids of the jobs whose batch program ran there.
        """
        self.stop_daemon(name)
        jobs = self._end_processes(name)
        time.sleep(_LOST_AGAIN_SECONDS)
        return jobs | self._end_processes(name)

    def stop_daemon(self, name: str) -> None:
        """Kill one daemon (a node's name, slurmctld or munged) and wait for its end."""
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait(timeout=20)

    def daemon(self, name: str) -> psutil.Process:
        """The process of a daemon, to be measured. Raises KeyError where it does not run."""
        return psutil.Process(self._daemons[name].pid)

    def wait_for(self, what: str, met: Callable[[], bool], seconds: float) -> None:
        """Raises SlurmFailed after `seconds`."""
        end = time.monotonic() + seconds
        while not met():
            if time.monotonic() > end:
                raise SlurmFailed(f"{what}: not within {seconds:.0f} s; logs are in {self.folder}")
            time.sleep(0.1)

    def _end_processes(self, node: str | None = None) -> frozenset[int]:
        """Kill what our daemons started and what uses our slurm.conf, on one node or anywhere; its jobs' ids."""
        jobs: set[int] = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmstepd":  # its title has overwritten its environment
                    if self._is_our_step(process, node):
                        process.kill()
                    continue
                environment = process.environ()
                ours = environment.get("SLURM_CONF") == self.environment["SLURM_CONF"] and process.pid != os.getpid()
                if not ours or node not in (None, environment.get("SLURMD_NODENAME")):
                    continue
                job = environment.get("SLURM_JOB_ID", "")
                if re.fullmatch(r"\d+", job):
                    jobs.add(int(job))
                process.kill()
        return frozenset(jobs)

    def _is_our_step(self, step: psutil.Process, node: str | None) -> bool:
        """A step writes to its slurmd's log."""
        logs = {str(self.folder / f"slurmd-{name}.log") for name in ((node,) if node else self.node_names)}
        return any(file.path in logs for file in step.open_files())

    def _ping(self) -> bool:
        done = subprocess.run(
            ["scontrol", "ping"],  # noqa: S607
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return "is UP" in done.stdout

    def _idle(self) -> int:
        return self.command("sinfo", "-h", "-N", "-o", "%N %T").count(" idle\n")

    def _start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        with log:
            self._daemons[name] = subprocess.Popen(  # noqa: S603
                arguments, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _start_munge(self) -> None:
        for name in ("munge.sock", "munge.sock.lock"):
            (self.folder / name).unlink(missing_ok=True)
        key = self.folder / "munge.key"
        key.unlink(missing_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        paths = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
        }
        options = [f"--{name}={self.folder / path}" for name, path in paths.items()]
        self._start("munged", "munged", "--foreground", "--force", f"--seed-file={self.folder}/seed", *options)
        self.wait_for("munged", (self.folder / "munge.sock").exists, 20.0)

"""A real Slurm for tests: munged, slurmctld and one slurmd per node, on loopback and free ports.

Source of the settings: slurm.conf(5); a distinct NodeHostname per node is what makes `slurmd -N` work on
builds without --enable-multiple-slurmd.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from fleet.hostlist import compress

_BINARIES = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel")


def missing_parts() -> str | None:
    """Why no real Slurm can be started here; None where it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in _BINARIES if shutil.which(name, path=path) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: slurm-wlm munge)"
    return None if os.geteuid() == 0 else "slurmctld and slurmd are started as root here"


class RealSlurm:
    """One cluster of `nodes` nodes with `gpus` fake GPUs each; all its files are under `folder`."""

    def __init__(self, folder: Path, nodes: int = 16, gpus: int = 8) -> None:
        self.folder = folder
        self.gpus = gpus
        self.node_names = tuple(f"gpu{index:04d}" for index in range(1, nodes + 1))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
        }

    def __enter__(self) -> Self:
        try:
            self._write_configuration()
            self._start_munge()
            self.start_controller("-c")
            for name in self.node_names:
                self.start_node(name)
            self.wait_for("every node idle", lambda: self._idle() == len(self.node_names), 60.0)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for name in (*self.node_names, "slurmctld", "munged"):
            self.stop_daemon(name)
        self._end_steps()

    def _end_steps(self) -> None:
        """Job steps outlive their slurmd: end what still runs with our slurm.conf."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                    for step in process.parents():
                        if step.name() == "slurmstepd":  # its title has overwritten its environment
                            step.kill()
                    process.kill()

    def command(self, *arguments: str, text: str | None = None) -> str:
        """Run one Slurm command; its standard output. Raises AssertionError with its words if it fails."""
        done = subprocess.run(
            arguments,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr or done.stdout}"
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """`sbatch` with the job's output thrown away; the job's id."""
        text = f"#!/bin/sh\n{script}\n"
        out = self.command("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options, text=text)
        return out.strip().split(";")[0]

    def start_controller(self, *options: str) -> None:
        self._start("slurmctld", "slurmctld", "-D", *options)
        self.wait_for("the controller", lambda: self._ping(), 30.0)

    def start_node(self, name: str) -> None:
        self._start(name, "slurmd", "-D", "-N", name)

    def stop_daemon(self, name: str) -> None:
        """Kill one daemon (a node's name, slurmctld or munged) and wait for its end."""
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait(timeout=20)

    def wait_for(self, what: str, met: object, seconds: float) -> None:
        assert callable(met)
        end = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s; logs are in {self.folder}"
            time.sleep(0.1)

    def _ping(self) -> bool:
        done = subprocess.run(
            ["scontrol", "ping"],
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
            self._daemons[name] = subprocess.Popen(
                arguments, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        paths = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
        }
        options = [f"--{name}={self.folder / path}" for name, path in paths.items()]
        self._start("munged", "munged", "--foreground", "--force", f"--seed-file={self.folder}/seed", *options)
        self.wait_for("munged", (self.folder / "munge.sock").exists, 20.0)

    def _write_configuration(self) -> None:
        self.folder.chmod(0o755)
        for name in ("state", "spool", "dev"):
            (self.folder / name).mkdir(exist_ok=True)
        devices = self.folder / "dev"
        for index in range(self.gpus):
            device = devices / f"nvidia{index}"
            if not device.exists():
                os.mknod(device, 0o666 | 0o020000, os.makedev(195, index))
        ports = _free_ports(len(self.node_names) + 1)
        nodes = compress(self.node_names)
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                folder=self.folder,
                host=socket.gethostname(),
                port=ports[0],
                nodes=nodes,
                gpus=self.gpus,
                ports=compress(map(str, ports[1:])),
            )
        )
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        files = f"{devices}/nvidia[0-{self.gpus - 1}]"
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\nNodeName={nodes} Name=gpu Type=h100 File={files}\n")


def _free_ports(count: int) -> list[int]:
    """`count` adjacent ports that are free now: Slurm wants one range."""
    for start in range(21000 + os.getpid() % 4000, 60000, count):
        if all(_is_free(port) for port in range(start, start + count)):
            return list(range(start, start + count))
    raise AssertionError("no free range of ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_CONFIGURATION = """\
ClusterName=gpufleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
TreeWidth=65533
ReturnToService=1
SlurmdTimeout=10
CommunicationParameters=NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={nodes} NodeHostname={nodes} NodeAddr=127.0.0.1 Port={ports} CPUs=8 Gres=gpu:h100:{gpus}
PartitionName=train Nodes={nodes} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""

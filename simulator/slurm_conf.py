"""What a real Slurm on one machine needs: its binaries, free ports and configuration files.

Source of the settings: slurm.conf(5), gres.conf(5); a distinct NodeHostname per node is what makes `slurmd -N` work
on builds without --enable-multiple-slurmd.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.hostlist import compress

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_BINARIES = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel")
_FIRST_PORT, _LAST_PORT = 21000, 60000
_NVIDIA_MAJOR = 195  # the device number of /dev/nvidia0


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`slurmd_timeout_seconds` is SlurmdTimeout, in real seconds; `return_to_service` is ReturnToService: with 1 a node
    that was rebooted stays DOWN until somebody resumes it."""

    slurmd_timeout_seconds: int = 10
    return_to_service: int = 1


def missing_parts() -> str | None:
    """Why no real Slurm can be started here; None where it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in _BINARIES if shutil.which(name, path=path) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: slurm-wlm munge)"
    return None if os.geteuid() == 0 else "slurmctld and slurmd are started as root here"


def write_configuration(
    folder: Path, partitions: Mapping[str, Sequence[str]], gpus: int, settings: ClusterSettings
) -> None:
    """slurm.conf, cgroup.conf and gres.conf below `folder`, with device nodes of `gpus` GPUs, which all nodes share.

    Every node gets its own port. Raises OSError where no range of ports is free, or no device node may be made.
    """
    folder.chmod(0o755)
    for name in ("state", "spool", "dev"):
        (folder / name).mkdir(exist_ok=True)
    devices = folder / "dev"
    for index in range(gpus):
        device = devices / f"nvidia{index}"
        if not device.exists():
            os.mknod(device, 0o666 | 0o020000, os.makedev(_NVIDIA_MAJOR, index))
    names = [name for nodes in partitions.values() for name in nodes]
    ports = _free_ports(len(names) + 1)
    nodes = compress(names)
    text = _CONFIGURATION.format(
        folder=folder,
        host=socket.gethostname(),
        port=ports[0],
        nodes=nodes,
        gpus=gpus,
        ports=compress(map(str, ports[1:])),
        slurmd_timeout=settings.slurmd_timeout_seconds,
        return_to_service=settings.return_to_service,
    )
    lines = [
        _PARTITION.format(name=name, nodes=compress(own), default="NO" if place else "YES")
        for place, (name, own) in enumerate(partitions.items())
    ]
    (folder / "slurm.conf").write_text(text + "".join(lines))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    files = f"{devices}/nvidia[0-{gpus - 1}]" if gpus > 1 else f"{devices}/nvidia0"
    (folder / "gres.conf").write_text(f"AutoDetect=off\nNodeName={nodes} Name=gpu Type=h100 File={files}\n")


def _free_ports(count: int) -> list[int]:
    """`count` adjacent ports that are free now: Slurm wants one range."""
    first = _FIRST_PORT + os.getpid() % 4000
    for start in range(first, _LAST_PORT, count):
        if all(_is_free(port) for port in range(start, start + count)):
            return list(range(start, start + count))
    raise OSError(f"no {count} free ports in a row from {first}")


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
ReturnToService={return_to_service}
SlurmdTimeout={slurmd_timeout}
CommunicationParameters=NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={nodes} NodeHostname={nodes} NodeAddr=127.0.0.1 Port={ports} CPUs=8 Gres=gpu:h100:{gpus}
"""
_PARTITION = "PartitionName={name} Nodes={nodes} Default={default} MaxTime=INFINITE State=UP OverSubscribe=NO\n"

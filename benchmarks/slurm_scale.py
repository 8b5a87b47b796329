"""A real Slurm of many slurmd: how fast nodes are cordoned, and what one look at the whole fleet costs.

    python benchmarks/slurm_scale.py --nodes 1250

All daemons run on this machine, as root (Debian: slurm-wlm munge; about 4 MB of memory a node). What is measured is
the adapter that the product uses, with its commands run here: over SSH a login is added to each. CPU seconds are
slurmctld's alone. One query reads the nodes and one the jobs, whatever the number of nodes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from adapters.local import LocalHost
from adapters.slurm import SlurmScheduler
from fleet.model import SchedulerState
from simulator.real_slurm import ClusterSettings, RealSlurm

POLLS = 10
WAVE = 64  # nodes that are cordoned by one command
SINGLE = 50  # nodes that are cordoned one by one
SLURMD_TIMEOUT = 300  # Slurm's default


class Meter:
    """Wall and slurmctld's CPU seconds of what is done."""

    def __init__(self, slurm: RealSlurm) -> None:
        self._slurmctld = slurm.daemon("slurmctld")

    def measure(self, work: Callable[[], object]) -> tuple[float, float]:
        cpu, wall = self._cpu(), time.monotonic()
        work()
        return time.monotonic() - wall, self._cpu() - cpu

    def _cpu(self) -> float:
        times = self._slurmctld.cpu_times()
        return times.user + times.system


def until(met: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds:.0f} s")
        time.sleep(0.2)


def all_open(scheduler: SlurmScheduler) -> bool:
    return all(
        node.state is SchedulerState.IDLE and not node.cordoned and "NOT_RESPONDING" not in node.flags
        for node in scheduler.read_nodes().values()
    )


def polls(scheduler: SlurmScheduler, meter: Meter) -> dict[str, float]:
    """The median look at the whole fleet: every node and every job."""

    def look() -> None:
        scheduler.read_nodes()
        scheduler.read_jobs()

    looks = [meter.measure(look) for _ in range(POLLS)]
    return {
        "wall_s": round(statistics.median(wall for wall, _ in looks), 3),
        "worst_wall_s": round(max(wall for wall, _ in looks), 3),
        "slurmctld_cpu_s": round(sum(cpu for _, cpu in looks) / POLLS, 4),
    }


def cordons(scheduler: SlurmScheduler, meter: Meter, names: tuple[str, ...], at_once: int) -> dict[str, float]:
    """Cordon `names`, so many in one command, and see that they all are."""

    def cordon() -> None:
        for place in range(0, len(names), at_once):
            scheduler.cordon(names[place : place + at_once], f"benchmark: {at_once} at once")

    wall, cpu = meter.measure(cordon)
    seen = scheduler.read_nodes()
    missed = [name for name in names if not seen[name].cordoned]
    if missed:
        raise RuntimeError(f"{len(missed)} nodes are not cordoned, {missed[0]} is one")
    return {
        "nodes": len(names),
        "wall_s": round(wall, 3),
        "nodes_per_s": round(len(names) / wall, 1),
        "slurmctld_cpu_s": round(cpu, 3),
    }


def returns(scheduler: SlurmScheduler, meter: Meter, names: tuple[str, ...]) -> dict[str, float]:
    """Uncordon all in one call, then wait until each has answered the controller's ping again."""
    wall, cpu = meter.measure(lambda: scheduler.uncordon(names))
    until_open, _ = meter.measure(lambda: until(lambda: all_open(scheduler)))
    return {
        "wall_s": round(wall, 3),
        "nodes_per_s": round(len(names) / wall, 1),
        "slurmctld_cpu_s": round(cpu, 3),
        "all_idle_after_s": round(wall + until_open, 1),
    }


def memory_mb(slurm: RealSlurm) -> float:
    return sum(slurm.daemon(name).memory_info().rss for name in (*slurm.node_names, "slurmctld")) / 2**20


def measure(nodes: int, folder: Path) -> dict[str, object]:
    slurm = RealSlurm(folder, nodes, settings=ClusterSettings(slurmd_timeout_seconds=SLURMD_TIMEOUT))
    began = time.monotonic()
    with slurm:
        started = time.monotonic() - began
        scheduler = SlurmScheduler(LocalHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]}), timeout_seconds=120)
        meter, names = Meter(slurm), slurm.node_names
        result: dict[str, object] = {
            "nodes": nodes,
            "cores": psutil.cpu_count(),
            "start_s": round(started, 1),
            "memory_mb": round(memory_mb(slurm)),
            "poll": polls(scheduler, meter),
        }
        for key, chosen, at_once in (
            ("cordon_one_by_one", names[:SINGLE], 1),
            (f"cordon_{WAVE}_at_once", names, WAVE),
        ):
            result[key] = cordons(scheduler, meter, chosen, at_once)
            scheduler.uncordon(chosen)
            until(lambda: all_open(scheduler))
        result["cordon_all_at_once"] = cordons(scheduler, meter, names, len(names))
        result["poll_all_drained"] = polls(scheduler, meter)
        result["return"] = returns(scheduler, meter, names)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder:
        print(json.dumps(measure(options.nodes, Path(folder)), indent=2), flush=True)


if __name__ == "__main__":
    main()

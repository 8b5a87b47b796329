"""Sweeps at size: how long every GPU of the fleet takes to be read, what that costs, and what other tools take.

    python benchmarks/sweep.py --nodes 1250 --racks 40
    pip install ClusterShell && python benchmarks/sweep.py --nodes 1250 --compare

A simulated fleet is swept once (which also sends the probe), then `--rounds` times with everything due at once. A
round is good where it is over in `--every-seconds`. CPU and memory are this process's; the simulator's CPU is
printed beside it, as both share the machine. `--compare` runs one command on every host by our kept connections,
by new paramiko connections, by asyncssh and by ClusterShell (ssh), 64 at once each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import yaml

from adapters.known_hosts import KnownHosts
from adapters.ssh import SshAccess, SshHost, read_key
from blocks.fleet import Fleet
from fleet.model import Node
from tasks.sweeping import Sweeper

AT_ONCE = 64
COMMAND = ("nvidia-smi", "-L")


class Meter:
    """Wall and CPU seconds of this process and its children, and of the simulator, since it was made."""

    def __init__(self, simulator: int) -> None:
        self._simulator = psutil.Process(simulator)
        self._began, self._own, self._theirs = time.monotonic(), _own_cpu(), self._simulated()

    def read(self) -> dict[str, float]:
        return {
            "wall_s": round(time.monotonic() - self._began, 1),
            "cpu_s": round(_own_cpu() - self._own, 1),
            "simulator_cpu_s": round(self._simulated() - self._theirs, 1),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }

    def _simulated(self) -> float:
        return float(sum(self._simulator.cpu_times()[:2]))


def _own_cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_utime + resource.getrusage(kind).ru_stime for kind in kinds)


def sweeps(fleet: Fleet, options: argparse.Namespace, simulator: int) -> list[dict[str, object]]:
    """The first round, then steady ones; each with what it read."""
    nodes = fleet.spec().inventory()
    sweeper = Sweeper(fleet, nodes)
    found: list[dict[str, object]] = []
    for number in range(options.rounds + 1):
        meter = Meter(simulator)
        swept = sweeper.round()
        figures: dict[str, object] = {"round": "first" if number == 0 else "steady", **meter.read()}
        figures |= {"readings": swept.read, "failed": len(swept.failed), "changes": len(swept.changes)}
        found.append(figures)
        print(json.dumps(figures), file=sys.stderr, flush=True)
        time.sleep(sweeper.pause_seconds())
    return found


def compare(fleet: Fleet, simulator: int) -> dict[str, dict[str, float]]:
    """The same command on all hosts by each tool; the figures of one run each."""
    nodes, folder = fleet.spec().inventory(), fleet.folder()
    access = SshAccess("root", read_key(folder / "ssh_key"), KnownHosts.read(folder / "known_hosts"), 15.0)
    tools: dict[str, Callable[[], int]] = {
        "ours, kept connections": lambda: _threads(nodes, lambda node: _run(fleet.host(node))),
        "paramiko, new connections": lambda: _threads(nodes, lambda node: _paramiko(node, access)),
        "asyncssh, new connections": lambda: asyncio.run(_asyncssh(nodes, folder)),
    }
    if shutil.which("clush"):
        tools["ClusterShell, ssh"] = lambda: _clush(nodes, folder)
    found: dict[str, dict[str, float]] = {}
    for name, run in tools.items():
        meter = Meter(simulator)
        good = run()
        found[name] = meter.read() | {"hosts": good}
        print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    return found


def _threads(nodes: tuple[Node, ...], run: Callable[[Node], bool]) -> int:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(run, nodes))


def _run(host: object) -> bool:
    assert hasattr(host, "run")
    return bool(host.run(COMMAND).code == 0)


def _paramiko(node: Node, access: SshAccess) -> bool:
    host = SshHost(node.name, node.ssh, access)
    try:
        return host.run(COMMAND).code == 0
    finally:
        host.close()


async def _asyncssh(nodes: tuple[Node, ...], folder: Path) -> int:
    import asyncssh

    turn = asyncio.Semaphore(AT_ONCE)
    key, known = asyncssh.read_private_key(folder / "ssh_key"), asyncssh.read_known_hosts(folder / "known_hosts")

    async def one(node: Node) -> bool:
        host, _, port = node.ssh.rpartition(":")
        async with (
            turn,
            asyncssh.connect(host, int(port), username="root", client_keys=[key], known_hosts=known) as connection,
        ):
            return (await connection.run(" ".join(COMMAND))).exit_status == 0

    return sum(await asyncio.gather(*(one(node) for node in nodes)))


def _clush(nodes: tuple[Node, ...], folder: Path) -> int:
    """By addresses; the port is the same on all hosts of a simulated fleet on Linux."""
    port = nodes[0].ssh.rpartition(":")[2]
    options = f"-p {port} -i {folder / 'ssh_key'} -o UserKnownHostsFile={folder / 'known_hosts'} -o LogLevel=ERROR"
    names = ",".join(node.ssh.rpartition(":")[0] for node in nodes)
    command = ["clush", "-S", "-q", "-l", "root", "-f", str(AT_ONCE), "-o", options, "-w", names, " ".join(COMMAND)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return len({line.split(":")[0] for line in done.stdout.splitlines() if "UUID" in line})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--racks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every-seconds", type=float, default=30.0)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-sweep-"))
    simulate = [sys.executable, "-m", "cli", "simulate", "--nodes", options.nodes, "--racks", options.racks]
    simulate += ["--dir", folder, "--no-jobs", "--uniform"]
    process = subprocess.Popen([str(part) for part in simulate], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        while not (folder / "simulator.json").is_file():
            time.sleep(0.2)
        file = folder / "fleet.yaml"
        tree = yaml.safe_load(file.read_text())
        tree["sweep"] = {"every_seconds": options.every_seconds, "bmc_every_seconds": 86400.0, "at_once": AT_ONCE}
        file.write_text(yaml.safe_dump(tree, sort_keys=False))
        fleet = Fleet(fleet_file=str(file))
        fleet.sync_inventory()
        figures: dict[str, object] = {"nodes": options.nodes, "every_seconds": options.every_seconds}
        figures["sweeps"] = sweeps(fleet, options, process.pid)
        figures["ledger_mb"] = round(sum(path.stat().st_size for path in folder.glob("ledger.db*")) / 2**20, 1)
        if options.compare:
            figures["one command on every host"] = compare(fleet, process.pid)
        print(json.dumps(figures, indent=2))
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

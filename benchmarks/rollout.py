"""A whole rollout at size: makespan over the ideal, CPU and memory of all our processes, ledger growth.

    python benchmarks/rollout.py --nodes 1250 --racks 40 --device-seconds 60

Simulated device time is compressed so that one node's flashing and resetting take `--device-seconds` real
seconds. The ideal is the same plan with nothing but device time: per wave, the most rounds that any rack (or the
pool's floor) needs, times the device time. Gates are approved by policy, bake time is zero, no jobs run.
CPU and memory count the Prefect server, the worker and every flow process; not the simulator.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import yaml

from blocks.fleet import Fleet
from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes, read_record
from ledger import OperationState
from simulator.bundle import reset_seconds
from simulator.firmware import demo_bundle_entries
from simulator.machine import Timing
from simulator.verdict import Expectations, judge

ENDED = (OperationState.DONE, OperationState.HALTED, OperationState.ABORTED, OperationState.FAILED)


def nominal_seconds() -> float:
    """Simulated seconds of one node that needs every entry of the demo's bundle."""
    timing = Timing()
    entries = demo_bundle_entries(8)
    resets = reset_seconds(timing)
    return timing.flash * len(entries) + max(resets[entry.reset] for entry in entries)


class Meter(threading.Thread):
    """CPU seconds and peak memory of the runtime's processes, flow processes that end included."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._stop = threading.Event()
        self.cpu: dict[tuple[str, int], float] = {}
        self.base: dict[tuple[str, int], float] = {}
        self.peak_mb = 0.0

    def run(self) -> None:
        while not self._stop.wait(0.5):
            self.look()

    def look(self) -> None:
        memory = 0.0
        for name, process in self._processes():
            try:
                times, key = process.cpu_times(), (name, process.pid)
                self.cpu[key] = times.user + times.system
                self.base.setdefault(key, 0.0 if name == "flow" else self.cpu[key])
                memory += process.memory_info().rss / 2**20
            except psutil.NoSuchProcess:
                continue
        self.peak_mb = max(self.peak_mb, memory)

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        found = [("flow", process) for process in flow_processes(self._folder.path)]
        for component in ("server", "worker"):
            record = read_record(self._folder.record(component))
            process = record.process() if record is not None else None
            if process is not None:
                found.append((component, process))
        return found

    def seconds(self) -> dict[str, float]:
        self._stop.set()
        self.look()
        total: dict[str, float] = {}
        for (name, pid), cpu in self.cpu.items():
            total[name] = total.get(name, 0.0) + cpu - self.base[name, pid]
        return total


def gpufleet(fleet: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "cli", *arguments, "--fleet", str(fleet)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 7):
        raise RuntimeError(f"gpufleet {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def prepare(fleet: Path, poll_seconds: float) -> None:
    """Policy of the measurement: one pool's limits, no people, no bake."""
    tree = yaml.safe_load(fleet.read_text())
    tree["gate"] = {"required": 0}
    tree["bmc"]["poll_seconds"] = poll_seconds
    for pool in tree["pools"].values():
        pool["waves"] |= {"bake_seconds": 0.0, "canary": 64, "factor": 16.0}  # three waves rather than ten
        pool["breaker"] = {"share": 1.0, "window_seconds": 60.0, "floor_nodes": 0}
    fleet.write_text(yaml.safe_dump(tree, sort_keys=False))


def ideal_seconds(plan: dict[str, object], device_seconds: float) -> float:
    waves = plan["waves"]
    assert isinstance(waves, list)
    return float(sum(wave["rounds"] for wave in waves)) * device_seconds


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    scale = nominal_seconds() / options.device_seconds
    simulate = [sys.executable, "-m", "cli", "simulate", "--nodes", options.nodes, "--racks", options.racks]
    simulate += ["--seed", options.seed, "--time-scale", scale, "--dir", folder, "--no-jobs", "--uniform"]
    process = subprocess.Popen([str(part) for part in simulate], stdout=subprocess.DEVNULL, start_new_session=True)
    fleet = folder / "fleet.yaml"
    try:
        while not (folder / "simulator.json").is_file():
            time.sleep(0.2)
        prepare(fleet, options.poll_seconds)
        gpufleet(fleet, "up", "--port", str(options.port))
        bundle = ("--bundle", str(folder / "bundle"), "--seed", str(options.seed))
        plan_began = time.monotonic()
        plan = json.loads(gpufleet(fleet, "plan", "firmware", *bundle, "--json"))
        plan_seconds = time.monotonic() - plan_began
        meter = Meter(RunFolder(fleet))
        meter.look()
        operation = json.loads(gpufleet(fleet, "run", "firmware", *bundle, "--yes", "--json"))["operation"]
        began = time.monotonic()
        meter.start()
        ledger = Fleet(fleet_file=str(fleet)).ledger()  # `gpufleet status` each second would be half a core
        while ledger.operations.get(operation).state not in ENDED:
            time.sleep(1.0)
        makespan = time.monotonic() - began
        cpu = meter.seconds()
        state = json.loads(gpufleet(fleet, "status", operation, "--json"))
        simulator_cpu = sum(psutil.Process(process.pid).cpu_times()[:2])
        ledger_bytes = sum(path.stat().st_size for path in folder.glob("ledger.db*"))
    finally:
        gpufleet(fleet, "down")
        process.terminate()
        process.wait(timeout=30)
    nodes = state["nodes"]
    assert isinstance(nodes, list)
    updated = frozenset(row["node"] for row in nodes if row["status"] == "updated")
    verdict = judge(folder / "truth.jsonl", Expectations(updated=updated))
    ideal = ideal_seconds(plan, options.device_seconds)
    return {
        "nodes": options.nodes,
        "racks": options.racks,
        "device_seconds": options.device_seconds,
        "poll_seconds": options.poll_seconds,
        "state": state["state"],
        "updated": len(updated),
        "wrong": list(verdict.wrong()),
        "most_out": verdict.total.nodes,
        "waves": len(plan["waves"]),
        "plan_s": round(plan_seconds, 1),
        "ideal_s": round(ideal, 1),
        "makespan_s": round(makespan, 1),
        "over_ideal": round(makespan / ideal, 3),
        "cpu_s_per_node": {name: round(cpu[name] / options.nodes, 3) for name in sorted(cpu)},
        "cpu_s_per_node_total": round(sum(cpu.values()) / options.nodes, 3),
        "peak_mb": round(meter.peak_mb),
        "ledger_bytes_per_node": ledger_bytes // options.nodes,
        "simulator_cpu_s": round(simulator_cpu, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device-seconds", type=float, default=60.0)
    parser.add_argument("--poll-seconds", type=float, default=2.0)
    parser.add_argument("--port", type=int, default=4390)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-rollout-"))
    try:
        print(json.dumps(measure(options, folder), indent=2), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

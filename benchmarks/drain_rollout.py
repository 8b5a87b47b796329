"""GPU-hours that a rollout costs the jobs: drained by checkpoint, and as other tools drain. Real Slurm, real jobs.

    python benchmarks/drain_rollout.py --nodes 16 --jobs 24 --job-seconds 120 --seed 7

The same firmware rollout over all nodes is made once for each way, with the same jobs (same seed), on a real slurmctld
with a slurmd for each node. Jobs of 1 to 8 nodes train nothing, but write checkpoints in eight formats.

`checkpoint`: as gpufleet drains. `wait-then-kill`: no checkpoint is read; a node waits for its jobs to end, and after
`--patience` seconds from its cordon what still runs on it is killed and requeued, as a drain with a timeout does.
`kill`: the same with a patience of 0. What a job lost is told by the job itself when it is stopped: the time since its
newest complete checkpoint, times its GPUs. It needs root, munge and Slurm.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

from blocks.fleet import Fleet
from ledger import OperationState
from simulator.slurm_conf import PATH
from simulator.verdict import Expectations, judge

ENDED = (OperationState.DONE, OperationState.HALTED, OperationState.ABORTED, OperationState.FAILED)
_JOBS_END_WITHIN_SECONDS = 1800.0


def gpufleet(fleet: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "cli", *arguments, "--fleet", str(fleet)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 7):
        raise RuntimeError(f"gpufleet {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


class Killer(threading.Thread):
    """Requeues, without asking, what still runs on a node so many seconds after its cordon."""

    def __init__(self, slurm_conf: str, patience_seconds: float) -> None:
        super().__init__(daemon=True)
        self._environment = {"PATH": PATH, "SLURM_CONF": slurm_conf, "LC_ALL": "C.UTF-8"}
        self._patience = patience_seconds
        self._since: dict[str, float] = {}
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(1.0):
            drained = set(self._ask("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split())
            now = time.monotonic()
            self._since = {node: self._since.get(node, now) for node in drained}
            late = [node for node, since in self._since.items() if now - since >= self._patience]
            if late:
                for job in set(self._ask("squeue", "-h", "-t", "R", "-w", ",".join(late), "-o", "%A").split()):
                    self._ask("scontrol", "requeue", job)

    def _ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout


def prepare(fleet: Path, way: str) -> None:
    """One pool's limits, no people, no bake; storage only where checkpoints are to be read."""
    tree = yaml.safe_load(fleet.read_text())
    tree["gate"] = {"required": 0}
    tree["scheduler"]["poll_seconds"] = 1.0
    for pool in tree["pools"].values():
        pool["waves"] |= {"bake_seconds": 0.0, "canary": 2, "drain_timeout_seconds": 900.0}
        pool["breaker"] = {"share": 1.0, "window_seconds": 60.0, "floor_nodes": 0}
    if way == "checkpoint":
        tree["drain"] = {"checkpoints": {"clock_folder": str(fleet.parent / "storage")}}
    fleet.write_text(yaml.safe_dump(tree, sort_keys=False))


def measure(options: argparse.Namespace, folder: Path, way: str) -> dict[str, object]:
    words = [sys.executable, "-m", "cli", "simulate", "--slurm", "real", "--nodes", options.nodes, "--racks"]
    words += [options.racks, "--seed", options.seed, "--time-scale", options.time_scale, "--dir", folder]
    words += ["--job-count", options.jobs, "--job-seconds", options.job_seconds]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, start_new_session=True)
    fleet, record = folder / "fleet.yaml", folder / "simulator.json"
    killer = None
    try:
        while not record.is_file():
            if process.poll() is not None:
                raise RuntimeError("the simulator ended; is Slurm installed, and are you root?")
            time.sleep(0.2)
        prepare(fleet, way)
        gpufleet(fleet, "up", "--port", str(options.port))
        slurm_conf = json.loads(record.read_text())["slurm_conf"]
        if way != "checkpoint":
            killer = Killer(slurm_conf, 0.0 if way == "kill" else options.patience)
            killer.start()
        time.sleep(options.job_seconds / 4)  # the jobs are in the middle of their work
        bundle = ("--bundle", str(folder / "bundle"), "--seed", str(options.seed))
        operation = json.loads(gpufleet(fleet, "run", "firmware", *bundle, "--yes", "--json"))["operation"]
        began = time.monotonic()
        ledger = Fleet(fleet_file=str(fleet)).ledger()
        while ledger.operations.get(operation).state not in ENDED:
            time.sleep(1.0)
        makespan = time.monotonic() - began
        rows = ledger.operations.node_rows(operation)
        if killer is not None:
            killer.stop()
        wait_for_jobs(slurm_conf)
    finally:
        gpufleet(fleet, "down")
        process.terminate()
        process.wait(timeout=60)
    updated = frozenset(row.node for row in rows if row.status.value == "updated")
    verdict = judge(folder / "truth.jsonl", Expectations(updated=updated, most_lost_seconds=float("inf")))
    stopped = len(verdict.killed)
    return {
        "way": way,
        "state": ledger.operations.get(operation).state.value,
        "nodes": {status: sum(row.status.value == status for row in rows) for status in {r.status.value for r in rows}},
        "makespan_s": round(makespan, 1),
        "jobs": len(verdict.jobs),
        "jobs_ended": len(verdict.jobs_ended),
        "stops": stopped,
        "lost_gpu_hours": round(verdict.lost_gpu_hours, 3),
        "most_lost_s": round(max((job.lost_seconds for job in verdict.killed), default=0.0), 1),
        "resumed_behind": sum(len(job.behind) for job in verdict.jobs.values()),
        "fences_left": sum(line.startswith("ReservationName") for line in _reservations(folder)),
        "wrong": list(verdict.wrong()),
    }


def _reservations(folder: Path) -> list[str]:
    kept = folder / "reservations.txt"
    return kept.read_text().splitlines() if kept.is_file() else []


def wait_for_jobs(slurm_conf: str) -> None:
    """Until every job has done its work; what fences are left then is written down."""
    environment = {"PATH": PATH, "SLURM_CONF": slurm_conf, "LC_ALL": "C.UTF-8"}
    end = time.monotonic() + _JOBS_END_WITHIN_SECONDS
    while time.monotonic() < end:
        done = subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0 and not done.stdout.strip():
            break
        time.sleep(2.0)
    shown = subprocess.run(
        ["scontrol", "show", "reservation", "-o"], env=environment, capture_output=True, text=True, check=False
    )
    (Path(slurm_conf).parents[1] / "reservations.txt").write_text(shown.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--job-seconds", type=float, default=120.0)
    parser.add_argument("--time-scale", type=float, default=60.0, help="of the devices; Slurm and jobs are real")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds, of wait-then-kill")
    parser.add_argument("--port", type=int, default=4393)
    parser.add_argument("--ways", nargs="+", default=["checkpoint", "wait-then-kill", "kill"])
    parser.add_argument("--keep", type=Path, help="keep the folders here")
    options = parser.parse_args()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    for way in options.ways:
        folder = Path(tempfile.mkdtemp(prefix=f"gpufleet-drain-{way}-"))
        try:
            print(json.dumps(measure(options, folder, way)), flush=True)
        finally:
            if options.keep is not None:
                shutil.copytree(folder, options.keep / way, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Kill a rollout at random moments and see whether it still ends right, by the simulator's truth log.

    python benchmarks/chaos.py --runs 30 --seed 1

Each run: a fresh simulated fleet of 16 nodes, a rollout with approvals, one `kill -9` at a random moment of,
at random, the flow process, the worker, the server, or all of them; then `gpufleet up`. A run is right when
every component that was behind was flashed and activated exactly once, no other was touched, no job was
killed, no limit exceeded, nothing stays leased or cordoned, and no gate was asked twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import yaml

from blocks.fleet import Fleet
from cli.demo import simulated
from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes, read_record
from fleet.gates import GateStatus
from fleet.reasons import ReasonKind
from ledger import Ledger, OperationState
from simulator.scenario import Scenario, ScenarioFleet
from simulator.verdict import Expectations, judge

_PATIENCE_SECONDS = 900.0  # the machine may be busy with other runs; how long it takes is no matter here
VICTIMS = ("flow", "worker", "server", "everything")
ENDED = (OperationState.DONE, OperationState.HALTED, OperationState.ABORTED, OperationState.FAILED)


def gpufleet(fleet: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli", *arguments, "--fleet", str(fleet)], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 7):
        raise RuntimeError(f"gpufleet {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def victims(folder: RunFolder, kind: str) -> list[psutil.Process]:
    """The processes that a kill of `kind` hits; none where that part is not there at this moment."""
    found: list[psutil.Process] = []
    if kind in ("flow", "everything"):
        found += flow_processes(folder.path)
    for component in ("worker", "server"):
        record = read_record(folder.record(component))
        process = record.process() if record is not None and kind in (component, "everything") else None
        if process is not None:
            found.append(process)
    return found


def kill(folder: RunFolder, kind: str) -> int:
    hit = victims(folder, kind)
    for process in hit:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(hit)


def approve_open(fleet: Path, folder: Path, ledger: Ledger, operation: str) -> OperationState:
    """Approve the gate that is open, if one is; the operation's state."""
    kept = ledger.operations.get(operation)
    if kept.state is OperationState.WAITING and kept.reason_kind is ReasonKind.GATE:
        gate = ledger.gates.newest(operation)
        if gate is not None and gate.status is GateStatus.OPEN:
            wave = str(gate.wave)
            gpufleet(fleet, "approve", operation, "--wave", wave, "--key", str(folder / "approver_ed25519"))
    return kept.state


def fewer_waves(fleet: Path) -> None:
    """A gate costs the start of a process: three waves show as much as six."""
    tree = yaml.safe_load(fleet.read_text())
    for pool in tree["pools"].values():
        pool["waves"] |= {"canary": 4, "factor": 4.0, "bake_seconds": 1.0}
    fleet.write_text(yaml.safe_dump(tree, sort_keys=False))


def gate_rounds(ledger: Ledger) -> Counter[int]:
    """How often each wave's gate was opened: more than once is asking twice."""
    records = ledger.audit.tail(1_000_000)
    return Counter(int(json.loads(record.payload)["wave"]) for record in records if record.action == "gate.open")


def one_run(seed: int, nodes: int, scale: float, keep: Path | None) -> dict[str, object]:
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix=f"gpufleet-chaos-{seed}-"))
    kind = rng.choice(VICTIMS)
    moment = rng.uniform(0.5, 45.0)
    scenario = Scenario(
        description="a rollout that is killed at a random moment",
        fleet=ScenarioFleet(nodes=nodes, racks=4, gpus_per_node=8, seed=seed, time_scale=scale),
    )
    began = time.monotonic()
    with simulated(folder, scenario, None, None, keep=False) as fleet:
        runtime = RunFolder(fleet)
        try:
            fewer_waves(fleet)
            gpufleet(fleet, "up", "--port", str(20000 + seed % 20000))
            begun = json.loads(
                gpufleet(fleet, "run", "firmware", "--bundle", str(folder / "bundle"), "--yes", "--json")
            )
            operation = begun["operation"]
            ledger = Fleet(fleet_file=str(fleet)).ledger()
            killed, state = None, OperationState.PLANNED
            start = time.monotonic()
            while state not in ENDED and time.monotonic() - start < _PATIENCE_SECONDS:
                if killed is None and time.monotonic() - start >= moment:
                    killed = kill(runtime, kind)
                    gpufleet(fleet, "up")
                state = approve_open(fleet, folder, ledger, operation)
                time.sleep(0.3)
            reason = ledger.operations.get(operation).reason
            rows = json.loads(gpufleet(fleet, "status", operation, "--json"))["nodes"]
            updated = frozenset(row["node"] for row in rows if row["status"] == "updated")
            verdict = judge(folder / "truth.jsonl", Expectations(updated=updated))
            gates = gate_rounds(ledger)
            audit = json.loads(gpufleet(fleet, "audit", "verify", "--json"))
        finally:
            gpufleet(fleet, "down")
    wrong = list(verdict.wrong()) + [f"audit: {fault}" for fault in audit["faults"]]
    wrong += [f"{row['node']}: {row['status']} {row['reason']}" for row in rows if row["status"] != "updated"]
    wrong += [f"wave {wave}: its gate was opened {rounds} times" for wave, rounds in gates.items() if rounds > 1]
    if state is not OperationState.DONE:
        wrong.append(f"operation ended {state.value}: {reason}")
    wrong += [f"{lease.node} is still leased" for lease in ledger.leases.held_by(operation)]
    if keep is not None and wrong:
        shutil.copytree(folder, keep / str(seed), dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "seed": seed,
        "victim": kind,
        "moment_s": round(moment, 1),
        "processes_killed": killed,
        "seconds": round(time.monotonic() - began, 1),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; the next ones count on")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--time-scale", type=float, default=300.0)
    parser.add_argument("--keep", type=Path, help="copy the folders of wrong runs here")
    options = parser.parse_args()
    bad = 0
    for seed in range(options.seed, options.seed + options.runs):
        result = one_run(seed, options.nodes, options.time_scale, options.keep)
        bad += bool(result["wrong"])
        print(json.dumps(result), flush=True)
    print(json.dumps({"runs": options.runs, "seeds": [options.seed, options.seed + options.runs - 1], "wrong": bad}))
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

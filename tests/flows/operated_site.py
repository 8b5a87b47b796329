"""A simulated fleet with its Prefect server, driven as an operator drives it: through the command and the UI's API.

Every test works on a pool of its own, so that what one of them leaves behind is not in another one's way.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
import yaml

from adapters.clock import SystemClock
from adapters.signatures import sign
from adapters.ssh import SshHost
from blocks.clients import Clients
from blocks.scheduler import SharedScheduler
from cli.runtime.api import start_deployment
from cli.runtime.files import RunFolder
from fleet.approvals import APPROVAL_NAMESPACE, BUNDLE_NAMESPACE, approval_text
from fleet.reasons import ReasonKind
from ledger import Gate, Ledger, NodeRow, NodeStatus, Operation, OperationState
from simulator.verdict import Verdict, judge

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
OPERATOR, OTHER_OPERATOR, SECURITY, STRANGER = "operator", "other-operator", "security", "stranger"
ROLES = {OPERATOR: "operator", OTHER_OPERATOR: "operator", SECURITY: "security"}
HALTED_EXIT, REFUSED_EXIT = 7, 8

POOLS: Mapping[str, int] = {
    "faulty": 15,
    "signed": 2,
    "two": 1,
    "free": 1,
    "late": 1,
    "rejected": 1,
    "policy": 1,
    "bundle": 1,
    "halted": 7,
    "cancelled": 7,
    "aborted": 7,
    "drained": 2,
    "killed": 2,
}
"""Pool → its nodes, numbered in this order. Each sixteenth is in the partition `dev`: none of a job's is."""

BY_POLICY = ("halted", "cancelled", "aborted", "killed", "faulty")
ONE_AT_A_TIME = ("halted", "cancelled", "aborted")
BEGUN_TOGETHER = ("faulty", "late", "signed", "two", "free", "rejected", "policy", "bundle")
LATE_SECONDS = 30.0


@dataclass
class Site:
    """One fleet in a folder of its own. Waiting ends with what was seen, never silently."""

    folder: Path
    port: int
    keys: dict[str, Path] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "fleet.yaml"

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger.open(f"sqlite:///{self.folder}/ledger.db", SystemClock())

    @cached_property
    def api(self) -> httpx.Client:
        user, _, password = RunFolder(self.file).auth().partition(":")
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}/api", auth=(user, password), timeout=60)

    def gpufleet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "cli", *arguments)
        environment = {**os.environ, "GPUFLEET_FLEET": str(self.file), "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
        )

    def done(self, *arguments: str) -> str:
        """What a command that must succeed prints."""
        ended = self.gpufleet(*arguments)
        assert ended.returncode == 0, f"{arguments}: exit {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def begin(self, pool: str, bundle: Path | None = None) -> str:
        """Plan and begin a rollout over one pool; the operation's id."""
        chosen = bundle or self.folder / "bundle"
        said = self.done("run", "firmware", "--bundle", str(chosen), "--pool", pool, "--seed", "1", "--yes", "--json")
        return str(json.loads(said)["operation"])

    def submit(self, nodes: list[str], *options: str) -> str:
        """`sbatch` of a job that would run for long, on all GPUs of exactly these nodes; its id."""
        asked = (f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--gpus-per-node=8", "--requeue", *options)
        clients = Clients(self.file)
        host = SshHost("scheduler", str(clients.spec.scheduler.controller), clients.ssh_access())
        try:
            partition = host.run(("sinfo", "-h", "-n", nodes[0], "-o", "%R")).stdout.split()[0]
            done = host.run(("sbatch", "--parsable", f"--partition={partition}", *asked, "--wrap", "sleep 100000000"))
        finally:
            host.close()
        assert done.code == 0, done.stderr
        job = done.stdout.strip()
        self.wait(f"job {job} runs", lambda: job in {found.id for found in self.scheduler.read_jobs()})
        return job

    @cached_property
    def scheduler(self) -> SharedScheduler:
        return Clients(self.file).scheduler()

    def nodes(self, pool: str) -> list[str]:
        tree = yaml.safe_load(self.file.read_text())
        return [node["name"] for node in tree["nodes"] if node["pool"] == pool]

    def wait(self, what: str, look: Callable[[], T | None], seconds: float = 120.0) -> T:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            time.sleep(0.2)
        raise AssertionError(f"after {seconds:.0f} s still waiting: {what}")

    def operation(self, operation: str) -> Operation:
        return self.ledger.operations.get(operation)

    def wait_until(self, operation: str, state: OperationState, seconds: float = 120.0) -> Operation:
        def look() -> Operation | None:
            kept = self.operation(operation)
            return kept if kept.state is state and kept.runner is None else None

        try:
            return self.wait(f"{operation} {state.value}", look, seconds)
        except AssertionError as error:
            kept = self.operation(operation)
            rows = [(row.node, row.status.value, row.waiting_for) for row in self.rows(operation)]
            raise AssertionError(f"{error}; it is {kept.state.value}: {kept.reason}; {rows}") from error

    def wait_at_gate(self, operation: str, wave: int = 1, round_number: int = 1) -> Gate:
        """The open gate, once the flow run is suspended at it and its process has left: then a form is taken."""

        def look() -> Gate | None:
            kept = self.operation(operation)
            gate = self.ledger.gates.current(operation, wave)
            at_gate = kept.state is OperationState.WAITING and kept.reason_kind is ReasonKind.GATE
            if gate is None or gate.round_number != round_number or not at_gate:
                return None
            return gate if self.run_state(operation) == "PAUSED" and not self.process_lives(operation) else None

        try:
            return self.wait(f"{operation} at the gate of wave {wave}, round {round_number}", look)
        except AssertionError as error:
            kept, state = self.operation(operation), self.run_state(operation)
            raise AssertionError(f"{error}; it is {kept.state.value}: {kept.reason}; its run is {state}") from error

    def run_state(self, operation: str) -> str:
        """Prefect's state type of the operation's flow run."""
        run = self.operation(operation).flow_run_id
        answer = self.api.get(f"/flow_runs/{run}")
        return str(answer.json()["state_type"]) if answer.status_code == 200 else f"HTTP {answer.status_code}"

    def process_lives(self, operation: str) -> bool:
        """Whether the process that claimed the operation last is still there."""
        runner = self.operation(operation).runner
        if runner is None or not psutil.pid_exists(runner.pid):
            return False
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(runner.pid).status() != psutil.STATUS_ZOMBIE
        return False

    def rows(self, operation: str) -> tuple[NodeRow, ...]:
        return self.ledger.operations.node_rows(operation)

    def with_status(self, operation: str, status: NodeStatus) -> list[str]:
        return [row.node for row in self.rows(operation) if row.status is status]

    def approve(self, operation: str, wave: int = 1, key: str = OPERATOR, *more: str) -> str:
        told = ("approve", operation, "--wave", str(wave), "--key", str(self.keys[key]), "--json", *more)
        return str(json.loads(self.done(*told))["gate"])

    def try_to_approve(self, operation: str, key: str, wave: int = 1) -> subprocess.CompletedProcess[str]:
        return self.gpufleet("approve", operation, "--wave", str(wave), "--key", str(self.keys[key]))

    def sign(self, gate: Gate, key: str = OPERATOR, **other: object) -> str:
        """A signature over this gate, or over another one where `other` names a difference."""
        of: dict[str, object] = {
            "fleet": "demo",
            "operation": gate.operation,
            "wave": gate.wave,
            "round_number": gate.round_number,
            "digest": gate.digest,
            "decision": "approve",
        }
        text = approval_text(**{**of, **other})  # type: ignore[arg-type]
        return sign(text, APPROVAL_NAMESPACE, self.keys[key])

    def resume_in_ui(self, operation: str, form: Mapping[str, str] | None) -> str:
        """What Prefect's UI sends for its Resume button, filled or empty; Prefect's answer (ACCEPT, REJECT …)."""
        run = self.operation(operation).flow_run_id
        return str(self.post(f"/flow_runs/{run}/resume", {"run_input": form})["status"])

    def post(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        """The answer of Prefect's API; a locked SQLite (503) is asked again, as Prefect's own clients do."""

        def ask() -> httpx.Response | None:
            answer = self.api.post(path, json=body)
            return None if answer.status_code == 503 else answer

        answer = self.wait(f"an answer to {path}", ask)
        assert answer.status_code in (200, 201), answer.text
        answered: Mapping[str, object] = answer.json()
        return answered

    def fill_form(self, operation: str, signature: str, **other: str) -> None:
        """Fill the Resume form of a suspended run, and wait until a process has taken the operation up."""
        form = {"decision": "approve", "approver": "somebody", "signature": signature, "comment": "test", **other}
        token = self.operation(operation).token
        assert self.resume_in_ui(operation, form) == "ACCEPT"
        self.wait(f"{operation} taken up", lambda: self.operation(operation).token > token)

    def refusals(self, operation: str) -> list[str]:
        """The reasons of the audit chain for which an approval was refused, oldest first."""
        records = self.ledger.audit.tail(500, operation)
        return [str(json.loads(r.payload)["reason"]) for r in records if r.action == "gate.refused"]

    def actions(self, operation: str) -> list[str]:
        """What the audit chain says of the operation, oldest first."""
        return [record.action for record in self.ledger.audit.tail(500, operation)]

    def halt_reasons(self, operation: str) -> list[str]:
        records = [json.loads(r.payload) for r in self.ledger.audit.tail(500, operation) if r.action.endswith(".state")]
        return [str(record["reason"]) for record in records if record["to"] == "halted"]

    def reconcile(self) -> None:
        """Ask for a reconciliation now; the schedule's comes within a minute."""
        auth = RunFolder(self.file).auth()
        self.wait("a reconciliation", lambda: start_deployment(self.port, auth, "reconcile/reconcile"))

    def truth(self) -> Verdict:
        return judge(self.folder / "truth.jsonl")

    def at_rest(self, pool: str) -> bool:
        """No node of the pool is cordoned, down or leased."""
        verdict = self.truth()
        return not any(verdict.nodes[node].out or self.ledger.leases.lease(node) for node in self.nodes(pool))

    def copy_bundle(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder / "bundle", self.folder / name))

    def sign_bundle(self, bundle: Path) -> None:
        manifest = bundle / "bundle.yaml"
        signature = sign(manifest.read_text(), BUNDLE_NAMESPACE, self.folder / "approver_ed25519")
        manifest.with_name("bundle.yaml.sig").write_text(signature)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_keys(folder: Path) -> dict[str, Path]:
    """A key each; all but the stranger's are in the allowed-signers file."""
    keys = {}
    for person in (*ROLES, STRANGER):
        keys[person] = folder / f"{person}_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys[person])], check=True)
    with (folder / "allowed_signers").open("a") as allowed:
        for person in ROLES:
            allowed.write(f"{person} {keys[person].with_suffix('.pub').read_text()}")
    return keys


def edit_fleet(file: Path, change: Callable[[dict[str, dict[str, dict[str, object]]]], None]) -> None:
    """Load the fleet file, let `change` alter it, and put it back in one step: flow runs read it all the time."""
    tree = yaml.safe_load(file.read_text())
    change(tree)
    replace_text(file, yaml.safe_dump(tree, sort_keys=False))


def replace_text(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)


def lay_out_pools(
    tree: dict[str, dict[str, dict[str, object]]],
    pools: Mapping[str, int] = POOLS,
    by_policy: Sequence[str] = BY_POLICY,
) -> None:
    """A pool for every test, with limits that let the nodes of different pools be out together."""
    signers = [{"principal": person, "roles": [role]} for person, role in ROLES.items()]
    signed = {"required": 1, "allowed_signers": "allowed_signers", "signers": signers}
    template = tree["pools"]["train"]
    names = [pool for pool, count in pools.items() for _ in range(count)]
    for node, pool in zip(tree["nodes"], names, strict=True):
        node["pool"] = pool  # type: ignore[index]
    gates: dict[str, dict[str, object]] = {pool: {**signed, "required": 0} for pool in by_policy}
    gates["two"] = {**signed, "required": 2, "roles": ["operator", "security"]}
    gates["free"] = {"required": 1, "unsigned": True}
    gates["late"] = {**signed, "timeout_seconds": LATE_SECONDS}
    tree["pools"] = {name: _pool(name, size, template, gates.get(name, signed)) for name, size in pools.items()}
    tree["drain"] = {"checkpoints": {}}
    for rack in tree["racks"].values():
        rack["limit"] = len(names)


def _pool(name: str, size: int, template: dict[str, object], gate: dict[str, object]) -> dict[str, object]:
    waves = template["waves"]
    assert isinstance(waves, dict)
    # Without production, the pool's order among others plays no part.
    return {
        **template,
        "capacity_floor": 0.75 if name in ONE_AT_A_TIME else 0.0,
        "rack_limit": size,
        "breaker": {"share": 1.0, "window_seconds": 1.0, "floor_nodes": 99},
        "waves": {
            **waves,
            "canary": 1 if name == "signed" else size,
            "bake_seconds": 0.2,
            "failure_budget": size,
        },
        "gate": gate,
    }

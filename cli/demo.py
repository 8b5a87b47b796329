"""`gpufleet demo`: the main job on a simulated fleet, watched from the simulator's own truth."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cli.demo_driver import show_drivers
from cli.demo_gates import approve_open_gates
from cli.exit_codes import FAILED
from cli.runtime.files import RunFolder
from cli.runtime.lifecycle import bring_up, take_down
from cli.runtime.settings import DEFAULT_PORT
from cli.session import JsonOption, console, errors, exits, print_json
from fleet.errors import ConfigurationError
from simulator.scenario import Scenario, read_scenario
from simulator.verdict import Expectations, Verdict, judge

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.plan import FirmwarePlan
    from ledger import NodeRow, Operation

FOLDER = Path(".gpufleet/demo")
_READY_SECONDS = 60.0


class DemoFlow(StrEnum):
    """What the demo shows; each has a scenario of its own."""

    FIRMWARE = "firmware-rollout"
    DRIVER = "driver-canary"


@exits
def demo(
    flow: Annotated[DemoFlow, typer.Option("--flow", help="What to show.")] = DemoFlow.FIRMWARE,
    nodes: Annotated[int | None, typer.Option("--nodes", min=4, help="Default: the scenario's.")] = None,
    racks: Annotated[int | None, typer.Option("--racks", min=1, help="Default: the scenario's.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet and the Prefect UI running.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate a fleet and roll out firmware on it, in approved waves, with faults; needs no hardware.

    With `--flow driver-canary` a driver release that is slower is found and taken back, and a good one goes to all.

    Example: gpufleet demo --keep

    Exit codes: 0 the simulator's truth log agrees with what gpufleet says; 1 it does not, or a step failed.
    """
    folder = FOLDER.absolute()
    scenario = read_scenario(flow.value.replace("-", "_"))
    _clear(folder)
    with simulated(folder, scenario, nodes, racks, keep) as fleet_file, _running(fleet_file, keep, as_json) as url:
        from blocks.fleet import Fleet

        fleet = Fleet(fleet_file=str(fleet_file))
        if flow is DemoFlow.DRIVER:
            ended, wrong = show_drivers(fleet, folder, quiet=as_json)
        else:
            ended, wrong = _show_firmware(fleet, folder, url if keep else None, quiet=as_json)
        wrong += [fault.text for fault in fleet.ledger().audit.verify()]
        if as_json:
            print_json({"operations": ended, "url": url, "wrong": wrong})
    for line in wrong:
        errors.print(f"[red]wrong:[/red] {line}", highlight=False)
    if wrong:
        raise typer.Exit(FAILED)
    errors.print("The truth log agrees.", highlight=False)


def _show_firmware(fleet: Fleet, folder: Path, url: str | None, quiet: bool) -> tuple[dict[str, str], list[str]]:
    """(Operation → state, what the truth log does not bear out)."""
    operation, plan = _roll_out(fleet, folder, quiet)
    rows = fleet.ledger().operations.node_rows(operation.id)
    verdict = judge(folder / "truth.jsonl", _claims(plan, rows))
    if not quiet:
        _summary(plan, rows, verdict, url)
    return {operation.id: operation.state.value}, _disagreements(operation, verdict)


@contextmanager
def simulated(folder: Path, scenario: Scenario, nodes: int | None, racks: int | None, keep: bool) -> Iterator[Path]:
    """A simulator process for `folder`; its fleet file. Ended at the end unless `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = folder / "faults.yaml"
    faults.write_text(scenario.faults_text())
    fleet = scenario.fleet
    options = {
        "--nodes": nodes or fleet.nodes,
        "--racks": racks or fleet.racks,
        "--gpus-per-node": fleet.gpus_per_node,
        "--seed": fleet.seed,
        "--time-scale": fleet.time_scale,
        "--dir": folder,
        "--faults": faults,
    }
    arguments = [str(part) for pair in options.items() for part in pair]
    with (folder / "simulator.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "cli", "simulate", *arguments], stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for(folder, process)
        yield folder / "fleet.yaml"
    finally:
        if not keep:
            process.terminate()
            process.wait(timeout=20)


def _wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not (folder / "simulator.json").is_file():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = (folder / "simulator.log").read_text()[-2000:]
            raise ConfigurationError(f"the simulator did not start; {folder / 'simulator.log'} ends:\n{tail}")
        time.sleep(0.1)


def _clear(folder: Path) -> None:
    """End what an earlier demo left running here, and remove its folder."""
    import psutil

    from adapters.kept_json import read_kept

    if (folder / "fleet.yaml").is_file():
        take_down(RunFolder(folder / "fleet.yaml"), lambda _: None)
    record = read_kept(folder / "simulator.json")
    if record is not None and isinstance(record.get("pid"), int):
        try:
            process = psutil.Process(int(str(record["pid"])))
            if "simulate" in process.cmdline():
                process.terminate()
                process.wait(timeout=20)
        except psutil.NoSuchProcess:
            pass
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(fleet_file: Path, keep: bool, quiet: bool) -> Iterator[str]:
    """The embedded Prefect for the demo's fleet; its UI's address."""
    folder = RunFolder(fleet_file)
    try:
        status = bring_up(fleet_file, _free_port(), _quiet if quiet else _say)
        yield status.url or ""
    finally:
        if not keep:
            take_down(folder, lambda _: None)


def _say(line: str) -> None:
    errors.print(line, highlight=False)


def _quiet(line: str) -> None:
    """For --json: nothing but the result is printed."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _roll_out(fleet: Fleet, folder: Path, quiet: bool) -> tuple[Operation, FirmwarePlan]:
    """Plan, begin, and approve every wave with the demo approver's key; returns when the operation ends."""
    from cli.operate import begin, show_plan
    from cli.progress import following
    from ledger import OperationState
    from tasks.planning import make_plan

    plan = make_plan(fleet, folder / "bundle", (), seed=7)
    if not quiet:
        show_plan(plan)
    operation = begin(fleet, plan)
    ended = (OperationState.DONE, OperationState.HALTED, OperationState.ABORTED, OperationState.FAILED)
    with following(plan, errors, quiet) as view:
        while operation.state not in ended:
            operation = fleet.ledger().operations.get(operation.id)
            view.update(operation, fleet.ledger().operations.node_rows(operation.id))
            approve_open_gates(fleet, folder, operation, plan)
            time.sleep(0.5)
    if not quiet:
        errors.print()
    return operation, plan


def _disagreements(operation: Operation, verdict: Verdict) -> list[str]:
    """Where the truth log does not bear out what gpufleet says; empty where it does."""
    wrong = list(verdict.wrong())
    if operation.state.value != "done":
        wrong.append(f"the operation ended {operation.state.value}: {operation.reason}")
    return wrong


def _claims(plan: FirmwarePlan, rows: tuple[NodeRow, ...]) -> Expectations:
    """What gpufleet says became of the nodes, to be held against the truth log."""
    updated = frozenset(row.node for row in rows if row.status.value == "updated") | frozenset(plan.current)
    failed = frozenset(row.node for row in rows if row.status.value == "failed")
    return Expectations(updated=updated, left_out=failed)


def _summary(plan: FirmwarePlan, rows: tuple[NodeRow, ...], verdict: Verdict, url: str | None) -> None:
    statuses = Counter(row.status.value for row in rows)
    table = Table("what", "result", title="From the simulator's truth log", title_justify="left")
    table.add_row("nodes", ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())))
    table.add_row("waves", str(len(plan.waves)))
    flashes = sum(len(node.flashed) for node in verdict.nodes.values())
    twice = sum(len(node.flashed_twice) for node in verdict.nodes.values())
    table.add_row("components flashed", f"{flashes}, twice: {twice}")
    for rack, peak in sorted(verdict.racks.items()):
        table.add_row(f"out together in {rack}", f"at most {peak.nodes}, limit {peak.limit}")
    for pool, peak in sorted(verdict.pools.items()):
        table.add_row(f"out together in pool {pool}", f"at most {peak.nodes}, limit {peak.limit}")
    table.add_row("jobs lost", str(len(verdict.killed)))
    became = {row.node: f"{row.status.value} {row.reason}".strip() for row in rows}
    for name, node in sorted(verdict.nodes.items()):
        if node.faults:
            faults = ", ".join(sorted(set(node.faults)))
            table.add_row(f"fault on {name}", f"{faults}: {became.get(name, 'not visited')}")
    console.print(table)
    if url:
        console.print(f"Prefect UI: {url} (user and password: {FOLDER / 'run' / 'auth'}); stop: gpufleet down")

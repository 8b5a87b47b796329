"""The demo of driver rollouts: a release that is slower is found and taken back, a good one goes to every node."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from cli.demo_gates import approve_open_gates
from cli.session import console, errors
from simulator.driver_verdict import DriverExpectations, judge_drivers

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.driver_rollout import DriverPlan
    from ledger import Operation

BAD, GOOD = "580.65.06", "580.95.05"


def show_drivers(fleet: Fleet, folder: Path, quiet: bool) -> tuple[dict[str, str], list[str]]:
    """Both rollouts, one after the other; (operation → state, what the truth log does not bear out)."""
    from simulator.host.releases import FIRST

    wrong: list[str] = []
    before = FIRST
    ended: dict[str, str] = {}
    for release, good in ((BAD, False), (GOOD, True)):
        if not quiet:
            errors.print(f"\nrolls out {release}", highlight=False)
        operation, plan = _roll_out(fleet, folder, release, quiet)
        ended[operation.id] = operation.state.value
        wrong += _disagreements(fleet, folder, operation, plan, release if good else before, good)
        if not quiet:
            _summary(fleet, operation, release)
    return ended, wrong


def _roll_out(fleet: Fleet, folder: Path, release: str, quiet: bool) -> tuple[Operation, DriverPlan]:
    from cli.driver import begin_driver, make_plan, show_plan
    from cli.progress import following
    from ledger import OperationState

    plan = make_plan(fleet, release, None, 7, quiet)
    if not quiet:
        show_plan(plan)
    operation = begin_driver(fleet, plan)
    over = (OperationState.DONE, OperationState.HALTED, OperationState.ABORTED, OperationState.FAILED)
    with following(plan, errors, quiet) as view:
        while operation.state not in over:
            operation = fleet.ledger().operations.get(operation.id)
            view.update(operation, fleet.ledger().operations.node_rows(operation.id))
            approve_open_gates(fleet, folder, operation, plan)
            time.sleep(0.5)
    return operation, plan


def _disagreements(
    fleet: Fleet, folder: Path, operation: Operation, plan: DriverPlan, expected: str, good: bool
) -> list[str]:
    """What the truth log does not bear out. A bad release must have ended with a failed verdict and the way back."""
    rows = fleet.ledger().operations.node_rows(operation.id)
    left = frozenset(row.node for row in rows if row.status.value in ("failed", "skipped")) | frozenset(plan.left_out)
    verdict = judge_drivers(
        folder / "truth.jsonl", DriverExpectations(expected, left_out=left if good else frozenset())
    )
    wrong = list(verdict.wrong())
    wanted = "done" if good else "failed"
    if operation.state.value != wanted:
        wrong.append(f"{operation.id} ended {operation.state.value}, not {wanted}: {operation.reason}")
    return wrong


def _summary(fleet: Fleet, operation: Operation, release: str) -> None:
    rows = Counter(row.status.value for row in fleet.ledger().operations.node_rows(operation.id))
    listed = ", ".join(f"{count} {status}" for status, count in sorted(rows.items()))
    console.print(f"{operation.id} ({release}): {operation.state.value}: {operation.reason}", highlight=False)
    console.print(f"  nodes: {listed}; `gpufleet verdict {operation.id}` has the figures", highlight=False)

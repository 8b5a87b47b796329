"""The two looks around a wave: the pool's health before it, the changed nodes' health after it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from blocks.fleet import Fleet
from blocks.scheduler import SchedulerLook
from fleet.errors import FleetError, SchedulerUnreachable, TransientError
from fleet.model import Node, SchedulerState
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from fleet.waves import max_out
from ledger import OperationState
from tasks.health import findings_in
from tasks.operations import AnyRun, NotWell
from tasks.scheduler import reopen

T = TypeVar("T")

_SETTLES_SECONDS = 60.0
_OUR_REBOOT_SECONDS = 300.0  # after a node's return; a later reboot was not the operation's


def check_pool_before(run: AnyRun, wave: Wave) -> None:
    """Raise NotWell where the pool is too sick for any node to leave it now. Raises StoppedByRequest."""
    pool = run.plan.policy.pools[wave.pool]
    members = {node.name for node in run.fleet.spec().inventory() if node.pool == wave.pool}
    look = _ask(run, lambda: run.fleet.scheduler().look())
    out = {name: why for name, why in findings_in(look.nodes).items() if name in members}
    room = max_out(pool, len(members))
    if len(out) >= room > 0:
        listed = "; ".join(f"{name}: {why}" for name, why in sorted(out.items())[:8])
        raise NotWell(
            f"pool {wave.pool}: {len(out)} of {len(members)} nodes are out and {room} may be ({listed})",
            operation=run.operation,
        )


def judge_wave(run: AnyRun, wave: Wave) -> None:
    """Judge the nodes that were updated, on complete data only.

    Raises NotWell with what is wrong, or with what could not be read; StoppedByRequest.
    """
    rows = run.ledger.operations.node_rows(run.operation, wave.number)
    updated = {row.node for row in rows if row.status == "updated"}
    ours = run.fleet.clock.now() - timedelta(seconds=_OUR_REBOOT_SECONDS)
    look = _settled_look(
        run, {row.node for row in rows if row.node in updated and row.finished and row.finished > ours}
    )
    nodes = [node for node in run.fleet.spec().inventory() if node.name in updated]
    with ThreadPoolExecutor(16, thread_name_prefix="judge") as pool:
        findings = [finding for finding in pool.map(lambda node: _ails(run.fleet, look, node), nodes) if finding]
    if findings:
        raise NotWell(f"after wave {wave.number}: " + "; ".join(findings[:8]), operation=run.operation)


def _settled_look(run: AnyRun, names: set[str]) -> SchedulerLook:
    """A scheduler's answer that shows none of `names` down, or the last one in a minute.

    A node that was just returned is down, until the scheduler has heard from it; one that goes down later, while the
    wave bakes, is a finding.
    """
    clock = run.fleet.clock
    deadline = clock.monotonic() + _SETTLES_SECONDS
    while True:
        asked = clock.monotonic()
        look = _ask(run, lambda asked=asked: run.fleet.scheduler().look(newer_than=asked))  # type: ignore[misc]
        seen = [look.nodes[name] for name in names if name in look.nodes]
        if asked >= deadline or not any(node.state is SchedulerState.DOWN for node in seen):
            return look
        reopen(run.fleet, names, look)
        run.stop_if_asked()
        clock.sleep(run.fleet.spec().scheduler.poll_seconds)


def _ask(run: AnyRun, ask: Callable[[], T]) -> T:
    """Ask the scheduler until it answers: its silence is no verdict."""
    while True:
        try:
            answer = ask()
        except SchedulerUnreachable as error:
            run.set_state(OperationState.WAITING, ReasonKind.HEALTH, f"scheduler does not answer: {error.message}")
            run.stop_if_asked()
            run.fleet.clock.sleep(run.fleet.spec().scheduler.poll_seconds)
        else:
            run.set_state(OperationState.RUNNING)
            return answer


def _ails(fleet: Fleet, look: SchedulerLook, node: Node) -> str | None:
    seen = look.nodes.get(node.name)
    if seen is None:
        return f"{node.name}: no verdict, the scheduler does not know it"
    if seen.state is SchedulerState.DOWN:
        return f"{node.name} is down in the scheduler"
    try:
        with fleet.bmc(node) as bmc:
            system = bmc.read_system()
    except TransientError as error:
        return f"{node.name}: no verdict, its BMC could not be read ({error.message})"
    except FleetError as error:
        return str(error)
    if not system.gpus and system.problems:
        return f"{node.name}: no verdict on its GPUs, {system.problems[0]}"
    sick = [gpu.id for gpu in system.gpus if gpu.health == "Critical"]
    return f"{node.name}: {', '.join(sick)} critical" if sick else None

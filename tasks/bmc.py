"""Waiting for BMCs: they go away while they update, and one good answer does not mean that they are back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fleet.errors import BmcBusy, NodeUnreachable, TransientError
from fleet.model import FirmwareComponent, RedfishTask, TaskOutcome
from fleet.ports import Bmc
from tasks.pace import Pace
from tasks.visit import Visit

T = TypeVar("T")

_RUNNING = frozenset({TaskOutcome.RUNNING})


def patiently(visit: Visit, what: str, read: Callable[[], T]) -> T:
    """Repeat a *read* while the BMC is away or busy, for at most the fleet's ready time.

    Raises NodeUnreachable or BmcBusy, as last seen, when that time is over.
    """
    return _while_away(visit, what, read, lambda: None)


def patiently_change(visit: Visit, what: str, act: Callable[[], T]) -> T:
    """Do something once that changes the BMC; one that refuses because it is busy or away has done nothing.

    It may be asked again then, for at most the fleet's ready time and while the node is still ours.
    """
    visit.keep_firmware(None)
    return _while_away(visit, what, act, visit.check_undisturbed)


def _while_away(visit: Visit, what: str, ask: Callable[[], T], before_again: Callable[[], None]) -> T:
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.ready_timeout_seconds
    while True:
        try:
            return ask()
        except (NodeUnreachable, BmcBusy) as error:
            if clock.monotonic() >= deadline:
                raise
            visit.say(f"{what}: BMC {error.message}")
            asked = error.retry_after_seconds if isinstance(error, BmcBusy) else None
            clock.sleep(min(asked or settings.poll_seconds, max(settings.poll_seconds, 30.0)))
            before_again()


def read_firmware(visit: Visit, bmc: Bmc) -> tuple[FirmwareComponent, ...]:
    """The inventory, waiting for a BMC that is away."""
    shown = patiently(visit, "reads the firmware inventory", bmc.read_firmware)
    visit.keep_firmware(shown)
    return shown


def wait_until_ready(visit: Visit, bmc: Bmc, expected_seconds: float = 0.0) -> tuple[FirmwareComponent, ...]:
    """Wait for several good inventories in a row; the last one is the answer.

    `expected_seconds` is how long the BMC is likely to be away.

    Raises NodeUnreachable where the BMC does not come back in the fleet's ready time.
    """
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.ready_timeout_seconds
    good = 0
    pace = Pace(clock, settings.poll_seconds, expected_seconds)
    while True:
        try:
            inventory = bmc.read_firmware()
            good += 1
            if good >= settings.ready_reads:
                return inventory
        except TransientError as error:
            good = 0
            visit.say(f"waits for its BMC: {error.message}")
            if clock.monotonic() >= deadline:
                raise NodeUnreachable(
                    f"BMC not back after {settings.ready_timeout_seconds:.0f} s: {error.message}", node=visit.name
                ) from error
        pace.sleep()


def wait_for_task(visit: Visit, bmc: Bmc, uri: str, expected_seconds: float) -> RedfishTask | None:
    """Follow a task to its end, which is likely after `expected_seconds`.

    None where it is gone or never ended, so that only the inventory can tell.
    """
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.update_timeout_seconds
    pace = Pace(clock, settings.poll_seconds, expected_seconds)
    while clock.monotonic() < deadline:
        task = patiently(visit, "follows its update task", lambda: bmc.read_task(uri))
        if task is None or task.outcome not in _RUNNING:
            return task
        percent = "" if task.percent is None else f" {task.percent} %"
        visit.say(f"BMC task {task.id}: {task.state}{percent}")
        pace.sleep()
    return None


def wait_for_running_update(visit: Visit, bmc: Bmc) -> tuple[RedfishTask, ...]:
    """Wait until no update runs on this BMC; every task that it knows then."""
    tasks = patiently(visit, "reads its tasks", bmc.read_tasks)
    running = next((task for task in tasks if task.outcome in _RUNNING), None)
    if running is None:
        return tasks
    wait_for_task(visit, bmc, running.uri, 0.0)
    return patiently(visit, "reads its tasks", bmc.read_tasks)

"""Our client on the simulated BMC, over real sockets: push, poll, stage, reset, read back."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from adapters.redfish import BmcLogin, RedfishBmc
from fleet.activation import Progress, progress
from fleet.errors import CredentialsRejected, TransientError
from fleet.model import FirmwareComponent, RedfishTask, ResetKind, TaskOutcome
from fleet.plan import Change
from simulator.bmc import BmcFarm
from simulator.clock import SimClock
from simulator.faults import Fault, FaultKind, make_fault
from simulator.firmware import BundleEntry, demo_bundle_entries, hgx_h100_firmware
from simulator.machine import Machine, Timing
from simulator.truth import TruthLog

USER, PASSWORD = "admin", "Secret-0001"
Value = TypeVar("Value")
Start = Callable[[list[Fault]], str]


def _place(desired: str, component: FirmwareComponent) -> Progress:
    """What the flows read of an update from the inventory."""
    change = Change(component=component.id, current="", desired=desired, entry="any")
    return progress(change, (component,))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a two-GPU node's BMC, a simulated minute in a real 0.1 seconds, and gives its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    farms: list[BmcFarm] = []

    def begin(faults: list[Fault]) -> str:
        clock = SimClock(600)
        truth = TruthLog(tmp_path / "truth.jsonl", clock)
        machine = Machine("gpu-0001", "r1", "h100", "HGX-H100", 2, clock, truth, Timing())
        farms.append(BmcFarm(clock, truth))
        firmware = hgx_h100_firmware(random.Random(1), "2023-11", gpus=2)
        bmc = farms[0].add(machine, "127.0.0.1", 0, firmware, faults, USER, PASSWORD)
        asyncio.run_coroutine_threadsafe(farms[0].start(), loop).result(10)
        return farms[0].url(bmc)

    yield begin
    for farm in farms:
        asyncio.run_coroutine_threadsafe(farm.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def _patiently(read: Callable[[], Value], good: Callable[[Value], bool], seconds: float = 20.0) -> Value:
    """Ask until `good`; what may pass by itself is asked again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            value = read()
            if good(value):
                return value
        except TransientError:
            pass
        time.sleep(0.02)
    raise AssertionError("it never came")


def _update(bmc: RedfishBmc, entry: BundleEntry, image: Path) -> RedfishTask | None:
    image.write_bytes(entry.content)
    targets = [c.uri for c in _patiently(bmc.read_firmware, bool) if c.id in entry.components]
    task = _patiently(lambda: bmc.push_image(image, tuple(targets)), lambda _: True)
    waiting = (TaskOutcome.RUNNING,)
    return _patiently(lambda: bmc.read_task(task.uri), lambda t: t is None or t.outcome not in waiting)


def _component(bmc: RedfishBmc, ident: str) -> FirmwareComponent:
    return next(c for c in _patiently(bmc.read_firmware, bool) if c.id == ident)


@pytest.mark.parametrize("entry", demo_bundle_entries(2), ids=lambda entry: entry.image.family)
def test_an_update_is_staged_and_runs_after_the_reset_that_it_needs(
    start: Start, tmp_path: Path, entry: BundleEntry
) -> None:
    bmc = RedfishBmc(start([]), BmcLogin(USER, PASSWORD))
    before = _component(bmc, entry.components[0])
    assert _place(entry.image.version, before) is Progress.OLD
    marks = bmc.read_reset_marks()
    task = _update(bmc, entry, tmp_path / "image.bin")
    assert task is not None
    assert task.outcome in (TaskOutcome.SUCCEEDED, TaskOutcome.WAITING_FOR_RESET)
    assert _place(entry.image.version, _component(bmc, before.id)) is Progress.STAGED
    bmc.reset(entry.reset)
    after = _patiently(lambda: _component(bmc, before.id), lambda c: c.version == entry.image.version)
    assert (after.staged, _place(entry.image.version, after)) == (None, Progress.ACTIVE)
    assert _patiently(bmc.read_reset_marks, lambda m: m != marks) != marks
    bmc.close()


@pytest.mark.parametrize("kind", [FaultKind.BMC_503, FaultKind.SESSION_EXPIRES, FaultKind.TRUNCATED_BODY])
def test_a_bmc_that_misbehaves_for_a_while_is_read_completely_in_the_end(start: Start, kind: FaultKind) -> None:
    bmc = RedfishBmc(start([make_fault(kind)]), BmcLogin(USER, PASSWORD))
    inventory = _patiently(bmc.read_firmware, bool)
    assert len(inventory) >= 15
    assert len({c.id for c in inventory}) == len(inventory)
    system = _patiently(bmc.read_system, lambda s: not s.problems)
    assert len(system.gpus) == 2


def test_a_wrong_password_is_refused_once(start: Start) -> None:
    bmc = RedfishBmc(start([]), BmcLogin(USER, "wrong"))
    for _ in range(3):
        with pytest.raises(CredentialsRejected):
            bmc.read_firmware()


def test_a_bmc_reset_is_survived_with_a_new_session(start: Start) -> None:
    bmc = RedfishBmc(start([]), BmcLogin(USER, PASSWORD))
    before = bmc.read_reset_marks().bmc_last_reset
    bmc.reset(ResetKind.BMC_RESET)
    marks = _patiently(bmc.read_reset_marks, lambda m: m.bmc_last_reset != before)
    assert marks.bmc_last_reset is not None


@pytest.mark.parametrize("answer", ["refusal", "exception"])
def test_a_bmc_that_says_already_current_is_understood_in_both_ways(start: Start, tmp_path: Path, answer: str) -> None:
    fault = make_fault(FaultKind.ALREADY_CURRENT, settings={"answer": answer})
    bmc = RedfishBmc(start([fault]), BmcLogin(USER, PASSWORD))
    entry = demo_bundle_entries(2)[0]
    image = tmp_path / "image.bin"
    image.write_bytes(entry.content)
    targets = tuple(c.uri for c in bmc.read_firmware() if c.id in entry.components)
    task: RedfishTask | None = bmc.push_image(image, targets)
    if task is not None and task.uri:
        uri = task.uri
        task = _patiently(lambda: bmc.read_task(uri), lambda t: t is None or t.outcome is not TaskOutcome.RUNNING)
    assert task is not None
    assert task.outcome is TaskOutcome.ALREADY_CURRENT


def test_a_task_that_vanishes_is_none_and_the_inventory_tells(start: Start, tmp_path: Path) -> None:
    fault = make_fault(FaultKind.TASK_VANISHES, settings={"staged": False})
    bmc = RedfishBmc(start([fault]), BmcLogin(USER, PASSWORD))
    entry = demo_bundle_entries(2)[0]
    assert _update(bmc, entry, tmp_path / "image.bin") is None
    component = _component(bmc, entry.components[0])
    assert _place(entry.image.version, component) is Progress.OLD

"""Handing out a wave's nodes: what a dead runner left, a scheduler that is away, windows, used-up slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.site_fakes import SPEC, Site

from fleet.config import WaveSettings
from fleet.errors import SchedulerUnreachable
from fleet.model import Job, NodeState
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from ledger import ControlVerb, NodeStatus, OperationState, Runner
from tasks.dispatch import Dispatcher, Stopped
from tasks.node import VisitResult
from tasks.operations import OperationRun
from tasks.standing import before_now
from tasks.visit import Visit

NODE = "gpu-0001"
WAVE = Wave(
    number=1,
    name="train canary",
    pool="train",
    units=((NODE,),),
    racks={"r01": 1},
    out_at_most=1,
    rounds=1,
    expected_seconds=60,
    bake_seconds=0,
)


class Done:
    """A visit that ended at once."""

    def __init__(self, result: VisitResult) -> None:
        self._result = result

    def add_done_callback(self, act: Callable[[object], None]) -> None:
        act(self)

    def result(self, raise_on_failure: bool = True) -> VisitResult:
        return self._result


class Slots:
    """A rack limit in the Prefect UI, `free` slots of it."""

    def __init__(self, free: int = 1) -> None:
        self.free, self.asked = free, 0

    def take(self, racks: Sequence[str]) -> Future[list[bool]]:
        self.asked += len(racks)
        answer: Future[list[bool]] = Future()
        answer.set_result([bool(self.free)] * len(racks))
        return answer

    def give_back(self, rack: str) -> None:
        """Nothing is counted."""

    def tell(self) -> None:
        """There is no server."""


class Bench:
    """One operation on the one-node site; a visit ends UPDATED at once."""

    def __init__(self, folder: Path, settings: WaveSettings) -> None:
        self.site = Site(folder)
        ledger = self.site.ledger()
        self.token = ledger.operations.claim(self.site.operation, Runner("lab", 1, 1.0, None))
        plan = SimpleNamespace(
            policy=SimpleNamespace(pools={"train": SimpleNamespace(waves=settings)}),
            nodes={NODE: None},
            drain_seconds=lambda _: 3600.0,
            may_stop=dict,
        )
        self.run = OperationRun(self.site, self.site.operation, self.token, plan)  # type: ignore[arg-type]
        self.visited: list[str] = []
        self.slots = Slots()

    def work(self, only_in_hand: bool = False) -> Stopped | None:
        return Dispatcher(self.run, WAVE, self._visit, self.slots).work(only_in_hand)  # type: ignore[arg-type]

    def _visit(self, visit: Visit) -> Done:
        self.visited.append(visit.name)
        return Done(VisitResult(visit.name, NodeStatus.UPDATED, ""))

    def lease(self) -> None:
        before = before_now(self.run, (NODE,))
        self.site.ledger().leases.acquire(self.site.operation, self.token, (NODE,), before)

    def held(self) -> bool:
        return bool(self.site.ledger().leases.held_by(self.site.operation))

    def at_each_pause(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
        """Call `act` instead of waiting for a visit's end."""

        def pause(dispatcher: Dispatcher) -> None:
            if not dispatcher._running:
                self.site.clock.sleep(2.0)
                act()
            else:
                collect(dispatcher)

        collect = Dispatcher._collect
        monkeypatch.setattr(Dispatcher, "_collect", pause)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, WaveSettings())


def test_a_lease_that_outlived_its_finished_node_is_given_up(bench: Bench) -> None:
    bench.lease()
    bench.site.ledger().operations.finish_node(bench.site.operation, NODE, NodeStatus.UPDATED, "", bench.token)
    assert bench.work(only_in_hand=True) is None
    assert (bench.held(), bench.visited) == (False, [])


def test_only_nodes_in_hand_are_finished_where_only_these_are_wanted(bench: Bench) -> None:
    assert bench.work(only_in_hand=True) is None
    assert bench.visited == []
    bench.lease()
    bench.site.ledger().operations.request(bench.site.operation, ControlVerb.HALT, "eva", "")
    assert bench.work(only_in_hand=True) is None
    assert (bench.held(), bench.visited) == (False, [NODE])


def test_a_scheduler_that_is_away_is_waited_for_and_the_operation_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, read = bench.site.fake_scheduler, bench.site.fake_scheduler.read_nodes

    def silence() -> dict[str, object]:
        raise SchedulerUnreachable("no answer")

    def answers_again() -> None:
        kept = bench.site.ledger().operations.get(bench.site.operation)
        assert (kept.state, kept.reason_kind) == (OperationState.WAITING, ReasonKind.HEALTH)
        monkeypatch.setattr(scheduler, "read_nodes", read)

    monkeypatch.setattr(scheduler, "read_nodes", silence)
    bench.at_each_pause(monkeypatch, answers_again)
    assert bench.work() is None
    assert bench.visited == [NODE]
    assert bench.site.ledger().operations.get(bench.site.operation).state is OperationState.RUNNING


def test_a_window_that_closes_during_the_wave_lets_no_further_node_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, WaveSettings(windows=("Mon 14:00-16:00",)))
    assert bench.site.clock.now() == datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
    seen: list[OperationState] = []

    def two_hours_pass() -> None:
        seen.append(bench.site.ledger().operations.get(bench.site.operation).state)
        assert bench.visited == []
        bench.site.clock.sleep(7200)

    bench.at_each_pause(monkeypatch, two_hours_pass)
    assert bench.work() is None
    assert (bench.visited, seen) == ([NODE], [OperationState.WAITING])


def test_a_used_up_slot_is_asked_for_rarely_and_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.slots.free = 0
    passes: list[int] = []

    def a_person_raises_it_after_a_minute() -> None:
        passes.append(1)
        bench.slots.free = int(len(passes) >= 30)

    bench.at_each_pause(monkeypatch, a_person_raises_it_after_a_minute)
    assert bench.work() is None
    assert bench.visited == [NODE]
    assert bench.slots.asked <= 6


def test_a_node_that_left_the_fleet_file_is_skipped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.site, "_spec", bench.site.spec().model_copy(update={"nodes": ()}))
    assert bench.work() is None
    row = bench.site.ledger().operations.node_rows(bench.site.operation)[0]
    assert (row.status, row.reason) == (NodeStatus.SKIPPED, f"{NODE} is no longer in the fleet file")
    assert bench.site.state() is NodeState.IN_SERVICE


def test_of_later_rounds_only_units_without_work_go_early(tmp_path: Path) -> None:
    more = SPEC + "".join(
        f'  - {{name: {name}, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.{n}", ssh: 10.1.0.{n}}}\n'
        for n, name in enumerate(("gpu-0002", "gpu-0003"), start=2)
    )
    site = Site(tmp_path, more)
    site.ledger().operations.add_nodes(site.operation, [("gpu-0002", 1, 1), ("gpu-0003", 1, 2)])
    token = site.ledger().operations.claim(site.operation, Runner("lab", 1, 1.0, None))
    run = OperationRun(site, site.operation, token, SimpleNamespace())  # type: ignore[arg-type, type-var]
    wave = WAVE.model_copy(update={"units": ((NODE,), ("gpu-0002",), ("gpu-0003",)), "round_units": (1, 2)})
    job = Job("7", "train", "eva", "RUNNING", ("gpu-0001", "gpu-0002"), 16, 60.0, None, "", "ml", "gpu")
    site.fake_scheduler.jobs = (job,)
    dispatcher = Dispatcher(run, wave, lambda _: None, Slots())  # type: ignore[arg-type, return-value]
    assert dispatcher._offered() == [(NODE,), ("gpu-0003",)]
    site.ledger().operations.start_nodes(site.operation, [NODE], token)
    assert dispatcher._offered() == [("gpu-0002",), ("gpu-0003",)]

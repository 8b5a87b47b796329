"""Where a soak stands: the test that comes next, and each part's fault-free time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from fleet.soak import RunOutcome, SoakRun, SoakState, soak_state
from fleet.soak_levels import LEVELS, QUICK, SOAK, SOAK_WEEK, STANDARD, Scope, SoakLevel, SoakStep, Stage

BEGIN = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHORT = SoakLevel(
    "short",
    (
        SoakStep("look", Stage.SANITY, HOUR, loads=False),
        SoakStep("bandwidth", Stage.PERFORMANCE, HOUR, cool=True),
        SoakStep("heat", Stage.STRESS, HOUR, heats=True),
    ),
    (SoakStep("bandwidth", Stage.PERFORMANCE, HOUR, cool=True), SoakStep("heat", Stage.STRESS, HOUR, heats=True)),
    timedelta(hours=20),
)


class Bench:
    """Runs tests one after the other, an hour each."""

    def __init__(self) -> None:
        self.runs: list[SoakRun] = []
        self.now = BEGIN

    def run(
        self,
        test: str,
        outcome: RunOutcome | None = RunOutcome.PASSED,
        faulty: tuple[str, ...] = (),
        parts: tuple[str, ...] | None = None,
    ) -> None:
        ended = None if outcome is None else self.now + HOUR
        self.runs.append(SoakRun(test, self.now, ended, outcome, faulty, parts))
        self.now += HOUR

    def follow(self, count: int, parts: tuple[str, ...] = ("node",)) -> None:
        for _ in range(count):
            coming = self.state(parts).next
            assert coming is not None
            self.run(coming.step.test)

    def state(self, parts: tuple[str, ...] = ("node",)) -> SoakState:
        return soak_state(SHORT, self.runs, parts)

    def next_test(self) -> str:
        coming = self.state().next
        assert coming is not None
        return coming.step.test


@pytest.mark.parametrize("level", [QUICK, STANDARD, SOAK, SOAK_WEEK])
def test_a_level_has_its_tests_in_the_declared_order(level: SoakLevel) -> None:
    order = list(Stage)
    places = [order.index(step.stage) for step in level.opening]
    assert places == sorted(places)


def test_the_levels_last_ten_minutes_two_hours_three_days_and_a_week() -> None:
    assert [level.lasts for level in LEVELS.values()] == [
        timedelta(minutes=10),
        timedelta(hours=2),
        timedelta(hours=72),
        timedelta(hours=168),
    ]


def test_a_whole_rack_under_full_load_is_a_step_of_its_own_in_both_soaks() -> None:
    for level in (SOAK, SOAK_WEEK):
        assert [step.scope for step in level.opening].count(Scope.RACK) == 1
    assert all(step.scope is not Scope.RACK for step in (*QUICK.opening, *STANDARD.opening, *SOAK.cycle))


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_no_test_stands_twice_in_one_pass_of_a_level(level: SoakLevel) -> None:
    for steps in (level.opening, level.cycle):
        assert len({step.test for step in steps}) == len(steps)


def test_a_new_soak_begins_with_the_first_test() -> None:
    state = soak_state(SHORT, ())
    assert state.next is not None
    assert (state.next.step.test, state.next.cycle, state.opened) == ("look", 0, False)


def test_the_opening_runs_once_and_then_the_cycle_over_and_over() -> None:
    bench = Bench()
    bench.follow(8)
    assert [run.test for run in bench.runs] == ["look", *["bandwidth", "heat"] * 3, "bandwidth"]
    state = bench.state()
    assert state.next is not None
    assert (state.next.number, state.next.cycle, state.opened) == (8, 3, True)


def test_a_level_without_a_cycle_comes_to_its_end() -> None:
    runs = [
        SoakRun(step.test, BEGIN + n * HOUR, BEGIN + (n + 1) * HOUR, RunOutcome.PASSED)
        for n, step in enumerate(QUICK.opening)
    ]
    assert soak_state(QUICK, runs).next is None
    last = soak_state(QUICK, runs[:-1]).next
    assert last is not None
    assert last.step == QUICK.opening[-1]


def test_an_interrupted_test_is_run_again_and_nothing_before_it() -> None:
    bench = Bench()
    bench.follow(4)
    bench.run("heat", None)
    state = bench.state()
    assert state.next is not None
    assert (state.next.step.test, state.next.number, state.next.tries) == ("heat", 4, 1)
    assert state.interrupted == 1
    bench.run("heat")
    assert bench.next_test() == "bandwidth"


@pytest.mark.parametrize("seed", range(40))
def test_whenever_the_process_is_killed_no_complete_test_is_repeated_and_none_is_left_out(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    while len([run for run in bench.runs if run.complete]) < 15:
        test = bench.next_test()
        killed = rng.random() < 0.4
        bench.run(test, None if killed else RunOutcome.PASSED)
        rng.shuffle(bench.runs)
    complete = sorted((run for run in bench.runs if run.complete), key=lambda run: run.begun)
    assert [run.test for run in complete] == [step.test for n in range(15) if (step := SHORT.step(n)) is not None]


def test_a_failed_test_is_complete() -> None:
    bench = Bench()
    bench.follow(1)
    bench.run("bandwidth", RunOutcome.FAILED)
    assert bench.next_test() == "heat"


def test_an_inconclusive_test_is_tried_three_times_and_then_passed_over_by_name() -> None:
    bench = Bench()
    bench.follow(1)
    for tries in range(3):
        coming = bench.state().next
        assert coming is not None
        assert (coming.step.test, coming.tries) == ("bandwidth", tries)
        bench.run("bandwidth", RunOutcome.INCONCLUSIVE)
    assert bench.next_test() == "heat"
    assert bench.state().passed_over == ("bandwidth",)


def test_a_passed_over_test_has_its_tries_anew_in_the_next_cycle() -> None:
    bench = Bench()
    bench.follow(1)
    for _ in range(3):
        bench.run("bandwidth", RunOutcome.INCONCLUSIVE)
    bench.follow(1)
    coming = bench.state().next
    assert coming is not None
    assert (coming.step.test, coming.tries) == ("bandwidth", 0)


def test_a_test_that_ends_the_process_each_time_is_passed_over_in_the_end() -> None:
    bench = Bench()
    bench.follow(1)
    for _ in range(10):
        assert bench.next_test() == "bandwidth"
        bench.run("bandwidth", None)
    assert bench.next_test() == "heat"


def test_an_end_without_an_outcome_is_no_pass() -> None:
    state = soak_state(SHORT, [SoakRun("look", BEGIN, BEGIN + HOUR)])
    assert state.next is not None
    assert state.next.step.test == "look"
    assert state.complete == 0


def test_bandwidth_after_heat_asks_for_a_cool_down_first() -> None:
    bench = Bench()
    asked = []
    for _ in range(5):
        coming = bench.state().next
        assert coming is not None
        asked.append(coming.cool_first)
        bench.run(coming.step.test)
    assert asked == [False, False, False, True, False]


def test_an_interrupted_heat_test_asks_for_a_cool_down_too() -> None:
    bench = Bench()
    bench.run("look")
    bench.run("heat", None)
    coming = bench.state().next
    assert coming is not None
    assert (coming.step.test, coming.cool_first) == ("bandwidth", True)


def test_time_counts_only_where_a_test_that_loads_passed() -> None:
    bench = Bench()
    bench.follow(3)
    bench.run("bandwidth", RunOutcome.INCONCLUSIVE)
    bench.run("bandwidth", None)
    bench.run("some other test")
    (clock,) = bench.state().clocks
    assert clock.clear == 2 * HOUR


def test_a_fault_sets_the_clock_of_that_part_back_and_of_no_other() -> None:
    bench = Bench()
    bench.follow(5, ("a", "b"))
    bench.run("bandwidth", RunOutcome.FAILED, ("a",))
    bench.follow(1, ("a", "b"))
    a, b = bench.state(("a", "b")).clocks
    assert (a.clear, a.spells) == (HOUR, (4 * HOUR,))
    assert (b.clear, b.spells) == (6 * HOUR, ())


def test_a_failed_run_that_names_no_part_is_a_fault_of_each() -> None:
    bench = Bench()
    bench.follow(3, ("a", "b"))
    bench.run("bandwidth", RunOutcome.FAILED)
    assert [clock.spells for clock in bench.state(("a", "b")).clocks] == [(2 * HOUR,), (2 * HOUR,)]


def test_a_new_part_begins_at_zero_and_the_old_ones_history_is_kept_apart() -> None:
    bench = Bench()
    for test in ("look", "bandwidth", "heat"):
        bench.run(test, parts=("old", "b"))
    bench.run("bandwidth", RunOutcome.FAILED, ("old",), ("old", "b"))
    bench.run("heat", parts=("new", "b"))
    state = bench.state(("new", "b"))
    assert [(clock.part, clock.clear, clock.spells) for clock in state.clocks] == [
        ("new", HOUR, ()),
        ("b", 4 * HOUR, ()),
    ]
    assert [(clock.part, clock.clear, clock.spells) for clock in state.gone] == [("old", timedelta(0), (2 * HOUR,))]


def test_two_runs_at_one_time_count_once() -> None:
    runs = [
        SoakRun("heat", BEGIN, BEGIN + 3 * HOUR, RunOutcome.PASSED),
        SoakRun("bandwidth", BEGIN + HOUR, BEGIN + 4 * HOUR, RunOutcome.PASSED),
    ]
    assert soak_state(SHORT, runs).clocks[0].clear == 4 * HOUR


def test_an_end_before_the_beginning_adds_no_time() -> None:
    runs = [SoakRun("heat", BEGIN, BEGIN - HOUR, RunOutcome.PASSED)]
    assert soak_state(SHORT, runs).clocks[0].clear == timedelta(0)


def test_the_pause_between_tests_is_no_fault_free_time() -> None:
    runs = [
        SoakRun("heat", BEGIN, BEGIN + HOUR, RunOutcome.PASSED),
        SoakRun("heat", BEGIN + 9 * HOUR, BEGIN + 10 * HOUR, RunOutcome.PASSED),
    ]
    assert soak_state(SHORT, runs).clocks[0].clear == 2 * HOUR

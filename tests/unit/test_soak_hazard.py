"""The hazard seen in a soak, the rule that ends it, and what it says to a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, inf, log

import numpy as np
import pytest
from pydantic import ValidationError

from fleet.soak import PartClock, RunOutcome, SoakRun, SoakState, soak_state
from fleet.soak_hazard import (
    Exposure,
    SoakEnd,
    SoakPolicy,
    early_chance,
    exposure_of,
    hazard_per_day,
    judge_soak,
)
from fleet.soak_levels import QUICK, SOAK
from fleet.soak_settings import SoakSettings
from fleet.soak_statement import share_words, soak_statement, span_words

HOUR = timedelta(hours=1)
BEGIN = datetime(2026, 11, 30, tzinfo=UTC)
CONSTANT = SoakPolicy(shape=1.0, horizon=10 * HOUR)


def hours(count: float) -> timedelta:
    return count * HOUR


def clocks(count: int, clear: float, name: str = "other") -> list[PartClock]:
    return [PartClock(f"{name}{number}", hours(clear)) for number in range(count)]


def soaked(clear: float, *parts: str, spells: tuple[timedelta, ...] = (), opened: bool = True) -> SoakState:
    """A node past its opening, each part without a fault for `clear` hours."""
    state = soak_state(SOAK, _opening() if opened else (), parts or ("node",))
    return replace(state, clocks=tuple(PartClock(one.part, hours(clear), spells) for one in state.clocks))


def _opening() -> list[SoakRun]:
    return [
        SoakRun(step.test, BEGIN + n * HOUR, BEGIN + (n + 1) * HOUR, RunOutcome.PASSED)
        for n, step in enumerate(SOAK.opening)
    ]


def test_with_a_constant_hazard_and_no_fault_the_limit_is_the_classical_one() -> None:
    exposure = exposure_of(clocks(1, 100), 1.0)
    early = early_chance([hours(100)], exposure, CONSTANT)
    assert early.most == pytest.approx(1 - exp(log(0.05) / 100 * 10))
    assert early.mean == pytest.approx(1 - 100 / 110)


def test_two_faults_give_half_of_the_chi_square_with_six_degrees_of_freedom() -> None:
    exposure = Exposure(2, 10, 1000.0, 1000.0)
    assert early_chance([hours(5)], exposure, CONSTANT).most == pytest.approx(
        1 - exp(-12.5916 / 2 / 1000 * 10), rel=1e-5
    )


def test_a_falling_hazard_by_hand() -> None:
    policy = SoakPolicy(shape=0.5, horizon=hours(44))
    exposure = exposure_of([PartClock("a", hours(100)), PartClock("b", hours(25), (hours(9),))], 0.5)
    assert exposure == Exposure(1, 2, 134.0, 18.0)
    load = 144**0.5 - 100**0.5
    assert early_chance([hours(100)], exposure, policy).mean == pytest.approx(1 - (18 / (18 + load)) ** 2)


def test_nothing_seen_and_nothing_known_gives_no_limit() -> None:
    early = early_chance([timedelta(0)], Exposure(), SoakPolicy())
    assert (early.most, early.mean) == (1.0, 1.0)
    assert hazard_per_day(timedelta(0), Exposure(), SoakPolicy()) == inf


def test_the_hazard_falls_with_fault_free_time_and_stays_where_the_shape_is_one() -> None:
    exposure = Exposure(3, 100, 5000.0, 1000.0)
    falling = [hazard_per_day(hours(t), exposure, SoakPolicy()) for t in (1, 10, 100)]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(24 * 4 / 1000 * 0.7)
    assert hazard_per_day(hours(1), exposure, CONSTANT) == hazard_per_day(hours(90), exposure, CONSTANT)


@pytest.mark.parametrize("seed", range(20))
def test_the_chance_falls_with_time_and_evidence_and_rises_with_faults(seed: int) -> None:
    rng = np.random.default_rng(seed)
    policy = SoakPolicy(shape=float(rng.uniform(0.3, 1)), horizon=hours(float(rng.uniform(1, 2000))))
    clear = float(rng.uniform(1, 200))
    exposure = exposure_of(clocks(int(rng.integers(1, 50)), clear), policy.shape)
    base = early_chance([hours(clear)], exposure, policy)
    more = early_chance([hours(clear)], exposure.plus(exposure_of(clocks(1, 10), policy.shape)), policy)
    worse = early_chance([hours(clear)], replace(exposure, faults=exposure.faults + 1), policy)
    later = early_chance([hours(clear + 5)], exposure, policy)
    assert 0 < base.mean < base.most < 1
    assert more.most < base.most < worse.most
    assert later.most <= base.most


def test_the_stated_limit_holds_in_ninety_five_of_a_hundred_deliveries() -> None:
    rng = np.random.default_rng(7)
    policy = SoakPolicy(shape=0.6)
    held = 0
    for _ in range(1000):
        rate = float(np.exp(rng.uniform(-7, -3)))
        lives = (rng.exponential(size=30) / rate) ** (1 / policy.shape)
        parts = [
            PartClock("p", timedelta(0), (hours(float(life)),)) if life < 72 else PartClock("p", hours(72))
            for life in lives
        ]
        early = early_chance([hours(72)], exposure_of(parts, policy.shape), policy)
        true = 1 - exp(-rate * (792**policy.shape - 72**policy.shape))
        held += early.most >= true
    assert held / 1000 >= 0.94


def test_a_node_of_eight_parts_has_the_chance_of_all_of_them() -> None:
    exposure = exposure_of(clocks(8, 50), 0.7)
    one = early_chance([hours(50)], exposure, SoakPolicy())
    eight = early_chance([hours(50)] * 8, exposure, SoakPolicy())
    assert 1 - eight.most == pytest.approx((1 - one.most) ** 8)


def test_hours_under_acceleration_shorten_the_horizon() -> None:
    exposure = exposure_of(clocks(40, 50), 0.7)
    plain = early_chance([hours(50)], exposure, SoakPolicy(horizon=hours(72)))
    assert early_chance([hours(50)], exposure, SoakPolicy(horizon=hours(720), acceleration=10)) == plain


def test_a_soak_ends_when_the_chance_is_low_enough_and_not_an_hour_before() -> None:
    policy, alike = SoakPolicy(least=hours(10)), clocks(300, 60)
    verdict = judge_soak(soaked(20), policy, alike)
    assert verdict.end is SoakEnd.GO_ON
    assert verdict.needed is not None
    needed = verdict.needed / HOUR
    assert 0 < needed < 52
    assert judge_soak(soaked(20 + needed), policy, alike).end is SoakEnd.ENOUGH
    assert judge_soak(soaked(20 + needed - 0.1), policy, alike).end is SoakEnd.GO_ON


def test_no_soak_ends_before_its_least_time() -> None:
    policy, alike = SoakPolicy(chance=0.9), clocks(10_000, 72)
    assert judge_soak(soaked(23.9), policy, alike).end is SoakEnd.GO_ON
    assert judge_soak(soaked(24), policy, alike).end is SoakEnd.ENOUGH


def test_no_soak_ends_before_its_opening_is_complete() -> None:
    verdict = judge_soak(soaked(40, opened=False), SoakPolicy(chance=0.9), clocks(10_000, 72))
    assert (verdict.end, verdict.needed) == (SoakEnd.GO_ON, timedelta(0))


def test_the_longest_time_without_enough_evidence_says_so_instead_of_passing() -> None:
    verdict = judge_soak(soaked(72), SoakPolicy())
    assert verdict.end is SoakEnd.LIMIT
    assert verdict.needed is None
    assert "a person decides" in soak_statement(soaked(72), verdict)


def test_one_fault_begins_the_time_anew_and_a_second_ends_the_soak() -> None:
    policy, alike = SoakPolicy(), clocks(3000, 72)
    once = judge_soak(soaked(2, spells=(hours(30),)), policy, alike)
    assert (once.end, once.faults, once.clear) == (SoakEnd.GO_ON, 1, hours(2))
    assert once.needed is not None
    assert once.needed > hours(20)
    twice = judge_soak(soaked(50, spells=(hours(3), hours(2))), policy, alike)
    assert twice.end is SoakEnd.FAULTY


def test_the_part_with_the_least_fault_free_time_decides() -> None:
    state = soaked(60, "a", "b")
    young = replace(state, clocks=(state.clocks[0], PartClock("b", hours(3))))
    verdict = judge_soak(young, SoakPolicy(chance=0.5), clocks(5000, 72))
    assert (verdict.end, verdict.clear) == (SoakEnd.GO_ON, hours(3))
    assert verdict.needed is not None
    assert verdict.needed >= hours(21)


def test_the_faults_of_parts_that_are_gone_speak_of_the_rate() -> None:
    state = soaked(60)
    gone = replace(state, gone=(PartClock("old", timedelta(0), (hours(5),)),))
    assert judge_soak(gone, SoakPolicy()).exposure.faults == 1
    assert judge_soak(gone, SoakPolicy()).early.most > judge_soak(state, SoakPolicy()).early.most


def test_a_level_that_is_no_soak_has_no_rule() -> None:
    state = soak_state(QUICK, ())
    assert judge_soak(state, SoakPolicy()).end is SoakEnd.GO_ON
    done = replace(state, next=None)
    verdict = judge_soak(done, SoakPolicy())
    assert verdict.end is SoakEnd.DONE
    assert "no rule was applied" in soak_statement(done, verdict)


def test_the_statement_has_the_time_the_chance_the_confidence_and_what_they_rest_on() -> None:
    state, alike = soaked(71), [*clocks(1247, 71), *(PartClock(f"f{n}", timedelta(0), (hours(71),)) for n in range(2))]
    verdict = judge_soak(state, SoakPolicy(chance=0.03), alike)
    assert soak_statement(state, verdict) == (
        "No fault in 71 h: the chance of one in the next 30 days is at most 2.2 % at 95 % confidence. "
        "That holds where the hazard falls with time t as t^-0.3 (Weibull, shape 0.7), one rate holds for all 1,250 "
        "parts that are pooled (2 faults in 88,750 h), nothing was known before, and an hour of soak counts as 1 h of "
        "service. The policy's 3 % is reached: the soak is long enough."
    )


def test_the_statement_of_a_lone_node_says_that_it_shows_nothing_yet() -> None:
    state = soaked(30, spells=(hours(12),))
    verdict = judge_soak(state, SoakPolicy())
    said = soak_statement(replace(state, passed_over=("node/nic/write_bandwidth",)), verdict)
    assert said.startswith(
        "1 fault, and since then no fault in 30 h: the chance of one in the next 30 days has no useful"
    )
    assert "cannot be reached" in said
    assert said.endswith("Inconclusive, and passed over: node/nic/write_bandwidth.")


def test_the_statement_says_how_long_it_still_takes() -> None:
    state = soaked(20)
    verdict = judge_soak(state, SoakPolicy(), clocks(300, 60))
    assert verdict.needed is not None
    assert f"is reached after {span_words(verdict.needed)} more without a fault" in soak_statement(state, verdict)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0218, "2.2 %"), (0.02, "2 %"), (0.231, "24 %"), (0.0007, "0.07 %"), (0.00001, "0.01 %"), (0.05, "5 %")],
)
def test_a_limit_is_never_rounded_down(share: float, words: str) -> None:
    assert share_words(share) == words


@pytest.mark.parametrize(
    ("span", "words"),
    [(timedelta(minutes=59), "59 min"), (hours(71.9), "71 h"), (timedelta(days=30), "30 days"), (hours(72), "72 h")],
)
def test_spans_are_said_in_whole_units(span: timedelta, words: str) -> None:
    assert span_words(span) == words


def test_earlier_burn_ins_of_the_fleet_file_become_the_prior() -> None:
    settings = SoakSettings.model_validate({"earlier": {"nodes": 200, "hours": 16.0, "faults": 3}, "shape": 0.5})
    assert settings.policy().prior == Exposure(3, 200, 3200.0, 800.0)
    assert SoakSettings().policy() == SoakPolicy()


@pytest.mark.parametrize("wrong", [{"shape": 1.2}, {"chance": 0}, {"hours": 3}, {"confidence": 0.5}])
def test_a_setting_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SoakSettings.model_validate(wrong)

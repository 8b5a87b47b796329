"""A job's own interval against the one that its size, its writes and the fleet's failures ask for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.checkpoint_tools import NOW, job, minutes

from fleet.checkpoint_readers.values import Checkpoint, UnknownCheckpoint
from fleet.job_intervals import (
    PUBLISHED_RATE,
    Fit,
    FleetRate,
    age_seconds,
    fleet_rate,
    gpu_hours,
    judge_job,
    last_words,
    span_words,
)

HOUR = 3600.0
DONE = Checkpoint("/ckpt/iter_0004000", 4000, NOW - minutes(20), True, "is there", 45 * 60.0, True, 120.0)
RATE = fleet_rate(40, 3000.0)


def rate_of(mtbf_seconds: float, nodes: int) -> FleetRate:
    """The rate at which a job on so many nodes fails once in so many seconds."""
    return FleetRate(1000 * 86400 / (nodes * mtbf_seconds), 100, 1000.0, None)


SIX_HOURS = rate_of(6 * HOUR, 8)


@pytest.mark.corpus
def test_the_recommended_interval_is_dalys_with_the_write(shared: Path) -> None:
    rows = json.loads((shared / "facts" / "E_checkpoint.json").read_text())["cases"]
    for row in rows:
        found = judge_job(job(), UnknownCheckpoint(""), None, rate_of(row["M_s"], 8), row["delta_s"])
        assert found.recommended_seconds == pytest.approx(row["daly_s"] + row["delta_s"], rel=1e-5)
        assert found.mtbf_seconds == pytest.approx(row["M_s"])


@pytest.mark.corpus
def test_the_published_job_of_2048_nodes_has_its_mtbf_and_an_interval_near_youngs(shared: Path) -> None:
    cases = json.loads((shared / "facts" / "cases.json").read_text())
    (case,) = [row for row in cases if row["id"] == "dalyyoung_min"]
    asked = case["input"]
    large = replace(job(), nodes=tuple(f"n{number}" for number in range(asked["nodes"])))
    rate = FleetRate(asked["rate"], 0, 0.0, None, "published")
    found = judge_job(large, UnknownCheckpoint(""), None, rate, asked["write_min"] * 60)
    assert found.mtbf_seconds is not None
    assert found.recommended_seconds is not None
    young = (2 * asked["write_min"] * 60 * found.mtbf_seconds) ** 0.5
    assert young / 60 == pytest.approx(case["expected"], rel=case["tol"])
    assert found.recommended_seconds == pytest.approx(young, rel=0.2)


def test_an_interval_near_the_best_suits() -> None:
    found = judge_job(job(), DONE, None, SIX_HOURS)
    assert (found.fit, found.text, found.interval_measured, found.write_measured) == (Fit.SUITS, "suits", True, True)
    assert found.recommended_seconds == pytest.approx(2197.543 + 120, rel=1e-5)
    assert found.lost_share is not None
    assert found.lost_share < 0.02


def test_a_job_that_writes_too_rarely_loses_gpu_hours() -> None:
    found = judge_job(job(gpus=64), replace(DONE, interval_seconds=6 * HOUR), None, SIX_HOURS)
    assert found.fit is Fit.TOO_RARE
    assert found.lost_share == pytest.approx(0.31, abs=0.01)
    assert found.lost_gpu_hours_a_day == pytest.approx(found.lost_share * 64 * 24)
    assert found.text == f"too rare: loses about {found.lost_gpu_hours_a_day:.0f} GPU-hours per day"


def test_without_its_gpus_the_loss_is_told_as_a_share() -> None:
    found = judge_job(job(gpus=None), replace(DONE, interval_seconds=6 * HOUR), None, SIX_HOURS)
    assert (found.lost_gpu_hours_a_day, found.text) == (None, "too rare: loses 31 % of its time")


def test_a_job_that_writes_too_often_spends_its_time_on_writing() -> None:
    found = judge_job(job(), replace(DONE, interval_seconds=300.0), None, SIX_HOURS)
    assert (found.fit, found.text) == (Fit.TOO_OFTEN, "too often: costs 29 % of its time")


def test_the_larger_the_job_the_more_often_it_should_write() -> None:
    small, large = (replace(job(), nodes=tuple(f"n{n}" for n in range(count))) for count in (2, 200))
    first, second = (judge_job(one, DONE, None, RATE).recommended_seconds for one in (small, large))
    assert first is not None
    assert second is not None
    assert first > 5 * second


def test_what_the_job_says_counts_where_no_interval_was_measured() -> None:
    said = timedelta(minutes=45)
    found = judge_job(job(), replace(DONE, interval_seconds=None), said, SIX_HOURS)
    assert (found.interval_seconds, found.interval_measured, found.fit) == (2700.0, False, Fit.SUITS)
    measured = judge_job(job(), DONE, timedelta(minutes=5), SIX_HOURS)
    assert (measured.interval_seconds, measured.interval_measured) == (2700.0, True)


def test_the_assumed_time_to_write_counts_only_where_the_files_show_none() -> None:
    shown = judge_job(job(), DONE, None, SIX_HOURS, 10.0)
    assumed = judge_job(job(), replace(DONE, write_seconds=None), None, SIX_HOURS, 10.0)
    assert (shown.write_seconds, shown.write_measured) == (120.0, True)
    assert (assumed.write_seconds, assumed.write_measured) == (10.0, False)


def test_files_that_were_touched_later_show_no_time_to_write() -> None:
    touched = replace(DONE, write_seconds=3 * HOUR)
    found = judge_job(job(), touched, None, SIX_HOURS)
    assert (found.fit, found.write_seconds, found.recommended_seconds) == (Fit.UNKNOWN, None, None)
    assert "bear times further apart than its interval" in found.text
    assert judge_job(job(), touched, None, SIX_HOURS, 120.0).fit is Fit.SUITS
    impossible = judge_job(job(), replace(DONE, write_seconds=None), None, SIX_HOURS, 3 * HOUR)
    assert impossible.text == "unknown: the assumed time to write is not below its interval"


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        (UnknownCheckpoint("the storage of checkpoints does not answer: timed out"), "does not answer: timed out"),
        (
            UnknownCheckpoint("no\x1b[2J mark\nin /ckpt"),
            "unknown: its last checkpoint is not known (no\ufffd[2J mark in /ckpt)",
        ),
        (UnknownCheckpoint("no mark in /ckpt", none_yet=True), "unknown: it has no checkpoint yet (no mark in /ckpt)"),
        (replace(DONE, complete=None, why="was not read to its end"), "was not read to its end"),
        (replace(DONE, complete=False, why="half-written"), "half-written"),
        (replace(DONE, interval_seconds=None), "fewer than two complete checkpoints"),
        (replace(DONE, interval_seconds=nan), "fewer than two complete checkpoints"),
        (replace(DONE, write_seconds=None), "--write-seconds assumes it"),
        (replace(DONE, write_seconds=-4.0), "--write-seconds assumes it"),
    ],
)
def test_what_is_not_known_leaves_the_verdict_open_and_is_named(
    checkpoint: Checkpoint | UnknownCheckpoint, why: str
) -> None:
    found = judge_job(job(), checkpoint, None, SIX_HOURS)
    assert (found.fit, found.lost_share, found.lost_gpu_hours_a_day, found.firm) == (Fit.UNKNOWN, None, None, None)
    assert found.text.startswith("unknown: ")
    assert why in found.text


def test_a_job_without_nodes_has_no_failure_rate() -> None:
    found = judge_job(replace(job(), nodes=()), DONE, None, SIX_HOURS)
    assert (found.mtbf_seconds, found.text) == (None, "unknown: how often a job of its size fails is not known")


def test_a_rate_has_its_count_and_its_limits() -> None:
    rate = fleet_rate(10, 1000.0)
    assert (rate.per_1000_node_days, rate.assumed) == (10.0, None)
    assert rate.limits == pytest.approx((4.795, 18.39), rel=0.005)  # exact: half a chi-squared quantile each
    assert rate.text == "10 failures in 1,000.0 node-days in service: 10.00 per 1,000 node-days (95 %: 4.79 to 18.39)"


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_few_failures_make_no_rate_and_the_published_one_is_named_as_assumed(failures: int) -> None:
    rate = fleet_rate(failures, 90.0)
    assert (rate.per_1000_node_days, rate.limits, rate.failures) == (PUBLISHED_RATE, None, failures)
    assert "too little to call it a rate; 6.5 per 1,000 node-days is assumed (Meta's RSC-1" in rate.text
    assert judge_job(job(), DONE, None, rate).firm is None


def test_without_a_sweep_the_rate_says_so() -> None:
    assert fleet_rate(0, 0.0).text.startswith("no node in service was read by a sweep in this time: too little")


def test_a_verdict_that_other_rates_within_the_limits_turn_round_says_so() -> None:
    often = replace(DONE, interval_seconds=40 * 60.0, write_seconds=60.0)
    firm = judge_job(job(), often, None, fleet_rate(4000, 1_000_000.0))
    assert firm.firm is True
    rate = fleet_rate(3, 750.0)
    unsure = [judge_job(job(), replace(DONE, interval_seconds=s), None, rate) for s in range(600, 90_000, 300)]
    turned = [found for found in unsure if found.firm is False]
    assert turned
    assert all(found.text.endswith("other rates within the limits say otherwise") for found in turned)


def test_the_newest_checkpoint_in_a_few_words() -> None:
    assert last_words(DONE, NOW) == "step 4000, 20 min ago"
    assert last_words(replace(DONE, clock_measured=False), NOW) == "step 4000, 20 min ago by the storage's clock"
    assert last_words(replace(DONE, step=None), NOW) == "iter_0004000, 20 min ago"
    assert last_words(replace(DONE, complete=False), NOW) == "step 4000, not complete"
    assert last_words(replace(DONE, complete=None), NOW) == "step 4000, may not be complete"
    assert last_words(replace(DONE, completed_at=None), NOW) == "step 4000, time not known"
    assert last_words(replace(DONE, completed_at=NOW + minutes(5)), NOW) == "step 4000, bears a time in the future"
    assert last_words(UnknownCheckpoint("no mark", none_yet=True), NOW) == "none yet"
    assert last_words(UnknownCheckpoint("no answer"), NOW) == "?"


def test_an_age_is_of_a_complete_checkpoint_only_and_never_below_zero() -> None:
    assert age_seconds(DONE, NOW) == 1200.0
    assert age_seconds(replace(DONE, completed_at=NOW + timedelta(seconds=2)), NOW) == 0.0
    for other in (replace(DONE, complete=None), replace(DONE, completed_at=None), UnknownCheckpoint("")):
        assert age_seconds(other, NOW) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((None, "?"), (0.0, "0 s"), (12.34, "12.3 s"), (119.0, "119 s")),
        *((2317.5, "39 min"), (7800.0, "2 h 10 min"), (3e5, "3 days")),
    ],
)
def test_lengths_of_time_in_a_few_letters(seconds: float | None, words: str) -> None:
    assert span_words(seconds) == words


def test_gpu_hours_have_as_many_digits_as_they_are_worth() -> None:
    assert (gpu_hours(3.14159), gpu_hours(476.2), gpu_hours(12345.6)) == ("3.1", "476", "12,346")


_numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(_numbers, _numbers, _numbers, st.integers(0, 10**6), st.floats(allow_nan=True, allow_infinity=True))
def test_any_figures_give_a_verdict(
    interval: float | None, write: float | None, assumed: float | None, failures: int, node_days: float
) -> None:
    checkpoint = replace(DONE, interval_seconds=interval, write_seconds=write)
    found = judge_job(job(), checkpoint, timedelta(0), fleet_rate(failures, node_days), assumed)
    assert found.lost_share is None or 0 <= found.lost_share <= 1
    assert (found.lost_share is None) == (found.fit is Fit.UNKNOWN)
    assert found.recommended_seconds is None or 0 < found.recommended_seconds < inf

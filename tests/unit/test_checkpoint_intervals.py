"""Intervals, efficiencies and failure rates have the published values."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import checkpoint_intervals as intervals


def _cases(shared: Path, *names: str) -> list[tuple[dict[str, float], float, float]]:
    rows = json.loads((shared / "facts" / "cases.json").read_text())
    found = [(row["input"], row["expected"], row["tol"]) for row in rows if row["id"] in names]
    assert found
    return found


@pytest.mark.corpus
def test_the_published_cases(shared: Path) -> None:
    for given_, expected, tolerance in _cases(shared, "young"):
        assert intervals.young(given_["delta_s"], given_["mtbf_s"]) == pytest.approx(expected, rel=tolerance)
    for given_, expected, tolerance in _cases(shared, "daly_saturates"):
        assert intervals.daly(given_["delta_s"], given_["mtbf_s"]) == pytest.approx(expected, rel=tolerance)
    for given_, expected, tolerance in _cases(shared, "mttf_h"):
        found = intervals.mttf_hours(
            int(given_["gpus"]), int(given_["gpus_per_node"]), given_["fail_per_1000_node_days"]
        )
        assert found == pytest.approx(expected, rel=tolerance)
    for given_, expected, tolerance in _cases(shared, "ettr"):
        seconds = given_["u0_min"] * 60, given_["dt_min"] * 60
        found = intervals.effective_time_ratio(int(given_["gpus"]), 8, given_["rate"], *seconds)
        assert found == pytest.approx(expected, rel=tolerance)
    for given_, expected, tolerance in _cases(shared, "llama_mtti_h"):
        assert intervals.mean_hours_between(given_["days"], int(given_["n"])) == pytest.approx(expected, rel=tolerance)
    for given_, expected, tolerance in _cases(shared, "dalyyoung_min"):
        mtbf = intervals.job_mtbf_seconds(int(given_["nodes"]), given_["rate"])
        assert mtbf is not None
        assert intervals.young(given_["write_min"] * 60, mtbf) / 60 == pytest.approx(expected, rel=tolerance)


@pytest.mark.corpus
def test_every_row_of_the_interval_table(shared: Path) -> None:
    rows = json.loads((shared / "facts" / "E_checkpoint.json").read_text())["cases"]
    assert len(rows) >= 8
    for row in rows:
        write, mtbf, restart = row["delta_s"], row["M_s"], row["R_s"]
        best = intervals.daly(write, mtbf)
        assert intervals.young(write, mtbf) == pytest.approx(row["young_s"], rel=1e-5)
        assert best == pytest.approx(row["daly_s"], rel=1e-5)
        assert intervals.saxena_total(write, mtbf, restart) == pytest.approx(row["saxena_total_s"], rel=1e-5)
        found = intervals.efficiency(best, write, mtbf, restart)
        assert found == pytest.approx(row["daly_efficiency_at_daly_tau"], abs=1e-5)


def test_two_minutes_to_write_and_six_hours_between_failures() -> None:
    assert intervals.young(120, 21600) == pytest.approx(2276.84, rel=1e-5)
    assert intervals.daly(120, 21600) == pytest.approx(2197.543, rel=1e-5)
    assert intervals.daly_first_order(120, 21600, 600) == pytest.approx(2308.25, rel=1e-5)


def test_an_interval_near_the_best_suits() -> None:
    verdict = intervals.judge_interval(2700, 120, 21600)
    assert (verdict.suits, verdict.text) == (True, "writes every 45 min; 39 min would suit a failure every 6.0 h")


def test_an_interval_that_is_far_off_says_on_which_side_and_what_it_costs() -> None:
    seldom = intervals.judge_interval(6 * 3600, 120, 21600)
    often = intervals.judge_interval(300, 120, 21600)
    assert (seldom.suits, often.suits) == (False, False)
    assert "too seldom: 31% of its time lost" in seldom.text
    assert "too often: 29% of its time lost" in often.text


def test_a_job_that_writes_all_the_time_loses_all_of_it() -> None:
    assert intervals.judge_interval(100, 120, 21600).suits is False


@pytest.mark.parametrize("missing", [None, 0.0, -1.0, nan, inf])
def test_without_a_measured_rate_nothing_is_told(missing: float | None) -> None:
    verdict = intervals.judge_interval(2700, 120, missing)
    assert (verdict.suits, verdict.best_seconds, verdict.lost_share) == (None, None, None)
    assert verdict.text.endswith("no failure rate")
    assert intervals.judge_interval(None, None, None).suits is None


def test_too_few_failures_make_no_rate() -> None:
    assert intervals.failure_rate(0, 10000) is None
    assert intervals.failure_rate(2, 10000) is None
    assert intervals.failure_rate(65, 0) is None
    assert intervals.failure_rate(65, 10000) == 6.5
    assert intervals.job_mtbf_seconds(2048, None) is None
    assert intervals.job_mtbf_seconds(0, 6.5) is None


def test_a_job_that_fails_faster_than_it_starts_has_no_effective_time() -> None:
    assert intervals.effective_time_ratio(131072, 8, 6.5, 3600, 3600) == 0
    assert intervals.efficiency(1e6, 120, 60, 600) == 0


@pytest.mark.parametrize("wrong", [0.0, -1.0, nan, inf])
def test_a_time_that_is_none_is_refused(wrong: float) -> None:
    for call in (intervals.young, intervals.daly):
        with pytest.raises(ValueError, match="above 0"):
            call(wrong, 100)


@given(st.floats(allow_nan=True), st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_any_figures_give_a_verdict(interval: float, write: float, mtbf: float) -> None:
    verdict = intervals.judge_interval(interval, write, mtbf)
    assert verdict.lost_share is None or 0 <= verdict.lost_share <= 1

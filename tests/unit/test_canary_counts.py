"""Counts of errors: zero is information with its exposure, a missing series is none, a burst is about one event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from unit.canary_samples import XID, cohorts, counts

from fleet.canary import judge_canary
from fleet.canary_counts import Tally, compare_counts, ratio_above, ratio_below, tally
from fleet.canary_design import CanaryDesign
from fleet.canary_verdict import MeasureVerdict, Outcome, Why
from fleet.measures import Phase, Sample

GROUP = cohorts()
DESIGN = CanaryDesign((XID,))


def judged(samples: list[Sample]) -> MeasureVerdict:
    return judge_canary(DESIGN, GROUP, samples, {}, 1).measures[0]


def test_no_events_in_enough_hours_pass_and_say_what_they_exclude() -> None:
    found = judged(counts(GROUP, {}, hours=24))
    assert (found.outcome, found.why) == (Outcome.PASS, Why.OK)
    assert "surely under 0.37 incidents per node and day" in found.text


def test_no_events_in_an_hour_decide_nothing_and_say_how_many_hours_would() -> None:
    found = judged(counts(GROUP, {}, hours=1))
    assert (found.outcome, found.why) == (Outcome.INCONCLUSIVE, Why.TOO_FEW_HOURS)
    assert found.more_hours == pytest.approx(17, abs=1)


def test_a_missing_series_is_not_zero_events() -> None:
    samples = [
        replace(one, value=None, missing="no series") if (one.node, one.phase) == ("c01", Phase.AFTER) else one
        for one in counts(GROUP, {})
    ]
    found = judged(samples)
    assert (found.outcome, found.why) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert [(gap.node, gap.reason) for gap in found.missing] == [("c01", "no series")]


def test_a_count_without_its_hours_is_none() -> None:
    samples = [replace(one, exposure_hours=None) for one in counts(GROUP, {})]
    assert judged(samples).why is Why.DATA_MISSING


def test_a_node_that_was_hardly_watched_keeps_it_from_passing() -> None:
    samples = [
        replace(one, exposure_hours=2.0) if (one.node, one.phase) == ("c01", Phase.AFTER) else one
        for one in counts(GROUP, {}, hours=48)
    ]
    found = judged(samples)
    assert (found.outcome, found.why) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert found.missing[0].measure == XID.name


def test_a_burst_on_one_node_is_named_and_not_the_drivers() -> None:
    found = judged(counts(GROUP, {"c03": 400}))
    assert (found.outcome, found.why) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert found.cause.nodes == ("c03",)


def test_two_bursts_are_not_the_drivers_either() -> None:
    assert judged(counts(GROUP, {"c03": 40, "c06": 40})).outcome is not Outcome.FAIL


def test_a_season_of_errors_in_both_cohorts_is_no_effect() -> None:
    everywhere = dict.fromkeys((*GROUP.canary, *GROUP.control), 5)
    assert judged(counts(GROUP, everywhere)).outcome is not Outcome.FAIL


def test_nodes_that_were_sick_before_are_not_made_so_by_the_driver() -> None:
    sick = dict.fromkeys(GROUP.canary, 5)
    assert judged(counts(GROUP, sick, before=sick)).outcome is not Outcome.FAIL


def test_counts_of_a_nodes_gpus_are_one_watch() -> None:
    per_gpu = [replace(one, gpu=gpu) for one in counts(GROUP, {}) for gpu in range(8)]
    whole = judged(counts(GROUP, {}))
    assert judged(per_gpu).text == whole.text


def test_twelve_events_against_none_are_more_than_chance() -> None:
    one, none = Tally(12, 100, 1.0), Tally(0, 100, 1.0)
    assert ratio_above(one, none, 0.05) == pytest.approx(3.53, abs=0.01)  # 0.05 ** (1 / 12), as odds
    assert ratio_below(one, none, 0.05) == float("inf")
    assert ratio_above(none, one, 0.05) == 0.0


def test_a_rate_without_events_is_below_three_over_its_hours() -> None:
    assert Tally(0, 100, 1.0).rate_below(0.05) == pytest.approx(0.03, abs=1e-3)


def test_without_hours_there_is_no_count() -> None:
    assert tally([]) is None
    assert compare_counts([(0, 1)], [], [(0, 1)]) is None


def test_bursts_raise_false_alarms_no_further_than_stated() -> None:
    rng = np.random.default_rng(5)
    design = CanaryDesign((XID,), alpha=0.02)
    alarms = 0
    for _ in range(300):
        bursts = rng.poisson(0.1, 16)
        events = rng.poisson(20, 16) * bursts
        samples = counts(GROUP, dict(zip((*GROUP.canary, *GROUP.control), map(float, events), strict=True)))
        alarms += judge_canary(design, GROUP, samples, {}, 1).outcome is Outcome.FAIL
    assert alarms <= 6

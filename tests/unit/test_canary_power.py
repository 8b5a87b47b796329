"""The power analysis is of the very test that judges, and the noise is measured robustly."""

from __future__ import annotations

import numpy as np
import pytest
from unit.canary_samples import BEGIN, XID, cohorts

from fleet.canary import judge_canary
from fleet.canary_cohorts import Cohorts
from fleet.canary_compare import compare
from fleet.canary_design import CanaryDesign
from fleet.canary_hours import hours_for
from fleet.canary_measure import Levels, judge_change
from fleet.canary_noise import CanaryNoise, measure_noise, noise_for_planning
from fleet.canary_power import chance_to_find, chance_to_pass, size_for, smallest_detectable
from fleet.canary_table import NodeChange
from fleet.canary_verdict import MeasuredNoise, Outcome
from fleet.errors import ConfigurationError
from fleet.measures import Better, Cohort, Measure, MeasureKind, Phase, Sample

NOISE = CanaryNoise()
LOOKS = (1 / 3, 2 / 3, 1.0)
HBM = Measure("hbm", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)


def shares(loss: float, nodes: int, tries: int = 250) -> tuple[float, float]:
    """How often the judge fails and passes such canaries."""
    design = CanaryDesign((HBM,), looks=LOOKS)
    levels = Levels(design.fail_level(LOOKS), design.pass_level(LOOKS))
    names = [f"n{n}" for n in range(2 * nodes)]
    rng = np.random.default_rng(11)
    outcomes = []
    for _ in range(tries):
        gains = rng.normal(0, NOISE.of_pair(3), 2 * nodes)
        gains[:nodes] += np.log1p(-loss)
        warmth = rng.normal(0, 1.5, 2 * nodes)
        rows = [
            NodeChange(
                name,
                Cohort.CANARY if n < nodes else Cohort.CONTROL,
                float(gains[n]),
                (),
                (),
                float(warmth[n]),
                True,
                False,
                (),
            )
            for n, name in enumerate(names)
        ]
        verdict = judge_change(design, HBM, rows, Cohorts(tuple(names[:nodes]), tuple(names[nodes:])), levels, {})
        outcomes.append(verdict.outcome)
    return outcomes.count(Outcome.FAIL) / tries, outcomes.count(Outcome.PASS) / tries


@pytest.mark.parametrize(("loss", "nodes"), [(0.03, 12), (0.04, 6), (0.05, 5), (0.07, 4)])
def test_losses_are_found_as_often_as_planned(loss: float, nodes: int) -> None:
    planned = chance_to_find(loss, nodes, 3, NOISE, 0.01, 1, LOOKS, 0.02)
    assert shares(loss, nodes)[0] == pytest.approx(planned, abs=0.08)


def test_a_driver_that_loses_nothing_passes_as_often_as_planned() -> None:
    assert shares(0.0, 5)[1] == pytest.approx(chance_to_pass(5, 3, NOISE, 0.05, LOOKS, 0.02), abs=0.04)


def test_a_loss_of_the_whole_margin_passes_no_more_often_than_stated() -> None:
    assert shares(0.02, 6)[1] <= 0.09  # 5 % and three standard errors


def test_a_planned_canary_finds_its_loss_and_a_smaller_one_would_not() -> None:
    size = size_for(0.05, NOISE, 0.95, 0.01, 6, LOOKS, runs=(3,))
    assert size.finds >= 0.95
    assert chance_to_find(0.05, size.nodes - 1, 3, NOISE, 0.01, 6, LOOKS, 0.02) < 0.95


def test_a_smaller_loss_needs_more_nodes() -> None:
    assert size_for(0.03, NOISE).nodes > size_for(0.05, NOISE).nodes


def test_a_loss_within_the_margin_cannot_be_planned_for() -> None:
    with pytest.raises(ConfigurationError, match="margin"):
        size_for(0.02, NOISE)


def test_noise_that_no_fleet_could_overcome_is_said() -> None:
    with pytest.raises(ConfigurationError, match="not found"):
        size_for(0.021, CanaryNoise(change=1.0))


def test_the_smallest_detectable_loss_is_found_with_the_stated_power() -> None:
    loss = smallest_detectable(8, 3, NOISE, 0.95)
    assert loss is not None
    assert chance_to_find(loss, 8, 3, NOISE, 0.01, 1, (1.0,), 0.02) == pytest.approx(0.95, abs=0.001)


def test_hours_to_pass_without_any_events_are_three_over_the_tolerated_rate() -> None:
    hours = hours_for(8, 0.0, 10).to_pass
    assert hours == pytest.approx(3.0 / (0.5 / 24) / 8, rel=0.05)


def test_a_rate_that_doubles_takes_longer_to_be_found_than_one_that_is_tenfold() -> None:
    twice, tenfold = hours_for(8, 0.01, 2).to_find, hours_for(8, 0.01, 10).to_find
    assert twice is not None
    assert tenfold is not None
    assert tenfold < twice


def test_the_hours_that_were_planned_find_the_sickness() -> None:
    hours = hours_for(8, 0.005, 20, power=0.9, measures=1, accepted_ratio=2.0).to_find
    assert hours is not None
    group, rng = cohorts(8), np.random.default_rng(2)
    found = 0
    for _ in range(100):
        samples = [
            Sample(node, "xid", phase, BEGIN, float(rng.poisson(rate * hours)), exposure_hours=hours)
            for node in (*group.canary, *group.control)
            for phase in Phase
            for rate in [0.1 if node in group.canary and phase is Phase.AFTER else 0.005]
        ]
        found += judge_canary(CanaryDesign((XID,)), group, samples, {}, 1).outcome is Outcome.FAIL
    assert found >= 75


def test_one_wild_run_does_not_blow_the_noise() -> None:
    rng = np.random.default_rng(3)
    runs = {f"n{n}": list(rng.normal(0, 0.005, 5)) for n in range(8)}
    calm = measure_noise(runs).run_to_run
    runs["n3"][2] += 0.5
    wild = measure_noise(runs)
    assert calm is not None
    assert wild.run_to_run == pytest.approx(calm, rel=0.25)
    assert wild.unlike == ("n3",)


def test_one_node_far_from_the_others_does_not_blow_the_noise() -> None:
    rng = np.random.default_rng(4)
    runs = {f"n{n}": list(rng.normal(0, 0.015) + rng.normal(0, 0.003, 3)) for n in range(16)}
    calm = measure_noise(runs).node_to_node
    runs["n3"] = [value - 3 for value in runs["n3"]]
    assert calm is not None
    assert measure_noise(runs).node_to_node == pytest.approx(calm, rel=0.4)


def test_noise_is_about_what_was_put_in() -> None:
    rng = np.random.default_rng(5)
    runs = {f"n{n}": list(rng.normal(0, 0.015) + rng.normal(0, 0.005, 5)) for n in range(64)}
    found = measure_noise(runs)
    assert found.run_to_run == pytest.approx(0.005, rel=0.15)
    assert found.node_to_node == pytest.approx(0.015, rel=0.3)


def test_single_runs_tell_nothing_of_run_to_run_noise() -> None:
    assert measure_noise({"a": [1.0], "b": [1.1]}) == MeasuredNoise(None, None)


def test_what_was_not_measured_is_planned_with_as_assumed() -> None:
    planned = noise_for_planning(MeasuredNoise(0.01, None))
    assert (planned.run_to_run, planned.node_to_node) == (0.01, NOISE.node_to_node)


def test_values_without_any_scatter_have_an_interval_all_the_same() -> None:
    found = compare([0.0] * 4, [0.0] * 4)
    assert found is not None
    assert found.low(0.05) < 0 < found.high(0.05)


def test_unequal_cohorts_do_not_fail_more_often_than_stated() -> None:
    rng = np.random.default_rng(6)
    fails = 0
    for _ in range(1000):
        found = compare(rng.normal(0, 0.02, 4), rng.normal(0, 0.005, 24))
        fails += found is not None and found.high(0.05) < 0
    assert fails / 1000 <= 0.065

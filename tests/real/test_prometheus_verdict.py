"""The right verdict on series of a real Prometheus, scenario by scenario."""

from __future__ import annotations

import pytest
from real.prometheus_scenarios import CANARIES, CONTROLS, Reader, traits

from fleet.canary import judge_canary
from fleet.canary_cohorts import Cohorts
from fleet.canary_design import CanaryDesign
from fleet.canary_verdict import CanaryVerdict, CauseKind, Outcome, Why
from fleet.series_catalog import rules_for

pytest_plugins = ("real.prometheus_fixtures",)
pytestmark = pytest.mark.prometheus

COHORTS = Cohorts(CANARIES, CONTROLS, traits=traits())


def judged(read_scenario: Reader, scenario: str, *measures: str) -> CanaryVerdict:
    design = CanaryDesign(tuple(rule.as_measure() for rule in rules_for(measures or ("sm_clock",))))
    return judge_canary(design, COHORTS, read_scenario(scenario, *measures).samples, {}, look=1)


def test_a_clean_change_passes(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "clean")
    assert (verdict.outcome, verdict.why) == (Outcome.PASS, Why.OK), verdict.text


def test_a_loss_of_three_percent_fails_and_is_the_drivers(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "loss")
    assert (verdict.outcome, verdict.why) == (Outcome.FAIL, Why.SLOWER), verdict.text
    assert verdict.cause.kind is CauseKind.DRIVER
    assert verdict.measures[0].effect == pytest.approx(-0.03, abs=0.004)


def test_a_drift_that_controls_have_too_passes(read_scenario: Reader) -> None:
    assert judged(read_scenario, "drift").outcome is Outcome.PASS


def test_a_rack_that_went_bad_does_not_fail_the_driver_and_is_named(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "rack")
    assert (verdict.outcome, verdict.why) == (Outcome.INCONCLUSIVE, Why.UNEVEN), verdict.text
    assert (verdict.cause.kind, verdict.cause.names) == (CauseKind.RACK, ("r4",))


def test_canaries_that_fell_silent_decide_nothing(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "missing")
    assert (verdict.outcome, verdict.why) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING), verdict.text
    assert {gap.node for measure in verdict.measures for gap in measure.missing} == set(CANARIES[:12])


def test_counters_that_the_new_driver_began_again_pass(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "resets", "sm_clock", "pcie_replays")
    assert verdict.outcome is Outcome.PASS, verdict.text
    assert [one.outcome for one in verdict.measures] == [Outcome.PASS, Outcome.PASS]


def test_throttled_controls_do_not_hide_a_loss_and_decide_nothing(read_scenario: Reader) -> None:
    verdict = judged(read_scenario, "throttled")
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict.text
    assert verdict.why is Why.THROTTLED

"""The verdict on a driver: slower, sicker, or neither, and whose doing it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from unit.canary_samples import ALL_REDUCE, CLOCK, HBM, STEP, XID, Draw, all_lose, cohorts, counts

from fleet.canary import judge_canary
from fleet.canary_design import CanaryDesign
from fleet.canary_verdict import CanaryVerdict, CauseKind, Outcome, Why
from fleet.errors import ConfigurationError
from fleet.measures import Conditions, Measure, Phase, Sample

GROUP = cohorts()
DESIGN = CanaryDesign((HBM,))


def judged(
    samples: list[Sample], *measures: Measure, lost: dict[str, tuple[str, ...]] | None = None, group=GROUP
) -> CanaryVerdict:
    return judge_canary(CanaryDesign(measures or (HBM,)), group, samples, lost or {}, 1)


def found(verdict: CanaryVerdict) -> tuple[Outcome, Why]:
    return verdict.outcome, verdict.why


def test_a_driver_that_changes_nothing_passes() -> None:
    verdict = judged(Draw().samples(GROUP))
    assert found(verdict) == (Outcome.PASS, Why.OK)
    measure = verdict.measures[0]
    assert measure.low is not None
    assert measure.high is not None
    assert measure.effect is not None
    assert -measure.margin < measure.low < measure.effect < measure.high
    assert (measure.n_canary, measure.n_control, measure.missing) == (8, 8, ())


def test_a_loss_of_five_percent_on_all_canary_nodes_is_the_drivers() -> None:
    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.05)).samples(GROUP))
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)
    assert verdict.cause.kind is CauseKind.DRIVER
    assert verdict.measures[0].effect == pytest.approx(-0.05, abs=0.01)


def test_a_loss_within_the_margin_does_not_fail() -> None:
    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.01)).samples(GROUP))
    assert verdict.outcome is Outcome.PASS


def test_a_step_that_takes_longer_is_a_loss() -> None:
    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.06)).samples(GROUP, STEP), STEP)
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)
    assert verdict.measures[0].effect == pytest.approx(-0.06, abs=0.01)


def test_a_drift_of_both_cohorts_is_no_effect() -> None:
    verdict = judged(Draw(drift=0.08).samples(GROUP, CLOCK), CLOCK)
    assert found(verdict) == (Outcome.PASS, Why.OK)


def test_a_loss_of_the_controls_alone_does_not_fail_the_driver() -> None:
    verdict = judged(Draw(loss=all_lose(GROUP.control, 0.05)).samples(GROUP))
    assert verdict.outcome is not Outcome.FAIL


def test_one_bad_rack_is_named_and_not_averaged_away() -> None:
    bad = tuple(node for node in GROUP.canary if int(node[1:]) % 4 == 2)
    verdict = judged(Draw(loss=all_lose(bad, 0.12)).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert (verdict.cause.kind, verdict.cause.names, verdict.cause.nodes) == (CauseKind.RACK, ("r2",), bad)
    assert "controls in the same rack did not" in verdict.cause.text


def test_a_rack_whose_controls_fell_too_is_to_be_looked_at() -> None:
    bad = tuple(node for node in (*GROUP.canary, *GROUP.control) if int(node[1:]) % 4 == 2)
    verdict = judged(Draw(loss=all_lose(bad, 0.12)).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert "look at the rack" in verdict.cause.text


def test_one_bad_rack_does_not_shield_a_driver_that_is_slower_elsewhere_too() -> None:
    loss = all_lose(GROUP.canary, 0.05) | {"c02": 0.2, "c06": 0.2}
    assert found(judged(Draw(loss=loss).samples(GROUP))) == (Outcome.FAIL, Why.SLOWER)


def test_one_broken_node_is_named_and_the_driver_not_failed() -> None:
    verdict = judged(Draw(loss={"c03": 0.3}).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert verdict.cause.nodes == ("c03",)


def test_a_gpu_that_fell_alone_keeps_the_canary_from_passing() -> None:
    samples = [
        replace(one, value=one.value * 0.85) if (one.node, one.gpu, one.phase) == ("c01", 5, Phase.AFTER) else one
        for one in Draw().samples(GROUP)
        if one.value is not None
    ]
    verdict = judged(samples)
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert verdict.cause.names == ("c01 GPU 5",)


def test_a_broken_control_does_not_hide_a_loss() -> None:
    loss = all_lose(GROUP.canary, 0.05) | {"k04": 0.4}
    verdict = judged(Draw(loss=loss).samples(GROUP))
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)
    assert "k04" in " ".join(verdict.measures[0].notes)


def test_controls_that_are_throttled_do_not_hide_a_loss() -> None:
    hot = GROUP.control[:4]

    def seen(node: str, phase: Phase) -> Conditions:
        slow = node in hot and phase is Phase.AFTER
        return Conditions(("hw_thermal",) if slow else (), 24.0, 60.0, 700.0, 0)

    loss = all_lose(GROUP.canary, 0.05) | all_lose(hot, 0.05)
    verdict = judged(Draw(loss=loss, conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)
    assert verdict.measures[0].n_control == 4


def test_canary_nodes_that_were_throttled_are_not_counted_as_a_loss() -> None:
    hot = GROUP.canary[:2]

    def seen(node: str, phase: Phase) -> Conditions:
        slow = node in hot and phase is Phase.AFTER
        return Conditions(("hw_thermal",) if slow else (), None, 60.0, 700.0, 0)

    verdict = judged(Draw(loss=all_lose(hot, 0.2), conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.THROTTLED)
    assert verdict.cause.nodes == hot


def test_throttling_that_came_with_the_driver_at_the_same_inlet_fails_it() -> None:
    def seen(node: str, phase: Phase) -> Conditions:
        slow = node in GROUP.canary and phase is Phase.AFTER
        return Conditions(("hw_slowdown",) if slow else (), 24.0, 60.0, 700.0, 0)

    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.1), conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.FAIL, Why.THROTTLED)
    assert verdict.cause.kind is CauseKind.DRIVER


def test_throttling_in_a_warmer_hall_is_heat() -> None:
    def seen(node: str, phase: Phase) -> Conditions:
        slow = node in GROUP.canary and phase is Phase.AFTER
        return Conditions(("hw_thermal",) if slow else (), 33.0 if slow else 24.0, 60.0, 700.0, 0)

    verdict = judged(Draw(conditions=seen).samples(GROUP))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.cause.kind is CauseKind.HEAT


def test_a_power_cap_that_always_held_is_no_throttling() -> None:
    capped = Conditions(("sw_power_cap",), 24.0, 60.0, 700.0, 0)
    verdict = judged(Draw(conditions=lambda node, phase: capped).samples(GROUP))
    assert found(verdict) == (Outcome.PASS, Why.OK)


def test_heat_of_the_canarys_racks_is_taken_out() -> None:
    warmth = {node: 2.0 + n for n, node in enumerate(GROUP.canary)} | {
        node: n - 2.0 for n, node in enumerate(GROUP.control)
    }

    def seen(node: str, phase: Phase) -> Conditions:
        return Conditions((), 24.0 + warmth[node] * (phase is Phase.AFTER), 60.0, 700.0, 0)

    loss = {node: 0.01 * warm for node, warm in warmth.items()}
    verdict = judged(Draw(loss=loss, conditions=seen).samples(GROUP))
    assert verdict.outcome is not Outcome.FAIL
    assert verdict.measures[0].effect == pytest.approx(0, abs=0.02)


def test_a_lost_setting_is_blamed_and_not_the_driver() -> None:
    lost = dict.fromkeys(GROUP.canary, ("power_limit",))
    samples = Draw(loss=all_lose(GROUP.canary, 0.09)).samples(GROUP, ALL_REDUCE)
    verdict = judged(samples, ALL_REDUCE, lost=lost)
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.SETTINGS_LOST)
    assert (verdict.cause.kind, verdict.cause.names) == (CauseKind.SETTING, ("power_limit",))
    assert verdict.measures[0].effect == pytest.approx(-0.09, abs=0.01)
    assert "mend" in verdict.text


def test_a_lost_setting_on_two_nodes_does_not_excuse_a_driver_that_slows_the_others() -> None:
    lost = dict.fromkeys(GROUP.canary[:2], ("persistence",))
    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.06)).samples(GROUP), lost=lost)
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)


def test_a_canary_with_lost_settings_never_passes() -> None:
    verdict = judged(Draw().samples(GROUP), lost={"c00": ("persistence",)})
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.SETTINGS_LOST)


def test_a_power_limit_that_moved_is_a_lost_setting_though_nobody_said_so() -> None:
    def seen(node: str, phase: Phase) -> Conditions:
        low = node in GROUP.canary and phase is Phase.AFTER
        return Conditions((), 24.0, 60.0, 500.0 if low else 700.0, 0)

    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.09), conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.SETTINGS_LOST)
    assert verdict.cause.names == ("power limit 700 W, now 500 W",)


def test_a_canary_node_that_was_lost_is_named_and_nothing_passes() -> None:
    verdict = judged(Draw(silent=frozenset({"c05"})).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert verdict.cause.nodes == ("c05",)
    assert [(gap.node, gap.phase) for gap in verdict.measures[0].missing] == [("c05", Phase.AFTER)]


def test_a_missing_node_does_not_shield_a_driver_that_is_slower() -> None:
    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.06), silent=frozenset({"c05"})).samples(GROUP))
    assert found(verdict) == (Outcome.FAIL, Why.SLOWER)


def test_a_gpu_that_is_gone_after_the_change_keeps_the_canary_from_passing() -> None:
    gone = [one for one in Draw().samples(GROUP) if (one.node, one.gpu, one.phase) != ("c01", 3, Phase.AFTER)]
    verdict = judged(gone)
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert "GPU 3" in verdict.measures[0].missing[0].reason


def test_a_value_of_zero_is_named_and_no_value() -> None:
    samples = [replace(one, value=0.0) if one.node == "c01" and one.run == 0 else one for one in Draw().samples(GROUP)]
    assert any("not above zero" in gap.reason for gap in judged(samples).measures[0].missing)


def test_no_samples_at_all_are_missing_data_and_no_pass() -> None:
    verdict = judged([])
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert {gap.node for gap in verdict.missing} == {*GROUP.canary, *GROUP.control}


def test_two_nodes_are_too_few() -> None:
    small = cohorts(2)
    verdict = judged(Draw(loss=all_lose(small.canary, 0.3)).samples(small), group=small)
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.TOO_FEW_NODES)
    assert verdict.more_nodes is not None


def test_noise_that_hides_the_answer_says_how_many_nodes_would_show_it() -> None:
    noisy = Draw(seed=3, noise=replace(Draw().noise, change=0.1))
    verdict = judged(noisy.samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.TOO_FEW_NODES)
    assert verdict.more_nodes is not None
    assert verdict.more_nodes > 8
    detectable = verdict.measures[0].smallest_detectable
    assert detectable is not None
    assert detectable > 0.05


def test_errors_on_all_canary_nodes_make_the_driver_sick() -> None:
    verdict = judged(counts(GROUP, dict.fromkeys(GROUP.canary, 3)), XID)
    assert found(verdict) == (Outcome.FAIL, Why.SICKER)
    assert verdict.measures[0].effect is not None
    assert verdict.measures[0].effect < -1


def test_a_failed_canary_stays_failed_at_a_later_look() -> None:
    design = CanaryDesign((HBM,), looks=(0.5, 1.0))
    first = judge_canary(design, GROUP, Draw(loss=all_lose(GROUP.canary, 0.2)).samples(GROUP), {}, 1)
    second = judge_canary(design, GROUP, Draw().samples(GROUP), {}, 2, [first])
    assert (first.outcome, second.outcome) == (Outcome.FAIL, Outcome.FAIL)
    assert "stands" in " ".join(second.notes)


def test_a_look_that_the_design_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="look 2 of 1"):
        judge_canary(DESIGN, GROUP, [], {}, 2)


def test_a_node_that_is_canary_and_control_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="both canary and control: c00"):
        judge_canary(DESIGN, replace(GROUP, control=("c00", *GROUP.control)), [], {}, 1)


def test_controls_that_were_measured_days_later_are_named() -> None:
    samples = [
        replace(one, at=one.at + timedelta(days=2)) if one.node in GROUP.control and one.phase is Phase.AFTER else one
        for one in Draw().samples(GROUP)
    ]
    assert judged(samples).notes == ("hbm: controls were measured 48 h apart from the canary (after)",)


def test_throttling_on_canary_nodes_whose_inlets_nobody_knows_fails_nobody() -> None:
    def seen(node: str, phase: Phase) -> Conditions:
        slow = node in GROUP.canary and phase is Phase.AFTER
        return Conditions(("hw_slowdown",) if slow else (), None, 60.0, 700.0, 0)

    verdict = judged(Draw(loss=all_lose(GROUP.canary, 0.1), conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.THROTTLED)
    assert "inlet temperatures are not known" in verdict.cause.text


def test_a_run_that_shared_its_gpu_is_set_aside() -> None:
    def seen(node: str, phase: Phase) -> Conditions:
        return Conditions((), 24.0, 60.0, 700.0, 1 if node == "c01" and phase is Phase.AFTER else 0)

    verdict = judged(Draw(loss={"c01": 0.5}, conditions=seen).samples(GROUP))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert "other processes" in verdict.measures[0].missing[0].reason


def test_a_firmware_on_which_the_driver_is_slower_is_named() -> None:
    slow = GROUP.canary[:4]
    traits = tuple(replace(one, rack="", firmware="24.9" if one.node in slow else "25.1") for one in GROUP.traits)
    verdict = judged(Draw(loss=all_lose(slow, 0.08)).samples(GROUP), group=replace(GROUP, traits=traits))
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.UNEVEN)
    assert (verdict.cause.kind, verdict.cause.names) == (CauseKind.FIRMWARE, ("24.9",))


def test_a_series_that_ended_early_on_a_node_is_not_complete() -> None:
    long = Draw(runs=24).samples(GROUP, CLOCK)
    cut = [one for one in long if one.node != "c02" or one.phase is Phase.BEFORE or one.run < 6]
    verdict = judged(cut, CLOCK)
    assert found(verdict) == (Outcome.INCONCLUSIVE, Why.DATA_MISSING)
    assert verdict.cause.nodes == ("c02",)


def test_a_verdict_goes_to_json_and_back() -> None:
    samples = [*Draw(silent=frozenset({"c05"})).samples(GROUP), *counts(GROUP, {"c01": 1})]
    verdict = judged(samples, HBM, XID)
    assert CanaryVerdict.from_json(verdict.to_json()) == verdict

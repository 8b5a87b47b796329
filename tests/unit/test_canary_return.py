"""After the way back: an effect that went away with the driver was the driver's."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from unit.canary_samples import HBM, XID, Draw, all_lose, cohorts, counts

from fleet.canary import judge_canary
from fleet.canary_design import CanaryDesign
from fleet.canary_return import effect_gone
from fleet.canary_verdict import Outcome, ReturnVerdict
from fleet.measures import Measure, Phase, Sample

GROUP = cohorts()


def returned(loss: float, silent: frozenset[str] = frozenset()) -> list[Sample]:
    """The after samples of the same nodes, a day later; levels are those of the same seed."""
    later = Draw(loss=all_lose(GROUP.canary, loss), silent=silent).samples(GROUP)
    return [replace(one, at=one.at + timedelta(days=1)) for one in later if one.phase is Phase.AFTER]


def judged(samples: list[Sample], back: list[Sample], measure: Measure = HBM) -> ReturnVerdict:
    design = CanaryDesign((measure,))
    return effect_gone(design, GROUP, judge_canary(design, GROUP, samples, {}, 1), samples, back)


SLOW = Draw(loss=all_lose(GROUP.canary, 0.06)).samples(GROUP)


def test_an_effect_that_went_away_was_the_drivers() -> None:
    found = judged(SLOW, returned(0.0))
    assert found.outcome is Outcome.PASS
    assert "the driver was its cause" in found.text
    assert found.measures[0].regained is not None
    assert found.measures[0].regained > 0.04


def test_an_effect_that_stayed_was_not() -> None:
    found = judged(SLOW, returned(0.06))
    assert found.outcome is Outcome.FAIL
    assert "another cause" in found.text


def test_an_effect_that_went_away_in_part_is_not_gone() -> None:
    assert judged(SLOW, returned(0.035)).outcome is Outcome.FAIL
    assert judged(SLOW, returned(0.02)).outcome is Outcome.INCONCLUSIVE


def test_a_node_that_gave_nothing_after_the_way_back_leaves_it_open() -> None:
    found = judged(SLOW, returned(0.0, silent=frozenset({"c02"})))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert {gap.node for gap in found.measures[0].missing} == {"c02"}


def test_nothing_measured_after_the_way_back_is_not_gone() -> None:
    assert judged(SLOW, []).outcome is Outcome.INCONCLUSIVE


def test_a_canary_that_did_not_fail_has_no_effect_to_go_away() -> None:
    assert judged(Draw().samples(GROUP), returned(0.0)).outcome is Outcome.INCONCLUSIVE


def test_errors_that_ended_with_the_driver_were_its_own() -> None:
    sick = counts(GROUP, dict.fromkeys(GROUP.canary, 4))
    back = [one for one in counts(GROUP, {}) if one.phase is Phase.AFTER]
    assert judged(sick, back, XID).outcome is Outcome.PASS


def test_errors_that_went_on_were_not() -> None:
    sick = counts(GROUP, dict.fromkeys(GROUP.canary, 4))
    back = [one for one in sick if one.phase is Phase.AFTER]
    assert judged(sick, back, XID).outcome is Outcome.FAIL


def test_a_return_goes_to_json_and_back() -> None:
    found = judged(SLOW, returned(0.0))
    assert ReturnVerdict.from_json(found.to_json()) == found

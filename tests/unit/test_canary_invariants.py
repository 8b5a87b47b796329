"""What must not change a verdict, and what must never make it milder."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.canary_samples import HBM, XID, Draw, all_lose, cohorts, counts

from fleet.canary import judge_canary
from fleet.canary_cohorts import Cohorts
from fleet.canary_design import CanaryDesign
from fleet.canary_verdict import CanaryVerdict, Outcome
from fleet.measures import Better, Conditions, Measure, Phase, Sample

GROUP = cohorts(6, racks=3)
BOTH = CanaryDesign((HBM, XID))
LOSS = st.floats(0, 0.12)
SEED = st.integers(0, 10_000)
few = settings(max_examples=20, deadline=None)


def judged(samples: list[Sample], group: Cohorts = GROUP, *measures: Measure) -> CanaryVerdict:
    return judge_canary(CanaryDesign(measures or (HBM,)), group, samples, {}, 1)


def drawn(loss: float, seed: int) -> list[Sample]:
    return Draw(loss=all_lose(GROUP.canary, loss), seed=seed, gpus=2).samples(GROUP)


@few
@given(LOSS, SEED, st.floats(1e-6, 1e6))
def test_units_do_not_matter(loss: float, seed: int, factor: float) -> None:
    samples = drawn(loss, seed)
    scaled = [replace(one, value=one.value * factor) for one in samples if one.value is not None]
    one, other = judged(samples), judged(scaled)
    assert (one.outcome, one.why) == (other.outcome, other.why)
    assert one.measures[0].effect == pytest.approx(other.measures[0].effect, abs=1e-9)


@few
@given(LOSS, SEED)
def test_the_order_of_samples_does_not_matter(loss: float, seed: int) -> None:
    samples = [*drawn(loss, seed), *counts(GROUP, {"c01": 2, "c02": 1})]
    mixed = samples.copy()
    random.Random(seed).shuffle(mixed)
    one, other = (judge_canary(BOTH, GROUP, told, {}, 1) for told in (samples, mixed))
    assert (one.outcome, one.why, one.text) == (other.outcome, other.why, other.text)
    for left, right in zip(one.measures, other.measures, strict=True):
        assert left.effect == pytest.approx(right.effect, abs=1e-12)
        assert left.noise.run_to_run == pytest.approx(right.noise.run_to_run, abs=1e-12)


@few
@given(LOSS, SEED)
def test_a_rate_and_its_inverse_time_are_the_same_measure(loss: float, seed: int) -> None:
    samples = drawn(loss, seed)
    slower = replace(HBM, better=Better.LOWER)
    times = [replace(one, value=1 / one.value) for one in samples if one.value]
    one, other = judged(samples), judged(times, GROUP, slower)
    assert (one.outcome, one.why) == (other.outcome, other.why)
    assert one.measures[0].low == pytest.approx(other.measures[0].low, abs=1e-9)


@few
@given(LOSS, SEED)
def test_cohorts_that_are_swapped_have_the_opposite_effect(loss: float, seed: int) -> None:
    samples = drawn(loss, seed)
    swapped = replace(GROUP, canary=GROUP.control, control=GROUP.canary)
    one, other = judged(samples).measures[0], judged(samples, swapped).measures[0]
    if not any((one.notes, other.notes, one.cause.nodes, other.cause.nodes)):
        assert one.effect is not None
        assert other.effect == pytest.approx(1 / (1 + one.effect) - 1, abs=1e-9)


@few
@given(LOSS, st.floats(0, 0.2), SEED)
def test_a_larger_loss_of_all_is_never_judged_milder(loss: float, more: float, seed: int) -> None:
    order = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL)
    one, other = judged(drawn(loss, seed)), judged(drawn(1 - (1 - loss) * (1 - more), seed))
    assert order.index(other.outcome) >= order.index(one.outcome)


@few
@given(SEED, st.floats(0.05, 0.95), st.sampled_from(["canary", "control", "all"]), st.sampled_from([*Phase, None]))
def test_samples_that_go_missing_never_make_a_failed_canary_pass(
    seed: int, share: float, side: str, phase: Phase | None
) -> None:
    rng = random.Random(seed)
    nodes = {"canary": GROUP.canary, "control": GROUP.control, "all": (*GROUP.canary, *GROUP.control)}[side]
    samples = [*drawn(0.08, seed), *counts(GROUP, dict.fromkeys(GROUP.canary, 6))]

    def lost(one: Sample) -> bool:
        return one.node in nodes and phase in (None, one.phase) and rng.random() < share

    holes = [replace(one, value=None, missing="no answer") if lost(one) else one for one in samples]
    assert judge_canary(BOTH, GROUP, samples, {}, 1).outcome is Outcome.FAIL
    assert judge_canary(BOTH, GROUP, holes, {}, 1).outcome is not Outcome.PASS


@few
@given(SEED, st.floats(0, 0.1))
def test_a_sample_without_a_value_beside_complete_data_changes_no_outcome(seed: int, loss: float) -> None:
    samples = drawn(loss, seed)
    extra = replace(samples[-1], value=None, missing="timed out", run=7)
    assert judged([*samples, extra]).outcome is judged(samples).outcome


VALUES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.just(0.0), st.floats(1, 1e4))
CONDITIONS = st.builds(
    Conditions,
    st.sampled_from([None, (), ("hw_thermal",), ("SW Power Cap",), ("gpu_idle", "")]),
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    st.none(),
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    st.sampled_from([None, 0, 2]),
)
AT = Draw().samples(GROUP)[0].at
SAMPLES = st.lists(
    st.builds(
        Sample,
        st.sampled_from([*GROUP.canary, *GROUP.control, "stranger"]),
        st.sampled_from(["hbm", "xid", "other"]),
        st.sampled_from(list(Phase)),
        st.just(AT),
        VALUES,
        st.sampled_from([None, 0, 1]),
        st.integers(0, 2),
        st.sampled_from(["", "why"]),
        st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        CONDITIONS,
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(SAMPLES)
def test_whatever_comes_in_there_is_a_verdict_and_it_can_be_written(samples: list[Sample]) -> None:
    verdict = judge_canary(BOTH, GROUP, samples, {}, 1)
    assert verdict.outcome is not Outcome.PASS or not verdict.missing
    assert "NaN" not in verdict.to_json()
    assert CanaryVerdict.from_json(verdict.to_json()) == verdict

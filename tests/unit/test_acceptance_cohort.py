"""A part among its like: robust centre and scatter, small cohorts, ties, and what such a comparison cannot see."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.acceptance_cohort import CohortCall, CohortResult, Member, Standing, compare
from fleet.acceptance_parts import Part, PartKind
from fleet.acceptance_rules import CohortRule
from fleet.acceptance_scale import contradicts, found_with, off_by_chance, scale
from fleet.measures import Better

RULE = CohortRule()


def members(values: list[list[float]]) -> list[Member]:
    """By node and slot."""
    return [
        Member(Part(f"n{node}", PartKind.GPU, str(slot)), value)
        for node, row in enumerate(values)
        for slot, value in enumerate(row)
    ]


def grid(sd: float, nodes: int = 8, gpus: int = 8, seed: int = 1) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [[float(value) for value in 1000 * np.exp(rng.normal(0, sd, gpus))] for _ in range(nodes)]


def outliers(result: CohortResult) -> list[tuple[str, str]]:
    return [(node, slot) for (node, _, slot), peer in result.peers.items() if peer.standing is Standing.OUTLIER]


def judged(values: list[list[float]], better: Better = Better.HIGHER, rule: CohortRule = RULE) -> CohortResult:
    return compare(members(values), better, rule)


def test_one_slow_part_among_many_is_named_with_its_shortfall() -> None:
    values = grid(0.005)
    values[3][5] = 950.0
    result = judged(values)
    assert outliers(result) == [("n3", "5")]
    assert result.peers["n3", "gpu", "5"].shortfall == pytest.approx(0.05, abs=0.005)
    assert result.centre == pytest.approx(1000, rel=0.003)


def test_where_more_is_worse_the_slow_part_is_the_greater() -> None:
    values = [[10.0, 10.1, 9.9, 10.05, 11.0, 9.95, 10.0, 10.02], [10.0, 10.1, 9.9, 10.05, 8.0, 9.95, 10.0, 10.02]]
    result = judged(values, Better.LOWER)
    assert outliers(result) == [("n0", "4")]
    assert result.peers["n0", "gpu", "4"].shortfall == pytest.approx(0.1, abs=0.005)


def test_degrees_are_compared_by_their_difference() -> None:
    rule = CohortRule(margin=8.0, loss=15.0, noise=3.0, additive=True)
    result = judged([[60.0, 61.0, 59.0, 62.0, 80.0, 60.5, 58.0, 61.5]], Better.LOWER, rule)
    assert outliers(result) == [("n0", "4")]
    assert result.peers["n0", "gpu", "4"].shortfall == pytest.approx(19.25)


def test_several_faulty_parts_do_not_hide_each_other() -> None:
    values = grid(0.005)
    for node in range(8):
        values[node][node] *= 0.93
    assert len(outliers(judged(values))) == 8


def test_a_gpu_that_is_slow_among_its_siblings_is_found_though_its_node_is_fast() -> None:
    values = grid(0.003)
    values[2] = [value * 1.02 for value in values[2]]
    values[2][6] = 1000 * 0.985
    assert outliers(judged(values)) == [("n2", "6")]


def test_equal_values_have_no_scatter_and_no_outlier() -> None:
    result = judged([[1000.0] * 8] * 2)
    assert (result.spread, outliers(result), result.call) == (0.0, [], CohortCall.COMPARED)


def test_among_equal_values_the_margin_decides() -> None:
    assert outliers(judged([[1000.0] * 7 + [985.0]])) == []
    assert outliers(judged([[1000.0] * 7 + [960.0]])) == [("n0", "7")]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_values_are_compared_with_nothing(count: int) -> None:
    result = judged([[1000.0, 500.0, 900.0][:count]])
    assert (result.call, dict(result.peers)) == (CohortCall.TOO_SMALL, {})
    assert f"{count} of at least 4" in result.text


def test_a_cohort_of_four_finds_8_percent() -> None:
    assert outliers(judged([[1000.0, 1003.0, 997.0, 920.0]])) == [("n0", "3")]


@pytest.mark.parametrize("value", [0.0, -5.0, nan, inf])
def test_a_value_that_is_none_is_named_and_left_out(value: float) -> None:
    result = judged([[1000.0, 1001.0, 999.0, 1002.0, value]])
    assert (result.size, result.expected, result.complete) == (4, 5, False)
    assert "n0 gpu 4" in result.missing[0]


def test_a_cohort_that_scatters_too_much_judges_nothing_and_says_what_could_hide() -> None:
    result = judged(grid(0.04))
    assert result.call is CohortCall.UNEVEN
    assert "could hide" in result.text
    assert result.found is not None
    assert result.found > 0.1


def test_a_cohort_whose_majority_is_slow_is_split() -> None:
    values = grid(0.003)
    for node in range(5):
        values[node] = [value * 0.92 for value in values[node]]
    result = judged(values)
    assert result.call is CohortCall.SPLIT
    assert "24 are better" in result.text


def test_two_nodes_that_differ_tell_not_which_is_right() -> None:
    values = grid(0.002, nodes=2)
    values[1] = [value * 0.95 for value in values[1]]
    assert judged(values).call is CohortCall.SPLIT


def test_a_slow_node_and_a_slow_slot_are_told_from_slow_parts() -> None:
    values = grid(0.003)
    values[4] = [value * 0.95 for value in values[4]]
    result = judged(values)
    assert list(result.slow_nodes) == ["n4"]
    assert outliers(result) == []
    values = grid(0.003)
    for row in values:
        row[6] *= 0.95
    result = judged(values)
    assert list(result.slow_places) == ["6"]
    assert outliers(result) == []


def test_the_verdict_does_not_depend_on_the_order_of_values() -> None:
    values = grid(0.006)
    values[1][1] = 940.0
    forward = compare(members(values), Better.HIGHER, RULE)
    backward = compare(list(reversed(members(values))), Better.HIGHER, RULE)
    assert dict(forward.peers) == dict(backward.peers)
    assert forward.limit == backward.limit


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e9])
def test_the_verdict_does_not_depend_on_the_unit(factor: float) -> None:
    values = grid(0.006)
    values[1][1] = 940.0
    result = judged([[value * factor for value in row] for row in values])
    assert outliers(result) == [("n1", "1")]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8, 9, 16, 33, 64, 700])
def test_the_scatter_is_right_on_average_in_every_size(count: int) -> None:
    rng = np.random.default_rng(count)
    draws = [scale(list(rng.normal(5, 2, count))) for _ in range(60 if count > 100 else 3000)]
    assert float(np.mean(draws)) == pytest.approx(2.0, rel=0.05)


def test_a_quarter_of_wild_values_hardly_moves_the_scatter() -> None:
    rng = np.random.default_rng(7)
    wild = [*rng.normal(0, 1, 48), *rng.normal(-50, 1, 16)]
    assert scale(wild) < 2.0


def test_one_value_alone_has_no_scatter() -> None:
    with pytest.raises(ValueError, match="one value"):
        scale([1.0])


@pytest.mark.parametrize("count", [4, 6, 8, 12, 24, 64])
def test_healthy_values_are_beyond_the_limit_no_oftener_than_stated(count: int) -> None:
    """With 10 % stated, so that it can be seen; the assumed scatter is far off, so that the cohort's own decides."""
    rng = np.random.default_rng(count)
    alarms = 0
    for _ in range(2000):
        values = rng.normal(0, 1, count)
        off = float(np.median(values) - values.min())
        alarms += off > off_by_chance(count, 0.1, scale(list(values)), 1e9)
    assert alarms / 2000 < 0.1


def test_a_scatter_that_contradicts_the_assumption_is_taken_as_it_is() -> None:
    assert contradicts(64, 0.02, 0.01)
    assert not contradicts(64, 0.011, 0.01)
    assert off_by_chance(64, 0.01, 0.02, 0.01) > off_by_chance(64, 0.01, 0.011, 0.01)


def test_what_is_found_grows_with_scatter_and_power() -> None:
    assert found_with(0.5, 0.03, 0.01) == pytest.approx(0.03)
    assert found_with(0.95, 0.03, 0.01) == pytest.approx(0.0464, abs=1e-4)


@given(st.lists(st.lists(st.floats(), min_size=1, max_size=8), max_size=6), st.booleans(), st.sampled_from(Better))
def test_whatever_the_values_are_every_part_stands_somewhere_or_is_named(
    values: list[list[float]], additive: bool, better: Better
) -> None:
    rule = CohortRule(additive=additive)
    listed = members(values)
    result = compare(listed, better, rule)
    named = result.size if result.call is CohortCall.TOO_SMALL else len(result.peers)
    assert named + len(result.missing) == len(listed) == result.expected
    assert sum(peer.standing is Standing.OUTLIER for peer in result.peers.values()) <= max(len(listed) - 1, 0)


def test_a_scatter_beyond_what_was_assumed_accuses_hardly_any_healthy_rack() -> None:
    alarms = 0
    for seed in range(300):
        levels = np.exp(np.random.default_rng(seed).normal(0, 0.012, 8))
        values = [[value * level for value in row] for row, level in zip(grid(0.016, seed=seed), levels, strict=True)]
        result = judged(values)
        alarms += bool(outliers(result) or result.slow_nodes or result.slow_places)
    assert alarms <= 8


def test_a_slow_node_of_three_is_named_where_the_scatter_contradicts_the_assumption() -> None:
    values = grid(0.004, nodes=3)
    values[1] = [value * 0.92 for value in values[1]]
    result = judged(values, rule=CohortRule(noise=0.0005))
    assert list(result.slow_nodes) == ["n1"]
    assert outliers(result) == []


def test_healthy_parts_beside_a_slow_node_are_judged_by_their_own_scatter() -> None:
    calls = []
    for seed in range(40):
        values = grid(0.009, seed=seed)
        values[4] = [value * 0.94 for value in values[4]]
        calls.append(judged(values).call)
    assert calls.count(CohortCall.COMPARED) >= 38

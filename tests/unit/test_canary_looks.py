"""Several looks spend one error rate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from fleet.canary_design import CanaryDesign, accepted_ratio
from fleet.canary_looks import nominal_levels, spent
from fleet.errors import ConfigurationError
from fleet.measures import Better, Measure, MeasureKind

HBM = Measure("hbm", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)


def test_one_look_has_the_whole_level() -> None:
    assert nominal_levels(0.01, (1.0,)) == pytest.approx((0.01,))


def test_five_looks_have_the_published_boundaries() -> None:
    # Jennison & Turnbull (2000), Lan-DeMets with the O'Brien-Fleming-like function, two-sided 0.05, five equal looks.
    bounds = [-float(ndtri(level)) for level in nominal_levels(0.025, (0.2, 0.4, 0.6, 0.8, 1.0))]
    assert bounds == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.01)


def test_little_is_spent_early_and_all_at_the_end() -> None:
    assert spent(0.01, 0.0) == 0.0
    assert spent(0.01, 0.3) < 0.0001 < spent(0.01, 0.7) < 0.01 == spent(0.01, 1.0)


def test_a_look_that_brings_nothing_new_has_the_level_of_the_one_before() -> None:
    first, again = nominal_levels(0.01, (0.5, 0.5))
    assert first == again


def test_a_skipped_look_leaves_its_error_to_the_next() -> None:
    assert nominal_levels(0.01, (0.8, 1.0))[0] > nominal_levels(0.01, (0.4, 0.8, 1.0))[1]


def test_four_looks_at_noise_cross_no_more_often_than_stated() -> None:
    looks = (0.25, 0.5, 0.75, 1.0)
    steps = np.random.default_rng(1).normal(size=(200_000, 4)) / 2
    scores = steps.cumsum(axis=1) / np.sqrt(looks)
    bounds = np.array([-ndtri(level) for level in nominal_levels(0.05, looks)])
    assert float((scores > bounds).any(axis=1).mean()) == pytest.approx(0.05, abs=0.002)


@pytest.mark.parametrize(
    ("looks", "said"),
    [((0.5,), "the last 1"), ((), "the last 1"), ((0.6, 0.4, 1.0), "ascend"), ((-1.0, 1.0), "the last 1")],
)
def test_looks_that_cannot_be_are_refused(looks: tuple[float, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        CanaryDesign((HBM,), looks=looks)


def test_a_measure_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        CanaryDesign((HBM, HBM))


def test_a_rate_of_error_above_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="alpha"):
        CanaryDesign((HBM,), alpha=1.5)


def test_a_counts_margin_is_a_ratio_or_what_it_exceeds_one_by() -> None:
    count = Measure("xid", "events", Better.LOWER, MeasureKind.COUNT, 3.0)
    assert accepted_ratio(count) == 3.0
    assert accepted_ratio(Measure("xid", "events", Better.LOWER, MeasureKind.COUNT)) == 1.02

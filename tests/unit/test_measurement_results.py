"""What people read of a measurement: a row for each node and measure, gaps with their reasons."""

from __future__ import annotations

from datetime import UTC, datetime

from fleet.measurement_results import measured_rows, missing_reasons, missing_words
from fleet.measures import Conditions, Phase, Sample

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def sample(value: float | None, gpu: int = 0, missing: str = "", *throttled: str, node: str = "gpu-0001") -> Sample:
    slowed = Conditions(throttled=throttled or None)
    return Sample(node, "hbm_bandwidth", Phase.BEFORE, NOW, value, gpu, 0, missing, conditions=slowed)


def test_a_row_is_over_all_gpus_and_runs_of_a_node() -> None:
    (row,) = measured_rows([sample(100.0), sample(110.0, 1), sample(98.0)])
    assert (row.node, row.measure, row.median, row.spread, row.values) == ("gpu-0001", "hbm_bandwidth", 100.0, 0.12, 3)


def test_each_node_has_a_row_of_its_own_in_the_samples_order() -> None:
    rows = measured_rows([sample(1.0, node="b"), sample(2.0, node="a"), sample(3.0, node="b")])
    assert [(row.node, row.values) for row in rows] == [("b", 2), ("a", 1)]


def test_a_missing_value_is_no_zero_and_keeps_its_reason() -> None:
    (row,) = measured_rows([sample(None, 0, "not installed"), sample(None, 1, "not installed"), sample(None, 2)])
    assert (row.median, row.spread, row.values) == (None, None, 0)
    assert row.missing == (("not installed", 2), ("no value", 1))


def test_a_median_of_zero_has_no_spread() -> None:
    (row,) = measured_rows([sample(0.0), sample(0.0)])
    assert (row.median, row.spread) == (0.0, None)


def test_what_slowed_any_value_is_named_once() -> None:
    (row,) = measured_rows([sample(1.0, 0, "", "hw_thermal"), sample(1.0, 1, "", "hw_thermal", "sw_power_cap")])
    assert row.slowed == ("hw_thermal", "sw_power_cap")


def test_the_commonest_reasons_are_told_and_the_others_counted() -> None:
    gaps = [sample(None, 0, reason) for reason in ("a", "b", "b", "c", "d")]
    assert missing_words(missing_reasons(gaps)) == "5 missing: b; a; and 2 other reasons"
    assert missing_words(()) == ""

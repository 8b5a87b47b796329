"""Heat and errors by day and month: counters by their growth, and what was not read is no zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import part_history
from fleet.part_history import By, HistoryRow

START = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Numbers:
    """A span of readings."""

    at: datetime
    count: int
    minimum: float
    mean: float
    maximum: float
    last: float


def rows_of(series: dict[str, list[Numbers]], by: By) -> tuple[HistoryRow, ...]:
    return part_history.rows_of(lambda name: series.get(name, []), by)


def each(*values: float, every: timedelta = timedelta(hours=1)) -> list[Numbers]:
    """One reading at a time, from two hours before midnight on."""
    return [Numbers(START + number * every, 1, v, v, v, v) for number, v in enumerate(values)]


def values(rows: tuple[HistoryRow, ...], column: str) -> dict[str, float | None]:
    return {row.period: row.values[column] for row in rows}


def test_the_greatest_heat_of_each_day_and_of_the_month() -> None:
    series = {"temperature_gpu_celsius": each(61, 70, 55, 52)}
    assert values(rows_of(series, By.DAY), "temperature_max_celsius") == {"2026-11-29": 70, "2026-11-30": 55}
    assert values(rows_of(series, By.MONTH), "temperature_max_celsius") == {"2026-11": 70}


def test_the_least_margin_counts_where_no_temperature_is_told() -> None:
    (row,) = rows_of({"temperature_margin_celsius": each(30, 12, 25)}, By.TOTAL)
    assert (row.values["temperature_margin_min_celsius"], row.values["temperature_max_celsius"]) == (12, None)


def test_errors_of_a_day_are_what_its_counter_grew_since_the_day_before() -> None:
    rows = rows_of({"ecc_aggregate_correctable": each(100, 103, 110, 111)}, By.DAY)
    assert values(rows, "ecc_correctable") == {"2026-11-29": 3, "2026-11-30": 8}


def test_a_counter_that_was_reset_goes_on_from_nothing() -> None:
    rows = rows_of({"ecc_volatile_uncorrectable": each(5, 6, 0, 2)}, By.TOTAL)
    assert values(rows, "ecc_uncorrectable") == {"all": 3}


def test_a_span_of_hours_counts_from_its_least_to_its_last_value() -> None:
    hours = [Numbers(START, 60, 10, 12, 15, 15), Numbers(START + timedelta(hours=1), 60, 15, 16, 18, 18)]
    assert values(rows_of({"ecc_aggregate_correctable": hours}, By.TOTAL), "ecc_correctable") == {"all": 8}


def test_xids_are_added_up_whatever_tier_they_are_in() -> None:
    told = [*each(0, 2), Numbers(START + timedelta(hours=3), 120, 0, 3 / 120, 2, 0)]
    assert values(rows_of({"xid_count": told}, By.DAY), "xids") == {"2026-11-29": 2, "2026-11-30": 3}


def test_slowdown_is_told_in_seconds() -> None:
    rows = rows_of({"counter_hw_thermal_slowdown_us": each(0, 2_500_000)}, By.TOTAL)
    assert values(rows, "hot_seconds") == {"all": 2.5}


def test_the_counter_that_outlives_a_reboot_is_preferred() -> None:
    series = {"ecc_aggregate_correctable": each(7, 8), "ecc_volatile_correctable": each(0, 100)}
    assert values(rows_of(series, By.TOTAL), "ecc_correctable") == {"all": 1}


def test_what_was_not_read_is_no_zero() -> None:
    assert rows_of({}, By.DAY) == ()
    (row,) = rows_of({"xid_count": each(0)}, By.TOTAL)
    assert row.values["xids"] == 0
    assert {value for name, value in row.values.items() if name != "xids"} == {None}


@pytest.mark.parametrize("by", list(By))
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_growth_is_never_negative_and_no_more_than_all_that_was_shown(by: By, shown: list[int]) -> None:
    rows = rows_of({"ecc_aggregate_correctable": each(*shown)}, by)
    grown = [value for row in rows if (value := row.values["ecc_correctable"]) is not None]
    assert all(value >= 0 for value in grown)
    assert sum(grown) <= sum(shown)

"""Maintenance windows in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleet.windows import next_open, parse_window

SATURDAY_0300 = datetime(2026, 11, 28, 3, 0, tzinfo=UTC)


def test_a_window_on_saturday_is_open_on_saturday_only() -> None:
    window = parse_window("Sat 02:00-06:00")
    assert window.contains(SATURDAY_0300)
    assert not window.contains(SATURDAY_0300.replace(day=27))


def test_a_window_over_midnight_is_still_open_on_the_next_day() -> None:
    window = parse_window("Fri 22:00-04:00")
    assert window.contains(SATURDAY_0300)
    assert not window.contains(SATURDAY_0300.replace(hour=4))


def test_the_end_of_a_window_is_outside_it() -> None:
    assert not parse_window("Sat 02:00-03:00").contains(SATURDAY_0300)


def test_a_closed_window_says_when_it_opens() -> None:
    assert next_open(("Sat 02:00-06:00",), SATURDAY_0300.replace(hour=7)) == datetime(2026, 12, 5, 2, 0, tzinfo=UTC)


def test_the_first_of_several_windows_counts() -> None:
    opens = next_open(("Sun 01:00-02:00", "Sat 20:00-21:00"), SATURDAY_0300)
    assert opens == SATURDAY_0300.replace(hour=20)


def test_without_windows_it_is_always_open() -> None:
    assert next_open((), SATURDAY_0300) == SATURDAY_0300


def test_days_may_be_a_range_over_the_weekend() -> None:
    assert parse_window("Fri-Mon 00:00-00:00").days == frozenset({4, 5, 6, 0})


@pytest.mark.parametrize("text", ["Sat", "25:00-26:00", "Sut 01:00-02:00", "01:00", "Sat 1:00-2:00"])
def test_what_is_not_a_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"window|hour|weekdays"):
        parse_window(text)

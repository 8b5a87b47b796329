"""When a visit looks again at what takes its time, and when visits that could all begin now do begin."""

from __future__ import annotations

import pytest
from unit.ledger_tools import FakeClock

from tasks.pace import Pace, Spread


def looks_until(event: float, expected: float, poll: float = 2.0) -> list[float]:
    """The moments of all looks, the last of which sees the event."""
    clock = FakeClock()
    began, pace, looks = clock.monotonic(), Pace(clock, poll, expected), [0.0]
    while looks[-1] < event:
        pace.sleep()
        looks.append(clock.monotonic() - began)
    return looks


@pytest.mark.parametrize("event", [26.0, 27.5, 29.0, 30.0, 30.1, 31.7, 33.0, 34.4])
def test_what_ends_about_when_it_should_is_seen_within_a_quarter_of_a_poll(event: float) -> None:
    assert looks_until(event, expected=30.0)[-1] - event <= 0.5 + 1e-9


def test_until_then_it_is_looked_at_rarely() -> None:
    assert len([look for look in looks_until(30.0, expected=30.0) if look < 25.5]) <= 7
    assert len([look for look in looks_until(600.0, expected=600.0, poll=10.0) if look < 510]) <= 25


@pytest.mark.parametrize("event", [41.3, 90.0, 500.0])
def test_what_is_overdue_is_looked_at_once_a_poll(event: float) -> None:
    looks = looks_until(event, expected=30.0)
    assert looks[-1] - event <= 2.0 + 1e-9
    assert len(looks) <= 40 + event / 2


def test_what_should_take_no_time_is_looked_at_often_and_then_once_a_poll() -> None:
    looks = looks_until(20.0, expected=0.0)
    assert looks[1] <= 0.25
    assert looks[-1] - looks[-2] == pytest.approx(2.0)


def test_visits_of_a_short_wave_begin_soon_and_those_of_a_long_one_farther_apart() -> None:
    clock = FakeClock()
    short, long = Spread(clock, 1), Spread(clock, 14)
    assert short.next() == long.next() == clock.monotonic()
    for _ in range(79):
        last_short, last_long = short.next(), long.next()
    assert last_short - clock.monotonic() == pytest.approx(79 / 16)
    assert last_long - clock.monotonic() == pytest.approx(79 / 8)


def test_a_visit_after_a_pause_begins_at_once() -> None:
    clock = FakeClock()
    spread = Spread(clock, 14)
    spread.next()
    clock.sleep(5)
    assert spread.next() == clock.monotonic()

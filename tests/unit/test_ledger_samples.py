"""Numbers over time: exact while raw, summed up truly afterwards, never made up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.knowledge_tools import gpu, reading
from unit.ledger_tools import FakeClock

from fleet.errors import PreconditionError
from ledger import Ledger, Point, Tiers, rates
from ledger.sample_codec import Summary, combine, pack, pack_summary, pick, summarise, unpack, unpack_summary

pytest_plugins = ("unit.ledger_fixtures",)

HOUR = timedelta(hours=1)
LONG_AGO, FAR_AWAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def sweep(ledger: Ledger, clock: FakeClock, node: str, numbers: Mapping[str, float | None], serial: str = "S1") -> None:
    """One reading now: the numbers are the GPU's; the node's own are always load 1."""
    told = reading(node, clock.now(), gpu("0000:3b:00.0", serial, numbers=numbers), numbers={"load": 1.0})
    ledger.facts.record([told])


def everything(ledger: Ledger, subject: str, name: str, source: str = "probe") -> tuple[Point, ...]:
    return ledger.samples.series(subject, name, LONG_AGO, FAR_AWAY, source)


def lasts(ledger: Ledger, subject: str, name: str) -> list[float]:
    return [point.last for point in everything(ledger, subject, name)]


def test_raw_numbers_come_back_as_they_were_read(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    for value in (61.5, None, 2.0**53, math.nan, math.inf, 0.0):
        sweep(ledger, clock, "a", {"power_watts": value})
        clock.sleep(30)
    points = everything(ledger, "S1", "power_watts")
    assert [point.last for point in points] == [61.5, 2.0**53, 0.0]
    assert [(point.at - start).total_seconds() for point in points] == [0, 60, 150]
    assert {(point.count, point.span) for point in points} == {(1, timedelta())}
    assert len(everything(ledger, "a", "load")) == 6


def test_a_slot_a_part_and_a_node_are_asked_alike(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, "a", {"t": 40.0})
    assert lasts(ledger, "a/0000:3b:00.0", "t") == lasts(ledger, "gpu:S1", "t") == [40.0]
    assert lasts(ledger, "a", "t") == lasts(ledger, "a/5d", "t") == lasts(ledger, "S1", "never") == []
    assert everything(ledger, "a", "load", source="bmc") == ()
    with pytest.raises(PreconditionError, match="no part"):
        everything(ledger, "nobody", "load")


def test_only_the_asked_time_is_given_its_end_excluded(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    for value in range(5):
        sweep(ledger, clock, "a", {"t": float(value)})
        clock.sleep(30)
    points = ledger.samples.series("S1", "t", start + timedelta(seconds=30), start + timedelta(seconds=90))
    assert [point.last for point in points] == [1.0, 2.0]


def test_a_parts_numbers_follow_it_into_another_node(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, "a", {"t": 1.0})
    clock.sleep(60)
    sweep(ledger, clock, "a", {"t": 2.0}, "S2")
    clock.sleep(7200)
    sweep(ledger, clock, "b", {"t": 3.0})
    assert lasts(ledger, "S1", "t") == [1.0, 3.0]
    assert lasts(ledger, "S2", "t") == [2.0]


def test_numbers_that_come_later_find_room_and_nodes_alike_share_a_layout(ledger: Ledger, clock: FakeClock) -> None:
    for value in (1.0, 2.0):
        sweep(ledger, clock, "a", {"t": value})
        sweep(ledger, clock, "b", {"t": value}, "S2")
        clock.sleep(30)
    sweep(ledger, clock, "a", {"a": 7.0, "t": 3.0})
    clock.sleep(30)
    sweep(ledger, clock, "a", {"t": 4.0})
    assert (lasts(ledger, "S1", "t"), lasts(ledger, "S1", "a")) == ([1.0, 2.0, 3.0, 4.0], [7.0])
    again = Ledger.open(ledger._database.name, clock) if ledger._database.sqlite else ledger
    assert lasts(again, "S2", "t") == [1.0, 2.0]


def fill(ledger: Ledger, clock: FakeClock, hours: int) -> None:
    """Four sweeps an hour; the number is hour + quarter / 4, the counter grows by one each."""
    for quarter in range(hours * 4):
        numbers = {"t": quarter / 4, "errors": float(quarter), "late": 1.0 if quarter >= 6 else None}
        sweep(ledger, clock, "a", numbers)
        clock.sleep(900)


def test_an_hour_that_is_over_becomes_one_row_and_raw_is_kept_as_long_as_told(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    fill(ledger, clock, 6)
    before = everything(ledger, "S1", "t")
    clock.sleep(900)
    tiers = Tiers(raw=2 * HOUR, hourly=timedelta(days=5))
    thinned = ledger.retention.thin(tiers)
    assert (thinned.hours, thinned.deleted, thinned.done) == (6, 16, True)
    points = everything(ledger, "S1", "t")
    assert points[4:] == before[16:]
    assert points[1] == Point(start + HOUR, HOUR, 4, 1.0, 1.375, 1.75, 1.75)
    assert [point.count for point in everything(ledger, "S1", "late")] == [2, 4, 4, *[1] * 8]
    assert ledger.retention.thin(tiers).hours == 0


def test_days_are_made_of_hours_and_all_tiers_are_read_together(ledger: Ledger, clock: FakeClock) -> None:
    fill(ledger, clock, 72)
    clock.sleep(900)
    tiers = Tiers(raw=3 * HOUR, hourly=timedelta(days=1))
    ledger.retention.thin(tiers)
    points = everything(ledger, "S1", "errors")
    spans = [point.span for point in points]
    assert spans == sorted(spans, reverse=True)
    assert set(spans) == {timedelta(days=1), HOUR, timedelta()}
    assert sum(point.count for point in points) == 72 * 4
    assert points[0].last == points[1].minimum - 1
    assert [rate.per_second for rate in rates(points)] == [pytest.approx(1 / 900, rel=0.02)] * (len(points) - 1)
    clock.sleep(86400 * 500)
    assert ledger.retention.thin(tiers).done
    assert everything(ledger, "S1", "errors") == ()


def test_thinning_goes_in_bounded_steps_and_never_deletes_what_is_not_rolled_up(
    ledger: Ledger, clock: FakeClock
) -> None:
    fill(ledger, clock, 30)
    clock.sleep(86400 * 3)
    total, calls, done = 30 * 4, 0, False
    while not done:
        done = ledger.retention.thin(Tiers(raw=HOUR, hourly=timedelta(days=9)), most_batches=3).done
        assert sum(point.count for point in everything(ledger, "S1", "t")) == total
        calls += 1
    assert calls > 10
    assert {point.span for point in everything(ledger, "S1", "t")} == {HOUR}


def test_a_sample_of_an_hour_that_is_rolled_up_is_refused_and_said_so(ledger: Ledger, clock: FakeClock) -> None:
    fill(ledger, clock, 2)
    clock.sleep(3600)
    ledger.retention.thin()
    told = reading("b", clock.now() - 2 * HOUR, facts={"x": "1"}, numbers={"load": 1.0})
    assert "rolled up" in ledger.facts.record([told]).skipped["b"]
    assert (lasts(ledger, "b", "load"), ledger.facts.current(["b"])[0].known.facts) == ([], {"x": "1"})


def test_numbers_are_not_audited(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, "a", {"t": 1.0})
    head = ledger.audit.head()
    clock.sleep(30)
    sweep(ledger, clock, "a", {"t": 2.0})
    ledger.retention.thin()
    assert ledger.audit.head() == head


def test_a_counter_that_was_reset_has_no_rate_there_and_never_a_negative_one() -> None:
    def raw(second: int, value: float) -> Point:
        return Point(LONG_AGO + timedelta(seconds=second), timedelta(), 1, value, value, value, value)

    found = rates([raw(0, 5.0), raw(10, 25.0), raw(20, 3.0), raw(30, 3.0)])
    assert [rate.per_second for rate in found] == [2.0, None, 0.0]
    hidden = Point(LONG_AGO + HOUR, HOUR, 4, 0.0, 20.0, 40.0, 40.0)
    assert [rate.per_second for rate in rates([raw(0, 25.0), hidden])] == [None]
    assert rates([raw(0, 1.0)]) == ()


numbers = st.lists(st.one_of(st.just(math.nan), st.floats(-1e30, 1e30)), min_size=1, max_size=9)


def same(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


@given(numbers)
def test_a_block_gives_back_every_number(values: list[float]) -> None:
    block = pack(values)
    assert all(same(*pair) for pair in zip(unpack(block), values, strict=True))
    assert all(same(pick(block, [index])[0], value) for index, value in enumerate(values))


@given(st.lists(st.lists(st.one_of(st.just(math.nan), st.integers(-999, 999)), min_size=2, max_size=2), min_size=1))
def test_a_span_says_of_its_samples_what_is_true(rows: list[list[float]]) -> None:
    whole = summarise(rows)
    halves: list[Summary] = [summarise(part) for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]) if part]
    for made in (combine(halves), unpack_summary(pack_summary(whole))):
        for column in range(2):
            there = [row[column] for row in rows if row[column] == row[column]]
            assert made.counts[column] == len(there)
            if there:
                assert (made.minima[column], made.maxima[column]) == (min(there), max(there))
                assert made.lasts[column] == there[-1]
                assert math.isclose(made.means[column], sum(there) / len(there), rel_tol=1e-5, abs_tol=1e-4)

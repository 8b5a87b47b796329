"""What a GPU's numbers come to in a day, a month or a whole time: how hot it was, and how many errors it had.

Counters are taken by how much they grew. One that goes backwards was reset (a reboot, a new driver): what it shows
then has grown since. What grew between the last look and the reset nobody knows, so a growth is a least value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Span(Protocol):
    """Numbers read from `at` on: how many, the least, mean and greatest of them, and the last. See ledger.Point."""

    @property
    def at(self) -> datetime: ...
    @property
    def count(self) -> int: ...
    @property
    def minimum(self) -> float: ...
    @property
    def mean(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def last(self) -> float: ...


class Measure(StrEnum):
    """What a number's spans come to."""

    GREATEST = "greatest"
    LEAST = "least"
    GROWTH = "growth"  # of a counter
    SUM = "sum"  # of what each reading counted by itself


class By(StrEnum):
    """One row for a day (UTC), a month, or everything."""

    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Told:
    """A column: its measure, and the numbers it is made of. Of `names` the first that was read counts.

    `times` turns the number's unit into the column's.
    """

    measure: Measure
    names: tuple[str, ...]
    times: float = 1.0


COLUMNS: Mapping[str, Told] = {
    "temperature_max_celsius": Told(Measure.GREATEST, ("temperature_gpu_celsius",)),
    "temperature_margin_min_celsius": Told(Measure.LEAST, ("temperature_margin_celsius",)),
    "memory_temperature_max_celsius": Told(Measure.GREATEST, ("temperature_memory_celsius",)),
    "ecc_correctable": Told(Measure.GROWTH, ("ecc_aggregate_correctable", "ecc_volatile_correctable")),
    "ecc_uncorrectable": Told(Measure.GROWTH, ("ecc_aggregate_uncorrectable", "ecc_volatile_uncorrectable")),
    "remapped_rows": Told(Measure.GROWTH, ("remapped_rows_uncorrectable",)),
    "xids": Told(Measure.SUM, ("xid_count",)),
    "hot_seconds": Told(Measure.GROWTH, ("counter_hw_thermal_slowdown_us",), 1e-6),
}
"""What is told of a GPU. `hot_seconds` is how long its hardware slowed it down for heat."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One period ("2026-11-30", "2026-11", "all") of one part; None is "not read", never zero."""

    period: str
    values: Mapping[str, float | None] = field(default_factory=dict)


def rows_of(read: Callable[[str], Sequence[Span]], by: By) -> tuple[HistoryRow, ...]:
    """The periods in which anything was read, oldest first. `read` gives the spans of a number, oldest first."""
    columns = {name: _column(told, read, by) for name, told in COLUMNS.items()}
    periods = sorted({period for column in columns.values() for period in column})
    return tuple(
        HistoryRow(period, {name: column.get(period) for name, column in columns.items()}) for period in periods
    )


def _column(told: Told, read: Callable[[str], Sequence[Span]], by: By) -> dict[str, float]:
    spans = next((found for name in told.names if (found := read(name))), ())
    if told.measure is Measure.GROWTH:
        values = _growth(spans, by)
    else:
        values = {}
        for span in spans:
            period = _period(span.at, by)
            values[period] = _joined(told.measure, values.get(period), span)
    return {period: round(value * told.times, 3) for period, value in values.items()}


def _joined(measure: Measure, before: float | None, span: Span) -> float:
    if measure is Measure.GREATEST:
        return span.maximum if before is None else max(before, span.maximum)
    if measure is Measure.LEAST:
        return span.minimum if before is None else min(before, span.minimum)
    return (before or 0.0) + round(span.mean * span.count)


def _growth(spans: Iterable[Span], by: By) -> dict[str, float]:
    values: dict[str, float] = {}
    last: float | None = None
    for span in spans:
        start = span.minimum if last is None else last
        grown = span.last - start if span.minimum >= start else span.last
        period = _period(span.at, by)
        values[period] = values.get(period, 0.0) + max(grown, 0.0)
        last = span.last
    return values


def _period(at: datetime, by: By) -> str:
    if by is By.TOTAL:
        return "all"
    day = at.date().isoformat()
    return day if by is By.DAY else day[:7]

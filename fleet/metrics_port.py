"""A metrics server as the domain sees it: series of points, and whether an answer is whole."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Series:
    """One series. `times` are seconds since 1970 in UTC, ascending; `values` may hold NaN and infinities."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class MetricsAnswer:
    """What a query gave. `partial`: some store of the server did not answer, so what is missing is not absent.

    `warnings` and `infos` are the server's own words.
    """

    series: tuple[Series, ...] = ()
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    partial: bool = False


class Metrics(Protocol):
    """A server that kept measurements: Prometheus, or what speaks its HTTP API.

    All methods raise NodeUnreachable (no answer), TransientError (it asks to wait, or a query timed out),
    CredentialsRejected, or ConfigurationError (address, TLS, a query that it does not take): none is "no data".
    """

    def read_instant(self, query: str, at: datetime) -> MetricsAnswer:
        """The query's value at one moment; a range selector gives the points as they were scraped."""
        ...

    def read_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> MetricsAnswer:
        """The query at `start`, every `step` after it, up to `end`, however many points these are."""
        ...

    def read_series(self, selectors: Iterable[str], start: datetime, end: datetime) -> MetricsAnswer:
        """The series, without points, that any selector fits and that have points in the time."""
        ...

    def read_names(self, selectors: Iterable[str], start: datetime, end: datetime) -> frozenset[str] | None:
        """The names of metrics among these series; None where the answer was partial."""
        ...


def joined(answers: Iterable[MetricsAnswer]) -> MetricsAnswer:
    """Answers for following times as one: series with the same labels are put behind each other."""
    found: dict[frozenset[tuple[str, str]], list[Series]] = {}
    warnings: dict[str, None] = {}
    infos: dict[str, None] = {}
    partial = False
    for answer in answers:
        for series in answer.series:
            found.setdefault(frozenset(series.labels.items()), []).append(series)
        warnings |= dict.fromkeys(answer.warnings)
        infos |= dict.fromkeys(answer.infos)
        partial = partial or answer.partial
    return MetricsAnswer(tuple(_behind(parts) for parts in found.values()), tuple(warnings), tuple(infos), partial)


def _behind(parts: list[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    return pointed(parts[0].labels, (pair for one in parts for pair in zip(one.times, one.values, strict=True)))


def pointed(labels: Mapping[str, str], points: Iterable[tuple[float, float]]) -> Series:
    """A series of these points, in the order of time; of two at one time the later one. It takes 16 bytes a point."""
    by_time = dict(points)
    times = array("d", sorted(by_time))
    return Series(labels, times, array("d", [by_time[time] for time in times]))

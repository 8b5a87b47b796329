"""Points of one GPU's series: which of them are known, and one line of points out of several series.

DCGM writes "no value" as a very large number (fleet/readers/dcgm_metrics.py has them with their source). A point that
is such a number, negative, above what can be real, or no number is unknown: it is left out, and it is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleet.metrics_port import Series
from fleet.readers.dcgm_metrics import blank_reason
from fleet.series_catalog import MetricName

Floats = NDArray[np.float64]

_LEAST_BLANK = 2_000_000.0  # the 32-bit blank by a thousand is the least that a blank can become
_INT32_BLANKS = tuple(float(0x7FFFFFF0 + offset) for offset in range(4))
_INT32_SCALES = (1.0, 100.0, 1e3, 1e6, 1024.0, 1024.0**2, 1e-3)
_SAME = 0.05  # two sources of one level may differ by this share


@dataclass(frozen=True, slots=True)
class Points:
    """Known points: `times` in seconds since 1970, ascending and each once. `unknown` points were left out."""

    times: Floats = field(default_factory=lambda: np.empty(0))
    values: Floats = field(default_factory=lambda: np.empty(0))
    unknown: int = 0

    def between(self, start: float, end: float) -> Points:
        """Those after `start` up to and with `end`."""
        first, behind = np.searchsorted(self.times, (start, end), side="right")
        return Points(self.times[first:behind], self.values[first:behind], self.unknown)

    def with_last_before(self, start: float, end: float, longest_gap: float) -> Points:
        """As `between`, and the one before where it is not long before: what a counter grew from."""
        first = int(np.searchsorted(self.times, start, side="right"))
        near = first > 0 and start - float(self.times[first - 1]) <= longest_gap
        return (
            self.between(float(np.nextafter(self.times[first - 1], -np.inf)), end) if near else self.between(start, end)
        )

    def last_before(self, moment: float) -> float | None:
        """The last value up to `moment`."""
        behind = int(np.searchsorted(self.times, moment, side="right"))
        return float(self.values[behind - 1]) if behind else None

    def at(self, times: Floats) -> Points:
        """Those at one of these times."""
        kept = np.isin(self.times, times, assume_unique=True)
        return Points(self.times[kept], self.values[kept], self.unknown)

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, slots=True)
class Piece:
    """The known points of one series. `rank` orders the names of one measure; `slice` is a MIG instance's."""

    points: Points
    rank: int = 0
    slice: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """One line of points. `doubled`: several series had points for the same times; `torn`: and they disagreed."""

    points: Points
    doubled: bool = False
    torn: bool = False


def known_points(series: Series, name: MetricName, most: float) -> Points:
    """The series' known points in the measure's unit; `most` is the greatest value that can be real."""
    times, values = np.array(series.times, dtype=np.float64), np.array(series.values, dtype=np.float64)
    known = np.isfinite(values) & (values >= 0)
    known &= ~_blank(np.where(known, values, 0.0))
    scale = name.scale
    if name.percent:
        real = values[known]
        scale = 1.0 if len(real) and float(real.max()) > 1.05 else 100.0
    scaled = np.where(known, values, 0.0) * scale
    known &= scaled <= most
    order = np.argsort(times[known], kind="stable")
    return Points(times[known][order], scaled[known][order], int(len(known) - known.sum()))


def merge(pieces: Sequence[Piece], level: bool) -> Merged:
    """One line of points: of the first name's series, and of the one with the most points where several have one.

    Series follow each other where a label changed: the driver's version, a job's pod, the last Xid's text. Slices of a
    GPU stand for it only where nothing else does, and where they agree.
    """
    whole = [piece for piece in pieces if not piece.slice] or list(pieces)
    ordered = sorted(whole, key=lambda piece: (piece.rank, -len(piece.points)))
    unknown = sum(piece.points.unknown for piece in ordered)
    if not ordered:
        return Merged(Points())
    times = np.concatenate([piece.points.times for piece in ordered])
    values = np.concatenate([piece.points.values for piece in ordered])
    once, first = np.unique(times, return_index=True)  # the first of equal times: the better piece's
    doubled = len(once) < len(times) and _overlap(ordered)
    return Merged(Points(once, values[first], unknown), doubled, doubled and level and _disagree(ordered))


def _overlap(ordered: Sequence[Piece]) -> bool:
    """Do two series of one name run side by side?"""
    return any(len(_side_by_side(one, other)[0]) for one, other in _pairs(ordered))


def _disagree(ordered: Sequence[Piece]) -> bool:
    for one, other in _pairs(ordered):
        here, there = _side_by_side(one, other)
        if len(here):
            middle, beside = float(np.median(here)), float(np.median(there))
            if abs(middle - beside) > _SAME * max(abs(middle), abs(beside)):
                return True
    return False


def _pairs(ordered: Sequence[Piece]) -> list[tuple[Piece, Piece]]:
    """The best piece of every name beside each other one of it: enough to see that they differ."""
    pairs = []
    for index, piece in enumerate(ordered):
        best = next(other for other in ordered if other.rank == piece.rank)
        if best is not piece and index:
            pairs.append((best, piece))
    return pairs


def _side_by_side(one: Piece, other: Piece) -> tuple[Floats, Floats]:
    """Their values at common times; none where no three follow each other: a step in which a label changes has both."""
    _, here, there = np.intersect1d(one.points.times, other.points.times, return_indices=True)
    following = (np.diff(here) == 1) & (np.diff(there) == 1)
    if not (following[1:] & following[:-1]).any():
        return np.empty(0), np.empty(0)
    return one.points.values[here], other.points.values[there]


def _blank(values: Floats) -> NDArray[np.bool_]:
    """Which are DCGM's words for "no value", also after a change of units."""
    large = np.unique(values[values >= _LEAST_BLANK])
    blanks = [value for value in large.tolist() if blank_reason(value) is not None or _int32_blank(value)]
    return np.isin(values, blanks)


def _int32_blank(value: float) -> bool:
    return any(abs(value / scale - blank) < 0.01 for scale in _INT32_SCALES for blank in _INT32_BLANKS)

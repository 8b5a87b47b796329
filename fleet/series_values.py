"""One value out of a window's points: a level's median, a counter's increase, how often a code or a flag changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet.health_limits import read_clock_events
from fleet.series_points import Points

_WRAP = 2.0**32
_NEAR_WRAP = 0.01  # of the counter's range on both sides
_THROTTLED_SHARE = 0.05
_NOT_SLOWING = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"})


@dataclass(frozen=True, slots=True)
class Increase:
    """What was counted. `hours` is the time that was watched: gaps over which the counter began again are not.

    `fell` is how often it became less in whatever way; `wraps` of these passed 32 bits, `resets` began again at 0.
    """

    count: float
    hours: float
    resets: int = 0
    wraps: int = 0

    @property
    def fell(self) -> int:
        return self.resets + self.wraps


def median(points: Points) -> float | None:
    """None where there are no points."""
    return float(np.median(points.values)) if len(points) else None


def increase(points: Points, longest_gap: float) -> Increase | None:
    """How much a counter grew; None with fewer than two points, which say nothing.

    A counter that begins again at 0 has counted what it shows since; what it counted just before is lost, so that the
    increase is the least that can be. `longest_gap` in seconds.
    """
    if len(points) < 2:
        return None
    steps, spans = np.diff(points.values), np.diff(points.times)
    falls = np.flatnonzero(steps < 0)
    count, hours, wraps = float(steps[steps > 0].sum()), float(spans.sum()) / 3600, 0
    for fall in falls.tolist():
        before, after = float(points.values[fall]), float(points.values[fall + 1])
        if before >= _WRAP * (1 - _NEAR_WRAP) and before < _WRAP and after <= _WRAP * _NEAR_WRAP:
            count += _WRAP - before + after
            wraps += 1
            continue
        count += after
        if spans[fall] > longest_gap:
            hours -= float(spans[fall]) / 3600
    return Increase(count, hours, len(falls) - wraps, wraps)


def codes_begun(points: Points, before: float | None) -> tuple[int, ...] | None:
    """The codes that a gauge of the last code newly showed; None where there are no points.

    `before` is what it showed last, None where that is not known: then the first code may be an old one, and is not
    counted. A code that comes twice, and one that another follows within a step, are not seen: it is the least.
    """
    if not len(points):
        return None
    begun = []
    last = float(points.values[0]) if before is None else before
    for code in points.values.tolist():
        if code not in (last, 0) and float(code).is_integer():
            begun.append(int(code))
        last = code
    return tuple(begun)


def raised(points: Points, before: float | None) -> int | None:
    """How often a flag went from 0 to 1; None where there are no points."""
    if not len(points):
        return None
    values = points.values if before is None else np.concatenate(([before], points.values))
    return int(((values[1:] > 0) & (values[:-1] == 0)).sum())


def reasons(points: Points) -> tuple[str, ...] | None:
    """What held the clocks down in at least a twentieth of the points; None where the mask is not known."""
    if not len(points):
        return None
    masks, counts = np.unique(points.values, return_counts=True)
    seen: dict[str, int] = {}
    for mask, count in zip(masks.tolist(), counts.tolist(), strict=True):
        for name in read_clock_events(int(mask)).reasons:
            seen[name] = seen.get(name, 0) + count
    return tuple(name for name in sorted(seen) if _holds(name, seen, len(points)))


def _holds(name: str, seen: Mapping[str, int], points: int) -> bool:
    return name not in _NOT_SLOWING and seen[name] >= _THROTTLED_SHARE * points


def watched_hours(points: Points, longest_gap: float) -> float:
    """Hours between the points, without the gaps."""
    spans = np.diff(points.times)
    return float(spans[spans <= longest_gap].sum()) / 3600

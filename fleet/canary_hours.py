"""How long error counts must be watched: by simulation of the very test that judges them, with a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, pdtr

from fleet.canary_counts import CountComparison, surely_sicker
from fleet.canary_looks import nominal_levels

MOST_HOURS = 24.0 * 365
_TRIES = 200
_STEPS = 120
_SHORTEST = 0.25


@dataclass(frozen=True, slots=True)
class CountHours:
    """Hours of watching after the change, and the same before it; None: more than a year."""

    to_pass: float | None
    to_find: float | None


def hours_for(
    nodes: int,
    rate_per_node_hour: float,
    ratio: float,
    *,
    accepted_ratio: float = 1.02,
    tolerated_per_node_day: float = 0.5,
    power: float = 0.95,
    alpha: float = 0.01,
    miss: float = 0.05,
    measures: int = 1,
    looks: tuple[float, ...] = (1.0,),
) -> CountHours:
    """How long `nodes` of each cohort are watched until a COUNT passes, where nothing changed, and until a rate that
    became `ratio` times as high is found, each with chance `power`. Scatter between nodes as Poisson's.
    """
    fail_level = nominal_levels(alpha / (measures + 1), looks)[-1]
    pass_level = nominal_levels(miss, looks)[-1]
    tolerated = tolerated_per_node_day / 24
    hours = [float(span) for span in np.geomspace(_SHORTEST, MOST_HOURS, _STEPS)]

    def passes(span: float) -> bool:
        bound = tolerated * nodes * span
        most = int(np.ceil(2 * bound)) + 50
        allowed = int((gammaincinv(np.arange(most) + 1, 1 - pass_level) <= bound).sum()) - 1
        return allowed >= 0 and float(pdtr(allowed, rate_per_node_hour * nodes * span)) >= power

    def finds(span: float) -> bool:
        return _found(nodes, rate_per_node_hour * span, ratio, span, accepted_ratio, fail_level) >= power

    low, high = 0, len(hours)
    while low < high:  # the chance to find rises with the hours
        middle = (low + high) // 2
        low, high = (low, middle) if finds(hours[middle]) else (middle + 1, high)
    return CountHours(next(filter(passes, hours), None), hours[low] if low < len(hours) else None)


def _found(nodes: int, events: float, ratio: float, span: float, accepted: float, level: float) -> float:
    """Share of simulated canaries that fail; `events` are those usual on a node in this span."""
    rng = np.random.default_rng(1)
    failed = 0
    for _ in range(_TRIES):
        after, control, before = (
            [(float(count), span) for count in rng.poisson(mean, nodes)] for mean in (ratio * events, events, events)
        )
        failed += surely_sicker(after, control, before, accepted, level)
    return failed / _TRIES


def more_hours(
    comparison: CountComparison, hours: float, accepted: float, tolerated: float, fail_level: float, pass_level: float
) -> float | None:
    """Hours beyond the `hours` had, with which the rates as they look now would be decided; None: more than a year.

    `tolerated` in events per node-hour.
    """
    for factor in np.geomspace(1.02, max(MOST_HOURS / hours, 1.03), 300):
        later = comparison.longer(float(factor))
        decided = (
            later.above(fail_level) > accepted
            or later.below(pass_level) < accepted
            or later.after.rate_below(pass_level) < tolerated
        )
        if decided:
            return float(hours * (factor - 1))
    return None

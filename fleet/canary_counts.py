"""Error counts: is the canary sicker than its controls at the same time, and than itself before?

Both must hold to fail it: a fault season hits the controls too, and nodes that always were sicker have a past. Two
counts are compared exactly, given their sum (Przyborowski & Wilenski, Biometrika 31, 1940), with the bounds of Clopper
& Pearson (Biometrika 26, 1934); one rate is bounded as by Garwood (Biometrika 28, 1936). Events come in bursts on a
node, so counts and hours are divided by the scatter between nodes where it is wider than Poisson's (quasi-likelihood;
Wedderburn, Biometrika 61, 1974): a burst counts about as one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, gammaincinv

_MOST_EVENTS = 100_000

Counts = Sequence[tuple[float, float]]  # (events, node-hours) of each node


@dataclass(frozen=True, slots=True)
class Tally:
    """Events of several nodes in their node-hours. `scatter` is the ratio of variance to Poisson's, at least 1."""

    events: float
    hours: float
    scatter: float

    @property
    def effective(self) -> float:
        """As how many independent events they count."""
        return self.events / self.scatter

    @property
    def effective_hours(self) -> float:
        return self.hours / self.scatter

    def rate_below(self, level: float) -> float:
        """Incidents per node-hour that the rate is below with confidence 1 - level; a burst is one incident."""
        return float(gammaincinv(self.effective + 1, 1 - level)) / self.hours

    def longer(self, factor: float) -> Tally:
        """At the same rate, so many times as long."""
        return Tally(self.events * factor, self.hours * factor, self.scatter)


def tally(counts: Counts) -> Tally | None:
    """None without hours."""
    events, hours = sum(count for count, _ in counts), sum(span for _, span in counts)
    if hours <= 0:
        return None
    scatter = 1.0
    if events > 0 and len(counts) > 1:
        expected = np.array([events * span / hours for _, span in counts])
        seen = np.array([count for count, _ in counts], dtype=float)
        scatter = max(1.0, float(((seen - expected) ** 2 / expected).sum()) / (len(counts) - 1))
    return Tally(events, hours, scatter)


def ratio(one: Tally, other: Tally) -> float:
    """Of two rates, half an event added to each count, so that it is a number (Haldane, Ann. Hum. Genet. 20, 1956)."""
    return ((one.events + 0.5) / one.hours) / ((other.events + 0.5) / other.hours)


def ratio_above(one: Tally, other: Tally, level: float) -> float:
    """The ratio of rates one/other is above it with confidence 1 - level; 0 where `one` has no events."""
    if one.events <= 0:
        return 0.0
    share = float(betaincinv(one.effective, other.effective + 1, level))
    return share / (1 - share) * other.effective_hours / one.effective_hours if share < 1 else float("inf")


def ratio_below(one: Tally, other: Tally, level: float) -> float:
    """The ratio is below it; infinite where `other` has no events."""
    if other.events <= 0:
        return float("inf")
    share = float(betaincinv(one.effective + 1, other.effective, 1 - level))
    return share / (1 - share) * other.effective_hours / one.effective_hours if share < 1 else float("inf")


@dataclass(frozen=True, slots=True)
class CountComparison:
    """The canary after the change, its controls at that time, and itself before."""

    after: Tally
    control: Tally
    before: Tally

    @property
    def references(self) -> tuple[Tally, Tally]:
        return self.control, self.before

    @property
    def ratio(self) -> float:
        return ratio(self.after, self.control)

    def above(self, level: float) -> float:
        """Sicker than both references by at least this ratio, with confidence 1 - level."""
        return min(ratio_above(self.after, other, level) for other in self.references)

    def below(self, level: float) -> float:
        return max(ratio_below(self.after, other, level) for other in self.references)

    def longer(self, factor: float) -> CountComparison:
        """What is expected after so many times the hours, at the same rates; the time before is what it was."""
        return CountComparison(self.after.longer(factor), self.control.longer(factor), self.before)


def compare_counts(after: Counts, control: Counts, before: Counts) -> CountComparison | None:
    """None where one of the three has no hours."""
    tallies = tally(after), tally(control), tally(before)
    if tallies[0] is None or tallies[1] is None or tallies[2] is None:
        return None
    return CountComparison(tallies[0], tallies[1], tallies[2])


def surely_sicker(after: Counts, control: Counts, before: Counts, accepted: float, level: float) -> bool:
    """Whether the canary fails: beyond the accepted ratio, and not by its worst node alone."""
    found = compare_counts(after, control, before)
    if found is None or found.above(level) <= accepted:
        return False
    worst = max(range(len(after)), key=lambda place: after[place][0])
    others = [counts for place, counts in enumerate(after) if place != worst]
    rest = compare_counts(others, control, before)
    return rest is not None and rest.above(level) > accepted


def ratio_found(comparison: CountComparison, accepted: float, level: float, power: float) -> float | None:
    """The smallest ratio of rates to the controls' that these hours would have failed with this power."""
    events = events_to_fail(comparison, accepted, level)
    if events is None:
        return None
    rate = float(gammaincinv(events, power)) / comparison.after.hours
    return rate / ((comparison.control.events + 0.5) / comparison.control.hours)


def events_to_fail(comparison: CountComparison, accepted: float, level: float) -> int | None:
    """The fewest events of the canary that would have failed it, had they been spread over its nodes as Poisson's."""

    def fails(events: int) -> bool:
        after = Tally(float(events), comparison.after.hours, 1.0)
        return CountComparison(after, comparison.control, comparison.before).above(level) > accepted

    high = 1
    while not fails(high):
        high *= 2
        if high > _MOST_EVENTS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high

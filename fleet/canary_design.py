"""How a canary is judged, fixed before anything is measured: measures, error rates, looks and planned data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from fleet.canary_looks import nominal_levels
from fleet.errors import ConfigurationError
from fleet.measures import Measure, MeasureKind

MOST_LOOKS = 20


@dataclass(frozen=True, slots=True)
class CanaryDesign:
    """The rules of one canary. Raises ConfigurationError for what cannot be.

    `alpha` is the false-alarm rate of the whole canary: how often a change that loses no more than the margins is
    failed, all measures and looks together. `miss` is how often a change that loses a whole margin in one measure
    passes in it. `power` is the chance for which sizes and the smallest detectable loss are stated.

    `looks` are the shares of the planned data at which a verdict is asked for, ascending, the last 1. `runs` are the
    repetitions of a BENCHMARK that a node gives per phase. `tolerated_per_node_day` holds for COUNT measures: a rate of
    incidents (a burst on a node is one) surely below it passes even where so few events leave the ratio open.
    `least_controls` is the share of planned control nodes below which nothing passes.
    """

    measures: tuple[Measure, ...]
    alpha: float = 0.01
    miss: float = 0.05
    power: float = 0.95
    looks: tuple[float, ...] = (1.0,)
    runs: int = 3
    tolerated_per_node_day: float = 0.5
    least_controls: float = 0.75

    def __post_init__(self) -> None:
        names = [measure.name for measure in self.measures]
        rates = {"alpha": self.alpha, "miss": self.miss, "power": self.power}
        bad = [name for name, rate in rates.items() if not 0 < rate < 1]
        if bad:
            raise ConfigurationError(f"{', '.join(bad)} of a canary must lie between 0 and 1")
        if len(set(names)) < len(names):
            raise ConfigurationError(f"a measure is there twice in {', '.join(names)}")
        if not all(0 < m.margin < (1 if m.kind is not MeasureKind.COUNT else float("inf")) for m in self.measures):
            raise ConfigurationError("a margin is a share between 0 and 1, of a COUNT any number above 0")
        if not 0 < len(self.looks) <= MOST_LOOKS or self.looks[0] <= 0 or self.looks[-1] != 1:
            raise ConfigurationError(
                f"looks are 1 to {MOST_LOOKS} shares of the planned data, the last 1: {self.looks}"
            )
        if any(later <= earlier for earlier, later in pairwise(self.looks)):
            raise ConfigurationError(f"looks must ascend: {self.looks}")
        if self.runs < 1 or self.tolerated_per_node_day < 0 or not 0 < self.least_controls <= 1:
            raise ConfigurationError("runs are at least 1, a rate is not negative, least_controls is a share")

    @property
    def tests(self) -> int:
        """Between how many tests `alpha` is shared: the measures, and whether throttling rose."""
        return len(self.measures) + 1

    def fail_level(self, fractions: tuple[float, ...]) -> float:
        """One-sided level of one test for FAIL, at the last of the looks that were had (shares of planned data)."""
        return nominal_levels(self.alpha / self.tests, fractions)[-1]

    def pass_level(self, fractions: tuple[float, ...]) -> float:
        """One-sided level for PASS; not shared between measures, as a pass needs every one of them."""
        return nominal_levels(self.miss, fractions)[-1]


def accepted_ratio(measure: Measure) -> float:
    """Of a COUNT: the ratio of rates that is still accepted; a margin up to 1 is what it may exceed one by."""
    return measure.margin if measure.margin > 1 else 1 + measure.margin

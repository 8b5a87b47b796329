"""The change of the canary's nodes against that of the controls: difference in differences, with its interval.

Each node brings one number, the log ratio after/before of its level. The two cohorts are compared by Welch's t
(Biometrika 34, 1947), which needs no equal scatter; where the inlet temperature is known its slope is taken out first,
estimated inside the cohorts (analysis of covariance; Fisher, "Statistical Methods for Research Workers", 4th ed. 1932).
Matching by stratum is not used in the interval: ignoring it can only make the interval wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Array = NDArray[np.float64]

FEWEST_NODES = 3
_RESOLUTION = 5e-4  # of a node's level: what tools print is no finer, and nothing scatters less
_INLET_SPREAD = 0.3  # °C; below it there is no slope to be seen
_FEWEST_FOR_SLOPE = 7


@dataclass(frozen=True, slots=True)
class Comparison:
    """On the log scale, negative for a loss. `scatter` is the standard deviation of a node's change.

    `inlet_difference` is how much more the canary's inlets warmed than the controls', in °C; None if not known.
    """

    effect: float
    error: float
    freedom: float
    scatter: float
    n_canary: int
    n_control: int
    slope: float | None
    inlet_difference: float | None

    def low(self, level: float) -> float:
        """The effect is above it with confidence 1 - level."""
        return self.effect - self.quantile(level) * self.error

    def high(self, level: float) -> float:
        return self.effect + self.quantile(level) * self.error

    def quantile(self, level: float) -> float:
        return float(-stdtrit(self.freedom, level))

    def loss_found(self, margin: float, level: float, power: float) -> float:
        """The log loss (positive) that would have been failed with this power: the margin and two quantiles."""
        return margin + (self.quantile(level) + self.quantile(1 - power)) * self.error


def compare(
    canary: Sequence[float],
    control: Sequence[float],
    canary_inlet: Sequence[float | None] = (),
    control_inlet: Sequence[float | None] = (),
) -> Comparison | None:
    """None with fewer than FEWEST_NODES on a side. Inlets are changes in °C, used where every node has one."""
    if min(len(canary), len(control)) < FEWEST_NODES:
        return None
    one, other = np.asarray(canary, dtype=float), np.asarray(control, dtype=float)
    warm, cool = _inlets(canary_inlet, len(one)), _inlets(control_inlet, len(other))
    if warm is None or cool is None:
        return _welch(one, other, None, None, 0.0)
    apart = float(warm.mean() - cool.mean())
    spread = float(((warm - warm.mean()) ** 2).sum() + ((cool - cool.mean()) ** 2).sum())
    count = len(one) + len(other)
    if count < _FEWEST_FOR_SLOPE or spread / (count - 2) < _INLET_SPREAD**2:
        return _welch(one, other, None, apart, 0.0)
    crossed = float(((warm - warm.mean()) * one).sum() + ((cool - cool.mean()) * other).sum())
    slope = crossed / spread
    middle = float((warm.sum() + cool.sum()) / count)
    return _welch(one - slope * (warm - middle), other - slope * (cool - middle), slope, apart, apart**2 / spread)


def _inlets(values: Sequence[float | None], count: int) -> Array | None:
    known = [value for value in values if value is not None]
    return np.asarray(known, dtype=float) if len(known) == count else None


def _welch(one: Array, other: Array, slope: float | None, apart: float | None, leverage: float) -> Comparison:
    """`leverage`: by how much the slope's own error adds, as a multiple of a node's variance."""
    spent = 0 if slope is None else 1
    ends = [(float(side.var(ddof=1)), len(side)) for side in (one, other)]
    correct = (len(one) + len(other) - 2) / (len(one) + len(other) - 2 - spent)
    parts = [(max(variance * correct, _RESOLUTION**2) / count, count) for variance, count in ends]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / (count - 1) for part, count in parts)
    pooled = sum(part * count * (count - 1) for part, count in parts) / (len(one) + len(other) - 2)
    total = variance + leverage * pooled
    return Comparison(
        effect=float(one.mean() - other.mean()),
        error=float(np.sqrt(total)),
        freedom=max(freedom - spent, 1.0),
        scatter=float(np.sqrt(pooled)),
        n_canary=len(one),
        n_control=len(other),
        slope=slope,
        inlet_difference=apart,
    )


def share(log_effect: float) -> float:
    """A log ratio as a share: -0.05 for a loss of 5 %."""
    return float(np.expm1(min(log_effect, 700.0)))


def p_below(comparison: Comparison, bound: float) -> float:
    """One-sided p value against the effect being at `bound` or above it."""
    return float(stdtr(comparison.freedom, (comparison.effect - bound) / comparison.error))

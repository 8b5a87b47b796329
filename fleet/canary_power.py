"""How large a canary must be, and what it could see: power of the very test that judges it (Welch's t, last look).

Given both cohorts' estimated variances, the test's bound is a number and the estimate is normal and independent of
them; the chance is averaged over what variances of so many nodes come out as (chi-squared). Chances are stated for the
last look; earlier ones only add to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log1p

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtrit

from fleet.canary_compare import FEWEST_NODES, Comparison
from fleet.canary_looks import nominal_levels
from fleet.canary_noise import CanaryNoise
from fleet.errors import ConfigurationError

Array = NDArray[np.float64]

MOST_NODES = 2000
_RUNS = (3, 5)
_GRID = 40


@dataclass(frozen=True, slots=True)
class CanarySize:
    """`nodes` of each cohort and `runs` per node and phase; `finds` and `passes` are the chances they give."""

    nodes: int
    runs: int
    finds: float
    passes: float


def size_for(
    loss: float,
    noise: CanaryNoise,
    power: float = 0.95,
    alpha: float = 0.01,
    measures: int = 1,
    looks: tuple[float, ...] = (1.0,),
    *,
    margin: float = 0.02,
    miss: float = 0.05,
    runs: tuple[int, ...] = _RUNS,
) -> CanarySize:
    """The fewest nodes per cohort with which a loss of `loss` in one measure is found with chance `power`, and a change
    that loses nothing passes in all `measures` with chance `power`.

    `alpha` and `miss` as in CanaryDesign, `looks` its fractions. Raises ConfigurationError if the loss is not beyond
    the margin, or more than MOST_NODES would be needed.
    """
    if not margin < loss < 1:
        raise ConfigurationError(f"a loss to be found lies between the margin {margin:g} and 1, not {loss:g}")

    def chances(nodes: int, count: int) -> tuple[float, float]:
        passed = chance_to_pass(nodes, count, noise, miss, looks, margin)
        return chance_to_find(loss, nodes, count, noise, alpha, measures, looks, margin), 1 - measures * (1 - passed)

    def fewest(count: int) -> int:
        return _fewest(lambda nodes: min(chances(nodes, count)) >= power)

    nodes, count = min((fewest(count), count) for count in runs)
    if nodes > MOST_NODES:
        raise ConfigurationError(f"a loss of {loss:.1%} is not found with {MOST_NODES} nodes at this noise")
    return CanarySize(nodes, count, *chances(nodes, count))


def _fewest(enough: Callable[[int], bool]) -> int:
    """The fewest nodes that are enough; more than MOST_NODES where none are."""
    low, high = FEWEST_NODES, FEWEST_NODES
    while high <= MOST_NODES and not enough(high):
        low, high = high + 1, high * 2
    high = min(high, MOST_NODES + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def smallest_detectable(
    nodes: int,
    runs: int,
    noise: CanaryNoise,
    power: float = 0.95,
    alpha: float = 0.01,
    measures: int = 1,
    looks: tuple[float, ...] = (1.0,),
    *,
    margin: float = 0.02,
) -> float | None:
    """The smallest loss, as a share, that is found with chance `power`; None where none is."""
    low, high = margin, 0.99
    if chance_to_find(high, nodes, runs, noise, alpha, measures, looks, margin) < power:
        return None
    while high - low > 1e-5:
        middle = (low + high) / 2
        found = chance_to_find(middle, nodes, runs, noise, alpha, measures, looks, margin) >= power
        low, high = (low, middle) if found else (middle, high)
    return high


def chance_to_find(
    loss: float,
    nodes: int,
    runs: int,
    noise: CanaryNoise,
    alpha: float,
    measures: int,
    looks: tuple[float, ...],
    margin: float,
) -> float:
    """Chance that a loss (share) in one of `measures` measures is failed at the last look."""
    level = nominal_levels(alpha / (measures + 1), looks)[-1]
    return _chance(log1p(-margin) - log1p(-loss), nodes, noise.of_pair(runs), level)


def chance_to_pass(
    nodes: int, runs: int, noise: CanaryNoise, miss: float, looks: tuple[float, ...], margin: float, loss: float = 0.0
) -> float:
    """Chance that one measure passes at the last look, of a change that loses `loss` (share)."""
    level = nominal_levels(miss, looks)[-1]
    return _chance(log1p(-loss) - log1p(-margin), nodes, noise.of_pair(runs), level)


def _chance(distance: float, nodes: int, scatter: float, level: float) -> float:
    """That Welch's t with a slope of the inlet puts the bound on the right side of what lies `distance` (log) off."""
    one = _variances(nodes)[:, None]
    other = one.T
    freedom = np.maximum((nodes - 1) * (one + other) ** 2 / (one**2 + other**2) - 1, 1.0)
    inlets = 1 + 1 / (2 * nodes - 4)  # what the slope's own error adds, on average
    error = np.sqrt((one + other) * inlets / nodes)
    centre = distance / scatter
    return float(ndtr((centre + stdtrit(freedom, level) * error) / np.sqrt(2 * inlets / nodes)).mean())


@lru_cache(maxsize=4096)
def _variances(nodes: int) -> Array:
    """Equally likely values of an estimated variance of `nodes` normal values whose variance is 1."""
    chances = (np.arange(_GRID) + 0.5) / _GRID
    values: Array = chdtri(nodes - 1, 1 - chances) / (nodes - 1)
    return values


def more_nodes(comparison: Comparison, margin: float, fail_level: float, pass_level: float, power: float) -> int | None:
    """Nodes per cohort beyond those had, with which the effect as it looks now would be decided; None: no such number.

    `margin` on the log scale.
    """
    nodes = np.arange(FEWEST_NODES, MOST_NODES + 1, dtype=float)
    error = comparison.scatter * np.sqrt(2 / nodes)
    freedom = 2 * nodes - 3
    distance = comparison.effect + margin
    level = pass_level if distance > 0 else fail_level
    needed = -(stdtrit(freedom, level) + stdtrit(freedom, 1 - power)) * error
    enough = nodes[needed <= abs(distance)]
    had = min(comparison.n_canary, comparison.n_control)
    return max(int(enough[0]) - had, 1) if len(enough) else None

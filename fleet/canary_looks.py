"""Looking several times at one canary without more false alarms: group-sequential levels by alpha spending.

Lan & DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983): the error that may be spent
up to a look is a function of the share of data had, so looks may be skipped or moved. The function here is theirs
that resembles O'Brien & Fleming, Biometrics 35 (1979): little is spent early. Boundaries by the recursion of
Armitage, McPherson & Rowe, J. R. Statist. Soc. A 132 (1969). Small samples use each look's nominal level in Student's
t, as in Jennison & Turnbull, "Group Sequential Methods" (2000). If later looks bring less than their share of
information, looks are more alike than assumed, and the true error is below the stated one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

Array = NDArray[np.float64]

_POINTS = 1201
_REACH = 8.5  # standard deviations below which nothing is left
_STEPS = 60
_LEAST = 1e-12


def spent(alpha: float, fraction: float) -> float:
    """One-sided error spent up to `fraction` (0 to 1) of the planned data, O'Brien-Fleming-like."""
    if fraction >= 1:
        return alpha
    if fraction <= 0:
        return 0.0
    return float(2 * ndtr(ndtri(alpha / 2) / np.sqrt(fraction)))


@lru_cache(maxsize=4096)
def nominal_levels(alpha: float, fractions: tuple[float, ...]) -> tuple[float, ...]:
    """One-sided nominal level of each look, for total one-sided error `alpha`.

    `fractions` ascend; those beyond 1 are taken as 1, and a look that brings no more data gets the level of the one
    before. Each level is what a single test at that look is held against.
    """
    levels: list[float] = []
    before, used = 0.0, 0.0
    grid: Array | None = None
    density: Array | None = None
    for fraction in (min(one, 1.0) for one in fractions):
        if fraction - before < 1e-9:
            levels.append(levels[-1] if levels else _LEAST)
            continue
        step, target = fraction - before, spent(alpha, fraction) - used
        bound = _bound(grid, density, step, target, fraction)
        levels.append(max(float(ndtr(-bound / np.sqrt(fraction))), _LEAST))
        grid, density = _carry(grid, density, step, bound, fraction)
        before, used = fraction, used + target
    return tuple(levels)


def _bound(grid: Array | None, density: Array | None, step: float, target: float, fraction: float) -> float:
    """The value of the Brownian path above which just `target` leaves at this look."""
    if grid is None or density is None:
        return float(-ndtri(max(target, _LEAST)) * np.sqrt(step))
    low, high = 0.0, float(_REACH * np.sqrt(fraction))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        left = float(np.trapezoid(density * np.exp(log_ndtr((grid - middle) / np.sqrt(step))), grid))
        low, high = (middle, high) if left > target else (low, middle)
    return high


def _carry(
    grid: Array | None, density: Array | None, step: float, bound: float, fraction: float
) -> tuple[Array, Array]:
    """Density of the paths that have not left, on a grid up to the bound."""
    points = np.linspace(-_REACH * np.sqrt(fraction), bound, _POINTS)
    if grid is None or density is None:
        return points, _normal(points, step)
    kernel = _normal(points[:, None] - grid[None, :], step)
    moved: Array = np.asarray(np.trapezoid(kernel * density[None, :], grid, axis=1))
    return points, moved


def _normal(distance: Array, variance: float) -> Array:
    found: Array = np.exp(-(distance**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return found

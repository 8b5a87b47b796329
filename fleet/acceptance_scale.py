"""How far the values of healthy parts scatter, and how far one of many may lie off by chance.

The scatter is Rousseeuw and Croux's Qn, the first quartile of all distances between two values: with it a quarter of a
cohort may be wild and the scatter is still that of the rest, and of equal cohorts it needs half as many values as the
median absolute deviation. It is divided by what it comes to in small normal samples, so that it is right on average.
Source: Rousseeuw & Croux, "Alternatives to the median absolute deviation", JASA 88, 1993. Those divisors, and that its
distances are no wilder than Student's with the degrees of freedom of `freedom`, were simulated: 200,000 normal samples
of each size up to 16, fewer of larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

import numpy as np
from scipy.special import chdtri, ndtri, stdtrit

_QUARTER = 2.21914  # 1 / (√2 · Φ⁻¹(5/8))
_MOST_PAIRED = 600  # values; of more, evenly spaced ones of the sorted values have the same quartile of distances
_CONTRADICTED = 0.001


def scale(values: Sequence[float]) -> float:
    """Robust standard deviation; 0 where more than half of the values are equal. Raises ValueError for less than 2."""
    n = len(values)
    if n < 2:
        raise ValueError("one value alone does not scatter")
    ordered = np.sort(np.asarray(values, dtype=float))
    if n > _MOST_PAIRED:
        ordered = ordered[np.linspace(0, n - 1, _MOST_PAIRED).round().astype(int)]
    count = len(ordered)
    half = count // 2 + 1
    place = half * (half - 1) // 2 - 1
    first, second = np.triu_indices(count, 1)
    distance = np.partition(ordered[second] - ordered[first], place)[place]
    return float(_QUARTER * distance / _bias(count))


def _bias(n: int) -> float:
    """What Qn comes to in a normal sample of n, for a standard deviation of 1."""
    known = {2: 2.513, 3: 1.008, 4: 1.944, 5: 1.183, 6: 1.632, 7: 1.165, 8: 1.492, 9: 1.144}
    if n in known:
        return known[n]
    return 1 + (1.45 / n if n % 2 else 3.8 / n)


def freedom(n: int) -> float:
    """Degrees of freedom of `scale` of n values."""
    return max(1.0, 0.75 * n - 2.0)


def off_by_chance(n: int, alpha: float, spread: float, noise: float) -> float:
    """How far the lowest of n healthy values lies below their median with a chance of `alpha` at most.

    The smaller of two bounds with half of `alpha` each: by the cohort's own `spread` (its `scale`), and by `noise`, the
    most that is assumed. The second is left out where the spread contradicts the assumption. Either unit.
    """
    share = alpha / (2 * n)
    middle = sqrt(1 + pi / (2 * n))  # the median is uncertain too
    own = float(-stdtrit(freedom(n), share)) * middle * spread
    if contradicts(n, spread, noise):
        return own
    return min(own, float(-ndtri(share)) * middle * noise)


def contradicts(n: int, spread: float, noise: float) -> bool:
    """Whether values that scatter so much are surely no sample of a normal scatter of `noise`, at 0.1 %."""
    nu = freedom(n)
    return spread > noise * sqrt(float(chdtri(nu, _CONTRADICTED)) / nu)


def found_with(power: float, limit: float, spread: float) -> float:
    """The smallest true shortfall that lands beyond `limit` with chance `power`, where values scatter by `spread`."""
    return limit + float(ndtri(power)) * spread

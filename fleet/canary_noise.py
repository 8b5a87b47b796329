"""How much a measure scatters where nothing was changed: as planned with, and as measured before a change.

Robust: the scatter of repetitions is the median distance of two of them, of which a quarter may be wild (after
Rousseeuw & Croux, "Alternatives to the median absolute deviation", JASA 88, 1993); that of nodes is their median
absolute deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy.special import fdtri

from fleet.canary_verdict import MeasuredNoise

_NORMAL_QUARTILE = 0.6744897501960817
_UNLIKE_LEVEL = 0.001
_UNLIKE_RATIO = 2.0
_FEWEST_TO_COMPARE = 3
_RESOLUTION = 1e-4
_FEW = 12


@dataclass(frozen=True, slots=True)
class CanaryNoise:
    """Standard deviations as shares of the value. `change` is what a node's level moves by between two sessions with
    nothing changed (a reboot, another day); `gpu` is a GPU's own part of a run; `heat` is the share lost per °C of
    inlet. `node_to_node` does not blur a before/after pair; it says how far node levels lie apart.

    The defaults are assumptions for an HGX node at rest; `noise_for_planning` puts in what was measured.
    """

    run_to_run: float = 0.005
    node_to_node: float = 0.015
    change: float = 0.004
    gpu: float = 0.003
    heat: float = 0.001

    def of_pair(self, runs: int, gpus: int = 8) -> float:
        """Standard deviation of a node's log ratio after/before, with the median of `runs` repetitions per phase."""
        run = (self.run_to_run**2 + self.gpu**2 / gpus) * _of_median(runs)
        return float(np.sqrt(2 * run + self.change**2))


def _of_median(runs: int) -> float:
    """Variance of the median of normal values as a share of one value's; within 3 % from three values on."""
    return 1 / runs if runs <= 2 else float(np.pi / (2 * runs + np.pi - 2))


def noise_for_planning(measured: MeasuredNoise, assumed: CanaryNoise | None = None) -> CanaryNoise:
    """What was measured before the change; the rest as assumed."""
    base = assumed or CanaryNoise()
    return CanaryNoise(
        run_to_run=base.run_to_run if measured.run_to_run is None else measured.run_to_run,
        node_to_node=base.node_to_node if measured.node_to_node is None else measured.node_to_node,
        change=base.change if measured.change is None else measured.change,
        gpu=base.gpu if measured.run_to_run is None else 0.0,
        heat=base.heat,
    )


def measure_noise(runs_by_node: Mapping[str, Sequence[float]]) -> MeasuredNoise:
    """Of log values, one per repetition on a node with its GPUs averaged. One repetition tells nothing of runs."""
    distances = [abs(a - b) for runs in runs_by_node.values() for a, b in _pairs(runs)]
    run = float(np.median(distances)) / (np.sqrt(2) * _NORMAL_QUARTILE) if distances else None
    levels = np.array([np.median(runs) for runs in runs_by_node.values() if len(runs)])
    node = None
    if len(levels) >= _FEWEST_TO_COMPARE:
        spread = float(np.median(np.abs(levels - np.median(levels)))) / _NORMAL_QUARTILE
        count = float(np.median([len(runs) for runs in runs_by_node.values() if len(runs)]))
        node = float(np.sqrt(max(spread**2 - (run or 0.0) ** 2 / count, 0.0)))
    return MeasuredNoise(None if run is None else float(run), node, None, _unlike(runs_by_node, run))


def _pairs(runs: Sequence[float]) -> Iterable[tuple[float, float]]:
    """All pairs of a few repetitions, neighbours of a long series."""
    return combinations(runs, 2) if len(runs) <= _FEW else pairwise(runs)


def _unlike(runs_by_node: Mapping[str, Sequence[float]], run: float | None) -> tuple[str, ...]:
    """Nodes whose repetitions scatter far more than those of the others do, by an F test."""
    several = {node: runs for node, runs in runs_by_node.items() if len(runs) > 1}
    if run is None or len(several) < _FEWEST_TO_COMPARE:
        return ()
    usual = max(run, _RESOLUTION)
    named = []
    for node, runs in several.items():
        ratio = float(np.std(runs, ddof=1)) / usual
        others = sum(len(other) - 1 for name, other in several.items() if name != node)
        limit = float(fdtri(len(runs) - 1, others, 1 - _UNLIKE_LEVEL / len(several)))
        if ratio > _UNLIKE_RATIO and ratio**2 > limit:
            named.append(node)
    return tuple(sorted(named))

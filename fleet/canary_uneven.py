"""Canary nodes that changed unlike the others: named, not averaged away.

A single node is far off by its distance from its cohort's median in robust standard deviations; a rack, model or
firmware by a t test of its nodes against the rest, shared between all groups that were looked at (Bonferroni).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from scipy.special import stdtrit

from fleet.canary_table import NodeChange
from fleet.measures import NodeTraits

_FAR = 6.0
_MAD_TO_SD = 1.4826
_RESOLUTION = 5e-4
_GROUP_LEVEL = 0.01
_FEWEST_IN_REST = 3
_GPU_FAR = 6.0


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that changed alike and unlike the rest. `kind` is "rack", "model", "firmware" or "node"."""

    kind: str
    name: str
    nodes: tuple[str, ...]
    distance: float  # log, of their mean from that of the rest


def scale_of(*cohorts: Sequence[float]) -> float:
    """Robust standard deviation of changes, each cohort around its own median."""
    distances = [abs(value - median(values)) for values in cohorts if values for value in values]
    return max(_MAD_TO_SD * float(np.median(distances)), _RESOLUTION) if distances else _RESOLUTION


def far_nodes(rows: Sequence[NodeChange], scale: float, least: float) -> tuple[str, ...]:
    """Nodes far from the median of these rows, by `least` (log) at any rate; none if they are half of all."""
    gains = {row.node: row.gain for row in rows if row.gain is not None}
    if len(gains) < _FEWEST_IN_REST:
        return ()
    middle = median(gains.values())
    far = tuple(node for node, gain in gains.items() if abs(gain - middle) > max(_FAR * scale, least))
    return far if 2 * len(far) < len(gains) else ()


def uneven_groups(rows: Sequence[NodeChange], traits: Sequence[NodeTraits], scale: float, least: float) -> list[Group]:
    """Groups of canary nodes that lost more than the rest by `least` (log), the largest distance first."""
    gains = {row.node: row.gain for row in rows if row.gain is not None}
    candidates = list(_candidates(gains, traits))
    found = []
    for kind, name, nodes in candidates:
        rest = [gain for node, gain in gains.items() if node not in nodes]
        distance = fmean(gains[node] for node in nodes) - fmean(rest)
        if distance < -max(least, _limit([gains[node] for node in nodes], rest, scale, len(candidates))):
            found.append(Group(kind, name, nodes, distance))
    return sorted(found, key=lambda group: group.distance)


def name_far(far: Sequence[str], rows: Sequence[NodeChange], traits: Sequence[NodeTraits]) -> Group:
    """Far nodes as one group: their rack where they are all that was measured of it, else the nodes."""
    gains = {row.node: row.gain for row in rows if row.gain is not None}
    rest = [gain for node, gain in gains.items() if node not in far]
    distance = fmean(gains[node] for node in far) - fmean(rest)
    racks: defaultdict[str, set[str]] = defaultdict(set)
    for one in traits:
        if one.node in gains:
            racks[one.rack].add(one.node)
    own = [rack for rack, nodes in racks.items() if rack and nodes == set(far) and len(far) > 1]
    return Group("rack", own[0], tuple(far), distance) if own else Group("node", ", ".join(far), tuple(far), distance)


def lone_gpus(rows: Sequence[NodeChange], least: float) -> tuple[tuple[str, int, float], ...]:
    """(node, GPU, log distance from its siblings) of GPUs that lost far more than the others of their node."""
    distances: list[tuple[str, int, float]] = []
    for row in rows:
        if len(row.gpus) > _FEWEST_IN_REST:
            middle = median(gain for _, gain in row.gpus)
            distances += [(row.node, gpu, gain - middle) for gpu, gain in row.gpus if gpu is not None]
    if not distances:
        return ()
    scale = max(_MAD_TO_SD * float(np.median([abs(distance) for _, _, distance in distances])), _RESOLUTION)
    return tuple(one for one in distances if one[2] < -max(_GPU_FAR * scale, 2 * least))


def _candidates(gains: Mapping[str, float], traits: Sequence[NodeTraits]) -> list[tuple[str, str, tuple[str, ...]]]:
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in traits:
        if one.node in gains:
            for kind, name in (("rack", one.rack), ("model", one.model), ("firmware", one.firmware)):
                groups[kind, name].append(one.node)
    return [
        (kind, name, tuple(nodes))
        for (kind, name), nodes in sorted(groups.items())
        if name and len(nodes) > 1 and len(gains) - len(nodes) >= _FEWEST_IN_REST
    ]


def _limit(group: Sequence[float], rest: Sequence[float], scale: float, tests: int) -> float:
    """How far apart the means of two such groups lie by chance."""
    pooled = float(np.var(group, ddof=1)) * (len(group) - 1) + float(np.var(rest, ddof=1)) * (len(rest) - 1)
    freedom = len(group) + len(rest) - 2
    deviation = max(float(np.sqrt(pooled / freedom)), scale / 2, _RESOLUTION)
    quantile = float(-stdtrit(freedom, _GROUP_LEVEL / tests))
    return quantile * deviation * float(np.sqrt(1 / len(group) + 1 / len(rest)))

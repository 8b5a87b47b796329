"""A group that is slow though its nodes are fast elsewhere: which one cause within it fits all runs?

Weighed are every node of the group alone, every pair of nodes, every leaf's uplinks, every pair of leaves, and that the
slow runs were noise; exactly one of them, by Bayes' rule over all answered runs that nothing else explains. The next
run is over nodes that hold the true cause with a chance of about a half, which tells most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from fleet.group_testing_belief import evidence, prior_chances
from fleet.group_testing_values import Array, Factor, Fault, FaultKind, Search

_GOOD = 0.02
_LIKELY = 0.5
_NOTHING = 0.9
_TELLS_LITTLE = 0.4
_WORTH_A_LOOK = 1e-4
_SHARES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
_DRAWS = 36


@dataclass(frozen=True, slots=True)
class Weights:
    """Chances that add up to 1.

    `pairs`: by two of `nodes`, upper triangle; its diagonal is one node alone. `links`: by two of `leaves`, upper
    triangle; its diagonal is one leaf's uplinks. `none`: no cause, the slow runs were noise.
    """

    nodes: tuple[int, ...]
    leaves: tuple[int, ...]
    pairs: Array
    links: Array
    none: float

    def held(self, group: frozenset[int], touched: frozenset[int], crossing: bool) -> float:
        """The chance that a run over the group holds the cause."""
        inside = np.array([node in group for node in self.nodes], dtype=np.float64)
        leaves = np.array([leaf in touched for leaf in self.leaves], dtype=np.float64)
        alone = np.diag(self.links)
        between = float(leaves @ (self.links - np.diag(alone)) @ leaves)
        return float(inside @ self.pairs @ inside) + between + (float(alone @ leaves) if crossing else 0.0)


def weigh(search: Search, group: frozenset[int]) -> Weights:
    """The chances of all causes within `group`."""
    site, policy = search.site, search.policy
    nodes, leaves = tuple(sorted(group)), tuple(sorted(site.touched(group)))
    before = prior_chances(site, policy)
    pairs = np.full((len(nodes), len(nodes)), _log_share(policy.joint_faults, len(nodes)))
    np.fill_diagonal(pairs, log(before[0]))
    links = np.full((len(leaves), len(leaves)), _log_share(policy.joint_faults, len(leaves)))
    np.fill_diagonal(links, log(before[-1]))
    factors = search.open_factors()
    told = np.array(
        [evidence(one.slow if _speaks(search, one, group) else 0, one.fast, policy) for one in factors],
        dtype=np.float64,
    )
    inside = _holds([one.group for one in factors], nodes)
    pairs += inside.T @ (told[:, None] * inside)
    crossing = [site.touched(one.group) if site.crossing(one.group) else frozenset[int]() for one in factors]
    met = _holds(crossing, leaves)
    links += met.T @ (told[:, None] * met)
    return _normal(nodes, leaves, pairs, links)


def judge(search: Search, group: frozenset[int]) -> Fault | bool:
    """The cause within the group if it is settled, False if there is none, True while more runs are needed."""
    weights = weigh(search, group)
    if weights.none >= _NOTHING:
        return False
    top = _likeliest(search, weights)
    settled = top.chance >= search.policy.sure and top.slow - top.fast >= search.policy.direct_runs
    return top if settled else True


def next_group(search: Search, group: frozenset[int], free: frozenset[int], largest: int) -> frozenset[int]:
    """The run that tells most about the cause within `group`, of `free` nodes; empty where they are too few."""
    weights = weigh(search, group)
    top = _likeliest(search, weights)
    if top.chance >= _LIKELY and top.slow - top.fast < search.policy.direct_runs:
        return _direct(search, top, free)
    best = _halving(search, weights, group & free, largest) or _without(search, top, group & free, largest)
    return best or _direct(search, top, free)


def _holds(groups: Sequence[frozenset[int]], members: tuple[int, ...]) -> Array:
    """1 where a group (row) holds a member (column), else 0."""
    rows = [np.fromiter((one in group for one in members), dtype=np.float64, count=len(members)) for group in groups]
    return np.array(rows).reshape(len(groups), len(members))


def _log_share(chance: float, of: int) -> float:
    return log(chance / max(of * (of - 1) / 2, 1))


def _speaks(search: Search, factor: Factor, group: frozenset[int]) -> bool:
    """Whether slow runs of this factor are about the group: what lies outside of it is known to be good."""
    return float(sum(search.belief.chance[node] for node in factor.group - group)) <= _GOOD


def _normal(nodes: tuple[int, ...], leaves: tuple[int, ...], pairs: Array, links: Array) -> Weights:
    most = max(pairs.max(), links.max() if leaves else 0.0, 0.0)
    shared, linked, none = np.triu(np.exp(pairs - most)), np.triu(np.exp(links - most)), exp(-most)
    total = shared.sum() + linked.sum() + none
    return Weights(nodes, leaves, shared / total, linked / total, float(none / total))


def _likeliest(search: Search, weights: Weights) -> Fault:
    """The likeliest cause, with the runs over two nodes that meet it and, as far as can be, nothing else."""
    site = search.site
    first, second = np.unravel_index(int(weights.pairs.argmax()), weights.pairs.shape)
    chance = float(weights.pairs[first, second])
    kind, leaves = FaultKind.PAIR, tuple[int, ...]()
    sides = frozenset({weights.nodes[first]}), frozenset({weights.nodes[second]})
    if first == second:
        kind, sides = FaultKind.NODE, (sides[0], site.everything)
    if weights.links.size and float(weights.links.max()) > chance:
        one, other = np.unravel_index(int(weights.links.argmax()), weights.links.shape)
        chance, kind = float(weights.links[one, other]), FaultKind.LEAF_LINK
        a, b = weights.leaves[one], weights.leaves[other]
        sides, leaves = (site.members[a], site.members[b]), (a, b)
        if a == b:
            kind, leaves, sides = FaultKind.UPLINKS, (a,), (site.members[a], site.everything - site.members[a])
    found = Fault(kind, *sides, leaves, chance, 0, 0)
    slow, fast = _told_directly(search.open_factors(), found)
    return Fault(kind, *sides, leaves, chance, slow, fast)


def _told_directly(factors: Iterable[Factor], fault: Fault) -> tuple[int, int]:
    met = [factor for factor in factors if len(factor.group) == 2 and fault.explains(factor.group)]
    return sum(factor.slow for factor in met), sum(factor.fast for factor in met)


def _direct(search: Search, fault: Fault, free: frozenset[int]) -> frozenset[int]:
    """Two free nodes that meet the cause; others each time, where there are others."""
    turn = fault.slow + fault.fast
    ones = sorted(fault.first & free)
    if not ones:
        return frozenset()
    one = ones[turn % len(ones)]
    chance = search.belief.chance
    others = sorted((fault.second & free) - {one}, key=lambda node: (round(float(chance[node]), 3), node))
    if fault.kind in (FaultKind.NODE, FaultKind.UPLINKS):
        others = others[: max(len(others) // 2, 1)]
    if not others:
        return frozenset()
    return frozenset({one, others[(turn * 5 + one) % len(others)]})


def _without(search: Search, fault: Fault, free: frozenset[int], largest: int) -> frozenset[int]:
    """All that is in doubt but one side of the likeliest cause: fast, it speaks against every other cause."""
    both = fault.kind in (FaultKind.PAIR, FaultKind.LEAF_LINK)
    side = fault.second if both and len(search.results) % 2 else fault.first
    rest = free - side
    return rest if 2 <= len(rest) <= largest else frozenset()


def _halving(search: Search, weights: Weights, free: frozenset[int], largest: int) -> frozenset[int]:
    """Of many drawn groups the one whose chance to hold the cause is nearest to a half; empty where none tells much."""
    site = search.site
    by_node = weights.pairs.sum(axis=0) + weights.pairs.sum(axis=1)
    by_leaf = weights.links.sum(axis=0) + weights.links.sum(axis=1)
    likely = {leaf for leaf, mass in zip(weights.leaves, by_leaf, strict=True) if mass > _WORTH_A_LOOK}
    worth = [
        node
        for node, mass in zip(weights.nodes, by_node, strict=True)
        if node in free and (mass > _WORTH_A_LOOK / len(weights.nodes) or site.leaf_of[node] in likely)
    ]
    rng = np.random.default_rng(len(search.results))
    best, nearest = frozenset[int](), _TELLS_LITTLE
    for draw in range(_DRAWS):
        share = _SHARES[draw % len(_SHARES)]
        if draw % 3 == 2:
            drawn = {leaf for leaf in (-1, *weights.leaves) if rng.random() < share}
            group = frozenset(node for node in worth if site.leaf_of[node] in drawn)
        else:
            group = frozenset(node for node in worth if rng.random() < share)
        if not 2 <= len(group) <= largest:
            continue
        off = abs(weights.held(group, site.touched(group), site.crossing(group)) - _LIKELY)
        if off < nearest:
            best, nearest = group, off
    return best

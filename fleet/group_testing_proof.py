"""Whether direct runs show a cause, whatever the beliefs say: these are sure too soon where runs overlap much.

A node is shown by slow runs with at least two different known-good partners. A partner is known to be good by runs
without the node, more of them where both were in one slow group. A leaf's uplinks are shown by slow runs of two members
with two other leaves and by fast ones within the leaf, its switch by slow runs of several members, one within the leaf.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.group_testing_site import NO_LEAF
from fleet.group_testing_values import Factor, Fault, FaultKind, Search

_SMALL = 3
_LIKELY = 0.3
_SWITCH_MEMBERS = 5


def node_runs(search: Search, node: int, small: Sequence[Factor]) -> tuple[int, int] | None:
    """Slow and fast runs of the node with known-good partners, None where they do not show that it is faulty."""
    good = [one for one in small if all(_is_good(search, other, node) for other in one.group - {node})]
    slow, fast = sum(one.slow for one in good), sum(one.fast for one in good)
    partners = {one.group - {node} for one in good if one.slow > one.fast}
    enough = slow - fast >= search.policy.direct_runs and len(partners) >= min(search.policy.direct_runs, 2)
    return (slow, fast) if enough else None


def leaf_runs(search: Search, fault: Fault, small: Sequence[Factor]) -> tuple[int, int] | None:
    """Slow and fast runs of a leaf's members, None where they do not show that the leaf is at fault."""
    site, members = search.site, fault.first
    slow, fast = sum(one.slow for one in small), sum(one.fast for one in small)
    if slow - fast < search.policy.direct_runs:
        return None
    slowed = [one.group for one in small if one.slow > one.fast]
    inside = frozenset(node for group in slowed for node in group & members)
    if fault.kind is FaultKind.SWITCH:
        within = any(group <= members for group in slowed)
        return (slow, fast) if within and len(inside) >= min(_SWITCH_MEMBERS, len(members)) else None
    calm = [one for one in search.open_factors() if one.group <= members]
    if sum(one.fast for one in calm) - sum(one.slow for one in calm) < search.policy.direct_runs:
        return None
    others = {node for group in slowed for node in group - members}
    places = {site.leaf_of[node] if site.leaf_of[node] != NO_LEAF else -2 - node for node in others}
    elsewhere = {site.leaf_of[node] if site.leaf_of[node] != NO_LEAF else -2 - node for node in fault.second}
    enough = len(inside) >= 2 and len(places) >= min(2, len(elsewhere))
    return (slow, fast) if enough else None


def _is_good(search: Search, partner: int, node: int) -> bool:
    """By answered runs: fast without the node, and slow without it only where something else in the run explains it."""
    suspects = frozenset(int(one) for one in (search.belief.chance[: len(search.site.nodes)] >= _LIKELY).nonzero()[0])
    if partner in suspects:
        return False
    most = len(search.site.nodes) // 2
    fast = chained = 0
    for factor in search.open_factors():
        if partner not in factor.group:
            continue
        if node in factor.group:
            chained = chained or int(factor.slow > 0 and _SMALL < len(factor.group) <= most)
        elif factor.slow > factor.fast and factor.group.isdisjoint(suspects):
            return False
        else:
            fast += factor.fast
    return fast >= 1 + chained

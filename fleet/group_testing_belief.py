"""How likely each node, uplink and switch is faulty after the runs so far: belief propagation on noisy group tests.

A run over a group is slow with chance 1 − false_fast if an item that it speaks of is faulty, else with false_slow. The
messages between runs and items, in log odds, go back and forth until they stand still. Equal groups are one factor.
Source of the method: Sejdinovic and Johnson, "Note on Noisy Group Testing", 2010, arXiv:1010.2441.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from fleet.group_testing_site import Site
from fleet.group_testing_values import Array, Belief, Factor, Policy

_PASSES = 50
_DAMPING = 0.6
_STANDS_STILL = 1e-4
_MOST_EVIDENCE = 40.0
_UNSURE = 0.5
_LIKELIEST_BEFORE = 0.3


def evidence(slow: int, fast: int, policy: Policy, false_slow: float | None = None) -> float:
    """Log of how much likelier the results are with a fault than without; above 0 speaks for a fault."""
    alone = policy.false_slow if false_slow is None else false_slow
    found = slow * log((1 - policy.false_fast) / alone) + fast * log(policy.false_fast / (1 - alone))
    return max(-_MOST_EVIDENCE, min(_MOST_EVIDENCE, found))


def prior_chances(site: Site, policy: Policy) -> Array:
    """Of each item before any run."""
    node = min(policy.expected_faults / len(site.nodes), _LIKELIEST_BEFORE)
    leaf = min(policy.leaf_faults / (2 * len(site.leaves)), _LIKELIEST_BEFORE) if site.leaves else 0.0
    return np.concatenate([np.full(len(site.nodes), node), np.full(2 * len(site.leaves), leaf)])


def believe(site: Site, factors: Sequence[Factor], policy: Policy, unsure: Sequence[frozenset[int]] = ()) -> Belief:
    """`factors` are those that no found cause explains. Groups within or around one of `unsure` may be slow by a cause
    that is none of the items, so that their slowness says little of these."""
    before = prior_chances(site, policy)
    odds = np.log(before) - np.log1p(-before)
    if not factors:
        return Belief(before, {})
    told = np.array([_evidence_of(factor, policy, unsure) for factor in factors])
    test = np.repeat(np.arange(len(factors)), [len(factor.active) for factor in factors])
    item = np.concatenate([np.asarray(factor.active, dtype=np.int64) for factor in factors])
    against = np.exp(-told)[test]
    message = np.zeros(len(item))
    for _ in range(_PASSES):
        others = _without_own(odds, message, item)
        quiet = -np.logaddexp(0.0, others)
        none = np.exp(np.minimum(np.bincount(test, quiet, len(factors))[test] - quiet, 0.0))
        step = -np.log(none * against + (1 - none)) - message
        message = message + _DAMPING * step
        if np.abs(step).max() < _STANDS_STILL:
            break
    total: Array = odds + np.bincount(item, message, site.items)
    apart = _chance(_without_own(odds, message, item))
    masses: Array = np.bincount(test, apart, len(factors)).astype(np.float64)
    return Belief(_chance(total), {one.group: float(mass) for one, mass in zip(factors, masses, strict=True)})


def _evidence_of(factor: Factor, policy: Policy, unsure: Sequence[frozenset[int]]) -> float:
    near = any(factor.group <= group or factor.group >= group for group in unsure)
    return evidence(factor.slow, factor.fast, policy, _UNSURE if near else None)


def _without_own(odds: Array, message: Array, item: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Array:
    total: Array = odds + np.bincount(item, message, len(odds))
    return np.asarray(total[item] - message)


def _chance(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -60, 60))))

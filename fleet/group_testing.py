"""Finding what makes a collective over many nodes slow with few runs: adaptive group testing with noisy results.

    search = begin(site_of({"gpu001": "leaf1", …}))
    while runs := next_runs(search, limits):
        search = told(search, [(run, is_slow(run)) for run in runs])
    print(answer(search).text)

A search is a plain value; `resume` makes it again from the results that were kept. All runs of one round are disjoint
and may run at once. A run that nobody could judge is given as None: it clears and accuses no node. The collective must
load the ways between all its nodes (all-to-all, or all-reduce in more than one order of ranks), else a bad path between
two nodes shows only by luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from fleet import group_testing_joint as joint
from fleet.errors import ConfigurationError
from fleet.group_testing_belief import believe, evidence
from fleet.group_testing_choice import SMALL, UNEXPLAINED, WITHIN_VOTES, choose, votes_within
from fleet.group_testing_proof import leaf_runs, node_runs
from fleet.group_testing_site import FEWEST_NODES, Site
from fleet.group_testing_values import Factor, Fault, FaultKind, Limits, Policy, Run, RunKind, RunResult, Search

_CAUSES_AT_ONCE = 64
_SURELY_SLOW = 3.0
_DOUBT_RUNS = 5


def begin(site: Site, policy: Policy | None = None) -> Search:
    """A search that knows nothing yet. The run that was slow may be told first; it counts as one."""
    return _settled(Search(site, policy or Policy()))


def resume(site: Site, results: Iterable[RunResult], policy: Policy | None = None) -> Search:
    """The search that these results had led to. Raises ConfigurationError as `told` does."""
    search = begin(site, policy)
    for _, of_round in groupby(sorted(results, key=lambda one: one.round), key=lambda one: one.round):
        search = _taken(search, tuple(of_round))
    return search


def told(search: Search, outcomes: Sequence[tuple[Run, bool | None]]) -> Search:
    """The search after one more round of runs, each slow (True), fast (False) or without an answer (None).

    Raises ConfigurationError for a node that is not of the site, and for a run over less than two nodes (or, within a
    node, over other than one).
    """
    return _taken(search, tuple(RunResult(run, slow, search.rounds + 1) for run, slow in outcomes))


def next_runs(search: Search, limits: Limits | None = None) -> tuple[Run, ...]:
    """The next round's runs, disjoint; none when the search is at its end or what it needs is not available."""
    if search.rounds >= search.policy.most_rounds or len(search.results) >= search.policy.most_runs:
        return ()
    return choose(search, limits or Limits())


def _taken(search: Search, results: tuple[RunResult, ...]) -> Search:
    for result in results:
        nodes, within = len(set(result.run.nodes)), result.run.kind is RunKind.WITHIN
        if nodes < FEWEST_NODES if not within else nodes != 1:
            raise ConfigurationError(f"a run {'within a node' if within else 'over a group'} of {nodes} nodes")
    factors = dict(search.factors)
    for result in results:
        group = search.site.group(result.run.nodes)
        if result.run.kind is RunKind.GROUP and result.slow is not None:
            old = factors.get(group) or Factor(group, search.site.active(group), 0, 0)
            factors[group] = replace(old, slow=old.slow + result.slow, fast=old.fast + (not result.slow))
    return _settled(_with_origins(replace(search, results=(*search.results, *results), factors=factors)))


def _with_origins(search: Search) -> Search:
    """Node faults, told by runs within the nodes to be inside of them or at their own links."""
    return replace(search, faults=tuple(_with_origin(search, fault) for fault in search.faults))


def _with_origin(search: Search, fault: Fault) -> Fault:
    if fault.kind is not FaultKind.NODE:
        return fault
    slow, fast, _ = votes_within(search, fault)
    if abs(slow - fast) < WITHIN_VOTES:
        return fault
    return replace(fault, kind=FaultKind.WITHIN_NODE if slow > fast else FaultKind.NODE_LINK)


def _settled(search: Search) -> Search:
    """The beliefs after the latest results, and the causes that these settle, one by one, as each explains runs."""
    for _ in range(_CAUSES_AT_ONCE):
        unsure = (*search.unexplained, *search.dismissed, *([search.doubt] if search.doubt else []))
        belief = believe(search.site, search.open_factors(), search.policy, unsure)
        search = replace(search, belief=belief)
        found = _by_chance(search)
        if found is not None:
            search = _found(search, found)
            continue
        doubt = search.doubt
        if doubt is None:
            return replace(search, doubt=_contradiction(search), doubted_since=len(search.results))
        verdict = joint.judge(search, doubt)
        spent = len(search.results) - search.doubted_since > _DOUBT_RUNS * search.policy.most_repeats
        if isinstance(verdict, Fault):
            search = _found(search, verdict)
        elif not verdict:
            search = replace(search, doubt=None, dismissed=(*search.dismissed, doubt))
        elif spent:
            search = replace(search, doubt=None, unexplained=(*search.unexplained, doubt))
        else:
            return search
    return search


def _found(search: Search, fault: Fault) -> Search:
    explained = search.doubt is not None and fault.explains(search.doubt)
    doubt = None if explained else search.doubt
    return _with_origins(replace(search, faults=(*search.faults, fault), doubt=doubt))


def _by_chance(search: Search) -> Fault | None:
    """The surest item that direct runs have shown as well."""
    site, chance, known = search.site, search.belief.chance, search.found_nodes
    leaves = {leaf for fault in search.faults for leaf in fault.leaves if fault.kind is not FaultKind.LEAF_LINK}
    sure = [int(item) for item in (-chance).argsort() if chance[item] >= search.policy.sure]
    for item in sure:
        fault = _fault_of(site, item, float(chance[item]))
        if (fault.leaves and fault.leaves[0] in leaves) or (not fault.leaves and fault.first <= known):
            continue
        small = [one for one in search.open_factors() if len(one.group) <= SMALL and fault.explains(one.group)]
        shown = leaf_runs(search, fault, small) if fault.leaves else node_runs(search, item, small)
        if shown is not None:
            return replace(fault, slow=shown[0], fast=shown[1])
    return None


def _fault_of(site: Site, item: int, chance: float) -> Fault:
    if item < len(site.nodes):
        return Fault(FaultKind.NODE, frozenset({item}), site.everything, (), chance, 0, 0)
    leaf = (item - len(site.nodes)) % len(site.leaves)
    if item == site.switch(leaf):
        return Fault(FaultKind.SWITCH, site.members[leaf], site.everything, (leaf,), chance, 0, 0)
    return Fault(FaultKind.UPLINKS, site.members[leaf], site.everything - site.members[leaf], (leaf,), chance, 0, 0)


def _contradiction(search: Search) -> frozenset[int] | None:
    """The smallest group that was slow more than once and in which nothing is likely to be faulty by its other runs."""
    passed = {*search.unexplained, *search.dismissed}
    for factor in sorted(search.open_factors(), key=lambda one: (len(one.group), sorted(one.group))):
        surely = factor.slow > 1 and evidence(factor.slow, factor.fast, search.policy) > _SURELY_SLOW
        if surely and factor.group not in passed and search.belief.cavity[factor.group] < UNEXPLAINED:
            return factor.group
    return None


def counts(search: Search) -> Mapping[RunKind, int]:
    """How many runs of each kind there were, with those that gave no answer."""
    kinds = [result.run.kind for result in search.results]
    return {kind: kinds.count(kind) for kind in RunKind}

"""Which runs come next: disjoint groups, so that they run at once, each about as likely to be slow as fast.

In this order, as far as nodes and runs allow: runs within nodes that were found; every suspect with one known-good
partner, by turns of its own leaf and of another; leaves by runs across and within them; the doubted group; half of
what a slow run leaves open (Hwang's binary splitting by chance instead of by number: F. K. Hwang, "A method for
detecting all defective members in a population by group testing", 1972, DOI 10.1080/01621459.1972.10481257); a slow
group that nothing in it explains, once more; everything else; at last all that remains in one run, which must be fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence

from fleet import group_testing_joint as joint
from fleet.group_testing_belief import evidence
from fleet.group_testing_site import FEWEST_NODES, NO_LEAF
from fleet.group_testing_values import Factor, Fault, FaultKind, Limits, Run, RunKind, Search

SUSPECT = 0.3
SLOW_LEANING = 1.5
UNEXPLAINED = 0.1
WITHIN_VOTES = 2
WITHIN_RUNS = 6
_LEAF_SUSPECT = 0.15
_LEAF_RIVAL = 0.02
_GOOD = 0.05
_FULL = 0.5
SMALL = 3
_UNANSWERED = 2
_APART = frozenset({FaultKind.PAIR, FaultKind.UPLINKS, FaultKind.LEAF_LINK})


class Draft:
    """A round in the making: takes nodes out of `free` as groups are added."""

    def __init__(self, search: Search, limits: Limits) -> None:
        self.search, self.site, self.policy = search, search.site, search.policy
        self.chance = search.belief.chance
        here = self.site.everything
        if limits.available is not None:
            here = frozenset(n for n in here if self.site.nodes[n] in limits.available)
        self.available = here
        self.free = set(here - search.found_nodes - silent_nodes(search))
        self.largest = max(limits.largest_group or len(self.site.nodes), FEWEST_NODES)
        self.room = len(self.site.nodes) if limits.runs_at_once is None else limits.runs_at_once
        self.runs: list[Run] = []
        self.grouped = False
        self.direct = direct_counts(search)
        self.slowed = slowed_nodes(search)
        self.barriers = [fault for fault in search.faults if fault.kind in _APART]
        self.caps = size_caps(search)

    def add(self, group: Iterable[int], kind: RunKind = RunKind.GROUP) -> bool:
        """Whether the run fits into this round."""
        taken = frozenset(group)
        fits = FEWEST_NODES <= len(taken) <= self.largest
        if len(self.runs) >= self.room or (kind is RunKind.GROUP and not fits):
            return False
        self.runs.append(Run(self.site.names(taken), kind))
        self.grouped = self.grouped or kind is RunKind.GROUP
        self.free -= taken
        return True

    def clashes(self, group: Collection[int], node: int) -> bool:
        """Whether a found cause would slow the group once the node is in it; nodes at fault are not free anyway."""
        return any(
            (node in fault.first and not fault.second.isdisjoint(group))
            or (node in fault.second and not fault.first.isdisjoint(group))
            for fault in self.barriers
        )

    def partner(
        self, group: frozenset[int], own_leaf: bool | None = None, turn: int = 0, rather: Container[int] = ()
    ) -> int | None:
        """A free node that is known to be good, of the first node's leaf or of another one as far as there is one, and
        of `rather` as far as there is one."""
        leaf = self.site.leaf_of[min(group)] if group else NO_LEAF
        ranked = sorted(self.free - group, key=lambda node: (round(float(self.chance[node]), 4), node))
        fitting = [node for node in ranked if not self.clashes(group, node)]
        unlikely = [node for node in fitting if self.chance[node] <= _GOOD] or fitting[:1]
        good = [node for node in unlikely if node not in self.slowed] or unlikely
        sided = [node for node in good if own_leaf is None or (self.site.leaf_of[node] == leaf) == own_leaf]
        best = [node for node in sided if node in rather] or sided or good
        return best[(7 * turn + min(group, default=0)) % len(best)] if best else None

    def add_with_partner(self, node: int, own_leaf: bool | None = None, turn: int = 0) -> bool:
        partner = self.partner(frozenset({node}), own_leaf, turn)
        return partner is not None and self.add({node, partner})


def choose(search: Search, limits: Limits) -> tuple[Run, ...]:
    """The runs of the next round; none where all is found that can be, or the nodes that it takes are not available."""
    draft = Draft(search, limits)
    _within(draft)
    suspects = suspected(search)
    for node in sorted(suspects, key=lambda one: (-float(draft.chance[one]), one)):
        if node in draft.free and draft.direct[node] < search.policy.most_repeats:
            turn = draft.direct[node]
            draft.add_with_partner(node, own_leaf=turn % 2 == 1, turn=turn)
    _leaves(draft)
    if search.doubt is not None:
        draft.add(joint.next_group(search, search.doubt, frozenset(draft.free), draft.largest))
    touched = _halves(draft, suspects)
    _screen(draft, touched | suspects)
    if not draft.grouped and search.doubt is None:
        prove(draft, suspects)
    return tuple(draft.runs)


def suspected(search: Search) -> frozenset[int]:
    """Nodes that no cause was found for and that are likely to be faulty."""
    nodes = range(len(search.site.nodes))
    return frozenset(n for n in nodes if search.belief.chance[n] >= SUSPECT) - search.found_nodes


def direct_counts(search: Search) -> Counter[int]:
    """Answered runs over two or three nodes, by node."""
    counted = Counter[int]()
    for factor in search.open_factors():
        if len(factor.group) <= SMALL:
            counted.update(dict.fromkeys(factor.group, factor.slow + factor.fast))
    return counted


def slowed_nodes(search: Search) -> frozenset[int]:
    """Nodes of slow runs that no found cause explains; runs over more than half of the site tell nothing of a node."""
    most = max(len(search.site.nodes) // 2, SMALL)
    slow = [factor.group for factor in search.open_factors() if factor.slow and len(factor.group) <= most]
    return frozenset(node for group in slow for node in group)


def untold(search: Search) -> frozenset[int]:
    """Nodes that no answered run held."""
    return search.site.everything.difference(*search.factors)


def silent_nodes(search: Search) -> frozenset[int]:
    """Nodes with which small runs give no answer again and again, and that no answered run held."""
    counted = Counter[int]()
    for result in search.results:
        if result.slow is None and result.run.kind is RunKind.GROUP and len(result.run.nodes) <= SMALL:
            counted.update(search.site.group(result.run.nodes))
    return frozenset(node for node in untold(search) if counted[node] >= _UNANSWERED)


def size_caps(search: Search) -> dict[int, int]:
    """The largest group for nodes whose runs gave no answer: half of the smallest such run."""
    caps: dict[int, int] = {}
    lacking = untold(search)
    for result in search.results:
        if result.slow is None and result.run.kind is RunKind.GROUP:
            half = max(len(result.run.nodes) // 2, FEWEST_NODES)
            for node in search.site.group(result.run.nodes) & lacking:
                caps[node] = min(caps.get(node, half), half)
    return caps


def votes_within(search: Search, fault: Fault) -> tuple[int, int, int]:
    """Runs within the fault's node: slow, fast, and all of them."""
    node = (search.site.nodes[min(fault.first)],)
    told = [one.slow for one in search.results if one.run.kind is RunKind.WITHIN and one.run.nodes == node]
    return told.count(True), told.count(False), len(told)


def _within(draft: Draft) -> None:
    for fault in draft.search.faults:
        if fault.kind is not FaultKind.NODE or not draft.policy.within:
            continue
        slow, fast, all_runs = votes_within(draft.search, fault)
        if abs(slow - fast) < WITHIN_VOTES and all_runs < WITHIN_RUNS and fault.first <= draft.available:
            draft.add(fault.first, RunKind.WITHIN)


def _leaves(draft: Draft) -> None:
    """A leaf under suspicion: a run across, then one within it, by turns and with other members each time."""
    site, known = draft.site, {leaf for fault in draft.search.faults for leaf in fault.leaves}
    for leaf, members in enumerate(site.members):
        chance = float(draft.chance[site.uplinks(leaf)] + draft.chance[site.switch(leaf)])
        rival = any(draft.direct[n] >= draft.policy.direct_runs and draft.chance[n] >= SUSPECT for n in members)
        if leaf in known or chance < (_LEAF_RIVAL if rival else _LEAF_SUSPECT):
            continue
        pairs = [f for f in draft.search.open_factors() if len(f.group) == 2 and f.group & members]
        across = sum(f.slow + f.fast for f in pairs if not f.group <= members)
        inside = sum(f.slow + f.fast for f in pairs if f.group <= members)
        good = sorted(members & draft.free, key=lambda n: (draft.direct[n], round(float(draft.chance[n]), 3), n))
        if not good or across + inside >= 2 * draft.policy.most_repeats:
            continue
        met = {site.leaf_of[n] for f in pairs for n in f.group - members}
        elsewhere = {n for n in draft.free - members if site.leaf_of[n] not in met or site.leaf_of[n] == NO_LEAF}
        partner = draft.partner(frozenset({good[0]}), across > inside, across + inside, elsewhere)
        if partner is not None:
            draft.add({good[0], partner})


def _halves(draft: Draft, suspects: frozenset[int]) -> frozenset[int]:
    """Groups for what slow runs leave open, the smallest first; gives all nodes that these runs were about."""
    touched: set[int] = set()
    again: list[Factor] = []
    for factor in sorted(draft.search.open_factors(), key=lambda one: (len(one.group), sorted(one.group))):
        if evidence(factor.slow, factor.fast, draft.policy) < SLOW_LEANING or factor.group & suspects:
            continue
        if draft.search.belief.cavity[factor.group] < UNEXPLAINED:
            if factor.slow == 1:
                again.append(factor)
            continue
        members = sorted(factor.group & draft.free, key=lambda node: (-round(float(draft.chance[node]), 6), node))
        if not members or factor.group & touched:
            continue
        chosen = frozenset(_half(draft, members))
        if draft.add_with_partner(min(chosen)) if len(chosen) == 1 else draft.add(chosen):
            touched |= factor.group
    for factor in again:
        if factor.group <= draft.free and draft.add(factor.group):
            touched |= factor.group
    return frozenset(touched)


def _half(draft: Draft, members: Sequence[int]) -> list[int]:
    """The first members that hold half of the chance of all."""
    whole = sum(float(draft.chance[node]) for node in members)
    chosen: list[int] = []
    held = 0.0
    for node in members:
        if chosen and (held + float(draft.chance[node]) / 2 > whole / 2 or len(chosen) >= draft.largest):
            break
        if not draft.clashes(chosen, node):
            chosen.append(node)
            held += float(draft.chance[node])
    return chosen


def _screen(draft: Draft, apart: frozenset[int]) -> None:
    """Groups of all other free nodes, while more faulty ones are to be expected among them than may be missed."""
    for node in sorted(draft.free & set(draft.caps)):
        if draft.caps[node] == FEWEST_NODES and node in draft.free:
            draft.add_with_partner(node)
    rest = sorted(draft.free - apart)
    lacking = untold(draft.search) & frozenset(rest)
    mass = sum(float(draft.chance[node]) for node in rest)
    if mass <= draft.policy.missed:
        rest = sorted(lacking)
    if rest:
        whole = max(sum(float(draft.chance[node]) for node in rest), 1e-9)
        fill(draft, rest, whole / max(1, round(whole / _FULL)))


def fill(draft: Draft, nodes: Sequence[int], mass: float) -> None:
    """Groups of at most `mass` faulty nodes on average, in the nodes' order; a node left over gets a good partner."""
    left = list(nodes)
    while left and len(draft.runs) < draft.room:
        group: list[int] = []
        held, cap, later = 0.0, draft.largest, list[int]()
        for place, node in enumerate(left):
            cap = min(cap, draft.caps.get(node, cap))
            if len(group) >= cap or (len(group) > 1 and held + float(draft.chance[node]) > mass * 1.001):
                later += left[place:]
                break
            if draft.clashes(group, node):
                later.append(node)
                continue
            group.append(node)
            held += float(draft.chance[node])
        if len(later) == 1 and len(group) < draft.largest and not draft.clashes(group, later[0]):
            group += [] if later[0] in draft.caps else later
            later = later if later[0] in draft.caps else []
        if not (draft.add_with_partner(group[0]) if len(group) == 1 else draft.add(group)):
            return
        left = [node for node in later if node in draft.free]


def proof_groups(draft: Draft, suspects: frozenset[int]) -> list[frozenset[int]]:
    """All nodes that nothing was found against, in as few groups as the limits and the found causes allow; each group
    that a found cause keeps apart holds as many of the others as it can."""
    rest = sorted(draft.free - suspects)
    groups: list[frozenset[int]] = []
    left = rest
    while left:
        group = set[int]()
        for node in left:
            if len(group) < draft.largest and not draft.clashes(group, node):
                group.add(node)
        if len(group) >= FEWEST_NODES:
            groups.append(frozenset(group))
        left = [node for node in left if node not in group]
    return groups


def prove(draft: Draft, suspects: frozenset[int]) -> bool:
    """Whether all that remains was fast together; if not, the runs that are to show it."""
    lacking = [
        group
        for group in proof_groups(draft, suspects)
        if group not in draft.search.factors or not _fast(draft.search.factors[group])
    ]
    unexplained = draft.search.unexplained
    asked = [group for group in lacking if not any(group >= one for one in unexplained) and not _spent(draft, group)]
    for group in asked:
        if group <= draft.free:
            draft.add(group)
    return not lacking


def _fast(factor: Factor) -> bool:
    return factor.fast > factor.slow


def _spent(draft: Draft, group: frozenset[int]) -> bool:
    """Whether the group ran as often as it may."""
    factor = draft.search.factors.get(group)
    return factor is not None and factor.slow + factor.fast >= draft.policy.most_repeats

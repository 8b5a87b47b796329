"""What a search found, for people: the causes, what stays open and why, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.group_testing import counts, next_runs
from fleet.group_testing_choice import Draft, prove, silent_nodes, suspected, untold
from fleet.group_testing_site import Site
from fleet.group_testing_values import Fault, FaultKind, Limits, RunKind, Search

_SHOWN = 8


class Outcome(StrEnum):
    SEARCHING = "searching"
    WAITING = "waiting"
    """Nodes that the search needs are not available."""
    FOUND = "found"
    """All causes: what remains was fast together."""
    NO_FAULT = "no fault"
    """All nodes were fast together."""
    FOUND_IN_PART = "found in part"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause; `nodes` are all members of a leaf where it is the leaf's, `slow` of `runs` direct runs were slow."""

    kind: FaultKind
    nodes: tuple[str, ...]
    leaves: tuple[str, ...]
    slow: int
    runs: int
    chance: float
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`runs` over several nodes and `runs_within` one took `rounds`; `missed` is how many faulty nodes are to be
    expected among those that nothing was found against. The rest is what stays open, by name."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]
    untested: tuple[str, ...]
    silent: tuple[str, ...]
    unexplained: tuple[tuple[str, ...], ...]
    runs: int
    runs_within: int
    rounds: int
    missed: float
    text: str


def answer(search: Search, limits: Limits | None = None) -> Answer:
    """What is known now; `limits` as they were given to `next_runs`."""
    site, silent, suspects = search.site, silent_nodes(search), suspected(search)
    cleared = site.everything - search.found_nodes - silent - suspects
    number = counts(search)
    found = Answer(
        outcome=_outcome(search, limits or Limits()),
        findings=tuple(_finding(site, fault) for fault in search.faults),
        undecided=site.names(suspects),
        untested=site.names(untold(search) - silent),
        silent=site.names(silent),
        unexplained=tuple(site.names(group) for group in _unexplained(search)),
        runs=number[RunKind.GROUP],
        runs_within=number[RunKind.WITHIN],
        rounds=search.rounds,
        missed=float(sum(search.belief.chance[node] for node in cleared)),
        text="",
    )
    return replace(found, text=_text(found))


def _outcome(search: Search, limits: Limits) -> Outcome:
    if next_runs(search, limits):
        return Outcome.SEARCHING
    draft, suspects = Draft(search, limits), suspected(search)
    proven = prove(draft, suspects)
    open_now = bool(suspects or silent_nodes(search) or untold(search) or _unexplained(search))
    if proven and not open_now:
        return Outcome.FOUND if search.faults else Outcome.NO_FAULT
    spent = search.rounds >= search.policy.most_rounds or len(search.results) >= search.policy.most_runs
    if len(draft.available) < len(search.site.nodes) and not spent:
        return Outcome.WAITING
    return Outcome.FOUND_IN_PART if search.faults else Outcome.NOT_FOUND


def _unexplained(search: Search) -> tuple[frozenset[int], ...]:
    doubted = (search.doubt,) if search.doubt is not None else ()
    open_groups = dict.fromkeys((*search.unexplained, *doubted))
    return tuple(one for one in open_groups if not any(fault.explains(one) for fault in search.faults))


def _finding(site: Site, fault: Fault) -> Finding:
    leaves = tuple(site.leaves[leaf] for leaf in fault.leaves)
    group = fault.first | fault.second if fault.kind in (FaultKind.PAIR, FaultKind.LEAF_LINK) else fault.first
    nodes, runs = site.names(group), fault.slow + fault.fast
    text = f"{_words(fault.kind, nodes, leaves)} ({fault.slow} of {runs} direct runs slow)"
    return Finding(fault.kind, nodes, leaves, fault.slow, runs, fault.chance, text)


def _words(kind: FaultKind, nodes: Sequence[str], leaves: Sequence[str]) -> str:
    if kind is FaultKind.PAIR:
        return f"{nodes[0]} and {nodes[1]}: slow only together: the path between them"
    if kind is FaultKind.LEAF_LINK:
        return f"{leaves[0]} and {leaves[1]}: slow only when a run holds nodes of both: a link between them"
    if kind is FaultKind.UPLINKS:
        return f"{leaves[0]}: its {len(nodes)} nodes are fast among each other and slow with all others: its uplinks"
    if kind is FaultKind.SWITCH:
        return f"{leaves[0]}: all its {len(nodes)} nodes are slow, with each other and with others: the switch"
    if kind is FaultKind.WITHIN_NODE:
        return f"{nodes[0]}: slow within the node too: NVLink or another fault of this one node"
    if kind is FaultKind.NODE_LINK:
        return f"{nodes[0]}: fast within the node, slow with all others: its adapters, cables or switch ports"
    return f"{nodes[0]}: slow with all others; whether within the node too is not known"


def _text(found: Answer) -> str:
    heads = {
        Outcome.SEARCHING: "still searching",
        Outcome.WAITING: "the search waits for nodes that are not available",
        Outcome.FOUND: f"{_count(len(found.findings), 'cause')} found, and all other nodes were fast together",
        Outcome.NO_FAULT: "no fault: all nodes were fast together",
        Outcome.FOUND_IN_PART: f"{_count(len(found.findings), 'cause')} found, but not all",
        Outcome.NOT_FOUND: "not found: no cause is sure",
    }
    lines = [f"{heads[found.outcome]}; {_count(found.runs, 'run')} in {_count(found.rounds, 'round')}"]
    if found.runs_within:
        lines[0] += f", and {found.runs_within} within nodes"
    lines += [finding.text for finding in found.findings]
    if found.outcome in (Outcome.FOUND, Outcome.NO_FAULT):
        return "\n".join([*lines, f"expected number of faulty nodes missed: {found.missed:.2g}"])
    lines += [f"not settled: {_some(found.undecided)}"] if found.undecided else []
    lines += [f"slow together, though fast otherwise, without a cause: {_some(one)}" for one in found.unexplained]
    lines += [f"gave no answer: {_some(found.silent)}"] if found.silent else []
    lines += [f"never in an answered run: {_some(found.untested)}"] if found.untested else []
    return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")

"""What group testing is told and tells: runs, their results, how sure it must be, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fleet.group_testing_site import Site

Array = NDArray[np.float64]


class RunKind(StrEnum):
    """A collective over several nodes, or over the GPUs of one node."""

    GROUP = "group"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class Run:
    """One collective: over at least two nodes, or within exactly one."""

    nodes: tuple[str, ...]
    kind: RunKind = RunKind.GROUP


@dataclass(frozen=True, slots=True)
class RunResult:
    """`slow` is the judgement of the run's bandwidth for its size, None where the run gave no answer.

    `round` numbers what ran at one time, from 1.
    """

    run: Run
    slow: bool | None
    round: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How much is believed of a run, and when the search is at its end.

    `false_slow` is the chance that a run is slow with nothing faulty in it, `false_fast` that it is fast with a fault;
    both for runs that are independent of each other. `expected_faults` is a guess at the faulty nodes (a wrong one
    costs runs), `leaf_faults` at the leaves whose uplinks or switch are, `joint_faults` at the faults that only show
    when two nodes or two leaves are in one run. A cause is found once its chance is `sure` and `direct_runs` runs that
    hold no other suspect were slow; a search ends when fewer than `missed` faulty nodes are left on average.
    `most_repeats` bounds the runs spent on one suspect. `within` asks for runs within a node that was found.
    """

    false_slow: float = 0.02
    false_fast: float = 0.05
    expected_faults: float = 3.0
    leaf_faults: float = 0.1
    joint_faults: float = 0.02
    sure: float = 0.999
    direct_runs: int = 2
    missed: float = 0.02
    most_repeats: int = 8
    most_rounds: int = 80
    most_runs: int = 600
    within: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What may run at once: `available` nodes (None: all of the search), and how many runs of how many nodes."""

    available: frozenset[str] | None = None
    runs_at_once: int | None = None
    largest_group: int | None = None


class FaultKind(StrEnum):
    NODE = "node"
    """The node, or its own links: runs within it did not tell which."""
    WITHIN_NODE = "within node"
    """NVLink, or another fault of one node: the collective is slow within it too."""
    NODE_LINK = "node link"
    """The node's own way into the fabric (adapter, cable, port): within the node all is fast."""
    PAIR = "pair"
    """Slow only when both nodes are in a run: the path between them."""
    UPLINKS = "uplinks"
    """A leaf whose members are fast among each other and slow with everybody else."""
    SWITCH = "switch"
    """A leaf all of whose members are slow with everybody."""
    LEAF_LINK = "leaf link"
    """Slow only when a run holds nodes of both leaves: a link between them."""


NODE_KINDS = frozenset({FaultKind.NODE, FaultKind.WITHIN_NODE, FaultKind.NODE_LINK})


@dataclass(frozen=True, slots=True)
class Fault:
    """A cause that was found: a run is slow when it meets both `first` and `second`.

    `chance` is what it had when it was found, `slow` and `fast` the direct runs until then.
    """

    kind: FaultKind
    first: frozenset[int]
    second: frozenset[int]
    leaves: tuple[int, ...]
    chance: float
    slow: int
    fast: int

    def explains(self, group: frozenset[int]) -> bool:
        """Whether a run over `group` would be slow by this cause."""
        if self.first.isdisjoint(group) or self.second.isdisjoint(group):
            return False
        return len(group) > 1


@dataclass(frozen=True, slots=True)
class Factor:
    """All answered runs over one group: how many were slow and fast, and the items they speak of."""

    group: frozenset[int]
    active: tuple[int, ...]
    slow: int
    fast: int


@dataclass(frozen=True, slots=True)
class Belief:
    """`chance` of each item to be faulty. `cavity` has, for each group, the faulty items expected without its runs."""

    chance: Array
    cavity: Mapping[frozenset[int], float]


@dataclass(frozen=True, slots=True)
class Search:
    """The state of a search: a value that the results alone make again.

    `doubt` is a group that is slow though each of its nodes is fast elsewhere, `doubted_since` the count of results
    when that was seen; `unexplained` are such groups for which no cause was found, `dismissed` those whose slow
    runs were noise by all other runs.
    """

    site: Site
    policy: Policy
    results: tuple[RunResult, ...] = ()
    factors: Mapping[frozenset[int], Factor] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    belief: Belief = field(default_factory=lambda: Belief(np.zeros(0), {}))
    doubt: frozenset[int] | None = None
    doubted_since: int = 0
    unexplained: tuple[frozenset[int], ...] = ()
    dismissed: tuple[frozenset[int], ...] = ()

    @property
    def rounds(self) -> int:
        return max((result.round for result in self.results), default=0)

    @property
    def found_nodes(self) -> frozenset[int]:
        """Nodes that a found cause keeps out of further runs."""
        out: set[int] = set()
        for fault in self.faults:
            if fault.kind in NODE_KINDS or fault.kind is FaultKind.SWITCH:
                out |= fault.first
        return frozenset(out)

    def open_factors(self) -> tuple[Factor, ...]:
        """The groups whose results no found cause explains."""
        return tuple(one for one in self.factors.values() if not any(f.explains(one.group) for f in self.faults))

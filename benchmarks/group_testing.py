"""Group testing by simulation: how many runs and rounds it takes, what it finds and whom it accuses wrongly.

    python -m benchmarks.group_testing --seeds 200 --workers 2

Searches over 232 and 1,250 nodes in leaves of 32, with 0 to 10 faulty nodes, half of them slow within (NVLink) and half
by their own links; then single faults of the fabric: a pair, a leaf's uplinks, a leaf's switch, a link between leaves.
Each run is slow by mistake with one chance and fast by mistake with another, independently of all other runs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import comb, log2

from fleet.group_testing import begin, next_runs, told
from fleet.group_testing_answer import Answer, Outcome, answer
from fleet.group_testing_site import Site, site_of
from fleet.group_testing_values import FaultKind, Limits, Policy, Run, RunKind

LEAF = 32
SIZES = (232, 1250)
FAULTS = (0, 1, 2, 5, 10)
NODE_KINDS = (FaultKind.WITHIN_NODE, FaultKind.NODE_LINK)
FABRIC = (FaultKind.PAIR, FaultKind.UPLINKS, FaultKind.SWITCH, FaultKind.LEAF_LINK)


@dataclass(frozen=True, slots=True)
class Hidden:
    """One true fault: a run is slow that meets both groups; `within` says that a run within the node is slow too."""

    kind: FaultKind
    first: frozenset[str]
    second: frozenset[str]
    within: bool = False

    def slows(self, run: Run) -> bool:
        if run.kind is RunKind.WITHIN:
            return self.within and not self.first.isdisjoint(run.nodes)
        return not self.first.isdisjoint(run.nodes) and not self.second.isdisjoint(run.nodes)


@dataclass(frozen=True, slots=True)
class Noise:
    """Chances, run by run."""

    false_slow: float = 0.02
    false_fast: float = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """What one search came to."""

    true: frozenset[tuple[FaultKind, frozenset[str]]]
    found: frozenset[tuple[FaultKind, frozenset[str]]]
    outcome: Outcome
    runs: int
    within: int
    rounds: int

    @property
    def right_places(self) -> int:
        """Faults found where they are, by whatever kind of name for a node."""
        return len(_places(self.true) & _places(self.found))

    @property
    def right_kinds(self) -> int:
        return len(self.true & self.found)

    @property
    def wrong(self) -> int:
        return len(_places(self.found) - _places(self.true))


def leaves_of(nodes: int, leaf: int = LEAF) -> dict[str, str | None]:
    return {f"gpu{number:04}": f"leaf{number // leaf:02}" for number in range(nodes)}


def node_faults(site: Site, count: int, rng: random.Random) -> list[Hidden]:
    """Faulty nodes drawn at random, by turns slow within and by their links."""
    everything = frozenset(site.nodes)
    return [
        Hidden(NODE_KINDS[place % 2], frozenset({node}), everything, within=place % 2 == 0)
        for place, node in enumerate(rng.sample(site.nodes, count))
    ]


def fabric_fault(site: Site, kind: FaultKind, rng: random.Random) -> Hidden:
    """One fault of the fabric at a random place."""
    everything = frozenset(site.nodes)
    one, other = (frozenset(site.names(site.members[leaf])) for leaf in rng.sample(range(len(site.leaves)), 2))
    if kind is FaultKind.PAIR:
        a, b = rng.sample(site.nodes, 2)
        return Hidden(kind, frozenset({a}), frozenset({b}))
    if kind is FaultKind.LEAF_LINK:
        return Hidden(kind, one, other)
    return Hidden(kind, one, everything - one if kind is FaultKind.UPLINKS else everything)


def is_slow(run: Run, hidden: Sequence[Hidden], noise: Noise, rng: random.Random) -> bool:
    faulty = any(fault.slows(run) for fault in hidden)
    return rng.random() >= noise.false_fast if faulty else rng.random() < noise.false_slow


def search_once(
    site: Site,
    hidden: Sequence[Hidden],
    noise: Noise,
    rng: random.Random,
    policy: Policy | None = None,
    limits: Limits | None = None,
) -> Answer:
    """One whole search."""
    search = begin(site, policy)
    while runs := next_runs(search, limits):
        search = told(search, [(run, is_slow(run, hidden, noise, rng)) for run in runs])
    return answer(search, limits)


def trial(nodes: int, make: Callable[[Site, random.Random], list[Hidden]], noise: Noise, seed: int) -> Trial:
    site = site_of(leaves_of(nodes))
    rng = random.Random(seed)
    hidden = make(site, rng)
    found = search_once(site, hidden, noise, rng)
    true = frozenset((one.kind, _nodes_of(one)) for one in hidden)
    named = frozenset((one.kind, frozenset(one.nodes)) for one in found.findings)
    return Trial(true, named, found.outcome, found.runs, found.runs_within, found.rounds)


def make_nodes(count: int, site: Site, rng: random.Random) -> list[Hidden]:
    return node_faults(site, count, rng)


def make_fabric(kind: FaultKind, site: Site, rng: random.Random) -> list[Hidden]:
    return [fabric_fault(site, kind, rng)]


def _nodes_of(fault: Hidden) -> frozenset[str]:
    return fault.first | fault.second if fault.kind in (FaultKind.PAIR, FaultKind.LEAF_LINK) else fault.first


def _places(faults: frozenset[tuple[FaultKind, frozenset[str]]]) -> frozenset[tuple[str, frozenset[str]]]:
    nodes = {*NODE_KINDS, FaultKind.NODE}
    return frozenset(("node" if kind in nodes else kind.value, where) for kind, where in faults)


def _row(name: str, nodes: int, trials: Sequence[Trial]) -> str:
    true = sum(len(one.true) for one in trials)
    runs = sorted(one.runs for one in trials)
    ends = Counter(one.outcome for one in trials)
    right = ends[Outcome.FOUND] + ends[Outcome.NO_FAULT]
    cells = [
        f"{nodes:,}",
        name,
        f"{statistics.mean(runs):.1f}",
        f"{runs[int(0.95 * (len(runs) - 1))]}",
        f"{statistics.mean(one.within for one in trials):.1f}",
        f"{statistics.mean(one.rounds for one in trials):.1f}",
        f"{sum(one.right_places for one in trials)} of {true}" if true else "",
        f"{sum(one.right_kinds for one in trials)}" if true else "",
        f"{sum(one.wrong for one in trials)}",
        f"{right} of {len(trials)}",
    ]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="searches for each row")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--false-slow", type=float, default=Noise().false_slow)
    parser.add_argument("--false-fast", type=float, default=Noise().false_fast)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    noise = Noise(given.false_slow, given.false_fast)
    print(f"false slow {noise.false_slow:.1%}, false fast {noise.false_fast:.1%}, seeds from {given.first}\n")
    heads = "nodes | faults | runs | 95 % of searches | runs within | rounds | found | right kind | wrongly accused"
    print(f"| {heads} | ended sure |\n|{'---|' * 10}")
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(given.workers) as pool:
        for nodes in given.sizes:
            cases = [(str(count), partial(make_nodes, count)) for count in FAULTS]
            cases += [(f"1 {kind.value}", partial(make_fabric, kind)) for kind in FABRIC]
            for name, make in cases:
                began = time.perf_counter()
                trials = list(pool.map(partial(trial, nodes, make, noise), seeds, chunksize=5))
                spent = (time.perf_counter() - began) * given.workers / len(trials)
                print(_row(name, nodes, trials), flush=True)
                print(f"{spent:.2f} s of one core for each search", file=sys.stderr)
    for nodes in given.sizes:
        print(f"\n5 of {nodes:,}: bound {log2(comb(nodes, 5)):.0f} runs without noise; all pairs {comb(nodes, 2):,}")


if __name__ == "__main__":
    main()

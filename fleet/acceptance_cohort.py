"""A part against its like: the same measure on parts of the same model, judged together.

The rule. A value's shortfall is how far it lies on the bad side of the cohort's median, as a share of it. A part is an
outlier where its shortfall is above the margin, and above what chance explains (`fleet.acceptance_scale`), either from
the whole cohort's median or from that of its own node's parts; each of the two has half of `alpha`. Where it is a
node's median that lies off, the node is the outlier and not its parts; where one slot is slow on most nodes, the slot.

The rates over simulated racks are in docs/performance.md (benchmarks/acceptance_rates.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import expm1, inf, log
from statistics import median

from fleet.acceptance_parts import Part
from fleet.acceptance_rules import CohortRule
from fleet.acceptance_scale import contradicts, found_with, off_by_chance, scale
from fleet.measures import Better

_SIBLINGS = 4  # parts of a node, to compare them with each other
_NODES = 3  # nodes, to say that one of them or one slot of all is slow
_SPLIT = 0.2  # of the values far above the median: it is no median of like parts
_GREATEST = 1e150  # no measure of nature is as great, and no difference of two overflows
_FARTHEST = 700.0  # a distance of logarithms: what lies beyond has no share that a float can hold


class Standing(StrEnum):
    """Where a part stands among its like."""

    WITHIN = "within"
    OUTLIER = "outlier"
    WITH_NODE = "with its node"
    WITH_PLACE = "with its slot"


class CohortCall(StrEnum):
    """Whether the cohort can judge at all."""

    COMPARED = "compared"
    TOO_SMALL = "too small"
    UNEVEN = "uneven"  # it scatters so much that a loss which must be found could hide in it
    SPLIT = "split"  # many are far better than its median


@dataclass(frozen=True, slots=True)
class Member:
    """One part's value, in the measure's unit."""

    part: Part
    value: float


@dataclass(frozen=True, slots=True)
class Peer:
    """One part among its like. `shortfall`: a share of the median (in the unit, if additive), below 0 if better.

    `of_node` is the shortfall from the median of its node's parts, None where these are too few to compare.
    """

    standing: Standing
    shortfall: float
    of_node: float | None = None


@dataclass(frozen=True, slots=True)
class CohortResult:
    """`centre` is the median in the unit; `spread` (robust standard deviation), `limit` (beyond which a part is an
    outlier) and `found` (the smallest shortfall that is found with the rule's power) as `Peer.shortfall`.

    `expected` is how many values there should have been, `missing` says which are not there and why. `slow_nodes` and
    `slow_places` are outliers as a whole, with their shortfall. Parts that are not in `peers` gave no value.
    """

    call: CohortCall
    size: int
    expected: int
    centre: float | None = None
    spread: float | None = None
    limit: float | None = None
    found: float | None = None
    peers: Mapping[tuple[str, str, str], Peer] = field(default_factory=dict)
    slow_nodes: Mapping[str, float] = field(default_factory=dict)
    slow_places: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    text: str = ""

    @property
    def complete(self) -> bool:
        return self.size >= self.expected and not self.missing

    def peer(self, part: Part) -> Peer | None:
        return self.peers.get(_key(part))


def compare(
    members: Iterable[Member],
    better: Better,
    rule: CohortRule,
    missing: Sequence[str] = (),
) -> CohortResult:
    """Every part of the cohort among the others. Values that cannot be compared (not finite; not above zero where
    shares are taken) are left out and named, as are those of `missing`, which the cohort should have had."""
    listed = list(members)
    fit = [abs(one.value) < _GREATEST and (rule.additive or one.value > 0) for one in listed]
    usable = [one for one, is_so in zip(listed, fit, strict=True) if is_so]
    odd = [one for one, is_so in zip(listed, fit, strict=True) if not is_so]
    gaps = [*missing, *(f"{one.part}: {one.value:g} is no value" for one in odd)]
    wanted = len(listed) + len(missing)
    if len(usable) < rule.fewest:
        text = f"{len(usable)} of at least {rule.fewest} values: too few to compare"
        return CohortResult(CohortCall.TOO_SMALL, len(usable), wanted, missing=tuple(gaps), text=text)
    table = _Table(usable, better, rule)
    return table.result(wanted, tuple(gaps))


def _key(part: Part) -> tuple[str, str, str]:
    return part.node, part.kind.value, part.slot


class _Table:
    """Distances of all values from the cohort's median, on the bad side above 0, of logarithms unless additive."""

    def __init__(self, members: Sequence[Member], better: Better, rule: CohortRule) -> None:
        self.rule = rule
        sign = -1.0 if better is Better.HIGHER else 1.0
        levels = {one.part: sign * (one.value if rule.additive else log(one.value)) for one in members}
        middle = median(levels.values())
        self.off = {part: level - middle for part, level in levels.items()}
        self.centre = median(one.value for one in members)
        self.better = better
        self.noise = self._log(rule.noise)
        self.nodes: defaultdict[str, list[Part]] = defaultdict(list)
        for part in self.off:
            self.nodes[part.node].append(part)
        self.level = {node: median(self.off[part] for part in parts) for node, parts in self.nodes.items()}

    def result(self, expected: int, missing: tuple[str, ...]) -> CohortResult:
        """What is slow as a whole is found first, so that it does not pass for the scatter of the others."""
        limit = self._limit(list(self.off.values()))
        slow_nodes, slow_places = self._slow_nodes(limit), self._slow_places()
        alike = [off for part, off in self.off.items() if part.node not in slow_nodes and part.slot not in slow_places]
        spread = scale(alike if len(alike) >= self.rule.fewest else list(self.off.values()))
        if contradicts(max(len(alike), self.rule.fewest), spread, self.noise):
            self.noise = inf
            slow_nodes = self._slow_nodes(limit)
        limit = self._limit_of(len(self.off), spread)
        rest = self._from_siblings()
        found = found_with(self.rule.power, limit, spread)
        call = self._call(limit, found)
        return CohortResult(
            call=call,
            size=len(self.off),
            expected=expected,
            centre=self.centre,
            spread=self._shown(spread),
            limit=self._shown(limit),
            found=self._shown(found),
            peers={_key(part): self._peer(part, limit, rest, slow_nodes, slow_places) for part in self.off},
            slow_nodes={node: self._shown(off) for node, off in slow_nodes.items()},
            slow_places={place: self._shown(off) for place, off in slow_places.items()},
            missing=missing,
            text=self._text(call, spread, limit, found, expected),
        )

    def _limit(self, values: Sequence[float]) -> float:
        return self._limit_of(len(values), scale(values))

    def _limit_of(self, count: int, spread: float) -> float:
        return max(self._log(self.rule.margin), off_by_chance(count, self.rule.alpha / 2, spread, self.noise))

    def _from_siblings(self) -> dict[Part, tuple[float, bool]]:
        """Each part's distance from its node's median, and whether it is an outlier there."""
        compared = {
            part: self.off[part] - self.level[node]
            for node, parts in self.nodes.items()
            if len(parts) >= _SIBLINGS
            for part in parts
        }
        if len(compared) < self.rule.fewest or len(self.nodes) < 2:
            return {}
        values = list(compared.values())
        limit = self._limit(values)
        return {part: (off, off > limit) for part, off in compared.items()}

    def _slow_nodes(self, limit: float) -> dict[str, float]:
        """Nodes whose middle part lies off, or more than half of whose parts do."""
        several = self._several()
        if len(several) < _NODES:
            return {}
        levels = list(several.values())
        middle, own = median(levels), self._limit(levels)
        slow = {node for node, level in several.items() if level - middle > own}
        slow |= {node for node in several if 2 * sum(self.off[p] > limit for p in self.nodes[node]) > self._size(node)}
        return {node: level for node, level in several.items() if node in slow}

    def _several(self) -> dict[str, float]:
        """The middle of each node that has parts enough."""
        return {node: level for node, level in self.level.items() if self._size(node) >= _SIBLINGS}

    def _size(self, node: str) -> int:
        return len(self.nodes[node])

    def _slow_places(self) -> dict[str, float]:
        """Slots that are slower than their nodes, by the margin, on more than half of at least three nodes."""
        margin = self._log(self.rule.margin)
        places: defaultdict[str, list[float]] = defaultdict(list)
        for node, parts in self.nodes.items():
            if len(parts) >= _SIBLINGS:
                for part in parts:
                    places[part.slot].append(self.off[part] - self.level[node])
        return {place: median(offs) for place, offs in places.items() if len(offs) >= _NODES and median(offs) > margin}

    def _peer(
        self,
        part: Part,
        limit: float,
        rest: Mapping[Part, tuple[float, bool]],
        slow_nodes: Mapping[str, float],
        slow_places: Mapping[str, float],
    ) -> Peer:
        off = self.off[part]
        of_node, alone = rest.get(part, (None, False))
        if part.slot in slow_places and (alone or off > limit):
            standing = Standing.WITH_PLACE
        elif alone:
            standing = Standing.OUTLIER
        elif part.node in slow_nodes:
            standing = Standing.WITH_NODE
        else:
            standing = Standing.OUTLIER if off > limit else Standing.WITHIN
        return Peer(standing, self._shown(off), None if of_node is None else self._shown(of_node))

    def _call(self, limit: float, found: float) -> CohortCall:
        if self._ahead(limit) >= max(2, _SPLIT * len(self.off)) or self._two_apart(limit):
            return CohortCall.SPLIT
        return CohortCall.UNEVEN if found > self._log(self.rule.loss) else CohortCall.COMPARED

    def _ahead(self, limit: float) -> int:
        return sum(-off > limit for off in self.off.values())

    def _two_apart(self, limit: float) -> bool:
        """Two nodes that differ: nothing tells which of them is right."""
        levels = list(self._several().values())
        return len(levels) == len(self.nodes) == 2 and abs(levels[0] - levels[1]) > limit

    def _log(self, share: float) -> float:
        """A loss of a share as a distance of logarithms; additive figures are distances already."""
        if self.rule.additive:
            return share
        return -log(1 - share) if self.better is Better.HIGHER else log(1 + share)

    def _shown(self, off: float) -> float:
        """A distance as a shortfall."""
        if self.rule.additive:
            return off
        held = max(-_FARTHEST, min(_FARTHEST, off))
        return -expm1(-held) if self.better is Better.HIGHER else expm1(held)

    def _text(self, call: CohortCall, spread: float, limit: float, found: float, expected: int) -> str:
        count = len(self.off)
        of = f"{count} values" if count >= expected else f"{count} of {expected} values: the cohort is incomplete"
        scatter = f"{of}; they scatter by {self.say(spread)}, an outlier lies {self.say(limit)} off"
        if call is CohortCall.UNEVEN:
            return f"{scatter}; a loss under {self.say(found)} could hide in it, so it judges nothing"
        if call is CohortCall.SPLIT and not self._ahead(limit):
            return f"{scatter}; its two nodes differ by more, and nothing tells which of them is right"
        if call is CohortCall.SPLIT:
            return f"{scatter}; {self._ahead(limit)} are better than the median by more: these are not parts alike"
        return f"{scatter}, and one of {self.say(found)} is found with {self.rule.power:.0%}"

    def say(self, distance: float) -> str:
        size = self._shown(distance)
        return f"{size:.1f}" if self.rule.additive else f"{size * 100:.1f} %"

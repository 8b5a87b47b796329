"""Mends a packing: trades units between rounds until no trade saves anything, then tries other orders.

Iterated greedy: blocks are moved in the order, the builder packs anew, and the better packing is kept. The effort is
counted in trades looked at, not in time, so that the same seed gives the same plan on any machine.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.packing import Block, Builder, Pack, Wish
from fleet.rounds import Round

_PARTNERS = 24  # units of a round that a trade is tried with
_PATIENCE = 25  # tries without a better packing, after which the order is the first one again
_CUT = 0.3  # how often a block that is moved is cut in two
_ELSEWHERE = 0.5  # how often it is wished for in any wave
_DRAFT = 10  # what packing one unit costs, in trades
Tiers = Sequence[Sequence[Block]]


@dataclass(frozen=True, slots=True)
class Score:
    """What is made small, in this order.

    Rounds; cost of all disturbances; waves that jobs are spread over; `late`: idle nodes and small losses late.
    """

    rounds: int
    cost: int
    spread: int
    late: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.rounds, self.cost, self.spread, self.late)


class Packing:
    """Rounds by wave, with where each unit is and what each job touches. The first wave's units stay where they are."""

    def __init__(self, pack: Pack, waves: Sequence[Sequence[Round]]) -> None:
        self._pack = pack
        filled = [(number, one) for number, wave in enumerate(waves) for one in wave if one.members]
        self.rounds = [one for _, one in filled]
        self.wave = [number for number, _ in filled]
        self._at = {unit: index for index, one in enumerate(self.rounds) for unit in one.members}
        self._touched: list[dict[int, int]] = [{} for _ in pack.weights]
        for unit, index in self._at.items():
            for job in pack.jobs[unit]:
                self._touched[job][index] = self._touched[job].get(index, 0) + 1

    def score(self, ranks: Sequence[int]) -> Score:
        """`ranks` by unit: which is to come late."""
        waves = [{self.wave[index] for index in touched} for touched in self._touched]
        order = self.in_order()
        late = -sum(place * ranks[unit] for place, index in enumerate(order) for unit in self.rounds[index].members)
        return Score(len(order), self.cost(), sum(map(len, waves)), late)

    @property
    def first_wave(self) -> int:
        """Rounds of the first wave."""
        return sum(number == 0 for number in self.wave)

    def cost(self) -> int:
        """All disturbances, priced."""
        return sum(weight * len(t) for weight, t in zip(self._pack.weights, self._touched, strict=True))

    def in_order(self) -> list[int]:
        """Rounds that have units, wave by wave; within a wave those first that disturb least."""
        filled = [index for index, one in enumerate(self.rounds) if one.members]
        return sorted(filled, key=lambda index: (self.wave[index], self._disturbs(index), index))

    def _disturbs(self, index: int) -> int:
        jobs = {job for unit in self.rounds[index].members for job in self._pack.jobs[unit]}
        return sum(self._pack.weights[job] for job in jobs)

    def mend(self, fewest: Sequence[int], effort: int) -> int:
        """Trade until nothing is saved, or `effort` trades were looked at; returns what is left of it."""
        saved = True
        while saved and effort > 0:
            saved = False
            for unit in self._torn(fewest):
                for to in self._homes(unit):
                    looked, done = self._settle(unit, to)
                    effort -= looked
                    saved = saved or done
                    if done or effort <= 0:
                        break
                if effort <= 0:
                    break
        return effort

    def _torn(self, fewest: Sequence[int]) -> list[int]:
        """Units of jobs that touch more rounds than they must."""
        torn = {job for job, touched in enumerate(self._touched) if len(touched) > fewest[job]}
        movable = (unit for unit, index in self._at.items() if self.wave[index] > 0)
        return [unit for unit in movable if not torn.isdisjoint(self._pack.jobs[unit])]

    def _homes(self, unit: int) -> list[int]:
        """Other rounds that the unit's jobs touch anyway, those with the most of them first."""
        found: dict[int, int] = {}
        for job in self._pack.jobs[unit]:
            for index, count in self._touched[job].items():
                if index != self._at[unit] and self.wave[index] > 0:
                    found[index] = found.get(index, 0) + count
        return sorted(found, key=lambda index: (-found[index], index))

    def _settle(self, unit: int, to: int) -> tuple[int, bool]:
        """Move or trade the unit into that round if that saves something; (trades looked at, whether it was done)."""
        here, load = self._at[unit], self._pack.loads[unit]
        looked = 1
        if self.wave[here] == self.wave[to] and self._saving(unit, to, ()) > 0 and self.rounds[to].fits(load):
            self._move(unit, to)
            return looked, True
        for partner in self._partners(unit, to):
            looked += 1
            saving = self._saving(unit, to, self._pack.jobs[partner]) + self._saving(
                partner, here, self._pack.jobs[unit]
            )
            if saving > 0 and self._trade(unit, partner):
                return looked, True
        return looked, False

    def _partners(self, unit: int, to: int) -> list[int]:
        """Units of as many nodes in that round: of the same racks first, as those always make room."""
        loads, last = self._pack.loads, self._pack.last
        load, same_wave = loads[unit], self.wave[to] == self.wave[self._at[unit]]
        alike: list[int] = []
        others: list[int] = []
        for other in self.rounds[to].members:
            if same_wave or (other in last) == (unit in last):
                if loads[other].racks == load.racks:
                    alike.append(other)
                elif loads[other].nodes == load.nodes and len(others) < _PARTNERS:
                    others.append(other)
        return alike + others

    def _saving(self, unit: int, to: int, instead: Sequence[int]) -> int:
        """What is saved if the unit goes there, and a unit with the jobs `instead` comes in its place."""
        here, saved = self._at[unit], 0
        for job in self._pack.jobs[unit]:
            if job not in instead:
                touched = self._touched[job]
                saved += self._pack.weights[job] * ((touched[here] == 1) - (to not in touched))
        return saved

    def _trade(self, unit: int, partner: int) -> bool:
        """Exchange two units if both fit in the other's place."""
        here, there = self._at[unit], self._at[partner]
        mine, other = self._pack.loads[unit], self._pack.loads[partner]
        self.rounds[here].remove(unit, mine)
        self.rounds[there].remove(partner, other)
        fit = self.rounds[there].fits(mine) and self.rounds[here].fits(other)
        self.rounds[here].add(unit, mine)
        self.rounds[there].add(partner, other)
        if fit:
            self._move(unit, there)
            self._move(partner, here)
        return fit

    def _move(self, unit: int, to: int) -> None:
        here, load = self._at[unit], self._pack.loads[unit]
        self.rounds[here].remove(unit, load)
        self.rounds[to].add(unit, load)
        self._at[unit] = to
        for job in self._pack.jobs[unit]:
            touched = self._touched[job]
            touched[to] = touched.get(to, 0) + 1
            touched[here] -= 1
            if not touched[here]:
                del touched[here]


@dataclass(frozen=True, slots=True)
class _Case:
    """What stays the same from one try to the next. `room` is by tier and wave; `ranks` by unit, `fewest` by job."""

    pack: Pack
    canary: tuple[Block, ...]
    counts: tuple[int, ...]
    room: tuple[tuple[int, ...], ...]
    ranks: tuple[int, ...]
    fewest: tuple[int, ...]


def search(pack: Pack, canary: Iterable[Block], tiers: Tiers, seed: int, effort: int) -> Packing:
    """The best packing that is found: the first wave holds `canary`, the others hold the blocks of `tiers`.

    Tiers come one after the other, their blocks in the order that is wished for. Deterministic: `effort` is about the
    number of trades that are looked at. One packing is made in any case.
    """
    case = _case(pack, tuple(canary), tiers)
    rng = random.Random(seed)  # noqa: S311  an order, not a secret
    first = [_wishes(case, tier, room) for tier, room in zip(tiers, case.room, strict=True)]
    best, effort = _try(case, first, effort)
    score = best.score(case.ranks)
    least = sum(weight * count for weight, count in zip(pack.weights, case.fewest, strict=True))
    rounds = sum(case.counts) + best.first_wave
    order, stale = first, 0
    while effort > 0 and (score.cost > least or (score.rounds > rounds and stale < 4 * _PATIENCE)):
        tried = [_shuffled(tier, len(case.counts), rng) for tier in order]
        found, effort = _try(case, tried, effort)
        reached = found.score(case.ranks)
        stale = 0 if reached.key < score.key else stale + 1
        if reached.key <= score.key:
            best, score, order = found, reached, tried
        elif stale % _PATIENCE == 0:
            order = first
    return best


def _case(pack: Pack, canary: tuple[Block, ...], tiers: Tiers) -> _Case:
    flat = [[unit for block in tier for unit in block] for tier in tiers]
    units = [unit for tier in flat for unit in tier]
    sizes = pack.sizes(units)
    room, left = [], list(sizes)
    for tier in flat:
        nodes, taken = pack.nodes(tier), list[int]()
        for size in left:
            taken.append(min(size, nodes))
            nodes -= taken[-1]
        room.append(tuple(taken))
        left = [size - part for size, part in zip(left, taken, strict=True)]
    counts = tuple(pack.rounds(units, sizes))
    return _Case(pack, canary, counts, tuple(room), _ranks(len(pack.loads), tiers), _fewest(pack, canary, tiers))


def _wishes(case: _Case, tier: Sequence[Block], room: Sequence[int]) -> list[Wish]:
    """Each block with the wave that its middle would be in, in the order of placing: what is hardest to place first."""
    ends = list(itertools.accumulate(room))
    wishes, before = [], 0
    for block in tier:
        nodes = case.pack.nodes(block)
        wave = bisect.bisect_right(ends, before + nodes // 2)
        wishes.append(Wish(min(wave, len(ends) - 1), block))
        before += nodes
    return sorted(wishes, key=lambda wish: -len(wish.block))


def _try(case: _Case, tiers: Sequence[Sequence[Wish]], effort: int) -> tuple[Packing, int]:
    """One packing, mended; and the effort that is left."""
    pack = case.pack
    canary = [unit for block in case.canary for unit in block]
    first = Builder(pack, pack.rounds(canary, [pack.nodes(canary)]))
    first.place((Wish(0, block) for block in case.canary), [pack.nodes(canary)])
    others = Builder(pack, case.counts)
    for wishes, room in zip(tiers, case.room, strict=True):
        others.place(wishes, list(room))
    packing = Packing(pack, [*first.waves, *others.waves])
    return packing, packing.mend(case.fewest, effort - _DRAFT * len(pack.loads))


def _ranks(units: int, tiers: Tiers) -> tuple[int, ...]:
    """The place of each unit's block in the order that is wished for; the canary has none."""
    ranks = [0] * units
    for place, block in enumerate(block for tier in tiers for block in tier):
        for unit in block:
            ranks[unit] = place
    return tuple(ranks)


def _fewest(pack: Pack, canary: Sequence[Block], tiers: Tiers) -> tuple[int, ...]:
    """By job, the least rounds that it takes, those of the canary's units for themselves."""
    counts = [0] * len(pack.weights)
    for blocks in (canary, [block for tier in tiers for block in tier]):
        units: list[list[int]] = [[] for _ in pack.weights]
        for unit in (unit for block in blocks for unit in block):
            for job in pack.jobs[unit]:
                units[job].append(unit)
        for job, own in enumerate(units):
            counts[job] += pack.fewest(own)
    return tuple(counts)


def _shuffled(wishes: Sequence[Wish], waves: int, rng: random.Random) -> list[Wish]:
    """A few blocks are placed sooner or later, in any wave, some cut in two; their units change places too."""
    order = list(wishes)
    for _ in range(rng.randint(1, 3) if order else 0):
        moved = order.pop(rng.randrange(len(order)))
        units = rng.sample(moved.block, len(moved.block))
        cut = rng.randrange(len(units)) if rng.random() < _CUT else 0
        for part in (units[:cut], units[cut:]):
            wave = rng.randrange(waves) if rng.random() < _ELSEWHERE else moved.wave
            if part:
                order.insert(rng.randint(0, len(order)), Wish(wave, part))
    return order

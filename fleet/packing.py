"""Packs units into the rounds of all waves, job by job: the first draft that the search then mends.

Nothing here knows of jobs' names or of time: units and jobs are numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleet.rounds import Limits, Load, Round, fewest_rounds, most_at_once

Block = list[int]  # units of one job that are to go together, or one unit without a job
_TRIED = 64  # units of a round that are asked to yield


@dataclass(frozen=True, slots=True)
class Wish:
    """A block, and the wave that it would be in if nothing but the order of losses counted."""

    wave: int
    block: Block


@dataclass(frozen=True, slots=True)
class Pack:
    """What is packed: by unit its load and its jobs, by job what one disturbance costs.

    `size_of` is how many nodes a wave is to have, by its number; 0 is the canary. Units of `last` come last.
    """

    loads: tuple[Load, ...]
    jobs: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    limits: Limits
    size_of: Callable[[int], int]
    last: frozenset[int] = frozenset()

    def fewest(self, units: Iterable[int]) -> int:
        """The least rounds that these units take."""
        return fewest_rounds((self.loads[unit] for unit in units), self.limits)

    def nodes(self, units: Iterable[int]) -> int:
        """How many nodes they have."""
        return sum(self.loads[unit].nodes for unit in units)

    def sizes(self, units: Iterable[int]) -> list[int]:
        """Nodes of each wave after the canary, if these units are in them."""
        left, sizes = self.nodes(units), list[int]()
        while left > 0:
            sizes.append(min(left, self.size_of(len(sizes) + 1)))
            left -= sizes[-1]
        return sizes

    def rounds(self, units: Sequence[int], sizes: Iterable[int]) -> list[int]:
        """The least rounds of each wave of these sizes; what the racks take more is the last wave's."""
        at_once = most_at_once((self.loads[unit] for unit in units), self.limits)
        counts = [math.ceil(size / at_once) for size in sizes]
        if counts:
            counts[-1] += max(0, self.fewest(units) - sum(counts))
        return counts


class Builder:
    """Waves with as many rounds as `counts` says; a round more where nothing else helps."""

    def __init__(self, pack: Pack, counts: Iterable[int]) -> None:
        self._pack = pack
        self.waves = [[Round(pack.limits) for _ in range(count)] for count in counts]
        self._loose: set[int] = set()  # units that belong to no larger block

    def place(self, wishes: Iterable[Wish], room: list[int]) -> None:
        """Place each block in its wave or the nearest that holds it whole, else in parts; `room`: nodes by wave.

        The room that is taken is subtracted.
        """
        for wish in wishes:
            nearest = sorted(range(len(room)), key=lambda wave: (abs(wave - wish.wave), wave))
            self._loose.update(wish.block if len(wish.block) == 1 else ())
            rest = wish.block
            if not self._whole(rest, nearest, room):
                for free in (True, False):
                    for wave in nearest:
                        rest = self._parts(rest, wave, room, free)
                for unit in rest:
                    if not self._instead(unit, nearest, room):
                        self._one(unit, nearest, room)

    def _whole(self, block: Block, waves: Iterable[int], room: list[int]) -> bool:
        """Place the block in one wave, in no more rounds than it has to take."""
        nodes, most = self._pack.nodes(block), self._pack.fewest(block)
        for wave in waves:
            if nodes <= room[wave] and self._in_rounds(block, self.waves[wave], most):
                room[wave] -= nodes
                return True
        return False

    def _in_rounds(self, block: Block, rounds: Sequence[Round], most: int) -> bool:
        """Put all of a block into at most so many rounds, or none of it anywhere."""
        rest, done = block, list[tuple[Round, Block]]()
        while rest and len(done) < min(most, len(rounds)):
            unused = [one for one in rounds if all(one is not other for other, _ in done)]
            found = self._best(rest, unused, self._pack.nodes(rest))
            if found is None:
                break
            done.append(found)
            rest = [unit for unit in rest if unit not in found[1]]
        if rest:
            for chosen, units in done:
                self._empty(chosen, units)
        return not rest

    def _best(self, units: Sequence[int], rounds: Iterable[Round], need: int) -> tuple[Round, Block] | None:
        """Fill the round that takes the most of these units, at most `need` nodes; None where none takes any.

        Of several the emptiest is taken, so that racks find room in all of them.
        """
        best: tuple[Round, Block] | None = None
        for one in sorted(rounds, key=lambda one: one.nodes):
            taken = self._fill(one, units, need)
            if best is None or len(taken) > len(best[1]):
                if best is not None:
                    self._empty(*best)
                best = (one, taken)
            else:
                self._empty(one, taken)
            if len(best[1]) == len(units):
                break
        return best if best is not None and best[1] else None

    def _fill(self, chosen: Round, units: Iterable[int], need: int) -> Block:
        taken: Block = []
        for unit in units:
            load = self._pack.loads[unit]
            if load.nodes <= need and chosen.fits(load):
                chosen.add(unit, load)
                need -= load.nodes
                taken.append(unit)
        return taken

    def _empty(self, chosen: Round, units: Iterable[int]) -> None:
        for unit in units:
            chosen.remove(unit, self._pack.loads[unit])

    def _parts(self, block: Block, wave: int, room: list[int], free: bool) -> Block:
        """Place as much as goes into this wave, with `free` only what costs no more disturbances; returns the rest."""
        rest = block
        while rest and room[wave] > 0 and (found := self._best(rest, self.waves[wave], room[wave])) is not None:
            chosen, taken = found
            after = [unit for unit in rest if unit not in taken]
            if free and self._pack.fewest(after) + 1 > self._pack.fewest(rest):
                self._empty(chosen, taken)
                break
            rest = after
            room[wave] -= self._pack.nodes(taken)
        return rest

    def _instead(self, unit: int, waves: Sequence[int], room: list[int]) -> bool:
        """Place the unit where another is that can go to a wave which has room."""
        load = self._pack.loads[unit]
        short = [wave for wave in waves if room[wave] >= load.nodes]
        for wave in (wave for wave in waves if short and wave not in short):
            for one in self.waves[wave]:
                alike = (other for other in one.members if self._may_yield(other, unit))
                for other in list(itertools.islice(alike, _TRIED)):
                    if self._yields(other, one, unit, short, room):
                        return True
        return False

    def _may_yield(self, other: int, unit: int) -> bool:
        pack = self._pack
        same_size = pack.loads[other].nodes == pack.loads[unit].nodes
        return other in self._loose and same_size and (other in pack.last) == (unit in pack.last)

    def _yields(self, other: int, one: Round, unit: int, short: Iterable[int], room: list[int]) -> bool:
        """Put `unit` in place of `other`, and that into a wave of `short`, if both fit."""
        mine, theirs = self._pack.loads[unit], self._pack.loads[other]
        one.remove(other, theirs)
        if one.fits(mine):
            for wave in short:
                home = next((there for there in self.waves[wave] if there.fits(theirs)), None)
                if home is not None:
                    home.add(other, theirs)
                    one.add(unit, mine)
                    room[wave] -= theirs.nodes
                    return True
        one.add(other, theirs)
        return False

    def _one(self, unit: int, waves: Iterable[int], room: list[int]) -> None:
        """The limits leave no room, or the unit is larger than what is missing: a unit too many, or a round more."""
        load = self._pack.loads[unit]
        short = [wave for wave in waves if room[wave] > 0]
        small = [wave for wave in short if load.nodes <= room[wave]]
        wave = max(small) if small else min(short)
        chosen = next((one for one in self.waves[wave] if one.fits(load)), None)
        if chosen is None:
            chosen = Round(self._pack.limits)
            self.waves[wave].append(chosen)
        chosen.add(unit, load)
        room[wave] -= load.nodes

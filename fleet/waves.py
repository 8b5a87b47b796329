"""Which nodes are changed together, and in which order. The same seed gives the same waves."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.config import Pool, WaveSettings
from fleet.plan import Wave


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node to be visited. `vintage` names its present firmware; `unit` what it is taken out with."""

    node: str
    pool: str
    rack: str
    model: str
    vintage: str
    unit: str
    busy: bool
    device_seconds: float


Unit = tuple[Candidate, ...]


def plan_waves(
    candidates: Sequence[Candidate],
    pools: Mapping[str, Pool],
    pool_sizes: Mapping[str, int],
    rack_limits: Mapping[str, int],
    seed: int,
) -> tuple[Wave, ...]:
    """Canary first, then growing waves; non-production pools before production.

    Idle nodes come first inside a pool. A wave is closed over its units: none is split.
    """
    waves: list[Wave] = []
    for pool in sorted({c.pool for c in candidates}, key=lambda name: (pools[name].production, name)):
        units = _units([c for c in candidates if c.pool == pool], seed)
        for number, part in enumerate(_cut(units, pools[pool].waves)):
            name = f"{pool} canary" if number == 0 else f"{pool} wave {number + 1}"
            waves.append(_wave(len(waves) + 1, name, part, pools[pool], pool_sizes[pool], rack_limits))
    return tuple(waves)


def max_out(pool: Pool, size: int) -> int:
    """How many nodes of a pool may be out together under its capacity floor."""
    return size - math.ceil(pool.capacity_floor * size - 1e-9)


def _units(candidates: Iterable[Candidate], seed: int) -> list[Unit]:
    """Units in a seeded order, idle ones first, dealt round the racks so that no rack comes last alone."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.node):
        groups.setdefault(candidate.unit, []).append(candidate)
    units = [tuple(group) for _, group in sorted(groups.items())]
    random.Random(seed).shuffle(units)  # noqa: S311  an order, not a secret
    units.sort(key=lambda unit: any(c.busy for c in unit))
    turn: Counter[str] = Counter()
    dealt: list[tuple[int, int, Unit]] = []
    for index, unit in enumerate(units):
        dealt.append((turn[unit[0].rack], index, unit))
        turn[unit[0].rack] += 1
    return [unit for _, _, unit in sorted(dealt, key=lambda item: item[:2])]


def _cut(units: list[Unit], settings: WaveSettings) -> list[list[Unit]]:
    canary = _stratified(units, settings.canary)
    rest = [unit for unit in units if unit not in canary]
    parts = [canary]
    while rest:
        size = _size(len(parts), settings)
        part: list[Unit] = []
        while rest and sum(len(unit) for unit in part) < size:
            part.append(rest.pop(0))
        parts.append(part)
    return parts


def _size(number: int, settings: WaveSettings) -> int:
    """Nodes of wave `number` (0 is the canary)."""
    if settings.growth == "exponential":
        size = settings.canary * settings.factor**number
    elif settings.growth == "linear":
        size = settings.canary * (1 + settings.factor * number)
    else:
        size = float(settings.size or settings.canary)
    return max(1, math.ceil(min(size, 1e9)))


def _stratified(units: list[Unit], count: int) -> list[Unit]:
    """Up to `count` nodes that show as many racks, models and vintages as can be shown."""
    chosen: list[Unit] = []
    seen: set[tuple[str, str]] = set()
    while sum(len(unit) for unit in chosen) < count and len(chosen) < len(units):
        best = max((u for u in units if u not in chosen), key=lambda u: len(_strata(u) - seen))
        chosen.append(best)
        seen |= _strata(best)
    return chosen


def _strata(unit: Unit) -> set[tuple[str, str]]:
    kinds = (("rack", "rack"), ("model", "model"), ("vintage", "vintage"))
    return {(kind, str(getattr(candidate, field))) for candidate in unit for kind, field in kinds}


def _wave(number: int, name: str, units: list[Unit], pool: Pool, size: int, rack_limits: Mapping[str, int]) -> Wave:
    nodes = [candidate for unit in units for candidate in unit]
    racks = Counter(candidate.rack for candidate in nodes)
    allowed = sum(min(count, rack_limits[rack]) for rack, count in racks.items())
    out = min(allowed, max_out(pool, size))
    rounds = max(
        *(math.ceil(count / max(1, rack_limits[rack])) for rack, count in racks.items()),
        math.ceil(len(nodes) / max(1, out)),
    )
    return Wave(
        number=number,
        name=name,
        pool=nodes[0].pool,
        units=tuple(tuple(c.node for c in unit) for unit in units),
        racks=dict(sorted(racks.items())),
        out_at_most=out,
        rounds=rounds,
        expected_seconds=rounds * max(c.device_seconds for c in nodes),
        bake_seconds=pool.waves.bake_seconds,
    )

"""Which nodes are changed together, and in which order. The same seed gives the same waves."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from fleet.config import Pool, WaveSettings
from fleet.job_waves import Order, RunningJob, order_by_job, work_on
from fleet.plan import Wave
from fleet.rounds import Candidate, Limits, Unit


def plan_waves(
    candidates: Sequence[Candidate],
    pools: Mapping[str, Pool],
    pool_sizes: Mapping[str, int],
    rack_limits: Mapping[str, int],
    seed: int,
    jobs: Sequence[RunningJob] = (),
    opens: Mapping[str, datetime] | None = None,
) -> tuple[Wave, ...]:
    """Canary first, then growing waves; non-production pools before production; inside a pool by job.

    A wave's units stand in the order of its rounds; none is split. `opens` is when each pool may begin: jobs
    that are protected then go last in their pool; None protects none.
    """
    waves: list[Wave] = []
    for pool in sorted({c.pool for c in candidates}, key=lambda name: (pools[name].production, name)):
        own = [c for c in candidates if c.pool == pool]
        order = order_of_pool(
            own, pools[pool], pool_sizes[pool], rack_limits, seed, jobs, opens[pool] if opens else None
        )
        for number, rounds in enumerate(order_by_job(order, seed)):
            name = f"{pool} canary" if number == 0 else f"{pool} wave {number + 1}"
            waves.append(_wave(len(waves) + 1, name, rounds, pools[pool], order))
    return tuple(waves)


def order_of_pool(
    candidates: Sequence[Candidate],
    pool: Pool,
    size: int,
    rack_limits: Mapping[str, int],
    seed: int,
    jobs: Sequence[RunningJob],
    start: datetime | None = None,
) -> Order:
    """What is to be ordered in one pool of `size` nodes: idle units first, then those whose jobs lose least.

    The canary is chosen: of units without a job that is protected at `start`, where there are any.
    """
    units = _units(candidates, seed)
    busy = frozenset(c.node for c in candidates if c.busy)
    work = work_on([c.node for unit in units for c in unit], busy, jobs)
    protected = frozenset(job.id for job in work.jobs if start is not None and job.is_protected(start))
    on_unit = {unit: work.numbers(c.node for c in unit) for unit in units}
    ordered = sorted(units, key=lambda unit: max(on_unit[unit], default=-1))
    free = [unit for unit in ordered if all(work.jobs[number].id not in protected for number in on_unit[unit])]
    canary = _stratified(free or ordered, pool.waves.canary)
    chosen = set(canary)
    limits = Limits(max_out(pool, size), rack_limits, pool.domain_limit)
    others = [unit for unit in ordered if unit not in chosen]
    return Order(canary, others, lambda number: _size(number, pool.waves), limits, work, protected)


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


def _size(number: int, settings: WaveSettings) -> int:
    """Nodes of wave `number` (0 is the canary)."""
    if settings.growth == "exponential":
        size = settings.canary * settings.factor**number
    elif settings.growth == "linear":
        size = settings.canary * (1 + settings.factor * number)
    else:
        size = float(settings.size or settings.canary)
    return max(1, math.ceil(min(size, 1e9)))


def _stratified(units: Sequence[Unit], count: int) -> list[Unit]:
    """Up to `count` nodes that show as many racks, models and vintages as can be shown."""
    left = {index: _strata(unit) for index, unit in enumerate(units)}
    chosen: list[Unit] = []
    seen: set[tuple[str, str]] = set()
    while sum(len(unit) for unit in chosen) < count and left:
        best = max(left, key=lambda index: len(left[index] - seen))
        seen |= left.pop(best)
        chosen.append(units[best])
    return chosen


def _strata(unit: Unit) -> set[tuple[str, str]]:
    kinds = (("rack", "rack"), ("model", "model"), ("vintage", "vintage"))
    return {(kind, str(getattr(candidate, field))) for candidate in unit for kind, field in kinds}


def _wave(number: int, name: str, rounds: list[list[Unit]], pool: Pool, order: Order) -> Wave:
    nodes = [candidate for units in rounds for unit in units for candidate in unit]
    racks = Counter(candidate.rack for candidate in nodes)
    limits = order.limits
    disturbed = [job for units in rounds for job in order.work.numbers(c.node for unit in units for c in unit)]
    return Wave(
        number=number,
        name=name,
        pool=nodes[0].pool,
        units=tuple(tuple(c.node for c in unit) for units in rounds for unit in units),
        racks=dict(sorted(racks.items())),
        out_at_most=min(sum(min(count, limits.racks[rack]) for rack, count in racks.items()), limits.out),
        rounds=len(rounds),
        expected_seconds=len(rounds) * max(c.device_seconds for c in nodes),
        bake_seconds=pool.waves.bake_seconds,
        jobs=len(set(disturbed)),
        disturbances=len(disturbed),
        lost_gpu_hours=order.work.lost(disturbed),
        round_units=tuple(map(len, rounds)),
    )

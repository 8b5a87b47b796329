"""Planning by job: how fast, how far from the optimum, and how much better than going rack by rack.

    python -m benchmarks.job_planning --nodes 12500 --jobs 3000 --small 200

First a large fleet in racks of eight, on which seven jobs in ten are packed into neighbouring nodes and the others lie
anywhere. Then small random fleets (8 to 14 nodes, 2 to 6 jobs), for which an integer program (SciPy's HiGHS) gives the
least rounds, and then the least cost in so many rounds. Every way of planning has the same canary, wave sizes and
limits. *Rack by rack* takes racks one after the other, *dealt* takes one node of each rack in turn; both know no jobs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.job_optimum import optimum
from fleet.config import Pool, WaveSettings
from fleet.job_waves import Order, RunningJob, order_by_job
from fleet.rounds import Candidate, Load, Round, Unit, fewest_rounds, load_of
from fleet.waves import order_of_pool, plan_waves

Waves = list[list[list[Unit]]]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SHARES = (0.57, 0.15, 0.12, 0.09, 0.045, 0.018, 0.006, 0.001)


@dataclass(frozen=True, slots=True)
class Fleet:
    """One pool, what runs on it and its limits."""

    candidates: tuple[Candidate, ...]
    jobs: tuple[RunningJob, ...]
    pool: Pool
    rack_limits: dict[str, int]

    def order(self, seed: int) -> Order:
        """What there is to be ordered, canary chosen."""
        return order_of_pool(self.candidates, self.pool, len(self.candidates), self.rack_limits, seed, self.jobs)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a way of planning costs. `cost` is without the canary, in thousandths of a GPU-hour."""

    rounds: int
    disturbances: int
    gpu_hours: float
    cost: int


def figures(order: Order, waves: Waves) -> Figures:
    """Counts a job once for each round that touches it."""
    rounds = [(number, units) for number, wave in enumerate(waves) for units in wave]
    disturbed = [(n, order.work.numbers(c.node for unit in units for c in unit)) for n, units in rounds]
    every = [job for _, jobs in disturbed for job in jobs]
    later = [job for number, jobs in disturbed if number for job in jobs]
    lost = order.work.lost(every)
    assert lost is not None
    return Figures(len(rounds), len(every), lost, sum(order.work.weights[job] for job in later))


def in_given_order(order: Order, others: Sequence[Unit]) -> Waves:
    """Waves cut from a list; each unit goes into the first round of its wave that has room."""
    waves = [_first_fit(order, order.canary)]
    left = list(others)
    while left:
        size, part = order.size_of(len(waves)), list[Unit]()
        while left and sum(map(len, part)) < size:
            part.append(left.pop(0))
        waves.append(_first_fit(order, part))
    return waves


def _first_fit(order: Order, units: Sequence[Unit]) -> list[list[Unit]]:
    rounds: list[Round] = []
    for number, unit in enumerate(units):
        load = load_of(unit)
        chosen = next((one for one in rounds if one.fits(load)), None)
        if chosen is None:
            chosen = Round(order.limits)
            rounds.append(chosen)
        chosen.add(number, load)
    return [[units[number] for number in one.members] for one in rounds]


def rack_by_rack(order: Order) -> Waves:
    return in_given_order(order, sorted(order.others, key=lambda unit: (unit[0].rack, unit[0].node)))


def dealt(order: Order, seed: int) -> Waves:
    """One node of each rack in turn, idle nodes first: what the plan was before it knew of jobs."""
    idle = {unit: not order.work.numbers(c.node for c in unit) for unit in order.others}
    units = sorted(order.others, key=lambda unit: unit[0].node)
    random.Random(seed).shuffle(units)
    units.sort(key=lambda unit: not idle[unit])
    turns: dict[str, int] = {}
    keys = []
    for index, unit in enumerate(units):
        turns[unit[0].rack] = turns.get(unit[0].rack, -1) + 1
        keys.append((turns[unit[0].rack], index))
    return in_given_order(order, [unit for _, unit in sorted(zip(keys, units, strict=True), key=lambda pair: pair[0])])


def small_fleet(seed: int) -> Fleet:
    """8 to 14 nodes in 2 to 4 racks, 2 to 6 jobs; some with NVLink domains of two nodes, some of these in one unit."""
    rng = random.Random(seed)
    racks, count = rng.randint(2, 4), rng.randint(4, 7) * 2
    paired, whole = rng.random() < 0.4, rng.random() < 0.5
    candidates = tuple(
        Candidate(
            node=f"n{n:02}",
            pool="train",
            rack=f"r{n // 2 % racks}",
            model="HGX-H100-8",
            vintage=f"v{rng.randint(0, 1)}",
            unit=f"nvlink:{n // 2}" if paired and whole else f"n{n:02}",
            busy=False,
            device_seconds=600.0,
            nvlink_domain=str(n // 2) if paired else None,
        )
        for n in range(count)
    )
    jobs = place_jobs(
        rng, candidates, [rng.randint(1, 6) for _ in range(rng.randint(2, 6))], rng.choice((0.0, 0.5, 1.0))
    )
    settings = rng.choice(
        (WaveSettings(canary=2), WaveSettings(canary=2, growth="fixed", size=4), WaveSettings(canary=2, factor=4.0))
    )
    pool = Pool(capacity_floor=1 - rng.randint(2, 5) / count, domain_limit=rng.randint(1, 2), waves=settings)
    return Fleet(candidates, jobs, pool, {f"r{rack}": rng.randint(1 + paired, 3) for rack in range(racks)})


def large_fleet(nodes: int, jobs: int, seed: int) -> Fleet:
    """Racks of eight; one node in twenty is idle, on the others are jobs of 1 to 128 nodes."""
    rng = random.Random(seed)
    candidates = tuple(
        Candidate(f"gpu-{n:05}", "train", f"r{n // 8:04}", "HGX-H100-8", f"v{n % 3}", f"gpu-{n:05}", False, 1800.0)
        for n in range(nodes)
    )
    sizes = rng.choices(SIZES, SHARES, k=jobs)
    limits = {candidate.rack: 2 for candidate in candidates}
    busy = sorted(rng.sample(candidates, nodes * 19 // 20), key=lambda candidate: candidate.node)
    return Fleet(candidates, place_jobs(rng, busy, sizes, 0.7), Pool(), limits)


def place_jobs(
    rng: random.Random, candidates: Sequence[Candidate], sizes: Sequence[int], packed: float
) -> tuple[RunningJob, ...]:
    """Jobs on free nodes, no two on one; a share of `packed` on neighbours as far as there are any."""
    free = [candidate.node for candidate in candidates]
    jobs = []
    for number, size in enumerate(sizes):
        count = min(size, len(free))
        first = rng.randrange(len(free) - count + 1)
        nodes = free[first : first + count] if rng.random() < packed else rng.sample(free, count)
        taken = set(nodes)
        free = [node for node in free if node not in taken]
        if nodes:
            hours = min(rng.expovariate(2.0), 4.0)
            jobs.append(RunningJob(str(1000 + number), tuple(nodes), 8 * count, round(hours * 8 * count, 1)))
    return tuple(jobs)


def compare_large(nodes: int, jobs: int, seed: int) -> None:
    """The least cost is a bound: each job in as few rounds as its own nodes need, whatever the others do."""
    fleet = large_fleet(nodes, jobs, seed)
    began, cpu = time.perf_counter(), time.process_time()
    sizes = {"train": len(fleet.candidates)}
    plan_waves(fleet.candidates, {"train": fleet.pool}, sizes, fleet.rack_limits, seed, fleet.jobs)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    order = fleet.order(seed)
    planned = order_by_job(order, seed)
    least = least_cost(order)
    print(f"\n{nodes} nodes, {len(fleet.jobs)} jobs, seed {seed}: planned in {seconds:.2f} s, {cpu:.2f} s of CPU\n")
    print("| order | rounds | disturbances | GPU-hours | over the least cost |\n|---|---|---|---|---|")
    for name, waves in (
        ("by job", planned),
        ("rack by rack", rack_by_rack(order)),
        ("dealt round the racks", dealt(order, seed)),
    ):
        found = figures(order, waves)
        over = found.cost / least - 1
        print(f"| {name} | {found.rounds} | {found.disturbances:,} | {found.gpu_hours:,.0f} | {over:.1%} |")


def least_cost(order: Order) -> int:
    """No plan costs less after the canary, in thousandths of a GPU-hour."""
    loads: dict[int, list[Load]] = {}
    for unit in order.others:
        for job in order.work.numbers(c.node for c in unit):
            loads.setdefault(job, []).append(load_of(unit))
    return sum(order.work.weights[job] * fewest_rounds(own, order.limits) for job, own in loads.items())


def compare_small(count: int, first: int) -> None:
    """Gaps are in cost, without the canary, which all have alike."""
    names = ("optimum", "by job", "by job, first packing only", "rack by rack", "dealt round the racks")
    rows: dict[str, list[Figures]] = {name: [] for name in names}
    planning = 0.0
    for seed in range(first, first + count):
        order = small_fleet(seed).order(seed)
        began = time.process_time()
        planned = order_by_job(order, seed)
        planning += time.process_time() - began
        packed = order_by_job(order, seed, effort=12 * len(order.others))
        waves = (optimum(order, planned[0]), planned, packed, rack_by_rack(order), dealt(order, seed))
        for name, made in zip(names, waves, strict=True):
            rows[name].append(figures(order, made))
    print(f"\n{count} small fleets, seeds from {first}: {planning / count:.2f} s of CPU for each plan\n")
    print("| order | rounds | longer than the optimum | dearer | disturbances | GPU-hours | mean gap | worst gap |")
    print("|---|---|---|---|---|---|---|---|")
    for name, found in rows.items():
        print(_row(name, found, rows["optimum"]))


def _row(name: str, found: list[Figures], best: list[Figures]) -> str:
    pairs = list(zip(found, best, strict=True))
    gaps = [one.cost / least.cost - 1 if least.cost else 0.0 for one, least in pairs]
    longer, dearer = (sum(one.rounds > least.rounds for one, least in pairs), sum(gap > 0 for gap in gaps))
    totals = (sum(one.rounds for one in found), longer, dearer, sum(one.disturbances for one in found))
    hours = sum(one.gpu_hours for one in found)
    return f"| {name} | {' | '.join(map(str, totals))} | {hours:,.0f} | {statistics.mean(gaps):.1%} | {max(gaps):.0%} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12500)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--small", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the large fleet")
    parser.add_argument("--first", type=int, default=0, help="seed of the first small fleet")
    options = parser.parse_args()
    compare_large(options.nodes, options.jobs, options.seed)
    compare_small(options.small, options.first)

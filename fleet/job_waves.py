"""The order in which nodes are visited, planned by job: whose work is lost, how much of it, and how often.

A job that runs on many nodes stops on all of them when one is taken out, so it is *disturbed* once by each round that
touches one of its nodes, and each time loses what it has done since its newest complete checkpoint. The cost of a plan
is the sum of those losses, plus one GPU-hour for each disturbance. It is made small under the limits that hold for any
plan: rack, domain, capacity floor, units whole, the canary as chosen, the policy's wave sizes; and in as few rounds as
these allow.

Method. Idle nodes, then jobs from the least loss to the largest, a loss that is not known last, are laid along the
waves: so each job has a wave that it is wished for. Then jobs are placed as blocks, those with the most nodes first, as
they are hardest to place: in that wave or the nearest that holds all of the block in as few rounds as its racks allow.
A block that fits nowhere is cut, first where that costs no further disturbance. A node that finds no room is put in
place of another that can go elsewhere; only then a round is added. Then units are traded between rounds as long as that
saves something, and the order of placing, the wishes and the cuts are varied while the effort lasts (iterated greedy,
Ruiz and Stützle 2007, here for packing). It ends early where no job takes more rounds than it must. Among plans that
cost the same, that is taken which tears fewer jobs over several waves, and then that which has idle nodes and small
losses early.

Bound. With n nodes of a rack to visit and at most k of them out, no plan takes fewer than n / k rounds, and no wave
fewer than its nodes over what the floor lets out; likewise for each job. Plans of large fleets mostly reach these
bounds. docs/performance.md says how often, and how far plans of small fleets are from the optimum.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.packing import Block, Pack
from fleet.packing_search import search
from fleet.rounds import Limits, Unit, load_of

PROTECTED_FOR = timedelta(days=7)
EFFORT = 150_000  # trades looked at; some seconds at most
_THOUSANDTHS = 1000
_MOST_HOURS = 1e9  # 100,000 GPUs for a year
_DISTURBANCE = 1.0  # GPU-hours that a disturbance counts as, beside what the job loses


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job as the planner sees it; `nodes` may name nodes that are not planned.

    `lost_gpu_hours` is what stopping it now loses, None where that is not known. `last_disturbed` is when an operation
    stopped it last. `protected_until` is the end of its policy's interval; where it is None, seven days after
    `last_disturbed` hold. Times carry a zone.
    """

    id: str
    nodes: tuple[str, ...]
    gpus: int | None
    lost_gpu_hours: float | None
    last_disturbed: datetime | None = None
    protected_until: datetime | None = None

    @property
    def loss(self) -> float | None:
        """GPU-hours; None where not known, or where the figure cannot be right."""
        lost = self.lost_gpu_hours
        return lost if lost is not None and 0 <= lost <= _MOST_HOURS else None

    @property
    def protection_ends(self) -> datetime | None:
        """When it may be disturbed again; None where nothing protects it."""
        if self.protected_until is None and self.last_disturbed is not None:
            return self.last_disturbed + PROTECTED_FOR
        return self.protected_until

    def is_protected(self, at: datetime) -> bool:
        """Whether it may not be disturbed at that time."""
        return self.protection_ends is not None and self.protection_ends > at


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs in the order in which they are stopped, by number: least loss first, those not known last.

    `weights` is what one disturbance of each counts as, in thousandths of a GPU-hour.
    """

    jobs: tuple[RunningJob, ...]
    weights: tuple[int, ...]
    of_node: Mapping[str, tuple[int, ...]]

    def numbers(self, nodes: Iterable[str]) -> tuple[int, ...]:
        """The jobs on these nodes."""
        return tuple(sorted({number for node in nodes for number in self.of_node.get(node, ())}))

    def lost(self, disturbed: Iterable[int]) -> float | None:
        """GPU-hours lost by these disturbances; None where one is not known."""
        losses = [self.jobs[number].loss for number in disturbed]
        known = [loss for loss in losses if loss is not None]
        return sum(known) if len(known) == len(losses) else None


def work_on(nodes: Sequence[str], busy: frozenset[str], jobs: Iterable[RunningJob]) -> Work:
    """The work on `nodes`. Jobs that lose the same come in the order of `nodes`.

    A node of `busy` that no job names counts as a job of its own whose loss is not known.
    """
    given = {job.id: job for job in jobs}
    place = {node: index for index, node in enumerate(nodes)}
    named = {node for job in given.values() for node in job.nodes}
    here = [job for job in given.values() if not place.keys().isdisjoint(job.nodes)]
    here += [RunningJob(f"on {node}", (node,), None, None) for node in nodes if node in busy - named]
    here.sort(key=lambda job: (*_cost(job), min(place[node] for node in job.nodes if node in place), job.id))
    of_node: dict[str, tuple[int, ...]] = {}
    for number, job in enumerate(here):
        for node in dict.fromkeys(job.nodes):
            if node in place:
                of_node[node] = (*of_node.get(node, ()), number)
    return Work(tuple(here), _weights(here), of_node)


def _cost(job: RunningJob) -> tuple[bool, float]:
    """Least loss first; of losses that are not known, that of fewer GPUs."""
    if job.loss is not None:
        return False, job.loss
    return True, math.inf if job.gpus is None else float(job.gpus)


def _weights(jobs: Iterable[RunningJob]) -> tuple[int, ...]:
    """A loss that is not known weighs as much as the largest that is, and never nothing."""
    losses = [job.loss for job in jobs]
    largest = max((loss for loss in losses if loss is not None), default=0.0)
    priced = (max(largest, _DISTURBANCE) if loss is None else loss for loss in losses)
    return tuple(round(_THOUSANDTHS * (loss + _DISTURBANCE)) for loss in priced)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be ordered. `canary` is the first wave; `others` stand in the order wished for.

    `size_of` is how many nodes a wave is to have, by its number from 1 on. Jobs of `protected` go last.
    """

    canary: Sequence[Unit]
    others: Sequence[Unit]
    size_of: Callable[[int], int]
    limits: Limits
    work: Work
    protected: frozenset[str] = frozenset()


def order_by_job(order: Order, seed: int, effort: int = EFFORT) -> list[list[list[Unit]]]:
    """Waves of rounds of units, each unit once. In a round the units of a job stand together."""
    units = [*order.canary, *order.others]
    jobs = tuple(order.work.numbers(node.node for node in unit) for unit in units)
    guarded = {n for n, job in enumerate(order.work.jobs) if job.id in order.protected}
    last = frozenset(unit for unit, numbers in enumerate(jobs) if not guarded.isdisjoint(numbers))
    loads = tuple(load_of(unit) for unit in units)
    pack = Pack(loads, jobs, order.work.weights, order.limits, order.size_of, last)
    lead = _leads(jobs)
    chosen = range(len(order.canary))
    rest = range(len(order.canary), len(units))
    tiers = [
        _blocks([u for u in rest if u not in last], lead),
        _until(_blocks([u for u in rest if u in last], lead), order, jobs),
    ]
    packing = search(pack, _blocks(chosen, lead), tiers, seed, effort)
    waves: dict[int, list[list[Unit]]] = {}
    for index in packing.in_order():
        members = sorted(packing.rounds[index].members, key=lambda unit: (lead[unit], unit))
        waves.setdefault(packing.wave[index], []).append([units[unit] for unit in members])
    return list(waves.values())


def _leads(jobs: Sequence[tuple[int, ...]]) -> list[int]:
    """By unit, the job that it goes with: of those on it the one with the most units; -1 where it is idle."""
    spread = Counter(job for numbers in jobs for job in numbers)
    return [max(numbers, key=lambda job: (spread[job], -job)) if numbers else -1 for numbers in jobs]


def _blocks(units: Iterable[int], lead: Sequence[int]) -> list[Block]:
    """Idle units one by one, then each job's units together, in the jobs' order."""
    idle: list[Block] = []
    blocks: dict[int, Block] = {}
    for unit in units:
        if lead[unit] < 0:
            idle.append([unit])
        else:
            blocks.setdefault(lead[unit], []).append(unit)
    return idle + [blocks[job] for job in sorted(blocks)]


def _until(blocks: list[Block], order: Order, jobs: Sequence[tuple[int, ...]]) -> list[Block]:
    """Protected blocks, those first whose protection ends first."""

    def ends(block: Block) -> float:
        numbers = (number for unit in block for number in jobs[unit])
        found = (order.work.jobs[number].protection_ends for number in numbers)
        return max((end.timestamp() for end in found if end is not None), default=0.0)

    return sorted(blocks, key=ends)

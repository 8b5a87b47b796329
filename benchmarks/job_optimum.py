"""The exact optimum of a small fleet by an integer program, for comparison with what the planner finds.

Rounds are slots of a wave. First the least number of slots that hold all units under the limits is found, then the
least cost of disturbances in so many slots. Waves have the sizes that the policy gives, the canary is given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from fleet.job_waves import Order
from fleet.rounds import Unit, load_of

Waves = list[list[list[Unit]]]
Row = dict[int, float]


class Program:
    """Variables with a cost each, and rows with bounds."""

    def __init__(self) -> None:
        self.whole: list[int] = []
        self._rows: list[Row] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def variable(self, whole: bool) -> int:
        """A variable from 0 to 1."""
        self.whole.append(int(whole))
        return len(self.whole) - 1

    def row(self, terms: Iterable[tuple[int, float]], low: float, high: float) -> None:
        """A sum of variables that is to lie between two values."""
        self._rows.append(dict(terms))
        self._low.append(low)
        self._high.append(high)

    def solve(self, costs: Row) -> tuple[list[float], float]:
        """(values, cost). Raises RuntimeError where the solver does not prove an optimum."""
        cells = [(r, column, value) for r, row in enumerate(self._rows) for column, value in row.items()]
        rows, columns, values = zip(*cells, strict=True)
        matrix = csr_matrix((values, (rows, columns)), shape=(len(self._rows), len(self.whole)))
        weights = np.zeros(len(self.whole))
        for column, cost in costs.items():
            weights[column] = cost
        bounds = LinearConstraint(matrix, np.array(self._low), np.array(self._high))
        found = milp(
            weights, integrality=self.whole, bounds=Bounds(0, 1), constraints=bounds, options={"mip_rel_gap": 0.0}
        )
        if found.status != 0:
            raise RuntimeError(found.message)
        return [float(value) for value in found.x], float(found.fun)


def optimum(order: Order, canary: list[list[Unit]]) -> Waves:
    """The waves of least cost in the least rounds. Raises RuntimeError where the solver does not prove an optimum."""
    units = list(order.others)
    if not units:
        return [canary]
    slots = _slots(order, units)
    program = Program()
    at = {(u, s): program.variable(True) for u in range(len(units)) for s in range(len(slots))}
    used = [program.variable(True) for _ in slots]
    _limits(program, order, units, slots, at, used)
    touched = _touches(program, order, units, slots, at)
    rounds = round(program.solve(dict.fromkeys(used, 1.0))[1])
    program.row(((slot, 1.0) for slot in used), rounds, rounds)
    values, _ = program.solve({column: order.work.weights[job] for (job, _), column in touched.items()})
    waves: Waves = [canary, *([] for _ in range(max(slots)))]
    for s, wave in enumerate(slots):
        members = [unit for u, unit in enumerate(units) if values[at[u, s]] > 0.5]
        if members:
            waves[wave].append(members)
    return waves


def _sizes(order: Order, units: Sequence[Unit]) -> list[int]:
    """Nodes of each wave after the canary; units of one size fill them exactly."""
    left, sizes = sum(map(len, units)), list[int]()
    largest = max(map(len, units))
    while left > 0:
        sizes.append(min(left, math.ceil(order.size_of(len(sizes) + 1) / largest) * largest))
        left -= sizes[-1]
    return sizes


def _slots(order: Order, units: Sequence[Unit]) -> list[int]:
    """The wave of each slot; a wave has as many as it could need, one for each unit."""
    least = min(map(len, units))
    return [wave for wave, size in enumerate(_sizes(order, units), start=1) for _ in range(math.ceil(size / least))]


def _limits(
    program: Program,
    order: Order,
    units: Sequence[Unit],
    slots: Sequence[int],
    at: dict[tuple[int, int], int],
    used: Sequence[int],
) -> None:
    loads = [load_of(unit) for unit in units]
    for u in range(len(units)):
        program.row(((at[u, s], 1.0) for s in range(len(slots))), 1, 1)
    for wave, size in enumerate(_sizes(order, units), start=1):
        inside = [s for s, number in enumerate(slots) if number == wave]
        program.row(((at[u, s], loads[u].nodes) for u in range(len(units)) for s in inside), size, size)
        for first, second in itertools.pairwise(inside):
            program.row([(used[first], 1.0), (used[second], -1.0)], 0, 1)
    racks = sorted({rack for load in loads for rack, _ in load.racks})
    for s in range(len(slots)):
        nodes = [(at[u, s], float(load.nodes)) for u, load in enumerate(loads)]
        program.row([*nodes, (used[s], -float(order.limits.out))], -math.inf, 0)
        for rack in racks:
            here = [(at[u, s], float(dict(load.racks).get(rack, 0))) for u, load in enumerate(loads)]
            program.row(here, 0, order.limits.racks[rack])
    _domains(program, order, units, slots, at)


def _domains(
    program: Program,
    order: Order,
    units: Sequence[Unit],
    slots: Sequence[int],
    at: dict[tuple[int, int], int],
) -> None:
    """In each slot and rack at most so many domains are disturbed."""
    for s in range(len(slots)):
        disturbed: dict[tuple[str, str], dict[str, int]] = {}
        for u, unit in enumerate(units):
            for place, domains in load_of(unit).domains:
                for domain, _ in domains:
                    columns = disturbed.setdefault(place, {})
                    column = columns.setdefault(domain, len(program.whole))
                    if column == len(program.whole):
                        program.variable(False)
                    program.row([(column, 1.0), (at[u, s], -1.0)], 0, 1)
        for columns in disturbed.values():
            program.row(((column, 1.0) for column in columns.values()), 0, order.limits.domains)


def _touches(
    program: Program,
    order: Order,
    units: Sequence[Unit],
    slots: Sequence[int],
    at: dict[tuple[int, int], int],
) -> dict[tuple[int, int], int]:
    """By job and slot, a variable that is 1 where a unit of the job is in the slot."""
    found: dict[tuple[int, int], int] = {}
    for u, unit in enumerate(units):
        for job in order.work.numbers(candidate.node for candidate in unit):
            for s in range(len(slots)):
                if (job, s) not in found:
                    found[job, s] = program.variable(False)
                program.row([(found[job, s], 1.0), (at[u, s], -1.0)], 0, 1)
    return found

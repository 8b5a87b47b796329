"""The planner against the exact optimum, on a few small fleets; benchmarks/job_planning.py does two hundred."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy.optimize", reason="the integer program is SciPy's")

from benchmarks.job_optimum import optimum
from benchmarks.job_planning import dealt, figures, large_fleet, least_cost, rack_by_rack, small_fleet
from fleet.job_waves import order_by_job
from fleet.rounds import Round, Unit, load_of

EFFORT = 20_000


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_is_as_short_as_the_optimum_and_costs_little_more(seed: int) -> None:
    order = small_fleet(seed).order(seed)
    planned = order_by_job(order, seed, EFFORT)
    least = optimum(order, planned[0])
    best, found = figures(order, least), figures(order, planned)
    assert [nodes_of(wave) for wave in planned] == [nodes_of(wave) for wave in least]
    assert found.rounds == best.rounds
    assert best.cost <= found.cost <= 1.1 * best.cost


def nodes_of(wave: list[list[Unit]]) -> int:
    return sum(len(unit) for units in wave for unit in units)


@pytest.mark.parametrize("seed", range(3))
def test_a_larger_fleet_has_no_job_in_more_rounds_than_it_must_and_no_round_too_many(seed: int) -> None:
    order = large_fleet(240, 58, seed).order(seed)
    found = figures(order, order_by_job(order, seed))
    assert found.cost <= 1.01 * least_cost(order)
    assert found.rounds <= figures(order, dealt(order, seed)).rounds


def test_the_optimum_keeps_the_limits() -> None:
    order = small_fleet(5).order(5)
    for units in (units for wave in optimum(order, order_by_job(order, 5, EFFORT)[0]) for units in wave):
        one = Round(order.limits)
        for number, unit in enumerate(units):
            assert one.fits(load_of(unit))
            one.add(number, load_of(unit))


def test_going_rack_by_rack_disturbs_jobs_more_often() -> None:
    fleets = [small_fleet(seed).order(seed) for seed in range(8)]
    by_job = sum(figures(order, order_by_job(order, 1, EFFORT)).disturbances for order in fleets)
    assert by_job < sum(figures(order, rack_by_rack(order)).disturbances for order in fleets)

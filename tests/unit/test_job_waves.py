"""Planning by job: what is disturbed together, in which order, and never over the limits."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.config import Pool, WaveSettings
from fleet.job_waves import RunningJob, order_by_job, work_on
from fleet.plan import Wave
from fleet.rounds import Candidate, Unit
from fleet.waves import max_out, order_of_pool, plan_waves

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def node(number: int, rack: str = "r0", unit: str = "", domain: str | None = None, busy: bool = False) -> Candidate:
    name = f"n{number:02}"
    return Candidate(name, "train", rack, "HGX-H100-8", "v0", unit or name, busy, 60.0, domain)


def job(ident: str, *numbers: int, lost: float | None = 1.0, until: datetime | None = None) -> RunningJob:
    names = tuple(f"n{number:02}" for number in numbers)
    return RunningJob(ident, names, 8 * len(names), lost, None, until)


def rounds(
    found: list[Candidate], jobs: list[RunningJob], pool: Pool, limit: int = 2, start: datetime | None = None
) -> list[list[set[str]]]:
    """Waves of rounds of node names."""
    order = order_of_pool(found, pool, len(found), {c.rack: limit for c in found}, 7, jobs, start)
    return [[{c.node for unit in units for c in unit} for units in wave] for wave in order_by_job(order, 7, 2000)]


def after_canary(found: list[Candidate], jobs: list[RunningJob], pool: Pool, limit: int = 2) -> list[set[str]]:
    return [one for wave in rounds(found, jobs, pool, limit)[1:] for one in wave]


def touched(waves: list[list[set[str]]], one: RunningJob) -> int:
    return sum(not names.isdisjoint(one.nodes) for wave in waves for names in wave)


def fixed(canary: int, size: int, floor: float = 0.0) -> Pool:
    return Pool(capacity_floor=floor, waves=WaveSettings(canary=canary, growth="fixed", size=size))


def test_the_nodes_of_a_job_go_out_in_one_round_where_the_limits_allow_it() -> None:
    found = [node(n, f"r{n % 4}") for n in range(12)]
    jobs = [job("a", 1, 2, 3, 5), job("b", 4, 6, 7, 8), job("c", 9, 10)]
    assert [touched(rounds(found, jobs, fixed(1, 4), limit=2), one) for one in jobs] == [1, 1, 1]


def test_a_job_with_more_nodes_in_a_rack_than_may_be_out_is_disturbed_as_seldom_as_can_be() -> None:
    found = [node(n, "r0" if n < 9 else "r1") for n in range(16)]
    jobs = [job("a", 0, 1, 2, 3, 4, 5), job("b", 6, 7)]
    waves = rounds(found, jobs, fixed(2, 20))
    assert [touched(waves, one) for one in jobs] == [3, 1]


def test_idle_nodes_come_first_then_jobs_that_lose_least_then_those_not_known() -> None:
    found = [node(n, f"r{n}") for n in range(9)]
    jobs = [job("a", 1, 2, lost=9.0), job("b", 3, 4, lost=None), job("c", 5, 6, lost=0.5)]
    first, *later = after_canary(found, jobs, fixed(1, 2))
    assert first <= {"n00", "n07", "n08"}
    assert later == [{"n05", "n06"}, {"n01", "n02"}, {"n03", "n04"}]


def test_a_loss_that_is_not_known_weighs_as_much_as_the_largest_that_is() -> None:
    names = ["n01", "n02", "n03", "n04"]
    work = work_on(names, frozenset(), [job("a", 1, lost=None), job("b", 2, lost=7.0), job("c", 3, lost=math.nan)])
    assert [one.id for one in work.jobs] == ["b", "a", "c"]
    assert len(set(work.weights)) == 1
    assert work.lost([0, 0]) == 14.0
    assert work.lost([0, 1]) is None
    assert all(weight > 0 for weight in work_on(names, frozenset(), [job("a", 1, lost=None)]).weights)


def test_a_busy_node_that_no_job_names_counts_as_a_job_whose_loss_is_not_known() -> None:
    work = work_on(["n01", "n02"], frozenset({"n01", "n02"}), [job("a", 1)])
    assert [(one.nodes, one.loss) for one in work.jobs] == [(("n01",), 1.0), (("n02",), None)]


def plan(found: list[Candidate], jobs: list[RunningJob], pool: Pool, limit: int = 2) -> tuple[Wave, ...]:
    return plan_waves(found, {"train": pool}, {"train": len(found)}, {c.rack: limit for c in found}, 7, jobs)


def test_a_wave_says_how_many_jobs_it_disturbs_how_often_and_what_they_lose() -> None:
    found = [node(n) for n in range(6)]
    canary, rest = plan(found, [job("a", 0, 1, 2, 3, lost=2.5)], fixed(2, 10))
    assert (canary.jobs, canary.disturbances, canary.lost_gpu_hours) == (0, 0, 0.0)
    assert (rest.jobs, rest.disturbances, rest.lost_gpu_hours) == (1, 2, 5.0)
    unknown = plan(found, [job("a", 0, 1, 2, 3, lost=None)], fixed(2, 10))[1]
    assert (unknown.jobs, unknown.lost_gpu_hours) == (1, None)


def test_a_wave_tells_its_units_round_by_round() -> None:
    found = [node(n) for n in range(6)]
    rest = plan(found, [job("a", 0, 1, 2, 3)], fixed(2, 10))[1]
    assert [len(units) for units in rest.units_by_round] == [2, 2]
    assert sum(rest.units_by_round, ()) == rest.units
    assert rest.model_copy(update={"round_units": ()}).units_by_round == (rest.units,)


def test_the_nodes_of_a_job_stand_together_in_the_order_of_the_wave() -> None:
    found = [node(n, f"r{n % 5}") for n in range(20)]
    jobs = [job("a", 0, 3, 6, 9), job("b", 1, 4, 7, 10, 13), job("c", 2, 5, 8)]
    order = [name for wave in plan(found, jobs, fixed(1, 20))[1:] for unit in wave.units for name in unit]
    homes = [next((one.id for one in jobs if name in one.nodes), "") for name in order]
    runs = [home for home, before in zip(homes, ["", *homes], strict=False) if home and home != before]
    assert sorted(runs) == ["a", "b", "c"]


def test_a_protected_job_goes_last_though_it_loses_nothing_and_the_canary_leaves_it_alone() -> None:
    found = [node(n, f"r{n}") for n in range(6)]
    jobs = [job("a", 0, lost=0.0, until=NOW + timedelta(days=1)), job("b", 1, 2, 3, 4, 5, lost=90.0)]
    waves = rounds(found, jobs, fixed(2, 2), limit=1, start=NOW)
    assert waves[-1][-1] >= {"n00"}
    assert all("n00" not in names for wave in waves[:-1] for names in wave)


def test_protection_lasts_seven_days_unless_a_date_is_given_and_ends() -> None:
    last = NOW - timedelta(days=6)
    assert RunningJob("a", (), None, None, last).is_protected(NOW)
    assert not RunningJob("a", (), None, None, last).is_protected(NOW + timedelta(days=1))
    assert not RunningJob("a", (), None, None, last, NOW).is_protected(NOW)
    assert not RunningJob("a", (), None, None).is_protected(NOW)


def test_two_nvlink_domains_of_a_rack_do_not_go_out_together_where_one_is_allowed() -> None:
    found = [node(n, "r0", domain=f"nv{n // 2}") for n in range(8)]
    pool = Pool(capacity_floor=0.0, domain_limit=1, waves=WaveSettings(canary=1, growth="fixed", size=9))
    waves = rounds(found, [job("a", 0, 2, 4, 6)], pool, limit=4)
    domains = {c.node: c.nvlink_domain for c in found}
    assert all(len({domains[name] for name in names}) == 1 for wave in waves for names in wave)


def test_a_unit_that_is_over_a_limit_by_itself_has_a_round_of_its_own() -> None:
    found = [node(n, "r0", unit="nvlink:a" if n < 3 else "") for n in range(6)]
    waves = rounds(found, [], fixed(1, 9), limit=2)
    big = [names for wave in waves for names in wave if names & {"n00", "n01", "n02"}]
    assert big == [{"n00", "n01", "n02"}]


Case = tuple[list[Candidate], list[RunningJob], Pool, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any fleet: units of several nodes, domains, jobs that share nodes, odd losses, protected jobs."""
    count, racks = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    unit, domain = draw(st.integers(1, 3)), draw(st.sampled_from([0, 2, 3]))
    found = [
        node(
            n,
            f"r{n // draw(st.sampled_from([1, unit])) % racks}",
            unit=f"nvlink:{n // unit}" if unit > 1 else "",
            domain=f"nv{n // domain}" if domain else None,
            busy=draw(st.booleans()),
        )
        for n in range(count)
    ]
    numbers = st.lists(st.integers(0, count + 2), max_size=6)
    losses = st.one_of(st.none(), st.floats(allow_nan=True), st.floats(0, 100))
    until = st.sampled_from([None, NOW, NOW + timedelta(days=3)])
    made = draw(st.lists(st.tuples(numbers, losses, until), max_size=8))
    jobs = [job(str(index), *on, lost=lost, until=end) for index, (on, lost, end) in enumerate(made)]
    growth = draw(st.sampled_from(["exponential", "linear", "fixed"]))
    waves = WaveSettings(canary=draw(st.integers(1, 5)), growth=growth, factor=draw(st.sampled_from([0.5, 2.0])))
    pool = Pool(
        capacity_floor=draw(st.sampled_from([0.0, 0.5, 0.85])), domain_limit=draw(st.integers(1, 2)), waves=waves
    )
    return found, jobs, pool, draw(st.integers(1, 3))


def ordered(case: Case) -> list[list[list[Unit]]]:
    found, jobs, pool, limit = case
    order = order_of_pool(found, pool, len(found), {c.rack: limit for c in found}, 3, jobs, NOW)
    return order_by_job(order, 3, 800)


def over(case: Case, units: list[Unit]) -> list[str]:
    """Limits that a round exceeds."""
    found, _, pool, limit = case
    nodes = [candidate for unit in units for candidate in unit]
    racks = Counter(candidate.rack for candidate in nodes)
    domains = {(c.rack, c.nvlink_domain) for c in nodes if c.nvlink_domain}
    disturbed = Counter(rack for rack, _ in domains)
    faults = ["floor"] if len(nodes) > max_out(pool, len(found)) else []
    faults += [f"rack {rack}" for rack, count in racks.items() if count > limit]
    return faults + [f"domains of {rack}" for rack, count in disturbed.items() if count > pool.domain_limit]


@settings(max_examples=80, deadline=None)
@given(cases())
def test_no_round_exceeds_a_limit_but_for_what_one_unit_takes_by_itself(case: Case) -> None:
    for units in (units for wave in ordered(case) for units in wave):
        alone = {fault for unit in units for fault in over(case, [unit])}
        assert set(over(case, units)) <= alone


@settings(max_examples=80, deadline=None)
@given(cases())
def test_every_unit_is_in_exactly_one_round_and_whole(case: Case) -> None:
    found = case[0]
    units = [unit for wave in ordered(case) for round_ in wave for unit in round_]
    assert sorted(c.node for unit in units for c in unit) == sorted(c.node for c in found)
    assert len({unit[0].unit for unit in units}) == len(units)
    assert all(round_ for wave in ordered(case) for round_ in wave)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_the_same_seed_gives_the_same_plan_whatever_order_things_are_given_in(case: Case) -> None:
    found, jobs, pool, limit = case
    turned = (found[::-1], jobs[::-1], pool, limit)
    assert ordered(case) == ordered(turned)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_no_protected_job_is_in_an_earlier_wave_than_one_that_is_not(case: Case) -> None:
    protected = {name for one in case[1] if one.is_protected(NOW) for name in one.nodes}
    waves = [[unit for units in wave for unit in units] for wave in ordered(case)]
    last_free = max((n for n, w in enumerate(waves) if any(not guarded(u, protected) for u in w)), default=0)
    assert all(n >= last_free for n, wave in enumerate(waves) for unit in wave if guarded(unit, protected))


def guarded(unit: Unit, protected: set[str]) -> bool:
    return any(candidate.node in protected for candidate in unit)

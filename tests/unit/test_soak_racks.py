"""Whole racks under full load, within what they carry."""

from __future__ import annotations

import random

import pytest

from fleet.soak_racks import LoadedNode, RackPower, RackTest, plan_rack_test, racks_at_once

EIGHT = [LoadedNode(f"gpu{number}", 10_000.0) for number in range(8)]


def test_a_rack_that_carries_all_its_nodes_is_tested_whole() -> None:
    test = plan_rack_test(RackPower("r1", 82_000.0, 8, base_watts=2_000.0), EIGHT)
    assert (test.whole, test.watts, test.left_out, test.why) == (True, 82_000.0, (), "")
    assert test.nodes == tuple(one.node for one in EIGHT)


def test_load_comes_in_stages_of_a_quarter() -> None:
    test = plan_rack_test(RackPower("r1", 90_000.0, None), EIGHT)
    assert [len(stage) for stage in test.ramp] == [2, 2, 2, 2]


def test_one_node_that_is_more_than_a_stage_is_a_stage_of_its_own() -> None:
    test = plan_rack_test(RackPower("r1", 90_000.0, None), EIGHT, ramp_share=0.01)
    assert [len(stage) for stage in test.ramp] == [1] * 8


def test_a_rack_that_does_not_carry_all_is_loaded_as_far_as_it_does_and_says_so() -> None:
    test = plan_rack_test(RackPower("r1", 65_000.0, 8), EIGHT)
    assert (test.whole, len(test.nodes), test.left_out) == (False, 6, ("gpu6", "gpu7"))
    assert test.why == "gpu6 would take the rack to 70,000 W of 65,000 W"


def test_the_limit_on_nodes_out_of_service_holds() -> None:
    test = plan_rack_test(RackPower("r1", 100_000.0, 2), EIGHT)
    assert (test.whole, len(test.nodes)) == (False, 2)
    assert "at most 2" in test.why


@pytest.mark.parametrize(
    ("power", "nodes", "why"),
    [
        (RackPower("r1", None, 8), EIGHT, "what the rack's power and cooling carry is not known"),
        (RackPower("r1", 9e9, 8), [*EIGHT, LoadedNode("gpu8", None)], "what gpu8 draws under full load is not known"),
        (RackPower("r1", 9e9, 0), EIGHT, "at most 0 of the rack's nodes may be out of service together"),
        (RackPower("r1", 9e9, 8), [], "the rack has no node to be tested"),
    ],
)
def test_what_is_not_known_or_not_allowed_is_not_loaded(power: RackPower, nodes: list[LoadedNode], why: str) -> None:
    test = plan_rack_test(power, nodes)
    assert (test.ramp, test.whole, test.why) == ((), False, why)
    assert test.left_out == tuple(one.node for one in nodes)


def test_a_ramp_that_adds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="adds some load"):
        plan_rack_test(RackPower("r1", 9e9, 8), EIGHT, ramp_share=0.0)


def _test_of(rack: str, watts: float) -> RackTest:
    return RackTest(rack, ((f"{rack}-n",),), watts, True, (), "")


def test_racks_of_one_power_domain_share_its_watts() -> None:
    racks = {name: RackPower(name, 9e9, 8, "pd1") for name in ("a", "b", "c")}
    rounds = racks_at_once([_test_of(name, 50.0) for name in racks], racks, {"pd1": 100.0})
    assert [[test.rack for test in one] for one in rounds.rounds] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("domain", [None, "unheard of"])
def test_racks_whose_domain_or_its_watts_are_not_known_run_one_after_the_other(domain: str | None) -> None:
    racks = {name: RackPower(name, 9e9, 8, domain) for name in ("a", "b")}
    rounds = racks_at_once([_test_of(name, 1.0) for name in racks], racks, {"pd1": 100.0})
    assert [[test.rack for test in one] for one in rounds.rounds] == [["a"], ["b"]]


def test_racks_of_different_domains_run_together() -> None:
    racks = {"a": RackPower("a", 9e9, 8, "pd1"), "b": RackPower("b", 9e9, 8, "pd2")}
    rounds = racks_at_once([_test_of(name, 90.0) for name in racks], racks, {"pd1": 100.0, "pd2": 100.0})
    assert [[test.rack for test in one] for one in rounds.rounds] == [["a", "b"]]


def test_a_rack_that_is_not_loaded_takes_no_turn() -> None:
    racks = {"a": RackPower("a", None, 8, "pd1")}
    rounds = racks_at_once([plan_rack_test(racks["a"], EIGHT)], racks, {})
    assert rounds.rounds == ()
    assert rounds.refused == (("a", "what the rack's power and cooling carry is not known"),)


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_is_above_a_limit_and_each_rack_is_tested_once(seed: int) -> None:
    rng = random.Random(seed)
    domains = {f"pd{n}": rng.uniform(50e3, 200e3) for n in range(3)}
    racks: dict[str, RackPower] = {}
    tests: list[RackTest] = []
    for number in range(12):
        power = RackPower(f"r{number}", rng.uniform(10e3, 90e3), rng.randint(1, 10), rng.choice(list(domains)))
        nodes = [LoadedNode(f"r{number}n{place}", rng.uniform(5e3, 12e3)) for place in range(8)]
        test = plan_rack_test(power, nodes, rng.uniform(0.1, 1))
        draws = {one.node: one.watts or 0.0 for one in nodes}
        assert sum(draws[node] for node in test.nodes) == pytest.approx(test.watts)
        assert test.watts <= (power.watts or 0)
        assert len(test.nodes) <= (power.nodes or 0)
        assert {*test.nodes, *test.left_out} == set(draws)
        assert test.whole == (not test.left_out)
        assert bool(test.why) == bool(test.left_out)
        racks[power.rack], tests = power, [*tests, test]
    planned = racks_at_once(tests, racks, domains)
    run = [test.rack for one in planned.rounds for test in one]
    assert sorted([*run, *(rack for rack, _ in planned.refused)]) == sorted(racks)
    for one in planned.rounds:
        for domain, watts in domains.items():
            assert sum(test.watts for test in one if racks[test.rack].power_domain == domain) <= watts


def test_a_rack_that_is_more_than_its_power_domain_carries_is_refused_with_the_reason() -> None:
    racks = {"a": RackPower("a", 9e9, 8, "pd1")}
    rounds = racks_at_once([_test_of("a", 120.0)], racks, {"pd1": 100.0})
    assert rounds.rounds == ()
    assert rounds.refused == (("a", "its 120 W alone are more than power domain pd1 carries (100 W)"),)

"""Group testing with noisy runs, over many seeds: what it finds, whom it accuses, what it takes."""

from __future__ import annotations

import random

import pytest

from benchmarks.group_testing import (
    FABRIC,
    NODE_KINDS,
    Hidden,
    Noise,
    Trial,
    fabric_fault,
    is_slow,
    leaves_of,
    make_fabric,
    make_nodes,
    search_once,
    trial,
)
from fleet.group_testing import begin, next_runs, told
from fleet.group_testing_answer import Outcome, answer
from fleet.group_testing_site import site_of
from fleet.group_testing_values import FaultKind, Limits, Policy, Run, RunKind

QUIET = Noise(0.0, 0.0)


def node_trials(nodes: int, faults: int, noise: Noise, seeds: range) -> list[Trial]:
    return [trial(nodes, lambda site, rng: make_nodes(faults, site, rng), noise, seed) for seed in seeds]


@pytest.mark.parametrize("faults", [0, 1, 2, 5, 10])
def test_without_noise_every_faulty_node_is_found_with_its_kind_and_nobody_else(faults: int) -> None:
    for one in node_trials(232, faults, QUIET, range(4)):
        assert one.found == one.true
        assert one.outcome is (Outcome.FOUND if faults else Outcome.NO_FAULT)


def test_five_faults_in_232_nodes_take_about_as_many_runs_as_published() -> None:
    trials = node_trials(232, 5, Noise(), range(12))
    assert sum(one.runs for one in trials) / len(trials) < 75


def test_with_noise_nearly_all_faulty_nodes_are_found_and_nearly_nobody_is_accused_wrongly() -> None:
    trials = node_trials(232, 5, Noise(), range(100, 116))
    assert sum(one.right_places for one in trials) >= 0.97 * 5 * len(trials)
    assert sum(one.wrong for one in trials) <= 1


def test_where_noise_is_worse_than_stated_nobody_is_accused_lightly() -> None:
    trials = node_trials(232, 2, Noise(0.06, 0.15), range(8))
    assert sum(one.wrong for one in trials) <= 1
    assert sum(one.right_places for one in trials) >= 13


def test_several_faulty_nodes_on_one_leaf_are_no_bad_switch() -> None:
    site = site_of(leaves_of(232))
    for seed in range(6):
        rng = random.Random(seed)
        bad = rng.sample(site.names(site.members[2]), 4)
        hidden = [Hidden(FaultKind.NODE_LINK, frozenset({node}), frozenset(site.nodes)) for node in bad]
        found = search_once(site, hidden, QUIET, rng)
        assert {one.nodes for one in found.findings} == {(node,) for node in bad}, seed


@pytest.mark.parametrize("kind", FABRIC)
def test_a_fault_of_the_fabric_is_found_as_what_it_is(kind: FaultKind) -> None:
    for seed in range(3):
        one = trial(232, lambda site, rng: make_fabric(kind, site, rng), QUIET, seed)
        assert one.found == one.true, seed


@pytest.mark.parametrize("kind", FABRIC)
def test_a_fault_of_the_fabric_is_mostly_found_in_noise_and_no_node_blamed_for_it(kind: FaultKind) -> None:
    trials = [trial(232, lambda site, rng: make_fabric(kind, site, rng), Noise(), seed) for seed in range(5)]
    assert sum(one.right_places for one in trials) >= 4
    assert sum(one.wrong for one in trials) <= 1


def test_a_faulty_node_and_a_bad_pair_are_both_found() -> None:
    site = site_of(leaves_of(96))
    for seed in range(4):
        rng = random.Random(seed)
        node, a, b = rng.sample(site.nodes, 3)
        hidden = [
            Hidden(FaultKind.NODE_LINK, frozenset({node}), frozenset(site.nodes)),
            Hidden(FaultKind.PAIR, frozenset({a}), frozenset({b})),
        ]
        found = search_once(site, hidden, QUIET, rng)
        assert {frozenset(one.nodes) for one in found.findings} == {frozenset({node}), frozenset({a, b})}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_answered_rounds_are_disjoint_within_the_limits_and_the_search_ends(seed: int) -> None:
    rng = random.Random(seed)
    site = site_of({f"n{n}": rng.choice([None, "a", "b", "c", "d"]) for n in range(rng.randint(2, 60))})
    policy = Policy(most_rounds=40)
    search = begin(site, policy)
    while True:
        here = frozenset(rng.sample(site.nodes, rng.randint(2, len(site.nodes))))
        limits = Limits(here, rng.choice([None, 1, 3]), rng.choice([None, 2, 7]))
        runs = next_runs(search, limits)
        if not runs:
            break
        nodes = [node for run in runs for node in run.nodes]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) <= here
        assert len(runs) <= (limits.runs_at_once or len(runs))
        for run in runs:
            assert len(run.nodes) == 1 if run.kind is RunKind.WITHIN else len(run.nodes) >= 2
            assert len(run.nodes) <= (limits.largest_group or len(run.nodes))
        search = told(search, [(run, rng.choice([True, False, None])) for run in runs])
    found = answer(search)
    assert found.rounds <= 40
    assert found.text


def test_with_one_run_at_a_time_the_same_is_found() -> None:
    site = site_of(leaves_of(64))
    rng = random.Random(3)
    hidden = [Hidden(NODE_KINDS[0], frozenset({node}), frozenset(site.nodes), True) for node in site.nodes[10:50:20]]
    found = search_once(site, hidden, QUIET, rng, limits=Limits(runs_at_once=1))
    assert {one.nodes[0] for one in found.findings} == {"gpu0010", "gpu0030"}
    assert found.rounds == found.runs + found.runs_within


def test_the_simulated_fabric_is_slow_where_it_should_be() -> None:
    site = site_of(leaves_of(96))
    rng = random.Random(1)
    uplinks = fabric_fault(site, FaultKind.UPLINKS, rng)
    inside, outside = sorted(uplinks.first), sorted(uplinks.second)
    assert not is_slow(Run((inside[0], inside[1])), [uplinks], QUIET, rng)
    assert is_slow(Run((inside[0], outside[0])), [uplinks], QUIET, rng)
    switch = fabric_fault(site, FaultKind.SWITCH, rng)
    members = sorted(switch.first)
    assert is_slow(Run((members[0], members[1])), [switch], QUIET, rng)
    assert not is_slow(Run((members[0],), RunKind.WITHIN), [switch], QUIET, rng)

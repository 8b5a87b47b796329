"""Group testing by hand: small sites whose right answer is plain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from fleet.errors import ConfigurationError
from fleet.group_testing import begin, next_runs, resume, told
from fleet.group_testing_answer import Answer, Outcome, answer
from fleet.group_testing_belief import believe, evidence, prior_chances
from fleet.group_testing_settings import GroupTestingSettings
from fleet.group_testing_site import Site, site_of
from fleet.group_testing_values import Factor, FaultKind, Limits, Policy, Run, RunKind, Search

Judge = Callable[[Run], bool | None]


def small_site(nodes: int = 24, leaf: int = 6) -> Site:
    return site_of({f"n{number:02}": f"leaf{number // leaf}" for number in range(nodes)})


def search_with(judge: Judge, site: Site | None = None, limits: Limits | None = None) -> tuple[Search, Answer]:
    """A whole search whose runs `judge` answers."""
    search = begin(site or small_site())
    while runs := next_runs(search, limits):
        search = told(search, [(run, judge(run)) for run in runs])
    return search, answer(search, limits)


def faulty(*nodes: str, within: Sequence[str] = ()) -> Judge:
    """Runs with one of `nodes` are slow; runs within a node only if it is in `within`."""

    def judge(run: Run) -> bool:
        names = set(run.nodes)
        return bool(names & set(within if run.kind is RunKind.WITHIN else nodes))

    return judge


def test_a_pair_that_is_found_leaves_nothing_unexplained_and_takes_few_direct_runs() -> None:
    search, found = search_with(lambda run: {"n02", "n20"} <= set(run.nodes))
    assert (found.unexplained, found.undecided) == ((), ())
    assert sum(set(result.run.nodes) == {"n02", "n20"} for result in search.results) <= 4


def test_where_all_is_fast_no_fault_is_found_in_few_runs_and_the_last_one_holds_all_nodes() -> None:
    search, found = search_with(faulty())
    assert (found.outcome, found.findings, found.untested) == (Outcome.NO_FAULT, (), ())
    assert found.runs <= 9
    assert len(search.results[-1].run.nodes) == 24
    assert found.text.startswith("no fault: all nodes were fast together; ")


@pytest.mark.parametrize("node", ["n00", "n05", "n11", "n23"])
def test_one_faulty_node_is_found_and_no_other_is_accused(node: str) -> None:
    _, found = search_with(faulty(node, within=[node]))
    assert found.outcome is Outcome.FOUND
    assert [(one.kind, one.nodes) for one in found.findings] == [(FaultKind.WITHIN_NODE, (node,))]
    assert f"{node}: slow within the node too" in found.text


def test_a_node_that_is_fast_within_is_told_from_one_that_is_slow_within() -> None:
    _, found = search_with(faulty("n03", "n17", within=["n17"]))
    assert {one.nodes[0]: one.kind for one in found.findings} == {
        "n03": FaultKind.NODE_LINK,
        "n17": FaultKind.WITHIN_NODE,
    }


def test_every_node_that_is_accused_was_slow_with_two_known_good_partners() -> None:
    search, found = search_with(faulty("n03", "n09", "n17"))
    assert len(found.findings) == 3
    bad = {"n03", "n09", "n17"}
    for one in found.findings:
        direct = [r for r in search.results if r.slow and set(r.run.nodes) & bad == set(one.nodes)]
        assert len([r for r in direct if r.run.kind is RunKind.GROUP]) >= 2
        assert one.slow >= 2


def test_two_nodes_that_are_slow_only_together_are_found_as_a_pair() -> None:
    _, found = search_with(lambda run: {"n02", "n20"} <= set(run.nodes))
    assert found.outcome is Outcome.FOUND
    assert [(one.kind, one.nodes) for one in found.findings] == [(FaultKind.PAIR, ("n02", "n20"))]
    assert "n02 and n20: slow only together" in found.text


def test_a_leaf_that_is_slow_with_all_others_and_fast_within_has_bad_uplinks() -> None:
    leaf = {f"n{number:02}" for number in range(6, 12)}
    _, found = search_with(lambda run: 0 < len(leaf & set(run.nodes)) < len(run.nodes))
    assert [(one.kind, one.leaves) for one in found.findings] == [(FaultKind.UPLINKS, ("leaf1",))]
    assert set(found.findings[0].nodes) == leaf


def test_a_leaf_all_of_whose_nodes_are_slow_has_a_bad_switch_and_no_node_is_accused() -> None:
    leaf = {f"n{number:02}" for number in range(12, 18)}
    _, found = search_with(lambda run: run.kind is RunKind.GROUP and bool(leaf & set(run.nodes)))
    assert [(one.kind, one.leaves) for one in found.findings] == [(FaultKind.SWITCH, ("leaf2",))]


def test_two_leaves_that_are_slow_only_with_each_other_share_a_bad_link() -> None:
    one, other = ({f"n{number:02}" for number in range(*span)} for span in ((0, 6), (18, 24)))
    _, found = search_with(lambda run: bool(one & set(run.nodes)) and bool(other & set(run.nodes)))
    assert [(fault.kind, fault.leaves) for fault in found.findings] == [(FaultKind.LEAF_LINK, ("leaf0", "leaf3"))]


def test_one_run_that_was_slow_by_mistake_accuses_nobody() -> None:
    seen = itertools.count()
    _, found = search_with(lambda run: next(seen) == 1)
    assert (found.outcome, found.findings) == (Outcome.NO_FAULT, ())


def test_one_run_that_was_fast_by_mistake_hides_no_fault() -> None:
    for wrong in range(6):
        _, found = search_with(_but_one(faulty("n07", within=["n07"]), wrong))
        assert [one.nodes for one in found.findings] == [("n07",)], wrong


def _but_one(judge: Judge, wrong: int) -> Judge:
    """The same answers, but the slow run of this number is told as fast."""
    hits = itertools.count()

    def other(run: Run) -> bool:
        return bool(judge(run)) and next(hits) != wrong

    return other


def test_without_leaves_nodes_and_pairs_are_found_too() -> None:
    site = site_of({f"n{number:02}": None for number in range(30)})
    assert [one.nodes for one in search_with(faulty("n04"), site)[1].findings] == [("n04",)]
    _, found = search_with(lambda run: {"n02", "n20"} <= set(run.nodes), site)
    assert [one.nodes for one in found.findings] == [("n02", "n20")]


def test_two_nodes_alone_cannot_be_told_apart_and_nobody_is_accused() -> None:
    site = site_of({"a": "leaf0", "b": "leaf0"})
    _, found = search_with(lambda run: run.kind is RunKind.GROUP, site)
    assert found.outcome is Outcome.NOT_FOUND
    assert found.findings == ()
    assert found.text.startswith("not found")
    assert "a, b" in found.text


def test_three_nodes_are_enough_to_tell_which_one_it_is() -> None:
    site = site_of({"a": "leaf0", "b": "leaf0", "c": "leaf0"})
    assert [one.nodes for one in search_with(faulty("b"), site)[1].findings] == [("b",)]


def test_one_node_is_no_site() -> None:
    with pytest.raises(ConfigurationError, match="at least 2 nodes"):
        site_of({"a": "leaf0"})


@pytest.mark.parametrize(
    "run", [Run(("n01",)), Run(("n01", "n02"), RunKind.WITHIN), Run(("n01", "n01")), Run(("n01", "stranger"))]
)
def test_a_run_that_cannot_be_is_refused(run: Run) -> None:
    with pytest.raises(ConfigurationError):
        told(begin(small_site()), [(run, True)])


def test_groups_of_a_round_are_disjoint_and_have_two_nodes_at_least() -> None:
    search = begin(small_site(), Policy(expected_faults=8))
    while runs := next_runs(search):
        nodes = [node for run in runs for node in run.nodes]
        assert len(nodes) == len(set(nodes))
        assert all(len(run.nodes) >= (1 if run.kind is RunKind.WITHIN else 2) for run in runs)
        search = told(search, [(run, faulty("n03", "n08", "n20")(run)) for run in runs])


def test_the_limits_hold_in_each_round() -> None:
    here = frozenset(f"n{number:02}" for number in range(16))
    limits = Limits(available=here, runs_at_once=2, largest_group=5)
    search = begin(small_site())
    while runs := next_runs(search, limits):
        assert len(runs) <= 2
        assert all(len(run.nodes) <= 5 and set(run.nodes) <= here for run in runs)
        search = told(search, [(run, faulty("n03")(run)) for run in runs])
    assert [one.nodes for one in answer(search, limits).findings] == [("n03",)]


def test_nodes_that_are_not_available_are_waited_for_by_name() -> None:
    here = frozenset(f"n{number:02}" for number in range(16))
    search, found = search_with(faulty(), limits=Limits(available=here))
    assert found.outcome is Outcome.WAITING
    assert found.untested == tuple(f"n{number:02}" for number in range(16, 24))
    while runs := next_runs(search):
        search = told(search, [(run, False) for run in runs])
    assert answer(search).outcome is Outcome.NO_FAULT


def test_a_node_that_gives_no_answer_is_named_and_clears_nobody_else() -> None:
    _, found = search_with(lambda run: None if "n10" in run.nodes else "n04" in run.nodes)
    assert found.silent == ("n10",)
    assert found.outcome is Outcome.FOUND_IN_PART
    assert [one.nodes for one in found.findings] == [("n04",)]
    assert "gave no answer: n10" in found.text


def test_runs_without_an_answer_are_counted_but_say_nothing() -> None:
    search = begin(small_site())
    after = told(search, [(Run(("n00", "n01")), None)])
    assert np.array_equal(after.belief.chance, search.belief.chance)
    assert (answer(after).runs, answer(after).rounds) == (1, 1)


def test_the_search_is_the_same_when_it_is_made_again_from_its_results() -> None:
    search = begin(small_site())
    while runs := next_runs(search):
        search = told(search, [(run, faulty("n03", "n20", within=["n20"])(run)) for run in runs])
        again = resume(search.site, search.results)
        assert next_runs(again) == next_runs(search)
        assert answer(again) == answer(search)


def test_a_search_that_may_not_run_longer_says_that_it_found_nothing() -> None:
    search = begin(small_site(), Policy(most_rounds=2))
    while runs := next_runs(search):
        search = told(search, [(run, faulty("n03")(run)) for run in runs])
    found = answer(search)
    assert (found.outcome, found.rounds, found.findings) == (Outcome.NOT_FOUND, 2, ())


def test_what_was_slow_before_the_search_counts_as_a_run() -> None:
    search = told(begin(small_site()), [(Run(small_site().nodes), True)])
    assert search.belief.chance.min() >= 0
    assert search.belief.chance[:24].sum() > prior_chances(search.site, search.policy)[:24].sum() * 0.9
    while runs := next_runs(search):
        search = told(search, [(run, faulty("n13")(run)) for run in runs])
    assert [one.nodes for one in answer(search).findings] == [("n13",)]


def test_beliefs_are_near_to_what_counting_all_cases_gives() -> None:
    site = site_of({f"n{number}": None for number in range(8)})
    policy = Policy(expected_faults=1.0)
    groups = [({0, 1, 2, 3}, 1, 0), ({4, 5, 6, 7}, 0, 1), ({0, 1}, 0, 1), ({2, 7}, 1, 0), ({3, 6}, 0, 1)]
    factors = [Factor(frozenset(g), site.active(frozenset(g)), slow, fast) for g, slow, fast in groups]
    weights = np.zeros(9)
    for case in itertools.product((0, 1), repeat=8):
        weight = math.prod(1 / 8 if one else 7 / 8 for one in case)
        for factor in factors:
            held = any(case[node] for node in factor.group)
            slow = 1 - policy.false_fast if held else policy.false_slow
            weight *= slow**factor.slow * (1 - slow) ** factor.fast
        weights += weight * np.array([*case, 1])
    assert believe(site, factors, policy).chance == pytest.approx(weights[:8] / weights[8], abs=0.02)


def test_one_run_by_bayes_rule() -> None:
    site = site_of({f"n{number}": None for number in range(10)})
    policy = Policy(expected_faults=1.0)
    group = frozenset({0, 1})
    chance = believe(site, [Factor(group, site.active(group), 1, 0)], policy).chance
    any_faulty = 1 - 0.9**2
    slow = 0.95 * any_faulty + 0.02 * (1 - any_faulty)
    assert chance[0] == pytest.approx(0.95 * 0.1 / slow, rel=1e-3)
    assert chance[5] == pytest.approx(0.1)


def test_evidence_is_the_log_of_the_likelihood_ratio_and_bounded() -> None:
    policy = Policy()
    assert evidence(1, 0, policy) == pytest.approx(math.log(0.95 / 0.02))
    assert evidence(0, 1, policy) == pytest.approx(math.log(0.05 / 0.98))
    assert evidence(100, 0, policy) == 40
    assert evidence(0, 100, policy) == -40


def test_the_items_that_a_run_speaks_of() -> None:
    site = small_site(12, 6)
    within = site.active(frozenset({0, 1}))
    across = site.active(frozenset({0, 7}))
    assert within == (0, 1, site.switch(0))
    assert across == (0, 7, site.uplinks(0), site.uplinks(1), site.switch(0), site.switch(1))


def test_a_leaf_with_one_node_is_no_leaf() -> None:
    site = site_of({"a": "x", "b": "y", "c": "y", "d": None})
    assert site.leaves == ("y",)
    assert dict(zip(site.nodes, site.leaf_of, strict=True)) == {"b": 0, "c": 0, "a": -1, "d": -1}


def test_the_fleet_files_settings_are_the_policy() -> None:
    assert GroupTestingSettings().policy() == Policy()
    assert GroupTestingSettings(false_slow=0.1).policy().false_slow == 0.1
    with pytest.raises(ValidationError):
        GroupTestingSettings.model_validate({"false_fast": 0.5})
    with pytest.raises(ValidationError):
        GroupTestingSettings.model_validate({"falsefast": 0.1})

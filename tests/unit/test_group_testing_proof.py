"""What direct runs must show before a cause counts as found, whatever the chances say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.group_testing import begin, next_runs, told
from fleet.group_testing_answer import Outcome, answer
from fleet.group_testing_belief import believe
from fleet.group_testing_choice import Draft
from fleet.group_testing_proof import leaf_runs, node_runs
from fleet.group_testing_site import Site, site_of
from fleet.group_testing_values import Fault, FaultKind, Limits, Run, Search

SUSPECT = 3
OTHERS = [number for number in range(24) if number != SUSPECT]


def site_of_leaves() -> Site:
    """24 nodes in four leaves of six."""
    return site_of({f"n{number:02}": f"leaf{number // 6}" for number in range(24)})


def told_all(*runs: tuple[Sequence[int], bool], search: Search | None = None) -> Search:
    """A search that was told these runs, one a round."""
    search = search or begin(site_of_leaves())
    for group, slow in runs:
        search = told(search, [(Run(search.site.names(group)), slow)])
    return search


def shown(search: Search) -> tuple[int, int] | None:
    return node_runs(
        search, SUSPECT, [one for one in search.factors.values() if len(one.group) <= 3 and SUSPECT in one.group]
    )


def test_two_slow_runs_with_two_good_partners_show_a_node() -> None:
    search = told_all((OTHERS, False), ((SUSPECT, 10), True), ((SUSPECT, 16), True))
    assert shown(search) == (2, 0)
    search = told_all((OTHERS, False), (OTHERS, False), ((SUSPECT, 21), True), search=search)
    assert [search.site.names(fault.first) for fault in search.faults] == [("n03",)]


def test_one_slow_run_is_too_few() -> None:
    search = told_all((OTHERS, False), ((SUSPECT, 10), True))
    assert shown(search) is None
    assert search.faults == ()


def test_slow_runs_with_one_partner_only_may_be_the_partners_fault_or_the_pairs() -> None:
    search = begin(site_of_leaves())
    search = told_all(*[(OTHERS, False)] * 4, ((SUSPECT, 10), True), ((SUSPECT, 10), True), search=search)
    assert search.belief.chance[10] < 0.3
    assert shown(search) is None


def test_a_partner_that_was_never_fast_without_the_node_shows_nothing() -> None:
    assert shown(told_all(((SUSPECT, 10), True), ((SUSPECT, 16), True))) is None


def test_a_partner_that_was_slow_without_the_node_shows_nothing() -> None:
    search = told_all((OTHERS, False), ((10, 16), True), ((SUSPECT, 10), True), ((SUSPECT, 16), True))
    assert shown(search) is None


def test_a_partner_out_of_the_same_slow_group_must_have_been_fast_twice() -> None:
    chain = (SUSPECT, 10, 16, 21)
    once = told_all((OTHERS, False), (chain, True), ((SUSPECT, 10), True), ((SUSPECT, 16), True))
    assert shown(once) is None
    assert shown(told_all((OTHERS[1:], False), search=once)) == (2, 0)


def test_fast_direct_runs_count_against_the_slow_ones() -> None:
    slow = [((SUSPECT, partner), True) for partner in (10, 16)]
    search = told_all((OTHERS, False), ((SUSPECT, 8), False), *slow)
    assert shown(search) is None
    assert shown(told_all((OTHERS, False), ((SUSPECT, 8), False), *slow, ((SUSPECT, 20), True))) == (3, 1)


def test_slow_runs_over_many_nodes_accuse_nobody_however_likely_it_is() -> None:
    groups = [((SUSPECT, start, start + 1, start + 2), True) for start in (8, 14, 18)]
    search = told_all((OTHERS, False), (OTHERS, False), *groups)
    assert search.belief.chance[SUSPECT] >= search.policy.sure
    assert search.faults == ()


def uplinks(site: Site) -> Fault:
    return Fault(FaultKind.UPLINKS, site.members[0], site.everything - site.members[0], (0,), 1.0, 0, 0)


def leaf_shown(kind: FaultKind, *runs: tuple[Sequence[int], bool]) -> tuple[int, int] | None:
    search = told_all(*runs)
    site = search.site
    fault = uplinks(site)
    if kind is FaultKind.SWITCH:
        fault = Fault(kind, site.members[0], site.everything, (0,), 1.0, 0, 0)
    return leaf_runs(search, fault, [one for one in search.factors.values() if fault.explains(one.group)])


CALM = (((0, 2), False), ((1, 4), False))


def test_uplinks_are_shown_by_two_members_with_two_leaves_and_calm_within() -> None:
    assert leaf_shown(FaultKind.UPLINKS, *CALM, ((0, 6), True), ((1, 12), True)) == (2, 0)


@pytest.mark.parametrize(
    "runs",
    [
        (((0, 6), True), ((1, 12), True)),
        (CALM[0], ((0, 6), True), ((1, 12), True)),
        (*CALM, ((0, 6), True), ((1, 7), True)),
        (*CALM, ((0, 6), True), ((0, 12), True)),
        (*CALM, ((0, 6), True), ((1, 12), True), ((2, 18), False)),
    ],
    ids=["never within", "once within", "one other leaf", "one member", "fast once"],
)
def test_less_than_that_does_not_show_uplinks(runs: tuple[tuple[Sequence[int], bool], ...]) -> None:
    assert leaf_shown(FaultKind.UPLINKS, *runs) is None


ACROSS = tuple(((member, 6 + member), True) for member in range(5))


def test_a_switch_is_shown_by_five_members_and_a_run_within() -> None:
    assert leaf_shown(FaultKind.SWITCH, *ACROSS, ((0, 1), True)) == (6, 0)
    assert leaf_shown(FaultKind.SWITCH, *ACROSS) is None
    assert leaf_shown(FaultKind.SWITCH, *ACROSS[:4], ((0, 1), True)) is None


def test_a_group_that_was_slow_twice_and_then_fast_is_dismissed_as_noise() -> None:
    everything = range(24)
    quarters = [(range(start, 24, 4), False) for start in range(4)]
    search = told_all(*quarters * 3, (everything, True), (everything, True))
    assert search.doubt == frozenset(everything)
    search = told_all(*[(everything, False)] * 4, search=search)
    assert (search.doubt, search.dismissed, search.unexplained) == (None, (frozenset(everything),), ())


def test_slowness_that_comes_with_size_alone_ends_without_a_cause_and_is_not_called_healthy() -> None:
    search = begin(site_of_leaves())
    while runs := next_runs(search):
        search = told(search, [(run, len(run.nodes) > 20) for run in runs])
    found = answer(search)
    assert (found.outcome, found.findings) == (Outcome.NOT_FOUND, ())
    assert found.runs < 120


def test_partners_are_not_taken_out_of_slow_groups_that_nothing_explains() -> None:
    calm = [((10, 4), False), ((11, 5), False), ((12, 23), False)]
    search = told_all((OTHERS, False), (OTHERS, False), *calm, *calm, ((10, 11, 12), True))
    assert search.belief.chance[10] < 0.05
    draft = Draft(search, Limits())
    assert not {draft.partner(frozenset({SUSPECT}), turn=turn) for turn in range(40)} & {10, 11, 12}


def test_the_slowness_of_a_doubted_group_says_less_of_its_nodes() -> None:
    search = told_all((range(4), True))
    sure = believe(search.site, search.open_factors(), search.policy)
    unsure = believe(search.site, search.open_factors(), search.policy, [frozenset(range(6))])
    assert unsure.chance[0] < sure.chance[0]

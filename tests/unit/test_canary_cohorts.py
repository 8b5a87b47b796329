"""Cohorts that are alike, the same each time, and honest where they are not alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.canary_cohorts import age_band, match_controls, plan_cohorts
from fleet.errors import ConfigurationError
from fleet.measures import NodeTraits


def fleet(racks: int = 6, per_rack: int = 8) -> list[NodeTraits]:
    return [
        NodeTraits(
            f"n{r}-{n}",
            "H100" if r < racks - 1 else "H200",
            f"r{r}",
            "25.1" if r % 2 else "24.9",
            100.0 + 300 * (n > 5),
        )
        for r in range(racks)
        for n in range(per_rack)
    ]


def test_each_canary_node_has_a_control_of_its_stratum() -> None:
    found = plan_cohorts(fleet(), 8, seed=7)
    assert (len(found.canary), len(found.control), found.notes) == (8, 8, ())
    traits = {one.node: one for one in fleet()}
    for stratum in found.strata:
        alike = {
            (traits[n].model, traits[n].rack, traits[n].firmware, age_band(traits[n].age_days))
            for n in (*stratum.canary, *stratum.control)
        }
        assert len(alike) == 1
        assert len(stratum.canary) == len(stratum.control)


def test_a_canary_shows_all_models_firmwares_and_racks_that_it_can() -> None:
    found = plan_cohorts(fleet(), 6, seed=1)
    assert {stratum.model for stratum in found.strata} == {"H100", "H200"}
    assert {stratum.rack for stratum in found.strata} == {f"r{n}" for n in range(6)}
    assert {stratum.firmware for stratum in found.strata} == {"24.9", "25.1"}


def test_the_seed_decides_and_the_order_of_the_nodes_does_not() -> None:
    nodes = fleet()
    assert plan_cohorts(nodes, 8, seed=3) == plan_cohorts(reversed(nodes), 8, seed=3)
    assert plan_cohorts(nodes, 8, seed=3).canary != plan_cohorts(nodes, 8, seed=4).canary


def test_a_node_without_its_like_gets_another_control_and_that_is_said() -> None:
    nodes = [NodeTraits(f"n{n}", "H100", f"r{n}", "25.1", 400.0) for n in range(6)]
    found = plan_cohorts(nodes, 2, seed=1)
    assert len(found.control) == 2
    assert all(stratum.widened == ("rack",) for stratum in found.strata)
    assert "differ in rack" in found.notes[0]


def test_a_fleet_that_is_too_small_gets_a_smaller_canary_and_that_is_said() -> None:
    nodes = [NodeTraits(f"n{n}", "H100", "r0", "25.1") for n in range(6)]
    found = plan_cohorts(nodes, 8, seed=1)
    assert (len(found.canary), len(found.control)) == (3, 3)
    assert "only 3 canary nodes of 8" in found.notes[0]


def test_controls_are_found_for_nodes_that_somebody_else_chose() -> None:
    found = match_controls(["n0-0", "n0-1"], fleet(), seed=1)
    assert found.canary == ("n0-0", "n0-1")
    assert all(name.startswith("n0-") for name in found.control)


def test_a_canary_that_is_the_whole_fleet_has_no_control_and_says_so() -> None:
    nodes = [NodeTraits(f"n{n}", "H100", "r0", "25.1") for n in range(2)]
    found = match_controls(["n0", "n1"], nodes, seed=1)
    assert found.control == ()
    assert "no control node is left for n0, n1" in found.notes


def test_a_node_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="n9"):
        match_controls(["n9"], fleet(), seed=1)


def test_a_node_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        plan_cohorts([*fleet(), fleet()[0]], 4, seed=1)


TRAITS = st.lists(
    st.builds(
        NodeTraits,
        st.integers(0, 60).map("n{}".format),
        st.sampled_from("AB"),
        st.sampled_from("xyz"),
        st.sampled_from("12"),
        st.sampled_from([None, 10.0, 500.0]),
    ),
    max_size=40,
    unique_by=lambda one: one.node,
)


@settings(max_examples=80, deadline=None)
@given(TRAITS, st.integers(1, 20), st.integers(0, 99), st.integers(1, 3))
def test_no_node_is_in_two_places_and_none_is_made_up(
    nodes: list[NodeTraits], size: int, seed: int, ratio: int
) -> None:
    found = plan_cohorts(nodes, size, seed, ratio)
    chosen = (*found.canary, *found.control)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {one.node for one in nodes}
    assert len(found.canary) <= size
    assert {one.node for one in found.traits} == set(chosen)

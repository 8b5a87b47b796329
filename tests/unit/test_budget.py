"""The disruption budget, in any sequence of grants, returns and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.budget import (
    BudgetView,
    Granted,
    PoolLimits,
    PoolView,
    Refused,
    Standing,
    decide,
    in_service_least,
    over_breaker,
)
from fleet.reasons import ReasonKind

RACK_LIMIT = 2
LIMITS = PoolLimits(capacity_floor=0.6, domain_limit=1, breaker_share=1.0)


@dataclass
class Fleet:
    """Four racks of four nodes, two NVLink domains a rack, one pool."""

    nodes: dict[str, Standing]

    def view(self, operation: str, unit: list[str]) -> BudgetView:
        out = tuple(node for node in self.nodes.values() if node.out is not None)
        racks = dict.fromkeys({node.rack for node in self.nodes.values()}, RACK_LIMIT)
        pool = PoolView(LIMITS, len(self.nodes))
        return BudgetView(operation, {n: self.nodes[n] for n in unit}, out, racks, {"main": pool})

    def out_of(self, rack: str) -> set[str]:
        return {node.name for node in self.nodes.values() if node.rack == rack and node.out}

    def domains_of(self, rack: str) -> set[str | None]:
        return {node.nvlink_domain for node in self.nodes.values() if node.rack == rack and node.out}


def new_fleet() -> Fleet:
    names = [(f"r{r}-{i}", f"r{r}", f"r{r}-d{i // 2}") for r in range(4) for i in range(4)]
    return Fleet({n: Standing(n, "main", rack, nvlink_domain=domain) for n, rack, domain in names})


NAMES = sorted(new_fleet().nodes)
moves = st.one_of(
    st.tuples(st.sampled_from(["fw-1", "dr-2"]), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)),
    st.tuples(st.sampled_from(["return", "fault"]), st.lists(st.sampled_from(NAMES), min_size=1, max_size=1)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(moves, max_size=40))
def test_no_sequence_of_grants_exceeds_a_limit(sequence: list[tuple[str, list[str]]]) -> None:
    fleet = new_fleet()
    for actor, unit in sequence:
        if actor == "return":
            fleet.nodes[unit[0]] = replace(fleet.nodes[unit[0]], out=None, leased_by=None)
        elif actor == "fault":
            fleet.nodes[unit[0]] = replace(fleet.nodes[unit[0]], out="quarantined")
        else:
            _ask(fleet, actor, unit)


def _ask(fleet: Fleet, operation: str, unit: list[str]) -> None:
    answer = decide(fleet.view(operation, unit), unit)
    if isinstance(answer, Refused):
        assert answer.text
        return
    leaving = [fleet.nodes[name] for name in unit if fleet.nodes[name].out is None]
    disturbed = {rack: fleet.domains_of(rack) for rack in {node.rack for node in leaving}}
    for name in unit:
        assert fleet.nodes[name].leased_by in (None, operation)
        out = fleet.nodes[name].out or operation
        fleet.nodes[name] = replace(fleet.nodes[name], leased_by=operation, out=out)
    for rack, before in disturbed.items():
        assert len(fleet.out_of(rack)) <= RACK_LIMIT
        now = fleet.domains_of(rack)
        assert now == before or len(now) <= LIMITS.domain_limit
    if leaving:
        in_service = sum(node.out is None for node in fleet.nodes.values())
        assert in_service >= math.ceil(0.6 * len(fleet.nodes))


def test_a_unit_that_can_never_fit_says_what_to_change() -> None:
    unit = ["r0-0", "r0-1", "r0-2"]
    answer = decide(new_fleet().view("fw-1", unit), unit)
    assert isinstance(answer, Refused)
    assert "this unit takes 3 nodes, the limit is 2; raise the rack's limit" in answer.text


def test_a_node_named_twice_is_one_node() -> None:
    unit = ["r0-0", "r0-0"]
    assert decide(new_fleet().view("fw-1", unit), unit) == Granted(("r0-0",), ("r0-0",))


def test_a_tripped_breaker_refuses_a_unit_that_takes_no_room() -> None:
    fleet = new_fleet()
    fleet.nodes["r0-0"] = replace(fleet.nodes["r0-0"], out="quarantined")
    view = fleet.view("fw-1", ["r0-0"])
    tripped = replace(view, pools={"main": PoolView(LIMITS, 16, ("r0-0",), "too many")})
    answer = decide(tripped, ["r0-0"])
    assert isinstance(answer, Refused)
    assert answer.reason_kind is ReasonKind.BREAKER


@pytest.mark.parametrize(
    ("floor", "total", "least"), [(0.07, 100, 7), (0.85, 20, 17), (0.85, 32, 28), (1.0, 3, 3), (0.0, 5, 0)]
)
def test_the_floor_is_exact(floor: float, total: int, least: int) -> None:
    assert in_service_least(PoolLimits(floor), total) == least


def test_the_breaker_never_trips_at_or_below_its_floor() -> None:
    limits = PoolLimits(breaker_share=0.10, breaker_floor_nodes=2)
    assert not over_breaker(limits, 4, 2)
    assert over_breaker(limits, 4, 3)
    assert not over_breaker(limits, 30, 3)
    assert over_breaker(limits, 30, 4)

"""One owner per node, within the budget."""

from __future__ import annotations

from datetime import timedelta

import pytest
from unit.ledger_tools import FREE, LIMITS, FakeClock, fleet_of, node, running, take

from fleet.budget import Granted, PoolLimits, Refused
from fleet.errors import LeaseLost, PreconditionError
from fleet.model import NodeState
from fleet.ownership import Before
from fleet.reasons import ReasonKind
from ledger import Ledger
from ledger.operation import Runner

pytest_plugins = ("unit.ledger_fixtures",)

BY_BOB = Before(cordoned=True, reason="bad fan", reason_by="bob", state=NodeState.IN_SERVICE)


def refused(answer: Granted | Refused) -> Refused:
    assert isinstance(answer, Refused), answer
    return answer


def test_a_free_node_is_leased_with_what_was_there_before(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    owner = running(ledger)
    assert take(ledger, owner, "r1-0", before=BY_BOB) == Granted(("r1-0",), ("r1-0",))
    lease = ledger.leases.lease("r1-0")
    assert lease is not None
    assert (lease.operation, lease.before) == (owner[0], BY_BOB)
    assert ledger.inventory.node("r1-0").operation == owner[0]


def test_a_node_of_another_operation_is_refused_and_the_owner_named(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    first, second = running(ledger), running(ledger, "drain")
    take(ledger, first, "r1-0")
    answer = refused(take(ledger, second, "r1-1", "r1-0"))
    assert (answer.reason_kind, answer.blocked_by) == (ReasonKind.CONFLICT, ("r1-0",))
    assert first[0] in answer.text
    assert ledger.leases.lease("r1-1") is None


def test_asking_again_keeps_the_first_record_of_what_was_there(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    owner = running(ledger)
    take(ledger, owner, "r1-0", before=BY_BOB)
    assert take(ledger, owner, "r1-0", before=FREE) == Granted(("r1-0",))
    assert ledger.leases.held_by(owner[0])[0].before == BY_BOB


def test_a_full_rack_is_refused_and_says_what_its_budget_is_spent_on(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 2, "r2": 2})
    owner = running(ledger)
    take(ledger, owner, "r1-0")
    ledger.inventory.move("r1-0", NodeState.DRAINING, "", owner[0])
    ledger.inventory.move("r1-1", NodeState.QUARANTINED, "Xid 79")
    answer = refused(take(ledger, owner, "r1-2"))
    assert answer.text == f"rack r1: 2 of 2 out: r1-0 ({owner[0]}, draining), r1-1 (quarantined: Xid 79)"
    assert answer.blocked_by == ("r1-0", "r1-1")
    assert isinstance(take(ledger, owner, "r2-0"), Granted)


def test_a_node_that_is_out_already_counts_once(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    owner = running(ledger)
    ledger.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    assert isinstance(take(ledger, owner, "r1-0"), Granted)
    assert isinstance(take(ledger, owner, "r1-1"), Refused)


def test_a_node_that_a_person_cordoned_counts_and_is_named(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    ledger.inventory.record_cordons({"r1-3": "bob: bad fan"})
    assert "r1-3 (cordoned: bob: bad fan)" in refused(take(ledger, running(ledger), "r1-0")).text
    ledger.inventory.record_cordons({})
    assert isinstance(take(ledger, running(ledger), "r1-0"), Granted)


def test_a_cordon_found_at_the_start_still_counts_after_the_release(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    owner = running(ledger)
    take(ledger, owner, "r1-0", before=BY_BOB)
    ledger.leases.release(*owner, "r1-0")
    assert ledger.inventory.node("r1-0").cordoned == "bob bad fan"
    assert isinstance(take(ledger, owner, "r1-1"), Refused)


def test_the_pool_keeps_its_floor_over_all_racks(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4, "r2": 4}, limits=PoolLimits(0.75, 9, 1.0))
    owner = running(ledger)
    assert isinstance(take(ledger, owner, "r1-0", "r2-0"), Granted)
    answer = refused(take(ledger, owner, "r1-1"))
    assert "6 of 8 in service, 6 must stay" in answer.text


def test_a_second_nvlink_domain_of_the_rack_waits(ledger: Ledger) -> None:
    nodes = [node(f"n{i}", domain=f"nvl{i // 2}") for i in range(6)]
    ledger.inventory.sync(nodes, {"r1": 6}, {"main": PoolLimits(0.0, 1, 1.0)})
    owner = running(ledger)
    assert isinstance(take(ledger, owner, "n0", "n1"), Granted)
    assert "NVLink domains disturbed: n0" in refused(take(ledger, owner, "n2")).text


def test_a_closed_rack_is_refused_even_for_a_sick_node(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 0})
    ledger.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    assert "closed" in refused(take(ledger, running(ledger), "r1-0")).text


def test_a_node_in_burn_in_takes_no_room_of_its_rack(ledger: Ledger) -> None:
    limits = {"main": LIMITS}
    ledger.inventory.sync([node("a"), node("b")], {"r1": 1}, limits)
    ledger.inventory.sync([node("a"), node("b"), node("new")], {"r1": 1}, limits, NodeState.BURN_IN)
    owner = running(ledger)
    assert isinstance(take(ledger, owner, "new"), Granted)
    assert isinstance(take(ledger, owner, "a"), Granted)


def test_a_released_node_makes_room_and_a_second_release_is_harmless(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    owner = running(ledger)
    take(ledger, owner, "r1-0")
    ledger.leases.release(*owner, "r1-0")
    ledger.leases.release(*owner, "r1-0")
    assert isinstance(take(ledger, owner, "r1-1"), Granted)


def test_an_old_runner_neither_acquires_nor_releases(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 2})
    old = running(ledger)
    take(ledger, old, "r1-0")
    token = ledger.operations.claim(old[0], Runner("ctl1", 200, 2.0, None), takeover=True)
    with pytest.raises(LeaseLost, match="took over"):
        take(ledger, old, "r1-1")
    with pytest.raises(LeaseLost, match="took over"):
        ledger.leases.release(*old, "r1-0")
    assert take(ledger, (old[0], token), "r1-0") == Granted(("r1-0",))


def test_a_node_taken_back_by_a_person_ends_the_lease(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 2})
    owner = running(ledger)
    take(ledger, owner, "r1-0")
    ended = ledger.leases.take_back("r1-0", "bob", "needed for a demo")
    assert ended is not None
    assert ended.operation == owner[0]
    with pytest.raises(LeaseLost, match="nobody does"):
        ledger.journal.begin(*owner, "r1-0", "flash", {})


def test_a_node_that_left_the_fleet_file_is_not_leased(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    ledger.inventory.sync([node("r1-0")], {"r1": 4}, {"main": LIMITS})
    with pytest.raises(PreconditionError, match="fleet file"):
        take(ledger, running(ledger), "r1-1")


def test_faults_on_top_of_operations_trip_the_breaker_until_a_person_resets_it(
    ledger: Ledger, clock: FakeClock
) -> None:
    fleet_of(ledger, {"r1": 4, "r2": 4}, 10, PoolLimits(0.5, 9, 0.10, 600, 1))
    owner = running(ledger)
    take(ledger, owner, "r1-0", "r1-1")
    assert ledger.leases.tripped() == {}
    ledger.inventory.move("r2-5", NodeState.QUARANTINED, "Xid 79")
    assert "3 of 20 nodes left service" in ledger.leases.tripped()["main"]
    ledger.leases.release(*owner, "r1-0")
    clock.at += timedelta(seconds=10)
    assert refused(take(ledger, owner, "r2-0")).reason_kind is ReasonKind.BREAKER
    with pytest.raises(PreconditionError):
        ledger.leases.reset_breaker("main", "bob", " ")
    ledger.leases.reset_breaker("main", "bob", "the PDU was replaced")
    assert isinstance(take(ledger, owner, "r2-0"), Granted)


def test_a_node_found_cordoned_is_no_loss_of_ours(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 9}, 10, PoolLimits(0.1, 9, 0.10, 600, 1))
    owner = running(ledger)
    take(ledger, owner, "r1-0", before=BY_BOB)
    assert isinstance(take(ledger, owner, "r1-1"), Granted)
    assert "would be 2 of 10" in refused(take(ledger, owner, "r1-2")).text


def test_a_tripped_breaker_does_not_reset_itself(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 4}, 10, PoolLimits(0.5, 9, 0.10, 600, 1))
    for name in ("r1-0", "r1-1"):
        ledger.inventory.move(name, NodeState.QUARANTINED, "Xid 79")
    clock.at += timedelta(days=1)
    assert refused(take(ledger, running(ledger), "r1-5")).reason_kind is ReasonKind.BREAKER


def test_an_operation_waits_rather_than_trip_the_breaker_by_itself(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 4, "r2": 4}, 10, PoolLimits(0.5, 9, 0.10, 600, 1))
    owner = running(ledger)
    take(ledger, owner, "r1-0", "r1-1")
    assert refused(take(ledger, owner, "r2-0")).reason_kind is ReasonKind.BUDGET
    assert ledger.leases.tripped() == {}
    ledger.leases.release(*owner, "r1-0")
    assert isinstance(take(ledger, owner, "r2-0"), Granted)
    clock.at += timedelta(seconds=601)
    assert isinstance(take(ledger, owner, "r2-1"), Granted)


def test_a_waiting_node_says_why(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    first, second = running(ledger), running(ledger)
    ledger.operations.add_nodes(second[0], [("r1-1", 2, 7)])
    ledger.operations.say(second[0], "r1-1", "job 42 of carol")
    take(ledger, first, "r1-0")
    lines = ledger.leases.explain("r1-1")
    assert lines[0].startswith("in_service since 2026-11-30 12:00:00")
    assert f"{second[0]} wave 2 position 7: pending; waits for job 42 of carol" in lines
    assert f"budget: rack r1: 1 of 1 out: r1-0 ({first[0]})" in lines
    assert any(line.startswith(f"held by {first[0]}") for line in ledger.leases.explain("r1-0"))


def test_the_external_slot_is_kept_with_the_lease(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    take(ledger, running(ledger), "r1-0")
    ledger.leases.set_external_slots({"r1-0": "r1"})
    lease = ledger.leases.lease("r1-0")
    assert lease is not None
    assert lease.external_slot == "r1"
    assert ledger.leases.slots_held() == {"r1": 1}
    with pytest.raises(LeaseLost):
        ledger.leases.set_external_slots({"r1-1": "r1"})

"""Which events are failures of nodes in service, and the node-days in which they could be seen."""

from __future__ import annotations

from datetime import timedelta

import pytest
from unit.knowledge_tools import reading
from unit.ledger_tools import FakeClock, fleet_of, running, take

from fleet.model import NodeState
from ledger import Ledger
from ledger.failures import FailureCount, Sign, read_failures

pytest_plugins = ("unit.ledger_fixtures",)

DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0
WELL = {"probe.state": "read", "health": "ok"}
LOST_GPU = {"probe.state": "read", "health": "fatal: gpu 0000:3b:00 gpu.lost"}
NO_WAY = {"probe.state": "unreachable"}
FLEET = ("r1-0", "r1-1", "r1-2", "r1-3")


def sweep(ledger: Ledger, clock: FakeClock, **told: dict[str, str]) -> None:
    """One round over the four nodes; those that are not named are well."""
    facts = {name: told.get(name.replace("-", "_"), WELL) for name in FLEET}
    ledger.facts.record(
        reading(name, clock.now(), facts=each, unknown={} if "health" in each else {"*": "no route to host"})
        for name, each in facts.items()
    )


def after(clock: FakeClock, seconds: float) -> None:
    clock.sleep(seconds)


def counted(ledger: Ledger, clock: FakeClock, days: float = 30) -> FailureCount:
    return read_failures(ledger, clock.now() - timedelta(days=days), clock.now())


def signs(found: FailureCount) -> list[tuple[str, Sign]]:
    return [(failure.node, failure.sign) for failure in found.failures]


@pytest.fixture
def watched(ledger: Ledger, clock: FakeClock) -> Ledger:
    """Four nodes that were well ten days ago, and an hour ago."""
    fleet_of(ledger, {"r1": 4})
    sweep(ledger, clock)
    after(clock, 10 * DAY)
    sweep(ledger, clock)
    after(clock, HOUR)
    return ledger


def test_nodes_that_stay_well_have_days_and_no_failures(watched: Ledger, clock: FakeClock) -> None:
    sweep(watched, clock)
    found = counted(watched, clock)
    assert (found.failures, found.nodes) == ((), 4)
    assert found.node_days == pytest.approx(4 * (10 + 1 / 24))


def test_a_window_counts_only_its_own_days(watched: Ledger, clock: FakeClock) -> None:
    sweep(watched, clock)
    assert counted(watched, clock, days=2).node_days == pytest.approx(8.0)


def test_a_node_that_no_sweep_reads_has_no_days(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 4})
    after(clock, 10 * DAY)
    ledger.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    found = counted(ledger, clock)
    assert (found.nodes, found.node_days, found.failures) == (0, 0.0, ())


def test_a_quarantine_out_of_service_is_a_failure(watched: Ledger, clock: FakeClock) -> None:
    watched.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    moved = clock.now()
    after(clock, 5 * DAY)
    sweep(watched, clock)
    found = counted(watched, clock)
    (failure,) = found.failures
    assert (failure.node, failure.at, failure.sign, failure.text) == ("r1-0", moved, Sign.QUARANTINED, "Xid 79")
    assert found.node_days == pytest.approx(4 * (10 + 1 / 24) + 3 * 5)


def test_a_quarantine_by_an_operation_that_had_drained_the_node_is_none(watched: Ledger, clock: FakeClock) -> None:
    owner = running(watched)
    take(watched, owner, "r1-0")
    for state in (NodeState.DRAINING, NodeState.DRAINED, NodeState.MAINTENANCE, NodeState.QUARANTINED):
        watched.inventory.move("r1-0", state, "firmware", owner[0])
        after(clock, HOUR)
    sweep(watched, clock, r1_0=LOST_GPU)
    assert counted(watched, clock).failures == ()


def test_what_an_operation_found_does_not_hide_a_failure_soon_after_the_return(
    watched: Ledger, clock: FakeClock
) -> None:
    owner = running(watched)
    take(watched, owner, "r1-0")
    for state in (NodeState.DRAINING, NodeState.DRAINED, NodeState.MAINTENANCE, NodeState.QUARANTINED):
        watched.inventory.move("r1-0", state, "firmware", owner[0])
    for state in (NodeState.VALIDATING, NodeState.IN_SERVICE):
        watched.inventory.move("r1-0", state, "mended", owner[0])
    after(clock, 10 * MINUTE)
    sweep(watched, clock)
    after(clock, 10 * MINUTE)
    sweep(watched, clock, r1_0=LOST_GPU)
    assert signs(counted(watched, clock)) == [("r1-0", Sign.HEALTH)]


def test_a_gpu_that_is_lost_is_one_failure_however_long_it_lasts(watched: Ledger, clock: FakeClock) -> None:
    began = clock.now()
    sweep(watched, clock, r1_2=LOST_GPU)
    after(clock, 2 * DAY)
    sweep(watched, clock, r1_2={**LOST_GPU, "health": "fatal: gpu 0000:3b:00 gpu.lost, gpu 0000:4c:00 gpu.lost"})
    watched.inventory.move("r1-2", NodeState.QUARANTINED, "two GPUs lost")
    after(clock, DAY)
    sweep(watched, clock, r1_2=LOST_GPU)
    found = counted(watched, clock)
    (failure,) = found.failures
    assert (failure.at, failure.sign, failure.text) == (began, Sign.HEALTH, LOST_GPU["health"])
    assert found.node_days == pytest.approx(4 * (10 + 1 / 24) + 3 * 3)


def test_a_gpu_that_fails_again_after_it_was_well_fails_twice(watched: Ledger, clock: FakeClock) -> None:
    for told in (LOST_GPU, WELL, LOST_GPU, WELL):
        sweep(watched, clock, r1_2=told)
        after(clock, 6 * HOUR)
    assert signs(counted(watched, clock)) == [("r1-2", Sign.HEALTH), ("r1-2", Sign.HEALTH)]


def test_a_failed_node_that_could_not_be_read_for_a_while_has_not_failed_anew(
    watched: Ledger, clock: FakeClock
) -> None:
    sweep(watched, clock, r1_2=LOST_GPU)
    after(clock, 6 * HOUR)
    sweep(watched, clock, r1_2={"probe.state": "credentials refused"})
    after(clock, 6 * HOUR)
    sweep(watched, clock, r1_2=LOST_GPU)
    assert signs(counted(watched, clock)) == [("r1-2", Sign.HEALTH)]


def test_a_warning_or_an_error_stops_no_job(watched: Ledger, clock: FakeClock) -> None:
    sweep(watched, clock, r1_1={**WELL, "health": "error: gpu 0000:3b:00 ecc.remap_pending"})
    after(clock, HOUR)
    sweep(watched, clock)
    assert counted(watched, clock).failures == ()


def test_what_was_so_when_the_node_was_first_read_is_no_failure(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 4})
    for _ in range(3):
        sweep(ledger, clock, r1_0=LOST_GPU, r1_1=NO_WAY)
        after(clock, HOUR)
    assert counted(ledger, clock).failures == ()


def test_a_host_that_answers_no_sweep_for_over_ten_minutes_has_failed(watched: Ledger, clock: FakeClock) -> None:
    began = clock.now()
    for _ in range(4):
        sweep(watched, clock, r1_3=NO_WAY)
        after(clock, 5 * MINUTE)
    assert signs(counted(watched, clock)) == [("r1-3", Sign.UNREACHABLE)]
    sweep(watched, clock)
    (failure,) = counted(watched, clock).failures
    assert (failure.at, failure.text) == (began, "no sweep reached its host for 15 min")


def test_a_host_that_one_sweep_missed_has_not_failed(watched: Ledger, clock: FakeClock) -> None:
    sweep(watched, clock, r1_3=NO_WAY)
    after(clock, HOUR)
    sweep(watched, clock)
    assert counted(watched, clock).failures == ()


def test_when_most_nodes_are_unreachable_together_the_way_to_them_was_lost(watched: Ledger, clock: FakeClock) -> None:
    for _ in range(4):
        sweep(watched, clock, r1_0=NO_WAY, r1_1=NO_WAY, r1_2=NO_WAY)
        after(clock, 5 * MINUTE)
    found = counted(watched, clock)
    assert (found.failures, found.way_lost) == ((), 3)


def test_nodes_that_are_unreachable_one_after_the_other_have_failed(watched: Ledger, clock: FakeClock) -> None:
    for name in ("r1_0", "r1_1", "r1_2"):
        for _ in range(4):
            sweep(watched, clock, **{name: NO_WAY})
            after(clock, 5 * MINUTE)
    found = counted(watched, clock)
    assert ([failure.node for failure in found.failures], found.way_lost) == (["r1-0", "r1-1", "r1-2"], 0)


def test_signs_that_follow_each_other_within_an_hour_are_one_failure(watched: Ledger, clock: FakeClock) -> None:
    for _ in range(3):
        sweep(watched, clock, r1_3=NO_WAY)
        after(clock, 10 * MINUTE)
    sweep(watched, clock)
    after(clock, 30 * MINUTE)
    watched.inventory.move("r1-3", NodeState.QUARANTINED, "it went away")
    sweep(watched, clock)
    assert signs(counted(watched, clock)) == [("r1-3", Sign.UNREACHABLE)]


@pytest.mark.parametrize(
    "text",
    [
        "down",
        "cordoned by slurm: Not responding",
        "cordoned by root: Node unexpectedly rebooted",
        "cordoned by slurm: gres/gpu count reported lower than configured (7 < 8)",
    ],
)
def test_what_the_scheduler_sees_of_a_lost_node_is_a_failure(watched: Ledger, clock: FakeClock, text: str) -> None:
    watched.inventory.record_cordons({"r1-0": text})
    after(clock, HOUR)
    sweep(watched, clock)
    found = counted(watched, clock)
    (failure,) = found.failures
    assert (failure.node, failure.sign, failure.text) == ("r1-0", Sign.SCHEDULER, text)
    assert found.node_days == pytest.approx(4 * (10 + 1 / 24) + 3 / 24)


@pytest.mark.parametrize(
    "text",
    [
        "cordoned by bob: new fans",
        "cordoned by bob: is it down? not responding to me",
        "cordoned by root: Reboot ASAP",
        "cordoned by root: NHC: /scratch is full",
        "cordoned by root: Kill task failed",
    ],
)
def test_a_cordon_of_a_person_or_after_a_job_is_no_failure_and_takes_the_node_out(
    watched: Ledger, clock: FakeClock, text: str
) -> None:
    watched.inventory.record_cordons({"r1-0": text})
    for _ in range(4):
        after(clock, 6 * HOUR)
        sweep(watched, clock, r1_0=NO_WAY)
    found = counted(watched, clock)
    assert found.failures == ()
    assert found.node_days == pytest.approx(4 * (10 + 1 / 24) + 3)
    watched.inventory.record_cordons({})
    after(clock, MINUTE)
    sweep(watched, clock)
    after(clock, DAY)
    sweep(watched, clock)
    assert counted(watched, clock).node_days == pytest.approx(found.node_days + 4, abs=0.01)


def test_a_node_that_an_operation_has_just_given_back_may_be_down_for_a_moment(
    watched: Ledger, clock: FakeClock
) -> None:
    owner = running(watched)
    take(watched, owner, "r1-0")
    for state in (NodeState.DRAINING, NodeState.DRAINED, NodeState.IN_SERVICE):
        watched.inventory.move("r1-0", state, "firmware", owner[0])
    watched.leases.release(*owner, "r1-0")
    after(clock, MINUTE)
    watched.inventory.record_cordons({"r1-0": "down"})
    after(clock, HOUR)
    sweep(watched, clock)
    assert counted(watched, clock).failures == ()


def test_a_node_that_left_the_fleet_file_has_no_days_from_then_on(watched: Ledger, clock: FakeClock) -> None:
    fleet_of(watched, {"r1": 4}, each=3)
    after(clock, 2 * DAY)
    sweep(watched, clock)
    assert counted(watched, clock).node_days == pytest.approx(4 * (10 + 1 / 24) + 3 * 2)
    fleet_of(watched, {"r1": 4})
    after(clock, 2 * DAY)
    sweep(watched, clock)
    assert counted(watched, clock).node_days == pytest.approx(4 * (10 + 1 / 24) + 3 * 2 + 4 * 2)


def test_a_node_that_a_person_takes_back_is_in_service_from_then_on(watched: Ledger, clock: FakeClock) -> None:
    owner = running(watched)
    take(watched, owner, "r1-0")
    for state in (NodeState.DRAINING, NodeState.DRAINED):
        watched.inventory.move("r1-0", state, "firmware", owner[0])
    after(clock, 2 * DAY)
    watched.leases.take_back("r1-0", "eva", "I need it")
    after(clock, DAY)
    sweep(watched, clock)
    assert counted(watched, clock).node_days == pytest.approx(4 * (10 + 1 / 24) + 3 * 3 + 1)


def test_a_failure_before_the_window_is_not_of_it(watched: Ledger, clock: FakeClock) -> None:
    watched.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    after(clock, 5 * DAY)
    sweep(watched, clock)
    found = counted(watched, clock, days=3)
    assert (found.failures, found.nodes) == ((), 3)
    assert found.node_days == pytest.approx(9.0)


def test_many_records_before_the_window_do_not_hide_those_in_it(watched: Ledger, clock: FakeClock) -> None:
    for number in range(50):
        watched.inventory.record_cordons({"r1-1": f"cordoned by bob: {number}"})
        after(clock, MINUTE)
    watched.inventory.record_cordons({})
    after(clock, 9 * DAY)
    sweep(watched, clock)
    after(clock, HOUR)
    watched.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    sweep(watched, clock)
    for days in (1, 2, 5, 9.5, 30):
        assert signs(counted(watched, clock, days)) == [("r1-0", Sign.QUARANTINED)], days


def test_a_node_that_came_into_the_fleet_file_later_counts_from_then(watched: Ledger, clock: FakeClock) -> None:
    fleet_of(watched, {"r1": 4}, each=5)
    watched.facts.record([reading("r1-4", clock.now(), facts=WELL)])
    after(clock, DAY)
    sweep(watched, clock)
    watched.facts.record([reading("r1-4", clock.now(), facts=WELL)])
    assert counted(watched, clock).node_days == pytest.approx(4 * (11 + 1 / 24) + 1)

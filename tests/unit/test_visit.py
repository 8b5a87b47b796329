"""One node's visit, with everything that can go wrong on the way. Nothing is flashed twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.site_fakes import GPU, NEW, OLD, PLAIN, SWITCH, Site, firmware

from fleet.errors import LeaseLost
from fleet.model import Job, NodeState, RedfishTask, ResetKind, SchedulerState, TaskOutcome
from ledger import ControlVerb, NodeStatus
from tasks.node import visit_node

BOTH_ONCE = [(f"/fw/{GPU}",), (f"/fw/{SWITCH}",)]
JOB = Job("7", "train", "eva", "RUNNING", ("gpu-0001",), 8, 60.0, 3600.0, "", "ml", "gpu")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_node_is_flashed_in_order_reset_once_and_returned(site: Site) -> None:
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE
    assert site.fake_bmc.resets == [ResetKind.AC_CYCLE]
    assert set(site.fake_bmc.versions.values()) == {NEW}
    assert (site.fake_scheduler.cordoned, site.state()) == (False, NodeState.IN_SERVICE)


def test_a_current_node_is_neither_flashed_nor_reset(site: Site) -> None:
    site.fake_bmc.versions = {GPU: NEW, SWITCH: NEW}
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_bmc.pushes, site.fake_bmc.resets) == ([], [])


def test_a_version_that_waits_for_its_reset_is_not_written_again(site: Site) -> None:
    site.fake_bmc.staged = {GPU: NEW, SWITCH: NEW}
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_bmc.pushes, site.fake_bmc.resets) == ([], [ResetKind.AC_CYCLE])


@pytest.mark.parametrize("moment", ["before push", "after push", "before reset", "after reset"])
def test_a_runner_that_dies_is_followed_by_one_that_flashes_nothing_twice(site: Site, moment: str) -> None:
    site.fake_bmc.dies_at = moment
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE
    assert site.fake_bmc.resets == [ResetKind.AC_CYCLE]


def test_a_node_waits_for_its_work_and_nothing_is_touched_meanwhile(site: Site) -> None:
    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.BUSY, (JOB,)

    def job_ends() -> None:
        assert not site.fake_bmc.pushes
        site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.IDLE, ()

    site.clock.after(600, job_ends)
    assert site.visit().status is NodeStatus.UPDATED


def test_a_node_whose_work_does_not_leave_is_skipped_and_returned(site: Site) -> None:
    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.BUSY, (JOB,)
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva" in result.reason
    assert (site.fake_bmc.pushes, site.fake_scheduler.cordoned) == ([], False)


def test_a_completing_node_is_not_empty(site: Site) -> None:
    site.fake_scheduler.state = SchedulerState.BUSY
    assert "BUSY" in site.visit().reason


def test_a_node_that_a_person_cordoned_stays_cordoned_with_that_reason(site: Site) -> None:
    site.fake_scheduler.cordoned, site.fake_scheduler.reason = True, "bad DIMM, ticket 123; don't touch"
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_scheduler.cordons, site.fake_scheduler.uncordons) == ([], 0)
    assert site.fake_scheduler.reason == "bad DIMM, ticket 123; don't touch"


def test_a_node_that_a_person_undrains_is_let_go_before_it_is_reset(site: Site) -> None:
    site.clock.after(30, lambda: site.fake_scheduler.uncordon(("gpu-0001",)))
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "undrained by hand" in result.reason
    assert site.fake_bmc.resets == []
    assert site.ledger().leases.lease("gpu-0001") is None
    assert site.state() is NodeState.IN_SERVICE


def test_completed_with_the_old_version_is_quarantined_and_never_called_updated(site: Site) -> None:
    site.fake_bmc.writes = False
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert OLD in result.reason
    assert site.state() is NodeState.QUARANTINED
    assert "quarantined" in (site.fake_scheduler.reason or "")


def test_warnings_do_not_matter_where_the_version_is_there(site: Site) -> None:
    site.fake_bmc.outcome = TaskOutcome.SUCCEEDED_WITH_WARNINGS
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_failed_task_whose_version_is_there_all_the_same_counts_as_written(site: Site) -> None:
    site.fake_bmc.outcome = TaskOutcome.FAILED
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_failed_update_is_tried_as_often_as_the_policy_says(site: Site) -> None:
    site.fake_bmc.outcome, site.fake_bmc.writes = TaskOutcome.FAILED, False
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert len(site.fake_bmc.pushes) == 2
    assert "said so" in result.reason


def test_a_vanished_task_with_the_new_version_is_a_success(site: Site) -> None:
    site.fake_bmc.forgets = True
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_vanished_task_with_the_old_version_is_never_sent_again(site: Site) -> None:
    site.fake_bmc.forgets, site.fake_bmc.writes = True, False
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert len(site.fake_bmc.pushes) == 1
    assert site.fake_bmc.resets == []
    assert "lost task" in result.reason


def test_a_bmc_that_shows_no_staged_versions_is_judged_after_its_reset(site: Site) -> None:
    site.fake_bmc.shows_staged = False
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_reset_that_does_nothing_is_found_out(site: Site) -> None:
    site.fake_bmc.ignores_reset = True
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert "marks did not change" in result.reason
    assert len(site.fake_bmc.resets) == 1


def test_a_busy_bmc_is_waited_for(site: Site) -> None:
    site.fake_bmc.busy = 7
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_host_that_lost_its_gpus_in_the_reset_is_quarantined(site: Site) -> None:
    site.fake_host.listed = "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n"
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert "0 GPUs, not 8" in result.reason
    assert site.fake_scheduler.cordoned


def test_an_older_runner_is_stopped_before_it_touches_the_node(site: Site) -> None:
    old = site.new_visit()
    site.new_visit()
    with pytest.raises(LeaseLost, match="took over"):
        visit_node(old, firmware(), PLAIN)
    assert (site.fake_bmc.pushes, site.fake_scheduler.cordons) == ([], [])


def test_a_quarantined_node_keeps_its_reason_when_the_runner_died_before_the_cordon(site: Site) -> None:
    site.fake_bmc.writes = False
    reason = site.visit().reason
    site.fake_scheduler.reason = f"gpufleet[{site.operation}]"
    again = site.visit()
    assert (again.status, again.reason) == (NodeStatus.FAILED, reason)
    assert reason in (site.fake_scheduler.reason or "")
    assert len(site.fake_bmc.pushes) == 2


def test_a_node_that_only_drains_goes_back_when_the_operation_is_to_stop_and_is_visited_later(site: Site) -> None:
    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.BUSY, (JOB,)
    operations = site.ledger().operations
    site.clock.after(60, lambda: operations.request(site.operation, ControlVerb.HALT, "eva", "storage maintenance"))
    began = site.clock.monotonic()
    assert site.visit().status is NodeStatus.PENDING
    assert site.clock.monotonic() - began < 300
    assert (site.fake_scheduler.cordoned, site.state()) == (False, NodeState.IN_SERVICE)
    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.IDLE, ()
    operations.request(site.operation, ControlVerb.RESUME, "eva", "")
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_bmc.pushes, site.fake_scheduler.cordoned) == (BOTH_ONCE, False)


def test_a_runner_that_dies_while_it_gives_a_node_back_is_followed_by_one_that_does(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(nodes: tuple[str, ...]) -> None:
        raise KeyboardInterrupt

    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.BUSY, (JOB,)
    site.ledger().operations.request(site.operation, ControlVerb.HALT, "eva", "")
    with monkeypatch.context() as patch:
        patch.setattr(site.fake_scheduler, "uncordon", dies)
        with pytest.raises(KeyboardInterrupt):
            site.visit()
    assert site.fake_scheduler.cordoned
    assert site.visit().status is NodeStatus.PENDING
    assert not site.fake_scheduler.cordoned


def test_a_host_that_stays_off_after_its_power_cycle_is_switched_on(site: Site) -> None:
    site.fake_bmc.stays_off = True
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.resets == [ResetKind.AC_CYCLE, ResetKind.HOST_REBOOT]
    assert [e.step for e in site.ledger().journal.entries(site.operation, "gpu-0001")].count("power_on") == 1


@pytest.mark.parametrize("forgets", [True, False])
def test_a_later_push_whose_end_nobody_saw_is_not_repeated_on_an_older_inventory(
    site: Site, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    site.fake_bmc.forgets = forgets
    push, died = site.fake_bmc.push_image, []

    def die(image: Path, targets: tuple[str, ...]) -> RedfishTask:
        task = push(image, targets)
        if targets == (f"/fw/{SWITCH}",) and not died:
            died.append("here")
            raise KeyboardInterrupt
        return task

    monkeypatch.setattr(site.fake_bmc, "push_image", die)
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE

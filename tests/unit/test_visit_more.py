"""A visit at its rarer moments: killed between two lines, a scheduler away, people at work at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from unit.site_fakes import GPU, NEW, SWITCH, Answer, FakeBmc, FakeHost, FakeScheduler, Site

from fleet.config import SchedulerSettings
from fleet.errors import BmcBusy, CredentialsRejected, OutcomeUnknown, SchedulerUnreachable
from fleet.model import (
    FirmwareComponent,
    Job,
    NodeState,
    PowerState,
    RedfishTask,
    ResetKind,
    SchedulerNode,
    SchedulerState,
    SystemReading,
    TaskOutcome,
)
from fleet.validation import judge_after_update
from ledger import NodeStatus

BOTH_ONCE = [(f"/fw/{GPU}",), (f"/fw/{SWITCH}",)]
JOB = Job("7", "train", "eva", "RUNNING", ("gpu-0001",), 8, 60.0, 3600.0, "", "ml", "gpu")


@dataclass
class OddScheduler(FakeScheduler):
    """`away` looks fail; `at_uncordon` is called once an uncordon was carried out."""

    away: int = 0
    at_uncordon: Callable[[], None] = lambda: None

    def read_nodes(self) -> dict[str, SchedulerNode]:
        if self.away:
            self.away -= 1
            raise SchedulerUnreachable("slurmctld does not answer")
        return super().read_nodes()

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        super().uncordon(nodes)
        act, self.at_uncordon = self.at_uncordon, lambda: None
        act()


@dataclass
class OddBmc(FakeBmc):
    """A BMC whose answers are cut or incomplete, as its fields say."""

    names_task: bool = True
    lists_tasks: bool = True
    cuts_pushes: int = 0
    refuses_resets: int = 0
    at_push: Callable[[], None] = lambda: None
    reset_while_writing: bool = False

    def push_image(self, image: Path, targets: tuple[str, ...]) -> RedfishTask:
        task = super().push_image(image, targets)
        self.at_push()
        if self.cuts_pushes:
            self.cuts_pushes -= 1
            raise OutcomeUnknown("cut after it was sent")
        return task if self.names_task else replace(task, id="", uri="", outcome=TaskOutcome.UNKNOWN)

    def read_tasks(self) -> tuple[RedfishTask, ...]:
        return super().read_tasks() if self.lists_tasks else ()

    def reset(self, kind: ResetKind) -> None:
        if self.refuses_resets:
            self.refuses_resets -= 1
            raise BmcBusy("503 Service Unavailable")
        self.reset_while_writing |= any(t.outcome is TaskOutcome.RUNNING for t in self.tasks.values())
        super().reset(kind)


class LateHost(FakeHost):
    """Its driver answers from the fourth time on."""

    asked = 0

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        self.asked += arguments[0] == "nvidia-smi"
        return super().run(arguments) if self.asked > 3 else Answer(9, "", "no driver")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def bmc(site: Site) -> OddBmc:
    site.fake_bmc = OddBmc(site.clock)
    return site.fake_bmc


@pytest.fixture
def scheduler(site: Site) -> OddScheduler:
    site.fake_scheduler = OddScheduler()
    return site.fake_scheduler


def _die() -> None:
    raise KeyboardInterrupt


def test_a_skipped_node_whose_runner_died_while_it_returned_is_not_called_updated(
    site: Site, scheduler: OddScheduler
) -> None:
    scheduler.state, scheduler.jobs, scheduler.at_uncordon = SchedulerState.BUSY, (JOB,), _die
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva" in result.reason
    assert (site.fake_bmc.pushes, site.state()) == ([], NodeState.IN_SERVICE)


def test_a_finished_visit_that_is_taken_up_again_says_the_same_also_where_a_person_had_cordoned_the_node(
    site: Site,
) -> None:
    site.fake_scheduler.cordoned, site.fake_scheduler.reason = True, "bad DIMM"
    assert site.visit().status is NodeStatus.UPDATED
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.state(), site.fake_scheduler.reason) == (NodeState.IN_SERVICE, "bad DIMM")
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_a_scheduler_that_goes_away_while_a_node_is_flashed_is_waited_for(
    site: Site, bmc: OddBmc, scheduler: OddScheduler
) -> None:
    def goes_away() -> None:
        scheduler.away = 20

    bmc.at_push = goes_away
    assert site.visit().status is NodeStatus.UPDATED
    assert (scheduler.cordoned, site.state()) == (False, NodeState.IN_SERVICE)


def test_a_node_is_never_reset_while_an_update_without_a_named_task_runs(site: Site, bmc: OddBmc) -> None:
    def writes_for_an_hour() -> None:
        _, ends = site.clock.due.pop()
        site.clock.after(3600, ends)

    bmc.names_task, bmc.shows_staged, bmc.at_push = False, False, writes_for_an_hour
    site.visit()
    assert not bmc.reset_while_writing


def test_an_image_that_was_taken_without_any_task_and_shows_nowhere_ends_in_quarantine_without_a_reset(
    site: Site, bmc: OddBmc
) -> None:
    bmc.names_task, bmc.lists_tasks, bmc.shows_staged = False, False, False
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert "named no task" in result.reason
    assert (len(bmc.pushes), bmc.resets) == (1, [])


def test_an_image_that_was_taken_without_any_task_counts_once_it_shows(site: Site, bmc: OddBmc) -> None:
    bmc.names_task, bmc.lists_tasks = False, False
    assert site.visit().status is NodeStatus.UPDATED
    assert bmc.pushes == BOTH_ONCE


def test_a_push_whose_runner_died_is_found_by_its_task_where_staged_versions_do_not_show(site: Site) -> None:
    site.fake_bmc.shows_staged, site.fake_bmc.dies_at = False, "after push"
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_an_update_that_was_lost_is_not_sent_again_by_the_runner_after_the_one_that_found_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.fake_bmc.forgets, site.fake_bmc.writes = True, False
    move = site.ledger().inventory.move

    def dies_first(node: str, new: NodeState, reason: str, operation: str | None = None) -> None:
        if new is NodeState.QUARANTINED:
            monkeypatch.undo()
            _die()
        move(node, new, reason, operation)

    monkeypatch.setattr(site.ledger().inventory, "move", dies_first)
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.visit().status is NodeStatus.FAILED
    assert len(site.fake_bmc.pushes) == 1


def test_a_push_that_was_cut_is_read_back_and_not_sent_again(site: Site, bmc: OddBmc) -> None:
    bmc.cuts_pushes = 1
    assert site.visit().status is NodeStatus.UPDATED
    assert bmc.pushes == BOTH_ONCE


def test_a_push_that_was_cut_without_a_trace_is_not_sent_again(site: Site, bmc: OddBmc) -> None:
    bmc.cuts_pushes, bmc.forgets, bmc.writes = 1, True, False
    result = site.visit()
    assert result.status is NodeStatus.FAILED
    assert "the connection broke" in result.reason
    assert len(bmc.pushes) == 1


def test_a_reset_that_is_refused_because_the_bmc_is_busy_is_asked_for_again(site: Site, bmc: OddBmc) -> None:
    bmc.refuses_resets = 3
    assert site.visit().status is NodeStatus.UPDATED
    assert bmc.resets == [ResetKind.AC_CYCLE]


def test_a_component_that_is_gone_from_the_inventory_leaves_the_node_untouched(site: Site) -> None:
    del site.fake_bmc.versions[GPU]
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert f"{GPU}: is not in the inventory" in result.reason
    assert (site.fake_bmc.pushes, site.fake_scheduler.cordoned) == ([], False)


def test_a_component_that_the_inventory_lacks_for_a_moment_is_waited_for(site: Site) -> None:
    old = site.fake_bmc.versions.pop(GPU)
    site.clock.after(60, lambda: site.fake_bmc.versions.update({GPU: old}))
    assert site.visit().status is NodeStatus.UPDATED


def test_a_newer_version_that_somebody_put_there_after_the_plan_is_not_downgraded(site: Site) -> None:
    site.fake_bmc.versions[GPU] = "96.00.B0.00.01"
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "newer" in result.reason
    assert site.fake_bmc.pushes == []


def test_a_job_that_was_let_in_after_the_drain_is_not_killed_by_the_reset(
    site: Site, bmc: OddBmc, scheduler: OddScheduler
) -> None:
    def job_begins() -> None:
        scheduler.jobs = (JOB,)

    bmc.at_push = job_begins
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva began" in result.reason
    assert bmc.resets == []


def test_a_cordon_of_ours_is_lifted_also_where_the_node_was_last_seen_cordoned_by_a_person(site: Site) -> None:
    site.fake_scheduler.cordoned, site.fake_scheduler.reason = True, "bad DIMM"
    visit = site.new_visit()
    site.fake_scheduler.uncordon(("gpu-0001",))
    visit.close()
    assert site.visit().status is NodeStatus.UPDATED
    assert not site.fake_scheduler.cordoned


def test_a_node_that_was_quarantined_before_is_no_failure_of_this_operation(site: Site) -> None:
    site.ledger().inventory.move("gpu-0001", NodeState.QUARANTINED, "GPU 3 fell off the bus")
    visit = site.new_visit()
    assert visit.before.state is NodeState.IN_SERVICE  # the fake's; the dispatcher reads it from the ledger
    site.ledger().leases.release(site.operation, visit.token, "gpu-0001")
    before = replace(visit.before, state=NodeState.QUARANTINED)
    site.ledger().leases.acquire(site.operation, visit.token, ["gpu-0001"], {"gpu-0001": before})
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "GPU 3 fell off the bus" in result.reason
    assert site.fake_scheduler.cordons == []


def test_the_reason_of_a_quarantine_is_one_line_for_the_scheduler(site: Site) -> None:
    site.fake_bmc.outcome, site.fake_bmc.writes = TaskOutcome.FAILED, False
    site.visit()
    site.ledger().inventory.move("gpu-0001", NodeState.QUARANTINED, "first line\nsecond  line " + "x" * 9999, None)
    site.fake_scheduler.reason = f"gpufleet[{site.operation}]"
    site.visit()
    reason = site.fake_scheduler.reason or ""
    assert "first line second line" in reason
    assert len(reason) == 1000


def test_a_host_whose_driver_is_not_up_yet_is_asked_again(site: Site) -> None:
    site.fake_host = LateHost()
    assert site.visit().status is NodeStatus.UPDATED


def test_a_host_that_shows_no_gpu_never_passes_even_where_nobody_tells_how_many_there_are() -> None:
    system = SystemReading(None, None, None, None, PowerState.ON, (), ())
    assert not judge_after_update(system, "", None).passed


def test_without_a_workload_manager_a_dead_runners_forgotten_cordon_does_not_end_the_visit(site: Site) -> None:
    site._spec = site._spec.model_copy(update={"scheduler": SchedulerSettings(kind="none")})
    site.fake_bmc.dies_at = "before reset"
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    site.fake_scheduler = FakeScheduler()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_bmc.pushes == BOTH_ONCE


def test_an_inventory_that_shows_no_version_is_never_flashed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    read = site.fake_bmc.read_firmware

    def blank() -> tuple[FirmwareComponent, ...]:
        return tuple(replace(component, version=None) for component in read())

    monkeypatch.setattr(site.fake_bmc, "read_firmware", blank)
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "cannot be told" in result.reason
    assert (site.fake_bmc.pushes, NEW in site.fake_bmc.versions.values()) == ([], False)


def test_a_bmc_that_refuses_us_is_found_before_any_work_is_disturbed(site: Site) -> None:
    def refuse() -> tuple[FirmwareComponent, ...]:
        raise CredentialsRejected("the password is not right any more")

    site.fake_bmc.read_firmware = refuse  # type: ignore[method-assign]
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "password" in result.reason
    assert (site.fake_scheduler.cordons, site.state()) == ([], NodeState.IN_SERVICE)


def test_a_bmc_that_is_away_leaves_a_working_node_at_work(site: Site) -> None:
    site.fake_bmc.away_until = site.clock.monotonic() + 86400
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "refused" in result.reason
    assert (site.fake_scheduler.cordons, site.state()) == ([], NodeState.IN_SERVICE)

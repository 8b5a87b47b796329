"""A drain and the jobs on its node: nothing is asked twice, nothing unknown is taken for saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from unit.site_fakes import SPEC, Site

from fleet.errors import FleetError, JobRefused, OutcomeUnknown, SchedulerUnreachable, TransientError
from fleet.model import Job, NodeState, SchedulerNode, SchedulerState
from ledger import NodeStatus
from tasks.jobs import settle_job

CKPT = "/ckpt/7"
WITH_STORAGE = SPEC + "scheduler: {poll_seconds: 120}\ndrain: {checkpoints: {clock_folder: /ckpt/.clock}}\n"
JOB = Job("7", "train", "eva", "RUNNING", ("gpu-0001",), 8, 7200.0, None, f"ckpt={CKPT};kind=beacon", "ml", "gpu")
ASKABLE = replace(JOB, comment=f"{JOB.comment};signal=USR1")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, WITH_STORAGE)
    run(made, JOB)
    made.fake_storage.touch(CKPT)
    return made


def run(site: Site, job: Job) -> None:
    site.fake_scheduler.state, site.fake_scheduler.jobs = SchedulerState.BUSY, (job,)


def leaves_when_requeued(
    site: Site, monkeypatch: pytest.MonkeyPatch, before: Callable[[], None] = lambda: None
) -> None:
    """The job is gone from the node once it was requeued."""
    requeue = site.fake_scheduler.requeue

    def leave(job: str) -> None:
        before()
        requeue(job)
        site.fake_scheduler.state = SchedulerState.IDLE

    monkeypatch.setattr(site.fake_scheduler, "requeue", leave)


def test_a_job_is_requeued_once_it_has_a_newer_checkpoint_and_its_loss_is_recorded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves_when_requeued(site, monkeypatch)
    site.clock.after(900.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_scheduler.requeued == ["7"]
    (stopped,) = site.ledger().jobs.disturbances()
    assert (stopped.job, stopped.owner, stopped.how, stopped.gpus) == ("7", "eva", "requeued", 8)
    assert stopped.lost_gpu_hours == pytest.approx(0.0, abs=8 * 130 / 3600)


def test_an_old_checkpoint_is_never_enough(site: Site) -> None:
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva (ml), 8 GPUs: no checkpoint came by the deadline: a person must decide" in result.reason
    assert (site.fake_scheduler.requeued, site.state()) == ([], NodeState.IN_SERVICE)
    assert site.fake_bmc.pushes == []


def test_a_job_is_asked_once_though_its_runner_dies_in_between(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, ASKABLE)
    leaves_when_requeued(site, monkeypatch)

    def die() -> None:
        raise KeyboardInterrupt

    site.clock.after(60.0, die)
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.fake_scheduler.signalled == [("7", "USR1")]
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_scheduler.signalled, site.fake_scheduler.requeued) == ([("7", "USR1")], ["7"])


def test_a_release_that_was_only_written_down_is_carried_out_by_the_next_runner(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[str] = []

    def die_once() -> None:
        if not died:
            died.append("here")
            raise KeyboardInterrupt

    leaves_when_requeued(site, monkeypatch, die_once)
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_scheduler.requeued == ["7"]
    assert len(site.ledger().jobs.disturbances()) == 1


def test_a_storage_that_is_away_is_not_a_job_that_has_saved(site: Site) -> None:
    site.fake_storage.problem = "is not mounted"
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "last checkpoint not known (is not mounted)" in result.reason
    assert site.fake_scheduler.requeued == []


def test_a_storage_that_comes_back_is_taken_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves_when_requeued(site, monkeypatch)
    site.clock.after(300.0, lambda: setattr(site.fake_storage, "problem", "is not mounted"))
    site.clock.after(900.0, lambda: setattr(site.fake_storage, "problem", None))
    site.clock.after(1200.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED


def test_a_scheduler_that_does_not_take_the_requeue_is_asked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def away() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise SchedulerUnreachable("no answer")

    leaves_when_requeued(site, monkeypatch, away)
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_scheduler.requeued == ["7"]


def test_a_job_that_was_stopped_lately_is_left_to_its_end_and_the_line_says_why(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves_when_requeued(site, monkeypatch)
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    site.clock.sleep(86400.0)
    run(site, replace(JOB, elapsed_seconds=80000.0))
    begin_another_operation(site)
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "it was stopped at 2026-11-30 12:0" in result.reason
    assert site.fake_scheduler.requeued == ["7"]


def begin_another_operation(site: Site) -> None:
    token = site.ledger().operations.get(site.operation).token
    site.ledger().leases.release(site.operation, token, "gpu-0001")
    site.fake_bmc.versions = dict.fromkeys(site.fake_bmc.versions, "96.00.74.00.01")
    site.operation = site.ledger().operations.create("firmware_rollout", "{}", "e" * 64, "tester").id
    site.ledger().operations.add_nodes(site.operation, [("gpu-0001", 1, 0)])


def test_consent_by_the_command_lets_a_job_go_at_once_with_its_loss(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves_when_requeued(site, monkeypatch)
    site.clock.sleep(1800.0)
    site.ledger().jobs.set_consent("7", True, "eva", "go ahead")
    began = site.clock.now()
    assert site.visit().status is NodeStatus.UPDATED
    (stopped,) = site.ledger().jobs.disturbances()
    assert stopped.lost_gpu_hours == pytest.approx(0.5 * 8, abs=0.1)
    assert (stopped.at - began).total_seconds() <= 120


def test_a_job_that_may_not_be_requeued_is_left_to_a_person(site: Site) -> None:
    run(site, replace(JOB, requeue=False))
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "a person must decide" in result.reason
    assert site.fake_scheduler.requeued == []


def test_a_signal_that_the_scheduler_refuses_counts_as_not_sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, ASKABLE)

    def refuse(job: str, signal: str) -> None:
        raise JobRefused("access denied")

    monkeypatch.setattr(site.fake_scheduler, "signal", refuse)
    leaves_when_requeued(site, monkeypatch)
    site.clock.after(600.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_scheduler.requeued == ["7"]


def test_what_a_job_says_in_its_environment_counts_where_its_comment_is_silent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(site, replace(JOB, comment=""))
    site.fake_scheduler.environments["7"] = {"GPUFLEET_CKPT": CKPT, "GPUFLEET_KIND": "beacon"}
    leaves_when_requeued(site, monkeypatch)
    site.clock.after(60.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED


def test_without_a_storage_jobs_are_waited_for_and_never_signalled_or_stopped(tmp_path: Path) -> None:
    site = Site(tmp_path)
    run(site, ASKABLE)
    site.clock.after(1800.0, lambda: setattr(site.fake_scheduler, "jobs", ()))
    site.clock.after(1800.0, lambda: setattr(site.fake_scheduler, "state", SchedulerState.IDLE))
    assert site.visit().status is NodeStatus.UPDATED
    assert (site.fake_scheduler.signalled, site.fake_scheduler.requeued) == ([], [])


def test_a_requeue_that_the_scheduler_refuses_disturbed_nobody_and_ends_with_the_deadline(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job: str) -> None:
        raise JobRefused("only batch jobs are requeued")

    monkeypatch.setattr(site.fake_scheduler, "requeue", refuse)
    site.clock.after(600.0, lambda: site.fake_storage.touch(CKPT))
    began = site.clock.now()
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert site.ledger().jobs.disturbances() == ()
    assert (site.clock.now() - began).total_seconds() < 4 * 3600


@pytest.mark.parametrize("error", [TransientError("p-1 not evicted yet"), OutcomeUnknown("was p-1 evicted?")])
def test_a_stop_whose_end_is_not_told_is_asked_for_again_and_harms_no_node(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: FleetError
) -> None:
    errors = [error, error]

    def unsure() -> None:
        if errors:
            raise errors.pop()

    leaves_when_requeued(site, monkeypatch, unsure)
    site.clock.after(600.0, lambda: site.fake_storage.touch(CKPT))
    assert site.visit().status is NodeStatus.UPDATED
    assert len(site.ledger().jobs.disturbances()) == 1


def test_a_job_that_ends_by_itself_after_it_saved_is_never_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "drain: {checkpoints: {clock_folder: /ckpt/.clock}, rules: [{exits_after_signal: true}]}\n"
    site = Site(tmp_path, SPEC + "scheduler: {poll_seconds: 20}\n" + rule)
    site.fake_storage.touch(CKPT)
    run(site, replace(ASKABLE, comment=f"{ASKABLE.comment};requeue=no", requeue=True))
    site.clock.after(100.0, lambda: site.fake_storage.touch(CKPT))
    site.clock.after(900.0, lambda: setattr(site.fake_scheduler, "jobs", ()))
    site.clock.after(900.0, lambda: setattr(site.fake_scheduler, "state", SchedulerState.IDLE))
    assert site.visit().status is NodeStatus.UPDATED
    assert site.fake_scheduler.requeued == []
    assert [stopped.how for stopped in site.ledger().jobs.disturbances()] == ["saved and ended"]


def test_a_job_that_never_ends_its_completing_does_not_hold_the_node_for_ever(site: Site) -> None:
    run(site, replace(JOB, state="COMPLETING"))
    result = site.visit()
    assert result.status is NodeStatus.SKIPPED
    assert "does not end" in result.reason


def test_one_jobs_deadline_does_not_wait_for_anothers_grace(tmp_path: Path) -> None:
    rules = "rules: [{job: '7', consent: false, grace_seconds: 0}, {job: '8', consent: false, grace_seconds: 86400}]"
    text = f"scheduler: {{poll_seconds: 120}}\ndrain: {{checkpoints: {{clock_folder: /c}}, {rules}}}\n"
    site = Site(tmp_path, SPEC + text)
    run(site, JOB)
    site.fake_scheduler.jobs = (JOB, replace(JOB, id="8"))
    began = site.clock.now()
    assert site.visit().status is NodeStatus.SKIPPED
    assert (site.clock.now() - began).total_seconds() < 2 * 3600


def test_a_controller_that_was_away_and_forgot_the_cordon_is_told_again_but_a_person_is_heard(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, scheduler = site.fake_scheduler.read_nodes, site.fake_scheduler
    silent: list[int] = []

    def answer() -> dict[str, SchedulerNode]:
        if silent:
            silent.pop()
            if not silent:
                scheduler.cordoned, scheduler.reason = False, None
            raise SchedulerUnreachable("no answer")
        return read()

    def cordon(nodes: tuple[str, ...], reason: str) -> None:
        site.clock.sleep(1.0)  # a look of the same instant would be taken for one from after the cordon
        set_cordon(nodes, reason)
        site.clock.sleep(1.0)

    set_cordon = scheduler.cordon
    monkeypatch.setattr(scheduler, "cordon", cordon)
    monkeypatch.setattr(scheduler, "read_nodes", answer)
    shared = site.scheduler()
    monkeypatch.setattr(site, "scheduler", lambda: shared)
    site.clock.after(300.0, lambda: silent.extend([1, 2]))
    site.clock.after(1500.0, lambda: setattr(scheduler, "cordoned", False))
    result = site.visit()
    assert (result.status, len(scheduler.cordons)) == (NodeStatus.SKIPPED, 2)
    assert "undrained by hand" in result.reason
    assert site.clock.now().hour == 12


def test_a_job_that_is_suspended_meanwhile_is_not_asked_twice(site: Site) -> None:
    visit, deadline = site.new_visit(), site.clock.now() + timedelta(hours=6)
    job = replace(ASKABLE, elapsed_seconds=7200.0)
    settle_job(visit, job, deadline)
    for _ in range(10):
        site.clock.sleep(120.0)
        settle_job(visit, replace(job, state="SUSPENDED"), deadline)
    site.clock.sleep(120.0)
    settle_job(visit, replace(job, elapsed_seconds=7320.0), deadline)
    assert site.fake_scheduler.signalled == [("7", "USR1")]


def test_a_job_that_comes_back_after_it_was_requeued_is_another_run(site: Site) -> None:
    visit, deadline = site.new_visit(), site.clock.now() + timedelta(hours=6)
    settle_job(visit, replace(ASKABLE, elapsed_seconds=7200.0), deadline)
    site.fake_storage.touch(CKPT)
    site.clock.sleep(120.0)
    again = settle_job(visit, replace(ASKABLE, elapsed_seconds=10.0), deadline)
    assert "was asked at 2026-11-30 12:00" not in again.text

"""A drain that a person asks for: its plan, a node's visit, the forced kind, and the way back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from unit.site_fakes import Site
from unit.test_drain_jobs import ASKABLE, CKPT, JOB, WITH_STORAGE, leaves_when_requeued, run

from fleet.drain_plan import DrainPlan, describe_drain
from fleet.errors import ConfigurationError, LeaseLost, PreconditionError
from fleet.model import NodeState, SchedulerState
from ledger import ControlVerb, NodeStatus
from tasks.draining import drain_visit, make_drain_plan, plan_undrain, undrain_nodes
from tasks.jobs import settle_job
from tasks.node import VisitResult
from tasks.scheduler import wait_until_empty

NODE = "gpu-0001"
HOUR = 3600.0


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, WITH_STORAGE.replace("gate: {required: 0}", "gate: {required: 0, allowed_signers: signers}"))
    made.fake_storage.touch(CKPT)
    return made


def plan(site: Site, forced: bool = False) -> DrainPlan:
    return make_drain_plan(site, [NODE], HOUR, "new fans", forced)  # type: ignore[arg-type]


def visit(site: Site) -> VisitResult:
    return drain_visit(site.new_visit(), wait_until_empty.fn)


def test_a_drained_node_stays_cordoned_and_goes_back_by_undrain(site: Site) -> None:
    assert visit(site).status is NodeStatus.DRAINED
    assert (site.state(), site.fake_scheduler.cordoned) == (NodeState.DRAINED, True)
    release(site)
    (found,) = plan_undrain(site, [NODE])  # type: ignore[arg-type]
    assert (found.why_not, found.keeps_cordon) == (None, None)
    undrain_nodes(site, [found], "eva", "fans are in")  # type: ignore[arg-type]
    assert (site.state(), site.fake_scheduler.cordoned) == (NodeState.IN_SERVICE, False)


def test_a_cordon_of_a_person_is_left_as_it_was_by_drain_and_undrain(site: Site) -> None:
    site.fake_scheduler.cordoned, site.fake_scheduler.reason = True, 'do not "touch"; ask eva'
    assert visit(site).status is NodeStatus.DRAINED
    release(site)
    (found,) = plan_undrain(site, [NODE])  # type: ignore[arg-type]
    assert found.keeps_cordon == 'do not "touch"; ask eva'
    undrain_nodes(site, [found], "eva", "")  # type: ignore[arg-type]
    assert (site.fake_scheduler.cordoned, site.fake_scheduler.reason) == (True, 'do not "touch"; ask eva')
    assert site.state() is NodeState.IN_SERVICE


def test_a_node_that_is_not_empty_by_the_deadline_goes_back_and_names_its_job(site: Site) -> None:
    run(site, JOB)
    result = visit(site)
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva (ml)" in result.reason
    assert (site.state(), site.fake_scheduler.cordoned) == (NodeState.IN_SERVICE, False)


def test_a_node_that_a_person_undrains_is_yielded(site: Site) -> None:
    run(site, JOB)
    site.clock.after(300.0, lambda: setattr(site.fake_scheduler, "cordoned", False))
    result = visit(site)
    assert (result.status, site.state()) == (NodeStatus.SKIPPED, NodeState.IN_SERVICE)
    assert "undrained by hand" in result.reason
    assert site.ledger().leases.lease(NODE) is None


def test_a_halted_drain_gives_back_what_only_waits(site: Site) -> None:
    run(site, JOB)
    halt = site.ledger().operations.request
    site.clock.after(300.0, lambda: halt(site.operation, ControlVerb.HALT, "eva", ""))
    assert visit(site).status is NodeStatus.PENDING
    assert site.fake_scheduler.cordoned is False


def test_the_plan_has_a_line_for_each_job_and_what_stopping_it_would_lose(site: Site) -> None:
    run(site, JOB)
    site.clock.sleep(1800.0)
    made = plan(site)
    (job,) = made.jobs
    assert (job.id, job.owner, job.gpus) == ("7", "eva", 8)
    assert job.lost_gpu_hours == pytest.approx(4.0)
    assert made.lost_gpu_hours == pytest.approx(4.0)
    lines = "\n".join(describe_drain(made))
    assert "stopping every job now would lose: 4.0 GPU-hours" in lines
    assert "job 7 of eva (ml), 8 GPUs" in lines
    assert site.ledger().jobs.disturbances() == ()


def test_a_loss_that_nobody_can_tell_is_not_zero_in_the_plan(site: Site) -> None:
    run(site, replace(JOB, comment=""))
    made = plan(site)
    assert made.lost_gpu_hours is None
    assert "stopping every job now would lose: not known" in describe_drain(made)


def test_a_plan_survives_its_own_json_with_its_digest(site: Site) -> None:
    run(site, ASKABLE)
    made = plan(site, forced=True)
    assert DrainPlan.model_validate_json(made.to_json()).digest == made.digest


def test_a_forced_drain_stops_the_job_at_once_within_the_loss_that_was_approved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(site, JOB)
    site.clock.sleep(1800.0)
    site.may_stop = dict(plan(site, forced=True).may_stop())
    leaves_when_requeued(site, monkeypatch)
    assert visit(site).status is NodeStatus.DRAINED
    (stopped,) = site.ledger().jobs.disturbances()
    assert stopped.lost_gpu_hours == pytest.approx(4.0, abs=0.5)


def test_a_forced_drain_waits_where_the_loss_has_grown_beyond_what_was_approved(site: Site) -> None:
    run(site, JOB)
    site.may_stop = dict(plan(site, forced=True).may_stop())
    site.clock.sleep(7100.0)
    result = visit(site)
    assert result.status is NodeStatus.SKIPPED
    assert "not forced: its loss has grown to" in result.reason
    assert (site.fake_scheduler.requeued, site.fake_scheduler.cancelled) == ([], [])


def test_a_forced_drain_needs_an_approval_whatever_the_pools_gate_needs(site: Site, tmp_path: Path) -> None:
    run(site, JOB)
    assert plan(site, forced=True).policy.gates["train"].required == 1
    assert plan(site).policy.gates["train"].required == 0
    (tmp_path / "nobody").mkdir()
    nobody = Site(tmp_path / "nobody", WITH_STORAGE)
    with pytest.raises(ConfigurationError, match="nobody may approve that jobs of pool train are stopped"):
        plan(nobody, forced=True)


def test_a_forced_job_is_stopped_once_and_waited_for_when_it_comes_back(site: Site) -> None:
    site.may_stop = {"7": None}
    for elapsed in (7200.0, 60.0, 60.0):
        job = replace(JOB, elapsed_seconds=elapsed)
        run(site, job)
        settle_job(site.new_visit(), job, site.clock.now() + timedelta(hours=6))
        site.clock.sleep(3600.0)
    assert site.fake_scheduler.requeued == ["7"]


def test_a_forced_cancel_that_was_only_written_down_is_carried_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, replace(JOB, requeue=False))
    site.may_stop = {"7": 1000.0}
    cancel = site.fake_scheduler.cancel

    def die(job: str) -> None:
        raise KeyboardInterrupt

    def leave(job: str) -> None:
        cancel(job)
        site.fake_scheduler.state = SchedulerState.IDLE

    monkeypatch.setattr(site.fake_scheduler, "cancel", die)
    with pytest.raises(KeyboardInterrupt):
        visit(site)
    monkeypatch.setattr(site.fake_scheduler, "cancel", leave)
    assert visit(site).status is NodeStatus.DRAINED
    assert (site.fake_scheduler.cancelled, site.fake_scheduler.requeued) == (["7"], [])


def test_a_runner_that_died_between_the_empty_node_and_its_state_is_made_good(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = site.ledger().inventory.move

    def die(node: str, to: NodeState, reason: str, operation: str | None = None) -> None:
        if to is NodeState.DRAINED:
            raise KeyboardInterrupt
        move(node, to, reason, operation)

    monkeypatch.setattr(site.ledger().inventory, "move", die)
    with pytest.raises(KeyboardInterrupt):
        visit(site)
    monkeypatch.setattr(site.ledger().inventory, "move", move)
    assert visit(site).status is NodeStatus.DRAINED
    assert site.state() is NodeState.DRAINED


def test_the_plan_heeds_consent_and_a_storage_that_is_not_named(site: Site, tmp_path: Path) -> None:
    run(site, ASKABLE)
    site.ledger().jobs.set_consent("7", False, "eva", "")
    assert "may not be disturbed" in plan(site).jobs[0].text
    (tmp_path / "bare").mkdir()
    bare = Site(tmp_path / "bare")
    run(bare, ASKABLE)
    assert "is asked now" not in plan(bare).jobs[0].text


def test_a_forced_job_that_may_not_be_requeued_is_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, replace(JOB, requeue=False))
    site.may_stop = {"7": 100.0}
    cancel = site.fake_scheduler.cancel

    def leave(job: str) -> None:
        cancel(job)
        site.fake_scheduler.state = SchedulerState.IDLE

    monkeypatch.setattr(site.fake_scheduler, "cancel", leave)
    assert visit(site).status is NodeStatus.DRAINED
    assert site.fake_scheduler.cancelled == ["7"]


def test_an_unforced_plan_lets_nothing_be_stopped(site: Site) -> None:
    run(site, JOB)
    assert plan(site).may_stop() == {}


def test_unknown_nodes_and_nodes_out_of_service_are_refused_before_anything_is_touched(site: Site) -> None:
    with pytest.raises(PreconditionError, match="not in the fleet file: gpu-9999"):
        make_drain_plan(site, [NODE, "gpu-9999"], HOUR, "", False)  # type: ignore[arg-type]
    site.ledger().inventory.move(NODE, NodeState.QUARANTINED, "GPU 3 fell off the bus")
    with pytest.raises(PreconditionError, match="GPU 3 fell off the bus"):
        plan(site)


def test_undrain_refuses_a_node_that_an_operation_holds(site: Site) -> None:
    visit(site)
    (found,) = plan_undrain(site, [NODE])  # type: ignore[arg-type]
    assert found.why_not is not None
    assert "holds it" in found.why_not
    with pytest.raises(PreconditionError):
        undrain_nodes(site, [found], "eva", "")  # type: ignore[arg-type]


def test_a_runner_that_was_replaced_stops_without_a_word(site: Site) -> None:
    old = site.new_visit()
    site.new_visit()
    with pytest.raises(LeaseLost):
        drain_visit(old, wait_until_empty.fn)


def release(site: Site) -> None:
    """What the wave does with a lease once the visit is over."""
    token = site.ledger().operations.get(site.operation).token
    site.ledger().leases.release(site.operation, token, NODE)

"""The way back: each node's visit, which nodes it is planned for, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.canary_site import NODE, CanarySite, RolloutSite
from unit.driver_host_fake import NEW, OLD, SERVICES, check_whole
from unit.measurement_site import GEMM, VALUES
from unit.test_drain_jobs import JOB

from fleet.canary_verdict import CanaryVerdict, Cause, Outcome, Why
from fleet.driver_target import FormerDriver
from fleet.errors import PreconditionError, RolloutHalted
from fleet.measures import Phase
from fleet.model import NodeState
from ledger import NodeStatus, OperationState
from tasks.canary import AFTER_RETURN, go_back
from tasks.canary_planning import (
    check_may_go_back,
    keep_rollback,
    make_rollback_plan,
    read_rollback_plan,
    take_up_rollback,
)
from tasks.children import child_of
from tasks.operations import RolledBack

VERDICT = CanaryVerdict(Outcome.FAIL, Why.SLOWER, "hbm_bandwidth is 5 % lower", Cause(), (), 1, 3, 1.0, 0.01, (), ())


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CanarySite:
    return changed_site(tmp_path, monkeypatch)


def changed_site(folder: Path, monkeypatch: pytest.MonkeyPatch, measured: bool = True) -> CanarySite:
    """A node that a rollout changed and that a rollback is about to visit."""
    site = CanarySite(folder, monkeypatch)
    site.measured = frozenset({NODE}) if measured else frozenset()
    assert site.change().status is NodeStatus.UPDATED
    site.begin_way_back()
    return site


def let_work_in(site: CanarySite) -> None:
    site.fake_scheduler.jobs = (replace(JOB, nodes=(NODE,)),)


def test_a_node_gets_its_former_driver_and_is_measured_once_more(changed: CanarySite) -> None:
    result = changed.back()
    assert (result.status, changed.serves()) == (NodeStatus.UPDATED, True)
    check_whole(changed.gpu_host, OLD)
    assert changed.values() == {Phase.AFTER: VALUES}


def test_the_way_back_measures_with_the_tools_of_the_rollout(changed: CanarySite) -> None:
    changed.tool_host.tools["dcgmproftester13"] = changed.tool_host.tools[GEMM]
    del changed.tool_host.ran[:]
    changed.back()
    assert GEMM in changed.tool_host.ran
    assert "dcgmproftester13" not in changed.tool_host.ran


def test_a_node_that_was_not_measured_is_not_measured_on_its_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = changed_site(tmp_path, monkeypatch, measured=False)
    assert site.back().status is NodeStatus.UPDATED
    assert site.tool_host.ran == []


def test_a_node_with_a_third_release_is_left_alone(changed: CanarySite) -> None:
    changed.gpu_host.loaded = "590.48.01"
    commands = len(changed.gpu_host.commands)
    result = changed.back()
    assert (result.status, changed.serves()) == (NodeStatus.SKIPPED, True)
    assert result.reason == f"has driver 590.48.01 now, which is not what {changed.parent} brought"
    assert len(changed.gpu_host.commands) == commands + 1
    assert len(changed.gpu_host.installs) == 1


def test_a_node_whose_driver_does_not_load_goes_back_all_the_same(changed: CanarySite) -> None:
    changed.gpu_host.loaded, changed.gpu_host.modules = None, []
    assert changed.back().status is NodeStatus.UPDATED
    check_whole(changed.gpu_host, OLD)


def test_a_node_that_cannot_go_back_is_kept_out_with_its_reason(changed: CanarySite) -> None:
    changed.gpu_host.install_fault = "dpkg: error processing package nvidia-dkms-570-server-open (--configure)"
    result = changed.back()
    assert (result.status, changed.kept_out()) == (NodeStatus.FAILED, True)
    assert "570.133.20 is not installed" in result.reason


@pytest.mark.parametrize("step", ["restore:install", "restore:load", "restore:validate"])
def test_a_job_that_begins_once_packages_are_changed_has_the_node_kept_out(changed: CanarySite, step: str) -> None:
    changed.ends[step] = lambda: let_work_in(changed)
    result = changed.back()
    assert (result.status, changed.kept_out()) == (NodeStatus.FAILED, True)
    assert "job 7 of eva began" in result.reason


@pytest.mark.parametrize("step", ["restore:mask", "restore:stop", "restore:unload"])
def test_a_node_that_a_job_interrupts_does_not_serve_without_its_services(changed: CanarySite, step: str) -> None:
    changed.ends[step] = lambda: let_work_in(changed)
    changed.back()
    whole = (changed.gpu_host.services, changed.gpu_host.masked) == (dict.fromkeys(SERVICES, "active"), set())
    assert whole or changed.kept_out()


@pytest.mark.parametrize("measured", [False, True])
def test_a_way_back_that_is_killed_anywhere_is_ended_by_the_next_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    once = changed_site(tmp_path / "once", monkeypatch, measured)
    once.back()
    moments = [moment for moment, step in once.moments.items() if not measured or step == "measure:after"]
    assert len(moments) >= (3 if measured else 30)
    for moment in moments:
        site = changed_site(tmp_path / f"{moment}", monkeypatch, measured)
        site.dies_at = moment
        with pytest.raises(KeyboardInterrupt):
            site.back()
        assert (site.back().status, site.serves()) == (NodeStatus.UPDATED, True), moment
        check_whole(site.gpu_host, OLD)
        assert len(site.gpu_host.installs) == 2, moment
        assert site.values() == ({Phase.AFTER: VALUES} if measured else {}), moment


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutSite:
    return RolloutSite(tmp_path, monkeypatch)


def planned(site: RolloutSite) -> tuple[set[str], dict[str, str]]:
    """(nodes that go back, nodes that are left out)."""
    plan = make_rollback_plan(site, site.rollout, "too slow")  # type: ignore[arg-type]
    return set(plan.nodes), plan.left_out


def test_every_changed_node_goes_back_to_what_it_had_and_no_other(site: RolloutSite) -> None:
    first, second, third, *_ = site.plan.nodes
    site.updated(first, second)
    site.finish(site.rollout, third, status=NodeStatus.FAILED)
    plan = make_rollback_plan(site, site.rollout, "too slow")  # type: ignore[arg-type]
    assert set(plan.nodes) == {first, second}
    assert {one.version for one in plan.former.values()} == {OLD}
    assert (plan.parent, plan.released, plan.left_out) == (site.rollout, NEW, {})
    assert [wave.nodes for wave in plan.waves] == [(first, second)]


def test_a_rollback_plan_is_kept_and_read_as_it_was(site: RolloutSite) -> None:
    site.updated(next(iter(site.plan.nodes)))
    plan = make_rollback_plan(site, site.rollout, "too slow")  # type: ignore[arg-type]
    kept = keep_rollback(site, plan, "eva")  # type: ignore[arg-type]
    assert read_rollback_plan(kept) == plan
    assert plan.policy.gates["train"].required == 0
    assert plan.policy.pools["train"].waves.windows == ()
    assert take_up_rollback(site, kept.id).plan == plan  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["driver_canary", "driver_rollback"])
def test_a_node_whose_driver_was_changed_since_is_left_out_with_the_name_of_what_did(
    site: RolloutSite, kind: str
) -> None:
    first, second, *_ = site.plan.nodes
    site.updated(first, second)
    later = site.open(kind, "eva", (first,)).id
    site.finish(later, first)
    assert planned(site) == ({second}, {first: f"{later} has changed its driver since"})


def test_a_later_operation_that_changed_no_driver_does_not_keep_a_node_from_going_back(site: RolloutSite) -> None:
    first, second, *_ = site.plan.nodes
    site.updated(first, second)
    site.finish(site.open("firmware_rollout", "eva", (first,)).id, first)
    site.finish(site.open("driver_canary", "eva", (second,)).id, second, status=NodeStatus.FAILED)
    assert planned(site) == ({first, second}, {})


def test_a_node_that_is_out_of_service_is_left_out_with_its_reason(site: RolloutSite) -> None:
    first, second, *_ = site.plan.nodes
    site.updated(first, second)
    site.ledger().inventory.move(first, NodeState.QUARANTINED, "GPU 3 fell off the bus")
    nodes, left_out = planned(site)
    assert (nodes, set(left_out)) == ({second}, {first})
    assert "GPU 3 fell off the bus" in left_out[first]


def test_a_node_whose_former_driver_cannot_be_installed_is_left_out_with_its_reason(site: RolloutSite) -> None:
    first, second, *_ = site.plan.nodes
    site.updated(first)
    site.updated(second, former=FormerDriver(version=OLD, why_not="its driver came by container"))
    assert planned(site) == ({first}, {second: "its driver came by container"})


def test_nothing_to_go_back_is_an_error_that_says_why(site: RolloutSite) -> None:
    with pytest.raises(PreconditionError, match="no node can go back: it has changed no driver"):
        planned(site)
    first = next(iter(site.plan.nodes))
    site.updated(first)
    site.ledger().inventory.move(first, NodeState.QUARANTINED, "no power")
    with pytest.raises(PreconditionError, match=f"{first}: quarantined: no power"):
        planned(site)


def test_only_a_driver_rollout_can_be_rolled_back(site: RolloutSite) -> None:
    other = site.open("firmware_rollout", "eva")
    with pytest.raises(PreconditionError, match="only a driver rollout"):
        make_rollback_plan(site, other.id, "")  # type: ignore[arg-type]


def test_by_hand_it_is_refused_while_the_rollout_is_open_or_another_way_back_is(site: RolloutSite) -> None:
    site.updated(next(iter(site.plan.nodes)))
    with pytest.raises(PreconditionError, match=f"gpufleet abort {site.rollout}"):
        check_may_go_back(site, site.rollout)  # type: ignore[arg-type]
    site.end(site.rollout, OperationState.ABORTED)
    check_may_go_back(site, site.rollout)  # type: ignore[arg-type]
    kept = keep_rollback(site, make_rollback_plan(site, site.rollout, ""), "eva")  # type: ignore[arg-type]
    with pytest.raises(PreconditionError, match=f"{kept.id} puts {site.rollout} back already"):
        check_may_go_back(site, site.rollout)  # type: ignore[arg-type]
    site.end(kept.id)
    check_may_go_back(site, site.rollout)  # type: ignore[arg-type]


def ways_back(site: RolloutSite) -> list[str]:
    """The rollbacks that were begun."""
    return [one for one in site.started if site.ledger().operations.get(one).kind == "driver_rollback"]


def ends_with(site: RolloutSite, **failed: NodeStatus) -> Callable[[str], None]:
    """A rollback's runner that brings back all nodes but those of `failed` (named with _ for -)."""

    def end(operation: str) -> None:
        for row in site.ledger().operations.node_rows(operation):
            site.finish(operation, row.node, status=failed.get(row.node.replace("-", "_"), NodeStatus.UPDATED))
        site.end(operation)

    return end


def test_a_failed_verdict_puts_every_node_back_and_the_rollout_is_over(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack) as raised:
        go_back(site.run(), wave, VERDICT)
    (child,) = ways_back(site)
    assert f"wave 1: {VERDICT.text}; the former driver was put back by {child}" in raised.value.message
    assert f"({len(wave.nodes)} updated)" in raised.value.message
    assert read_rollback_plan(site.ledger().operations.get(child)).reason == f"wave 1: {VERDICT.text}"
    assert site.ledger().operations.get(child).actor == f"{site.rollout} wave 1 rollback"


def test_controls_are_measured_once_more_when_every_node_is_back(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack):
        go_back(site.run(), wave, VERDICT)
    child = child_of(site.run(), wave, AFTER_RETURN)
    assert child is not None
    assert site.started == [*ways_back(site), child]
    rows = site.ledger().operations.node_rows(child)
    assert {row.node for row in rows} == set(site.plan.cohorts[1].controls)


def test_nodes_of_earlier_waves_go_back_too(site: RolloutSite) -> None:
    first, second = site.plan.waves[:2]
    site.updated(*first.nodes, *second.nodes)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack):
        go_back(site.run(), second, VERDICT)
    rows = site.ledger().operations.node_rows(site.started[0])
    assert {row.node for row in rows} == {*first.nodes, *second.nodes}


@pytest.mark.parametrize("status", [NodeStatus.FAILED, NodeStatus.SKIPPED])
def test_a_node_that_did_not_go_back_halts_the_rollout_and_is_named(site: RolloutSite, status: NodeStatus) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    bad = wave.nodes[0]
    site.acts = ends_with(site, **{bad.replace("-", "_"): status})
    with pytest.raises(RolloutHalted, match=f"{bad} still have {NEW}") as raised:
        go_back(site.run(), wave, VERDICT)
    assert not isinstance(raised.value, RolledBack)
    assert f"gpufleet resume {site.rollout}" in raised.value.message


def test_a_node_that_is_left_out_of_the_way_back_halts_the_rollout_too(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    site.ledger().inventory.move(wave.nodes[0], NodeState.QUARANTINED, "no power")
    site.acts = ends_with(site)
    with pytest.raises(RolloutHalted, match=f"{wave.nodes[0]} still have {NEW}"):
        go_back(site.run(), wave, VERDICT)


def test_nothing_that_can_go_back_halts_the_rollout(site: RolloutSite) -> None:
    with pytest.raises(RolloutHalted, match=r"no driver could be put back: .* it has changed no driver") as raised:
        go_back(site.run(), site.plan.waves[0], VERDICT)
    assert not isinstance(raised.value, RolledBack)
    assert site.started == []


def test_a_node_that_was_mended_goes_back_when_the_rollout_is_resumed(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    bad = wave.nodes[0]
    site.acts = ends_with(site, **{bad.replace("-", "_"): NodeStatus.FAILED})
    with pytest.raises(RolloutHalted):
        go_back(site.run(), wave, VERDICT)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack):
        go_back(site.run(), wave, VERDICT)
    assert [row.node for row in site.ledger().operations.node_rows(ways_back(site)[-1])] == [bad]


def test_a_measurement_that_a_dead_runner_opened_is_not_taken_for_the_way_back(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    site.open("measurement", site.rollout, site.plan.cohorts[1].controls)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack):
        go_back(site.run(), wave, VERDICT)


def test_a_runner_that_died_while_nodes_went_back_is_followed_by_one_that_begins_no_second_way_back(
    site: RolloutSite,
) -> None:
    def die(operation: str) -> None:
        ends_with(site)(operation)
        raise KeyboardInterrupt

    wave = site.plan.waves[0]
    site.updated(*wave.nodes)
    site.acts = die
    with pytest.raises(KeyboardInterrupt):
        go_back(site.run(), wave, VERDICT)
    site.acts = ends_with(site)
    with pytest.raises(RolledBack):
        go_back(site.run(), wave, VERDICT)
    assert len(ways_back(site)) == 1

"""One node's visit in a driver rollout: what is measured, how it ends, and what a killed runner leaves to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.canary_site import NODE, CanarySite
from unit.driver_host_fake import NEW, OLD, check_whole
from unit.measurement_site import ALL_REDUCE, GEMM, HBM, VALUES
from unit.site_fakes import Answer, FakeScheduler
from unit.test_drain_jobs import JOB, run

from fleet.measures import Phase
from fleet.model import NodeState, SchedulerNode
from ledger import ControlVerb, NodeStatus, Outcome
from tasks.canary_visit import OUTCOME
from tasks.node import VisitResult

STRANGER = "9000\tpython3\teva\tsession-4.scope\t/dev/nvidia1"
BROKEN = "dpkg: error processing package nvidia-dkms-580-server-open (--configure)"
REFUSED = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CanarySite:
    return CanarySite(tmp_path, monkeypatch)


def dies() -> Answer:
    raise KeyboardInterrupt


def job_begins(site: CanarySite) -> None:
    site.fake_scheduler.jobs = (replace(JOB, nodes=(NODE,)),)


def job_ends(site: CanarySite) -> None:
    site.fake_scheduler.jobs = ()


def test_a_changed_node_goes_back_to_work_with_values_from_before_and_after(site: CanarySite) -> None:
    result = site.change()
    assert (result.status, result.reason) == (NodeStatus.UPDATED, "")
    check_whole(site.gpu_host, NEW)
    assert site.values() == {Phase.BEFORE: VALUES, Phase.AFTER: VALUES}
    assert site.serves()
    order = [step for step in site.steps() if step in ("measure:before", "driver:install", "measure:after", "return")]
    assert order == ["measure:before", "driver:install", "measure:after", "return"]


def test_what_became_of_the_driver_is_kept_with_the_settings_that_the_install_lost(site: CanarySite) -> None:
    site.change()
    entry = site.ledger().journal.last(site.operation, NODE, OUTCOME)
    assert entry is not None
    assert (entry.outcome, entry.intent["version"]) == (Outcome.DONE, NEW)
    assert (entry.result["changed"], entry.result["rebooted"]) == (True, False)
    assert entry.result["parts"]["loaded"] == NEW  # type: ignore[index]
    assert any("persistence" in str(one) for one in entry.result["settings_lost"])  # type: ignore[attr-defined]


def test_a_changed_node_is_fenced_before_it_takes_work(site: CanarySite) -> None:
    site.change()
    assert site.fenced == [(NodeState.VALIDATING, True)]


def test_a_node_that_is_not_measured_is_changed_without_a_benchmark(site: CanarySite) -> None:
    site.measured = frozenset()
    assert site.change().status is NodeStatus.UPDATED
    assert (site.tool_host.ran, site.values()) == ([], {})


def test_a_blocked_node_stays_out_with_its_driver_of_before_and_names_who_holds_it(site: CanarySite) -> None:
    site.gpu_host.strangers = [STRANGER]
    result = site.change()
    assert result.status is NodeStatus.FAILED
    assert "pid 9000 (python3) of eva" in result.reason
    assert site.kept_out()
    assert site.fenced == []
    check_whole(site.gpu_host, OLD)


def test_a_process_that_takes_a_gpu_after_the_checks_is_named_too(site: CanarySite) -> None:
    site.ends["driver:preflight"] = lambda: site.gpu_host.strangers.append(STRANGER)
    result = site.change()
    assert (result.status, site.kept_out()) == (NodeStatus.FAILED, True)
    assert "pid 9000 (python3) of eva" in result.reason
    check_whole(site.gpu_host, OLD)


def test_a_check_that_forbids_the_change_gives_the_node_back_as_it_was(site: CanarySite) -> None:
    site.gpu_host.update_says = "E: The repository 'http://mirror x Release' is not signed."
    result = site.change()
    assert result.status is NodeStatus.SKIPPED
    assert "no good signature" in result.reason
    assert site.serves()
    assert site.fenced == []
    check_whole(site.gpu_host, OLD)


def test_a_job_that_begins_once_services_are_stopped_has_them_started_again(site: CanarySite) -> None:
    site.ends["driver:stop"] = lambda: job_begins(site)
    result = site.change()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva began" in result.reason
    assert site.serves()
    check_whole(site.gpu_host, OLD)


def test_a_job_that_stays_after_the_install_has_the_node_kept_out_and_not_skipped_with_the_new_driver(
    site: CanarySite,
) -> None:
    site.ends["driver:install"] = lambda: job_begins(site)
    result = site.change()
    assert result.status is NodeStatus.FAILED
    assert "job 7 of eva began" in result.reason
    assert "its former driver could not be put back" in result.reason
    assert site.kept_out()


def test_a_job_that_came_and_went_after_the_install_costs_the_node_its_new_driver(site: CanarySite) -> None:
    site.ends["driver:install"] = lambda: job_begins(site)
    site.begins["restore:begun"] = lambda: job_ends(site)
    result = site.change()
    assert result.status is NodeStatus.FAILED
    assert "job 7 of eva began" in result.reason
    assert result.reason.endswith("its former driver is back")
    assert site.serves()
    check_whole(site.gpu_host, OLD)


def test_an_install_that_fails_goes_back_on_this_node_and_says_why(site: CanarySite) -> None:
    site.gpu_host.install_fault = BROKEN
    site.begins["restore:begun"] = lambda: setattr(site.gpu_host, "install_fault", "")
    result = site.change()
    assert result.status is NodeStatus.FAILED
    assert "error processing package" in result.reason
    assert result.reason.endswith("its former driver is back")
    assert (site.serves(), site.fenced) == (True, [])
    check_whole(site.gpu_host, OLD)


def test_an_install_that_is_refused_gives_the_node_back_with_its_holds(site: CanarySite) -> None:
    package = next(iter(site.gpu_host.packages))
    site.gpu_host.held = {package}
    site.gpu_host.install_fault = "E: Failed to fetch file:/x/driver.deb  Hash Sum mismatch"
    result = site.change()
    assert result.status is NodeStatus.SKIPPED
    assert "not what its digest says" in result.reason
    assert (site.serves(), site.fenced, site.gpu_host.held) == (True, [], {package})
    check_whole(site.gpu_host, OLD)


def test_a_driver_that_does_not_load_goes_back_on_this_node(site: CanarySite) -> None:
    site.gpu_host.load_fault = REFUSED
    result = site.change()
    assert (result.status, site.serves()) == (NodeStatus.FAILED, True)
    assert "Secure Boot" in result.reason
    check_whole(site.gpu_host, OLD)
    assert site.values() == {Phase.BEFORE: VALUES}


def test_a_node_that_cannot_go_back_either_is_kept_out_with_both_reasons(site: CanarySite) -> None:
    site.gpu_host.load_fault = REFUSED
    site.begins["restore:begun"] = lambda: setattr(site.gpu_host, "install_fault", BROKEN)
    result = site.change()
    assert (result.status, site.kept_out()) == (NodeStatus.FAILED, True)
    first, _, second = result.reason.partition("; and its former driver could not be put back: ")
    assert "Secure Boot" in first
    assert "570.133.20 is not installed" in second


def test_a_node_that_loses_a_gpu_with_the_new_driver_goes_back_and_is_whole_again(site: CanarySite) -> None:
    whole = site.tool_host.listed
    site.ends["driver:install"] = lambda: setattr(site.tool_host, "listed", whole.split("GPU 7")[0])
    site.begins["restore:begun"] = lambda: setattr(site.tool_host, "listed", whole)
    result = site.change()
    assert (result.status, site.serves()) == (NodeStatus.FAILED, True)
    assert "the host shows 7 GPUs, not 8" in result.reason
    check_whole(site.gpu_host, OLD)


def test_a_halted_rollout_gives_back_a_node_that_only_waits(site: CanarySite) -> None:
    run(site, JOB)
    request = site.ledger().operations.request
    site.clock.after(300.0, lambda: request(site.operation, ControlVerb.HALT, "eva", ""))
    assert (site.change().status, site.serves()) == (NodeStatus.PENDING, True)
    check_whole(site.gpu_host, OLD)


def test_a_person_who_takes_the_node_back_in_the_middle_keeps_it(site: CanarySite) -> None:
    site.ends["driver:stop"] = lambda: site.fake_scheduler.uncordon((NODE,))
    result = site.change()
    assert result.status is NodeStatus.SKIPPED
    assert "undrained by hand" in result.reason
    assert site.ledger().leases.lease(NODE) is None
    assert site.gpu_host.installs == []


@pytest.mark.parametrize("tool", [HBM, ALL_REDUCE, GEMM])
def test_a_measurement_after_the_change_that_is_killed_is_measured_again(site: CanarySite, tool: str) -> None:
    working = site.tool_host.tools[tool]
    site.begins["measure:after"] = lambda: site.tool_host.tools.update({tool: dies})
    with pytest.raises(KeyboardInterrupt):
        site.change()
    assert site.values() == {Phase.BEFORE: VALUES}
    site.tool_host.tools[tool] = working
    assert site.change().status is NodeStatus.UPDATED
    assert site.values() == {Phase.BEFORE: VALUES, Phase.AFTER: VALUES}
    assert len(site.gpu_host.installs) == 1


def test_a_finished_measurement_is_not_made_again_by_the_next_runner(site: CanarySite) -> None:
    site.begins["return"] = dies  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        site.change()
    ran = list(site.tool_host.ran)
    assert site.change().status is NodeStatus.UPDATED
    assert site.tool_host.ran == ran


def killed_everywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[CanarySite], None], steps: str = ""
) -> Iterator[tuple[CanarySite, VisitResult]]:
    """The visit killed at each of its moments (of steps that begin with `steps`), and ended by the next runner."""
    once = CanarySite(folder / "once", monkeypatch)
    prepare(once)
    once.change()
    moments = [moment for moment, step in once.moments.items() if step.startswith(steps)]
    assert len(moments) >= (6 if steps else 30)
    for moment in moments:
        site = CanarySite(folder / f"{moment}", monkeypatch)
        prepare(site)
        site.dies_at = moment
        with pytest.raises(KeyboardInterrupt):
            site.change()
        yield site, site.change()


def unmeasured(site: CanarySite) -> None:
    site.measured = frozenset()


def test_a_change_that_is_killed_anywhere_is_ended_by_the_next_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site, result in killed_everywhere(tmp_path, monkeypatch, unmeasured):
        assert (result.status, site.serves()) == (NodeStatus.UPDATED, True), site.folder()
        check_whole(site.gpu_host, NEW)
        assert len(site.gpu_host.installs) == 1, site.folder()


def test_a_visit_that_is_killed_around_a_measurement_has_each_value_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site, result in killed_everywhere(tmp_path, monkeypatch, lambda _: None, "measure:"):
        assert result.status is NodeStatus.UPDATED, site.folder()
        assert site.values() == {Phase.BEFORE: VALUES, Phase.AFTER: VALUES}, site.folder()
        assert len(site.gpu_host.installs) == 1, site.folder()


def test_a_change_that_fails_and_is_killed_anywhere_on_its_way_back_ends_on_the_former_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(site: CanarySite) -> None:
        unmeasured(site)
        site.gpu_host.load_fault = REFUSED

    for site, result in killed_everywhere(tmp_path, monkeypatch, refuse):
        assert (result.status, site.serves()) == (NodeStatus.FAILED, True), site.folder()
        assert "Secure Boot" in result.reason, site.folder()
        assert result.reason.endswith("its former driver is back"), site.folder()
        check_whole(site.gpu_host, OLD)
        assert site.fenced == [], site.folder()


def test_a_change_that_a_job_stops_and_that_is_killed_anywhere_leaves_the_node_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def let_work_in(site: CanarySite) -> None:
        unmeasured(site)
        site.begins["driver:stop"] = lambda: job_begins(site)

    for site, result in killed_everywhere(tmp_path, monkeypatch, let_work_in, "driver:"):
        assert (result.status, site.serves()) == (NodeStatus.SKIPPED, True), site.folder()
        check_whole(site.gpu_host, OLD)


def test_a_change_that_is_blocked_and_killed_anywhere_leaves_the_former_driver_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block(site: CanarySite) -> None:
        unmeasured(site)
        site.begins["driver:stop"] = lambda: site.gpu_host.strangers.append(STRANGER)

    for site, result in killed_everywhere(tmp_path, monkeypatch, block, "driver:"):
        assert (result.status, site.kept_out()) == (NodeStatus.FAILED, True), site.folder()
        assert "pid 9000 (python3) of eva" in result.reason, site.folder()
        check_whole(site.gpu_host, OLD)


class LabelledScheduler(FakeScheduler):
    """Its node came under NVIDIA's GPU Operator."""

    def read_nodes(self) -> dict[str, SchedulerNode]:
        return {name: replace(node, driver_refusal="its operator's") for name, node in super().read_nodes().items()}


def test_a_node_that_came_under_the_operator_since_it_was_planned_is_skipped(site: CanarySite) -> None:
    site.fake_scheduler = LabelledScheduler()
    result = site.change()
    assert (result.status, site.serves()) == (NodeStatus.SKIPPED, True)
    assert result.reason.startswith("its operator's: change it through the GPU Operator")
    check_whole(site.gpu_host, OLD)


def test_a_way_back_leaves_a_node_to_the_operator_that_has_it_now(site: CanarySite) -> None:
    site.change()
    site.begin_way_back()
    site.fake_scheduler = LabelledScheduler()
    result = site.back()
    assert (result.status, result.reason, site.serves()) == (NodeStatus.SKIPPED, "its operator's", True)
    check_whole(site.gpu_host, NEW)

"""A way that is blocked, refused or given up leaves no service stopped that it had stopped; the journal says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.canary_site import NODE, CanarySite
from unit.driver_host_fake import NEW, OLD, SERVICES, DriverSite, change, check_whole, restore
from unit.site_fakes import Answer
from unit.test_drain_jobs import JOB

from fleet.errors import DriverBlocked, NotQualified
from fleet.model import NodeState
from ledger import NodeStatus, Outcome
from tasks.node import VisitResult

STRANGER = "9000\tpython3\teva\tsession-4.scope\t/dev/nvidia1"
BROKEN = "dpkg: error processing package nvidia-dkms-570-server-open (--configure)"
AWAY = "E: Failed to fetch http://mirror/pool/x.deb  Connection timed out"
REFUSED = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"


@pytest.fixture
def site(tmp_path: Path) -> DriverSite:
    return DriverSite(tmp_path)


@pytest.fixture
def rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CanarySite:
    made = CanarySite(tmp_path, monkeypatch)
    made.measured = frozenset()
    return made


@pytest.fixture
def changed(rollout: CanarySite) -> CanarySite:
    """A node that a rollout changed and that a rollback is about to visit."""
    assert rollout.change().status is NodeStatus.UPDATED
    rollout.begin_way_back()
    return rollout


def told(site: DriverSite, step: str, key: str = "refused") -> list[str]:
    """What the journal has under `key` of the step, which ended well."""
    entry = site.ledger().journal.last(site.operation, NODE, step)
    assert entry is not None
    assert entry.outcome is Outcome.DONE
    listed = entry.result.get(key)
    assert isinstance(listed, list)
    return [str(one) for one in listed]


def serve(site: DriverSite) -> bool:
    """Whether every service that ran at first runs, and nothing is masked."""
    return (site.gpu_host.services, site.gpu_host.masked) == (dict.fromkeys(SERVICES, "active"), set())


def test_a_way_back_that_a_holder_blocks_starts_services_again_and_keeps_the_driver(site: DriverSite) -> None:
    change(site)
    site.gpu_host.strangers = [STRANGER]
    with pytest.raises(DriverBlocked, match=r"pid 9000 \(python3\) of eva"):
        restore(site)
    check_whole(site.gpu_host, NEW)
    assert sorted(site.gpu_host.modules) == ["nvidia", "nvidia_uvm"]
    assert told(site, "restore:put_back") == []
    assert told(site, "restore:start") == []
    site.gpu_host.strangers = []
    restore(site)
    check_whole(site.gpu_host, OLD)


def test_a_node_whose_way_back_is_blocked_is_kept_out_with_its_services_running(changed: CanarySite) -> None:
    changed.gpu_host.strangers = [STRANGER]
    result = changed.back()
    assert (result.status, changed.kept_out(), serve(changed)) == (NodeStatus.FAILED, True, True)
    assert "pid 9000 (python3) of eva" in result.reason
    assert "started" not in result.reason


def test_a_node_that_can_neither_go_on_nor_back_has_its_services_started_or_says_which_not(rollout: CanarySite) -> None:
    rollout.gpu_host.load_fault = REFUSED
    rollout.begins["restore:begun"] = lambda: setattr(rollout.gpu_host, "install_fault", BROKEN)
    result = rollout.change()
    assert (result.status, rollout.kept_out()) == (NodeStatus.FAILED, True)
    started = told(rollout, "driver:give_back", "started")
    assert started == []  # none runs without a driver, which does not load
    assert "not started again: nvidia-persistenced: Job failed" in result.reason
    assert rollout.gpu_host.masked == set()


def test_services_that_can_run_are_started_on_a_node_that_is_given_up(rollout: CanarySite) -> None:
    rollout.gpu_host.load_fault = REFUSED

    def breaks() -> None:
        rollout.gpu_host.install_fault = BROKEN
        rollout.gpu_host.modules, rollout.gpu_host.loaded = ["nvidia"], OLD  # somebody loaded it by hand meanwhile

    rollout.begins["restore:install"] = breaks
    result = rollout.change()
    assert (result.status, rollout.kept_out()) == (NodeStatus.FAILED, True)
    assert set(told(rollout, "driver:give_back", "started")) == set(SERVICES)
    assert serve(rollout)
    assert "not started" not in result.reason


def test_a_host_that_is_gone_is_asked_once_and_the_reason_says_what_stays_stopped(rollout: CanarySite) -> None:
    rollout.ends["driver:stop"] = lambda: setattr(rollout.gpu_host, "away_until", rollout.clock.monotonic() + 1e9)
    result = rollout.change()
    assert (result.status, rollout.state()) == (NodeStatus.FAILED, NodeState.QUARANTINED)
    assert "nvidia-persistenced" in result.reason
    assert "could not be started again: connection refused" in result.reason
    entry = rollout.ledger().journal.last(rollout.operation, NODE, "driver:give_back")
    assert entry is not None
    assert entry.outcome is Outcome.FAILED


def test_nothing_is_started_on_a_node_that_was_given_up_before_anything_was_stopped(rollout: CanarySite) -> None:
    rollout.gpu_host.strangers = [STRANGER]
    rollout.change()
    assert "driver:give_back" not in rollout.steps()
    assert serve(rollout)


@pytest.mark.parametrize("step", ["stop", "unload"])
def test_a_job_that_interrupts_a_way_never_leaves_the_node_serving_without_its_services(
    changed: CanarySite, step: str
) -> None:
    def begin() -> None:
        changed.fake_scheduler.jobs = (replace(JOB, nodes=(NODE,)),)

    changed.ends[f"restore:{step}"] = begin
    result = changed.back()
    assert "job 7 of eva began" in result.reason
    assert serve(changed)
    assert changed.kept_out() or changed.serves()


def test_a_service_that_was_met_holding_a_gpu_is_started_last(site: DriverSite) -> None:
    host = site.gpu_host
    host.services["slurmd"] = "active"
    change(site)
    host.strangers = ["77\tslurmd\troot\tslurmd.service\t/dev/nvidia0", STRANGER]
    with pytest.raises(DriverBlocked):
        restore(site)
    started = [command[2] for command in host.commands if command[:2] == ("systemctl", "start")]
    assert started[-1] == "slurmd"
    assert host.services["slurmd"] == "active"


def away_for(site: DriverSite, seconds: float) -> None:
    site.gpu_host.install_fault = AWAY
    site.clock.after(seconds, lambda: setattr(site.gpu_host, "install_fault", ""))


def test_packages_that_cannot_be_fetched_for_a_while_are_fetched_later(site: DriverSite) -> None:
    away_for(site, 350)
    change(site)
    check_whole(site.gpu_host, NEW)
    assert len(site.gpu_host.installs) > 2  # more than the tries that an install has


def test_packages_that_cannot_be_fetched_leave_the_former_driver_running(site: DriverSite) -> None:
    site.gpu_host.install_fault = AWAY
    with pytest.raises(NotQualified, match="its packages cannot be fetched: E: Failed to fetch"):
        change(site)
    check_whole(site.gpu_host, OLD)


@pytest.mark.parametrize("held", [set(), {"nvidia-dkms-570-server-open"}])
def test_a_node_whose_packages_cannot_be_fetched_is_skipped_and_not_failed(rollout: CanarySite, held: set[str]) -> None:
    rollout.gpu_host.held = set(held)
    rollout.gpu_host.install_fault = AWAY
    result = rollout.change()
    assert (result.status, rollout.serves(), rollout.fenced) == (NodeStatus.SKIPPED, True, [])
    assert "cannot be fetched" in result.reason
    assert rollout.gpu_host.held == held
    check_whole(rollout.gpu_host, OLD)


def test_a_way_back_whose_packages_cannot_be_fetched_leaves_the_node_as_it_is(
    changed: CanarySite,
) -> None:
    changed.gpu_host.install_fault = AWAY
    result = changed.back()
    assert (result.status, changed.serves()) == (NodeStatus.SKIPPED, True)
    assert "570.133.20 is not installed, its packages cannot be fetched" in result.reason
    check_whole(changed.gpu_host, NEW)


def test_a_way_back_that_is_refused_for_good_is_a_failure(changed: CanarySite) -> None:
    changed.gpu_host.install_fault = "E: Failed to fetch http://mirror/pool/x.deb  Hash Sum mismatch"
    result = changed.back()
    assert (result.status, changed.kept_out(), serve(changed)) == (NodeStatus.FAILED, True, True)
    assert "Hash Sum mismatch" in result.reason


def killed_everywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[CanarySite], None]
) -> list[tuple[CanarySite, VisitResult]]:
    """A way back that is killed at each of its writes, and ended by the next runner."""
    found: list[tuple[CanarySite, VisitResult]] = []
    moments: list[tuple[int, bool] | None] = [None]
    while moments:
        moment = moments.pop()
        site = CanarySite(folder / f"{moment}", monkeypatch)
        site.measured = frozenset()
        site.change()
        site.begin_way_back()
        prepare(site)
        if moment is None:
            site.back()
            moments = [one for one, step in site.moments.items() if step.startswith("restore:")]
            assert len(moments) > 10
            continue
        site.dies_at = moment
        with pytest.raises(KeyboardInterrupt):
            site.back()
        found.append((site, site.back()))
    return found


def test_a_blocked_way_back_that_is_killed_anywhere_leaves_the_services_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block(site: CanarySite) -> None:
        site.gpu_host.strangers = [STRANGER]

    for site, result in killed_everywhere(tmp_path, monkeypatch, block):
        assert (result.status, site.kept_out(), serve(site)) == (NodeStatus.FAILED, True, True), site.folder()
        check_whole(site.gpu_host, NEW)


def test_a_way_back_that_cannot_fetch_and_is_killed_anywhere_leaves_the_node_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(site: CanarySite) -> None:
        site.gpu_host.install_fault = AWAY

    for site, result in killed_everywhere(tmp_path, monkeypatch, cut_off):
        assert (result.status, site.serves()) == (NodeStatus.SKIPPED, True), site.folder()
        check_whole(site.gpu_host, NEW)


def test_an_answer_of_systemd_that_refuses_is_told_in_its_own_words(rollout: CanarySite) -> None:
    rollout.gpu_host.load_fault = REFUSED
    rollout.begins["restore:begun"] = lambda: setattr(rollout.gpu_host, "install_fault", BROKEN)
    start = rollout.gpu_host._systemctl

    def starting(verb: str, unit: str) -> Answer:
        return Answer(1, stderr="Unit is masked.") if verb == "start" else start(verb, unit)

    rollout.gpu_host._systemctl = starting  # type: ignore[method-assign]
    assert "nvidia-dcgm: Unit is masked." in rollout.change().reason

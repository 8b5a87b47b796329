"""One node's driver change from end to end, with what can go wrong on the way; nothing is installed twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.driver_host_fake import (
    NEW,
    OLD,
    SERVICES,
    DriverSite,
    change,
    check_whole,
    restore,
    target,
)

from fleet.driver_target import RebootPolicy
from fleet.errors import (
    DriverBlocked,
    DriverMismatch,
    HostLost,
    LeaseLost,
    NotDrained,
)
from fleet.model import Job

JOB = Job("7", "train", "eva", "RUNNING", ("gpu-0001",), 8, 60.0, 3600.0, "", "ml", "gpu")


@pytest.fixture
def site(tmp_path: Path) -> DriverSite:
    return DriverSite(tmp_path)


def test_a_node_gets_the_new_driver_and_keeps_its_settings_and_services(site: DriverSite) -> None:
    outcome = change(site)
    check_whole(site.gpu_host, NEW)
    assert (outcome.changed, outcome.rebooted, outcome.parts.loaded) == (True, False, NEW)
    assert {lost.setting for lost in outcome.settings_lost} == {"persistence", "compute_mode", "power_limit_watts"}
    assert len(site.gpu_host.installs) == 1


def test_services_stop_in_order_and_start_in_the_opposite_one(site: DriverSite) -> None:
    change(site)
    stopped = [c[2] for c in site.gpu_host.commands if c[:2] == ("systemctl", "stop")]
    started = [c[2] for c in site.gpu_host.commands if c[:2] == ("systemctl", "start")]
    assert stopped == list(SERVICES)
    assert started == list(reversed(SERVICES))


def test_a_node_that_has_the_driver_already_is_not_touched(site: DriverSite) -> None:
    outcome = change(site, target(OLD))
    assert (outcome.changed, site.gpu_host.installs, site.gpu_host.boots) == (False, [], 1)
    check_whole(site.gpu_host, OLD)


def test_a_second_call_changes_nothing_and_tells_the_same(site: DriverSite) -> None:
    first = change(site)
    again = change(site)
    assert (again.settings_lost, again.parts) == (first.settings_lost, first.parts)
    assert len(site.gpu_host.installs) == 1


def test_an_install_that_is_ended_on_the_host_is_finished_and_not_begun_beside_itself(site: DriverSite) -> None:
    site.clock.after(90, site.gpu_host.kill_jobs)
    change(site)
    check_whole(site.gpu_host, NEW)


def test_an_unknown_holder_is_named_and_neither_ended_nor_forced(site: DriverSite) -> None:
    host = site.gpu_host
    host.strangers = ["9000\tpython3\teva\tsession-4.scope\t/dev/nvidia1"]
    with pytest.raises(DriverBlocked, match=r"pid 9000 \(python3\) of eva"):
        change(site)
    check_whole(host, OLD)
    assert not [c for c in host.commands if "kill" in c[0] or "--gpu-reset" in c]
    assert host.boots == 1


def test_a_holder_that_comes_after_the_preflight_blocks_the_node_and_it_is_left_as_it_was(site: DriverSite) -> None:
    host = site.gpu_host
    stop = host._systemctl

    def stopping(verb: str, unit: str):  # type: ignore[no-untyped-def]
        if verb == "stop":
            host.strangers = ["9000\tpython3\teva\tdocker-abcdef012345abcdef.scope\t/dev/nvidia1"]
        return stop(verb, unit)

    host._systemctl = stopping  # type: ignore[method-assign]
    with pytest.raises(DriverBlocked, match="container docker abcdef012345"):
        change(site)
    host._systemctl = stop  # type: ignore[method-assign]
    assert (host.installs, host.loaded) == ([], OLD)
    assert host.services == dict.fromkeys(SERVICES, "active")
    assert sorted(host.modules) == ["nvidia", "nvidia_uvm"]
    assert sum(c[:2] == ("modprobe", "-r") for c in host.commands) == 5
    host.strangers = []
    change(site)
    check_whole(host, NEW)


def test_a_holder_that_is_about_to_end_is_waited_for(site: DriverSite) -> None:
    site.gpu_host.strangers = ["9000\tepilog\troot\t-\t/dev/nvidia1"]
    site.clock.after(65, site.gpu_host.strangers.clear)
    change(site)
    check_whole(site.gpu_host, NEW)


def test_work_that_begins_before_the_unload_stops_the_change(site: DriverSite) -> None:
    site.clock.after(30, lambda: setattr(site.fake_scheduler, "jobs", (JOB,)))
    with pytest.raises(NotDrained):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_a_person_who_takes_the_node_back_is_heard_and_nothing_more_is_touched(site: DriverSite) -> None:
    site.clock.after(30, lambda: site.fake_scheduler.uncordon(("gpu-0001",)))
    with pytest.raises(LeaseLost):
        change(site)
    assert site.gpu_host.loaded == OLD


def test_the_package_managers_lock_is_waited_for(site: DriverSite) -> None:
    site.gpu_host.lock_until = site.clock.monotonic() + 300
    change(site)
    check_whole(site.gpu_host, NEW)


def test_a_lock_that_does_not_go_is_named_with_its_holder(site: DriverSite) -> None:
    site.gpu_host.lock_until = site.clock.monotonic() + 1e6
    with pytest.raises(DriverBlocked, match=r"process 777 \(unattended-upgr\)"):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_a_setting_that_needs_a_reset_is_put_back_with_one_reboot(site: DriverSite) -> None:
    site.gpu_host.ecc_lost = True
    restarted = site.gpu_host._load

    def load(module: str):  # type: ignore[no-untyped-def]
        answer = restarted(module)
        for gpu in site.gpu_host.gpus:
            gpu.ecc = gpu.ecc_pending
        return answer

    site.gpu_host._load = load  # type: ignore[method-assign]
    outcome = change(site)
    assert (outcome.rebooted, site.gpu_host.boots) == (True, 2)
    assert "ecc" in {lost.setting for lost in outcome.settings_lost}
    check_whole(site.gpu_host, NEW)


def test_a_mig_layout_is_made_again_as_it_was(site: DriverSite) -> None:
    for gpu in site.gpu_host.gpus:
        gpu.mig_mode, gpu.mig = True, ["1g.10gb", "3g.40gb", "1g.10gb"]
    outcome = change(site)
    assert [sorted(gpu.mig) for gpu in site.gpu_host.gpus] == [["1g.10gb", "1g.10gb", "3g.40gb"]] * 2
    assert "mig" in {lost.setting for lost in outcome.settings_lost}


def test_where_the_policy_is_to_reboot_the_old_module_is_not_unloaded(site: DriverSite) -> None:
    outcome = change(site, target(reboot=RebootPolicy.ALWAYS))
    assert (outcome.rebooted, site.gpu_host.boots) == (True, 2)
    assert not [c for c in site.gpu_host.commands if c[:2] == ("modprobe", "-r")]
    check_whole(site.gpu_host, NEW)


def test_a_host_that_does_not_come_back_is_lost_and_not_rebooted_again(site: DriverSite) -> None:
    site.gpu_host.stays_away = True
    with pytest.raises(HostLost, match="did not come back"):
        change(site, target(reboot=RebootPolicy.ALWAYS))
    assert site.gpu_host.boots == 2


def test_holds_are_set_again_under_the_new_names(site: DriverSite) -> None:
    site.gpu_host.held = {"nvidia-dkms-570-server-open"}
    change(site)
    assert "nvidia-dkms-580-server-open" in site.gpu_host.held


def test_a_module_that_stays_loaded_is_never_called_upgraded_and_one_reboot_mends_it(site: DriverSite) -> None:
    host = site.gpu_host
    load = host._load

    def stale(module: str):  # type: ignore[no-untyped-def]
        answer = load(module)
        host.loaded = OLD
        return answer

    host._load = stale  # type: ignore[method-assign]
    outcome = change(site)
    assert (outcome.rebooted, host.boots) == (True, 2)
    check_whole(host, NEW)


def test_without_leave_to_reboot_a_stale_module_is_a_mismatch(site: DriverSite) -> None:
    host = site.gpu_host
    load = host._load

    def stale(module: str):  # type: ignore[no-untyped-def]
        answer = load(module)
        if host.packages.get("libnvidia-compute-580-server"):
            host.loaded = OLD
        return answer

    host._load = stale  # type: ignore[method-assign]
    with pytest.raises(DriverMismatch, match="the plan allows none"):
        change(site, target(reboot=RebootPolicy.NEVER))
    restore(site)
    check_whole(host, OLD)

"""Kernel modules, holders, services and boots of a simulated host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sim_host_bench import HOLDERS, MODULES, NODE, HostBench

from adapters.driver_host import DriverHost
from fleet.node_health import state_findings

NEW, FORMER = "570.172.08", "550.54.15"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path)
    yield found
    found.close()


def test_services_hold_the_devices_until_they_are_stopped(bench: HostBench) -> None:
    host = DriverHost(bench, NODE)
    holders = host.holders() or ()
    assert {holder.unit for holder in holders} == {f"{unit}.service" for unit in HOLDERS}
    assert {holder.command for holder in holders} >= {"nv-hostengine", "nv-fabricmanage"}
    refused = bench.ask("modprobe", "-r", *MODULES)
    assert (refused.code, refused.stderr) == (1, "modprobe: FATAL: Module nvidia is in use.\n")
    assert host.module_uses() not in (None, 0)
    bench.stop_holders()
    assert host.holders() == ()
    assert bench.reload().code == 0


def test_a_strangers_process_holds_the_driver_and_is_told_with_its_owner(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{stray_holder: gpu-0001}")
    bench.stop_holders()
    [holder] = DriverHost(bench, NODE).holders() or ()
    assert (holder.pid, holder.command, holder.user, holder.unit) == (4121, "python3", "alice", "session-42.scope")
    assert bench.reload().stderr == "modprobe: FATAL: Module nvidia_uvm is in use.\n"
    assert bench.ask("kill", "4122").code == 1
    assert bench.ask("kill", "4121").code == 0
    assert bench.reload().code == 0
    bench.close()


def test_a_job_of_the_scheduler_holds_the_driver(bench: HostBench) -> None:
    bench.jobs.append((17, "bob"))
    bench.stop_holders()
    assert [holder.user for holder in DriverHost(bench, NODE).holders() or ()] == ["bob"]
    assert bench.reload().code == 1
    apps = bench.ask("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader,nounits")
    assert len(apps.stdout.splitlines()) == 8


def test_after_an_install_nvml_says_that_driver_and_library_differ_until_the_module_is_loaded_again(
    bench: HostBench,
) -> None:
    bench.install(NEW)
    smi = bench.ask("nvidia-smi", "-L")
    assert smi.code == 18
    assert smi.stdout.startswith("Failed to initialize NVML: Driver/library version mismatch\n")
    reading = bench.probe()
    assert (reading.nvml_error, reading.gpus, reading.gpu_source) == (18, None, "nvidia-smi")
    assert "driver.library_mismatch" in {finding.code for finding in state_findings(reading)}
    assert bench.ask("systemctl", "start", "nvidia-fabricmanager").code == 0  # it still runs
    bench.stop_holders()
    assert bench.ask("systemctl", "start", "nvidia-fabricmanager").code == 1
    assert bench.ask("systemctl", "is-active", "nvidia-fabricmanager").stdout == "failed\n"
    assert bench.reload().code == 0
    assert bench.start_holders() == [0, 0, 0, 0]
    after = bench.probe()
    assert {after.driver.loaded, after.driver.on_disk, after.driver.user_space, after.driver.fabric_manager} == {NEW}
    assert (after.nvml_error, len(after.gpus or ())) == (None, 8)
    assert state_findings(after) == ()


def test_without_its_module_the_host_says_so_and_the_probe_does_not_load_it(bench: HostBench) -> None:
    bench.stop_holders()
    assert bench.ask("modprobe", "-r", *MODULES).code == 0
    assert bench.ask("nvidia-smi").code == 9
    reading = bench.probe()
    assert (reading.driver.loaded, reading.nvml_error, reading.gpus) == (None, 9, None)
    assert reading.driver.modules == frozenset()
    assert DriverHost(bench, NODE).module_uses() is None
    assert bench.ask("systemctl", "start", "nvidia-persistenced").code == 1


def test_a_boot_loads_what_is_on_the_disk_and_starts_what_is_enabled(bench: HostBench) -> None:
    bench.install(NEW)
    before = bench.ask("cat", "/proc/sys/kernel/random/boot_id").stdout
    bench.ask("systemctl", "mask", "--runtime", "apt-daily.timer")
    bench.start_job("reboot", "systemctl", "reboot")
    bench.advance(10)
    assert bench.read_job("reboot")["state"] == "ended"
    assert bench.machine.up
    bench.advance(15)
    assert not bench.machine.up
    bench.advance(200)
    assert bench.machine.up
    assert bench.ask("cat", "/proc/sys/kernel/random/boot_id").stdout != before
    assert bench.probe().driver.loaded == NEW
    assert bench.ask("systemctl", "is-active", *HOLDERS).stdout.split() == ["active"] * 4
    assert bench.ask("systemctl", "start", "apt-daily.timer").code == 0
    assert [line["version"] for line in bench.truth("driver_load")] == [NEW]
    assert len(bench.truth("reboot")) == 1


def test_a_masked_unit_does_not_start_until_it_is_unmasked(bench: HostBench) -> None:
    assert bench.ask("systemctl", "mask", "--runtime", "unattended-upgrades").code == 0
    assert "is masked" in bench.ask("systemctl", "start", "unattended-upgrades").stderr
    assert bench.ask("systemctl", "unmask", "--runtime", "unattended-upgrades").code == 0
    assert bench.ask("systemctl", "start", "unattended-upgrades").code == 0
    assert bench.ask("systemctl", "is-active", "no-such-unit", "slurmd").stdout == "inactive\nactive\n"


def test_a_driver_that_does_not_load_on_this_node_leaves_it_without_and_the_former_one_loads(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, '{"570.172.08": {does_not_load: gpu-0001}}')
    bench.stop_holders()
    bench.install(NEW)
    refused = bench.reload()
    assert refused.stderr == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert any("RmInitAdapter failed" in line for line in bench.host.state.kernel_log)
    assert bench.install("550.54.15", "back")["code"] == 0
    assert bench.ask("modprobe", "nvidia").code == 0
    assert bench.probe().driver.loaded == FORMER
    bench.close()


def test_a_host_that_hangs_in_its_boot_does_not_come_back(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{no_boot: [gpu-0001]}")
    bench.install(NEW)
    bench.do(bench.machine.reboot)
    bench.advance(3600)
    assert not bench.machine.up
    bench.close()


def test_a_kernel_that_waits_without_headers_has_no_module_after_the_boot(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{new_kernel_without_headers: gpu-0001}")
    told = bench.install(NEW)
    assert "was skipped since the" in str(told["tail"])
    assert bench.probe().driver.kernels_without_module == ("5.15.0-119-generic",)
    bench.do(bench.machine.reboot)
    bench.advance(200)
    assert bench.ask("uname", "-r").stdout == "5.15.0-119-generic\n"
    reading = bench.probe()
    assert (reading.driver.loaded, reading.driver.on_disk) == (None, None)
    assert "not found in directory" in bench.ask("modprobe", "nvidia").stderr
    bench.close()


def test_a_kernel_that_waits_with_headers_gets_its_module(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{new_kernel: gpu-0001}")
    bench.install(NEW)
    status = bench.ask("dkms", "status").stdout.splitlines()
    assert status == [
        f"nvidia-srv/{NEW}, 5.15.0-105-generic, x86_64: installed",
        f"nvidia-srv/{NEW}, 5.15.0-119-generic, x86_64: installed",
    ]
    assert DriverHost(bench, NODE).module_version("5.15.0-119-generic") == NEW
    bench.close()


def test_secure_boot_refuses_a_new_module(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{secure_boot: gpu-0001}")
    assert bench.probe().driver.secure_boot is True
    bench.stop_holders()
    bench.install(NEW)
    assert "Key was rejected by service" in bench.reload().stderr
    bench.close()


def test_free_space_is_told_as_df_does(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{disk_full: gpu-0001}")
    free = DriverHost(bench, NODE).free_mib()
    assert free == {"/usr": 180, "/boot": 1387, "/var": 180}
    bench.close()


def test_a_driver_that_crashes_leaves_xids_in_the_kernel_log_and_in_the_truth(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, '{"550.54.15": {xid_per_hour: 2, xid: 119}}')
    bench.advance(10 * 3600)
    log = bench.probe().kernel_log
    assert log is not None
    shown = [line for line in log.lines if "Xid (PCI:0000:" in line and "): 119, pid=2711" in line]
    assert 5 < len(shown) < 45
    assert len(shown) == len(bench.truth("xid"))
    bench.close()


def test_sudo_and_env_before_a_command_change_nothing(bench: HostBench) -> None:
    assert bench.ask("sudo", "-n", "uname", "-r") == bench.ask("uname", "-r")
    assert bench.ask("sudo", "-n", "env", "LC_ALL=C", "frobnicate").code == 127

"""What the probe reads from a node's files and commands, section by section."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.probe.driver import read_driver
from node.probe.files import Root
from node.probe.kernel_log import read_kernel_log
from node.probe.links import read_network, read_pci
from node.probe.packages import read_packages
from node.probe.system import read_disks, read_memory, read_system
from tests.unit.probe_node import BOOT, KERNEL, FakeNode


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


def root(node: FakeNode) -> Root:
    return Root(str(node.root))


def driver(node: FakeNode) -> dict[str, object]:
    return dict(read_driver(root(node), 5.0))


def test_a_node_without_anything_is_unknown_throughout_and_no_reader_fails(node: FakeNode) -> None:
    assert driver(node)["loaded"] == {"unknown": "the nvidia module is not loaded"}
    assert driver(node)["on_disk"] == {"unknown": "modinfo is not installed"}
    assert dict(read_pci(root(node))) == {"devices": {"unknown": "no PCI devices in /sys"}}
    assert dict(read_memory(root(node)))["total_kib"] == {"unknown": "no MemTotal in /proc/meminfo"}
    assert dict(read_network(root(node))) == {"interfaces": [], "infiniband": []}
    assert dict(read_disks(root(node)))["devices"] == []
    assert dict(read_packages(root(node), 5.0))["services"] == {"unknown": "systemctl is not installed"}


def test_open_and_closed_kernel_modules_are_told_apart(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", "580.105.08\n")
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (builder@host)"
    node.file("/proc/driver/nvidia/version", f"{line}\nGCC version:  gcc version 13.3.0\n")
    assert driver(node)["loaded"] == {
        "version": "580.105.08",
        "proc_version": "580.105.08",
        "open": True,
        "line": line,
    }
    node.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue\n")
    (node.root / "sys/module/nvidia/version").unlink()
    loaded = driver(node)["loaded"]
    assert isinstance(loaded, dict)
    assert (loaded["version"], loaded["open"]) == ("535.54.03", False)


def test_two_drivers_over_one_another_are_both_seen_and_the_link_decides(node: FakeNode) -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    node.file(f"{folder}/libnvidia-ml.so.570.148.08")
    node.file(f"{folder}/libnvidia-ml.so.580.105.08")
    node.link(f"{folder}/libnvidia-ml.so.1", "libnvidia-ml.so.570.148.08")
    assert driver(node)["user_space"] == {
        "version": "570.148.08",
        "folders": {folder: ["570.148.08", "580.105.08"]},
    }


def test_the_module_on_disk_may_be_another_than_the_loaded_one(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", "570.148.08\n")
    path = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko.zst"
    node.command("modinfo", f"printf 'filename: {path}\\nversion:        580.105.08\\nlicense: Dual MIT/GPL\\n'")
    on_disk = driver(node)["on_disk"]
    assert isinstance(on_disk, dict)
    assert (on_disk["version"], on_disk["license"], on_disk["signer"]) == ("580.105.08", "Dual MIT/GPL", None)


def test_a_kernel_that_was_installed_without_a_module_is_named(node: FakeNode) -> None:
    node.file(f"/lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.zst: kernel/x.ko\n")
    node.file("/lib/modules/6.8.0-49-generic/modules.dep", "kernel/x.ko:\nupdates/nvidia-other.ko:\n")
    node.file("/lib/modules/6.8.0-49-generic/build/Makefile")
    node.file(f"/var/lib/dkms/nvidia/580.105.08/{KERNEL}/x86_64/module/nvidia.ko.zst")
    node.file("/var/lib/dkms/nvidia/580.105.08/source/dkms.conf")
    read = driver(node)
    assert read["kernels"] == [
        {"version": KERNEL, "running": True, "nvidia_module": "updates/dkms/nvidia.ko.zst", "headers": False},
        {"version": "6.8.0-49-generic", "running": False, "nvidia_module": None, "headers": True},
    ]
    assert read["dkms"] == [{"module": "nvidia", "version": "580.105.08", "built_for": [KERNEL]}]


def test_nouveau_that_holds_the_gpus_is_among_the_modules(node: FakeNode) -> None:
    node.file("/sys/module/nouveau/refcnt", "3\n")
    assert driver(node)["modules"] == {"nouveau": {"version": None, "uses": 3, "holders": []}}


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"\6\0\0\0\1", True),
        (b"\6\0\0\0\0", False),
        (b"\6\0", {"unknown": "the SecureBoot variable is cut short"}),
    ],
)
def test_secure_boot_is_the_fifth_byte(node: FakeNode, content: bytes, answer: object) -> None:
    node.file("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", content)
    assert driver(node)["secure_boot"] == answer


def test_secure_boot_of_a_machine_without_efi_is_off_and_without_sys_unknown(node: FakeNode) -> None:
    assert driver(node)["secure_boot"] == {"unknown": "no /sys/firmware"}
    node.file("/sys/firmware/acpi/x")
    assert driver(node)["secure_boot"] is False


def test_a_library_that_belongs_to_no_package_was_put_there_by_hand(node: FakeNode) -> None:
    node.file("/usr/lib64/libnvidia-ml.so.580.105.08")
    node.command("rpm", 'echo "file $5 is not owned by any package"; exit 1')
    assert driver(node)["library_owner"] is False
    node.command("rpm", "echo nvidia-driver-cuda-libs")
    assert driver(node)["library_owner"] == "nvidia-driver-cuda-libs"


def test_packages_holds_services_and_update_settings_are_read(node: FakeNode) -> None:
    node.command(
        "dpkg-query",
        "printf 'nvidia-driver-580\\t580.105.08-0ubuntu1\\thold ok installed\\n"
        "nvidia-utils-570\\t570.1\\tdeinstall ok config-files\\n'; exit 1",
    )
    node.command(
        "systemctl",
        "printf 'Id=nvidia-fabricmanager.service\\nLoadState=loaded\\nActiveState=failed\\nSubState=failed\\n"
        "UnitFileState=enabled\\nExecMainStatus=1\\n\\nId=dcgm.service\\nLoadState=not-found\\nActiveState=inactive\\n'",
    )
    node.file("/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    node.file("/etc/environment", "https_proxy=http://user:secret@proxy:3128\n")
    node.file("/etc/default/motd-news", "# comment\nENABLED=1\n")
    read = dict(read_packages(root(node), 5.0))
    assert read["packages"] == [{"name": "nvidia-driver-580", "version": "580.105.08-0ubuntu1", "hold": True}]
    services, updates, egress = read["services"], read["updates"], read["egress"]
    assert isinstance(services, dict)
    assert isinstance(updates, dict)
    assert isinstance(egress, dict)
    assert services["nvidia-fabricmanager"]["state"] == "failed"
    assert services["dcgm"] == {"state": "not-found"}
    assert updates["apt_periodic"] == {"Unattended-Upgrade": "1"}
    assert (egress["motd_news"], egress["apport"]) == ("1", "absent")
    assert egress["proxies"] == {"https_proxy": "http://proxy:3128"}


def test_a_gpu_with_half_its_lanes_shows_what_its_slot_could_do(node: FakeNode) -> None:
    bridge = "/sys/devices/pci0000:10/0000:10:01.0"
    gpu = f"{bridge}/0000:1b:00.0"
    node.files(bridge, {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"})
    node.files(
        gpu,
        {
            "vendor": "0x10de",
            "device": "0x2330",
            "class": "0x030200",
            "current_link_speed": "32.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "8",
            "max_link_width": "16",
            "aer_dev_correctable": "RxErr 0\nBadTLP 7\nTOTAL_ERR_COR 7",
        },
    )
    node.link("/sys/bus/pci/devices/0000:1b:00.0", gpu)
    (device,) = dict(read_pci(root(node)))["devices"]  # type: ignore[misc]
    assert (device["current_link_width"], device["max_link_width"], device["aer_correctable"]) == (8, 16, 7)
    assert (device["slot"]["max_link_width"], device["slot"]["max_link_speed_gts"]) == (16, 32.0)


def test_a_link_of_a_device_that_is_gone_is_unknown_and_never_zero(node: FakeNode) -> None:
    values = {"vendor": "0x10de", "class": "0x030200", "current_link_speed": "Unknown", "current_link_width": "0"}
    node.files("/sys/bus/pci/devices/0000:1b:00.0", {**values, "max_link_width": "255"})
    (device,) = dict(read_pci(root(node)))["devices"]  # type: ignore[misc]
    assert device["current_link_speed_gts"] is device["current_link_width"] is device["max_link_width"] is None


def test_infiniband_ports_are_read_with_their_counters(node: FakeNode) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    node.files(port, {"state": "2: INIT", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "lid": "0x1a"})
    node.file(f"{port}/counters/link_downed", "3\n")
    (hca,) = dict(read_network(root(node)))["infiniband"]  # type: ignore[misc]
    (read,) = hca["ports"]
    assert (read["state"], read["physical_state"], read["lid"]) == ("INIT", "LinkUp", 26)
    assert read["counters"] == {"link_downed": 3}


def test_memory_errors_name_their_module(node: FakeNode) -> None:
    node.file("/proc/meminfo", "MemTotal:       2113536000 kB\nMemAvailable: 2000000000 kB\n")
    node.files("/sys/devices/system/edac/mc/mc0", {"ce_count": "4", "ue_count": "0", "mc_name": "Sapphire"})
    node.files("/sys/devices/system/edac/mc/mc0/dimm3", {"dimm_ce_count": "4", "dimm_label": "CPU1_DIMM_B2"})
    node.files("/sys/devices/system/edac/mc/mc0/dimm4", {"dimm_ce_count": "0", "dimm_label": "CPU1_DIMM_B3"})
    read = dict(read_memory(root(node)))
    assert read["total_kib"] == 2113536000
    (controller,) = read["controllers"]  # type: ignore[misc]
    assert controller["dimms_with_errors"] == [{"label": "CPU1_DIMM_B2", "corrected": 4}]


def test_system_facts_come_from_the_root_that_is_given(node: FakeNode) -> None:
    node.file("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
    read = dict(read_system(root(node)))
    assert (read["hostname"], read["kernel"], read["boot_id"]) == ("gpu-0001", KERNEL, BOOT)
    assert read["os"] == {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"}


RECORDS = (
    "6,100,5000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1b:00.0\n"
    "4,101,6000001,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    "30,102,6500000,-;systemd[1]: a program's own line\n"
    "3,103,7000000,c;NVRM: A GPU crash dump has been created\n"
)


def log(node: FakeNode, cursor: str | None = None) -> dict[str, object]:
    return dict(read_kernel_log(root(node), cursor, 5.0))


def test_kernel_records_become_dmesg_lines_and_programs_cannot_forge_them(node: FakeNode) -> None:
    node.file("/dev/kmsg", RECORDS)
    read = log(node)
    assert read["lines"] == [
        "[    5.000000] NVRM: loading NVIDIA UNIX Open Kernel Module",
        "[    6.000001] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
        "[    7.000000] NVRM: A GPU crash dump has been created",
    ]
    assert (read["source"], read["cursor"], read["missed"]) == ("kmsg", f"kmsg:{BOOT}:103", 0)


def test_only_what_came_after_the_cursor_is_read(node: FakeNode) -> None:
    node.file("/dev/kmsg", RECORDS)
    read = log(node, f"kmsg:{BOOT}:101")
    assert (read["lines"], read["continued"]) == (["[    7.000000] NVRM: A GPU crash dump has been created"], True)
    assert log(node, f"kmsg:{BOOT}:103")["lines"] == []


def test_lines_that_the_kernels_buffer_lost_are_counted(node: FakeNode) -> None:
    node.file("/dev/kmsg", RECORDS)
    assert log(node, f"kmsg:{BOOT}:40")["missed"] == 59


def test_a_cursor_of_an_earlier_boot_gives_the_whole_log_of_this_one(node: FakeNode) -> None:
    node.file("/dev/kmsg", RECORDS)
    read = log(node, "kmsg:00000000-0000-0000-0000-000000000000:103")
    assert (len(read["lines"]), read["continued"]) == (3, False)  # type: ignore[arg-type]


@pytest.mark.parametrize("cursor", ["", "kmsg", "kmsg::", "nonsense:x:y:z", f"kmsg:{BOOT}:minus one", "::::"])
def test_a_cursor_that_makes_no_sense_gives_the_whole_log(node: FakeNode, cursor: str) -> None:
    node.file("/dev/kmsg", RECORDS)
    assert len(log(node, cursor)["lines"]) == 3  # type: ignore[arg-type]


def test_the_journal_is_read_where_the_kernels_buffer_is_closed(node: FakeNode) -> None:
    node.command(
        "journalctl",
        'echo "$*" >> $0.calls\n'
        'echo \'{"__CURSOR":"s=1;i=2","_SOURCE_MONOTONIC_TIMESTAMP":"6000001","MESSAGE":"NVRM: Xid"}\'\necho broken',
    )
    read = log(node)
    assert (read["source"], read["lines"]) == ("journal", ["[    6.000001] NVRM: Xid"])
    log(node, str(read["cursor"]))
    assert "--after-cursor=s=1;i=2" in (node.root / "usr/bin/journalctl.calls").read_text().splitlines()[1]


def test_dmesg_is_the_last_resort_and_its_refusal_is_said(node: FakeNode) -> None:
    node.command("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    lines = log(node)["lines"]
    assert isinstance(lines, dict)
    assert "/dev/kmsg: No such file or directory" in lines["unknown"]
    assert "Operation not permitted" in lines["unknown"]
    node.command("dmesg", "printf '[    5.000000] old\\n[    6.000001] NVRM: Xid\\n  more of it\\n'")
    read = log(node, f"dmesg:{BOOT}:5000000")
    assert read["lines"] == ["[    6.000001] NVRM: Xid", "  more of it"]


def test_a_flood_of_lines_keeps_the_newest(node: FakeNode) -> None:
    node.file("/dev/kmsg", "".join(f"4,{n},{n}000000,-;line {n}\n" for n in range(6000)))
    read = log(node)
    lines = read["lines"]
    assert isinstance(lines, list)
    assert (len(lines), read["omitted"]) == (4000, 2000)
    assert lines[-1].endswith("line 5999")

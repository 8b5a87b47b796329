"""The operating system, memory and disks, from /proc, /sys and /etc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .disks import read_disk
from .files import Root, unknown
from .smbios import read_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workers import Pair

_LOCAL_FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "vfat", "f2fs")
_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "fd", "sr")
_DMI = ("sys_vendor", "product_name", "product_serial", "board_name", "board_serial", "bios_version", "bios_date")


def read_system(root: Root) -> Iterator[Pair]:
    """Host name, boot, kernels, distribution, machine."""
    yield "hostname", root.text("/proc/sys/kernel/hostname") or unknown("no /proc/sys/kernel/hostname")
    yield "boot_id", root.text("/proc/sys/kernel/random/boot_id") or unknown("no boot id in /proc")
    yield "kernel", running_kernel(root) or unknown("no /proc/sys/kernel/osrelease")
    yield "architecture", os.uname().machine
    yield "os", read_os(root)
    uptime = (root.text("/proc/uptime") or "").split()
    yield "uptime_seconds", float(uptime[0]) if uptime else unknown("no /proc/uptime")
    yield "command_line", root.text("/proc/cmdline") or unknown("no /proc/cmdline")
    yield "tainted", _or_unknown(root.number("/proc/sys/kernel/tainted"), "no /proc/sys/kernel/tainted")
    yield "reboot_required", root.exists("/run/reboot-required") or root.exists("/var/run/reboot-required")
    yield "machine", {name: text for name, text in ((n, root.text(f"/sys/class/dmi/id/{n}")) for n in _DMI) if text}
    yield "cpu", _cpu(root)


def running_kernel(root: Root) -> str | None:
    return root.text("/proc/sys/kernel/osrelease")


def read_os(root: Root) -> dict[str, str]:
    """ID, VERSION_ID, PRETTY_NAME of /etc/os-release; {"unknown": why} where it is missing."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        fields = shell_settings(root.text(path) or "")
        if fields:
            names = {"ID": "id", "VERSION_ID": "version", "PRETTY_NAME": "name"}
            return {ours: fields[theirs] for theirs, ours in names.items() if theirs in fields}
    return unknown("no os-release file")


def shell_settings(text: str) -> dict[str, str]:
    """NAME=value lines, without quotes and comments."""
    settings = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            settings[name.strip()] = value.strip().strip("\"'")
    return settings


def _cpu(root: Root) -> dict[str, object]:
    text = root.text("/proc/cpuinfo") or ""
    fields = [line.partition(":") for line in text.splitlines()]
    models = [value.strip() for name, _, value in fields if name.strip() in ("model name", "CPU part")]
    sockets = {value.strip() for name, _, value in fields if name.strip() == "physical id"}
    threads = sum(name.strip() == "processor" for name, _, _ in fields)
    if not threads:
        return {"unknown": "no processor in /proc/cpuinfo"}
    nodes = [name for name in root.names("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdigit()]
    return {
        "model": models[0] if models else None,
        "threads": threads,
        "sockets": len(sockets) or None,
        "numa_nodes": len(nodes) or None,
    }


def read_memory(root: Root) -> Iterator[Pair]:
    """Totals in KiB, the modules in their sockets, and error counts of the memory controllers."""
    fields = {}
    for line in (root.text("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        number = value.split()
        if number and number[0].isdigit():
            fields[name] = int(number[0])
    wanted = {
        "total_kib": "MemTotal",
        "available_kib": "MemAvailable",
        "swap_total_kib": "SwapTotal",
        "huge_pages": "HugePages_Total",
    }
    for ours, theirs in wanted.items():
        yield ours, fields.get(theirs, unknown(f"no {theirs} in /proc/meminfo"))
    yield "modules", read_modules(root)
    yield "controllers", _controllers(root)


def _controllers(root: Root) -> object:
    folder = "/sys/devices/system/edac/mc"
    found: list[dict[str, object]] = []
    for name in root.names(folder):
        if not (name.startswith("mc") and name[2:].isdigit()):
            continue
        path = f"{folder}/{name}"
        dimms = [
            {"label": root.text(f"{path}/{dimm}/dimm_label"), "corrected": root.number(f"{path}/{dimm}/dimm_ce_count")}
            for dimm in root.names(path)
            if dimm.startswith(("dimm", "rank")) and (root.number(f"{path}/{dimm}/dimm_ce_count") or 0)
        ]
        counts = {
            "corrected": root.number(f"{path}/ce_count"),
            "uncorrected": root.number(f"{path}/ue_count"),
        }
        found.append({"name": name, "kind": root.text(f"{path}/mc_name"), **counts, "dimms_with_errors": dimms})
    return found or unknown("the kernel shows no memory controller (EDAC)")


def read_disks(root: Root) -> Iterator[Pair]:
    """Block devices of the machine, then how full the local file systems are."""
    yield "devices", [read_disk(root, name) for name in root.names("/sys/block") if not name.startswith(_VIRTUAL_DISKS)]
    raid = [line.strip() for line in (root.text("/proc/mdstat") or "").splitlines() if " : " in line]
    yield "raid", raid
    if not root.live:
        yield "file_systems", unknown("the root folder is not the running system's")
        return
    yield "file_systems", _file_systems(root)


def _file_systems(root: Root) -> list[dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for line in (root.text("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] not in _LOCAL_FILE_SYSTEMS or fields[0] in found:
            continue
        mount = fields[1].encode().decode("unicode_escape")
        try:
            state = os.statvfs(mount)
        except OSError:
            continue
        found[fields[0]] = {
            "mount": mount,
            "kind": fields[2],
            "total_bytes": state.f_blocks * state.f_frsize,
            "free_bytes": state.f_bavail * state.f_frsize,
            "read_only": "ro" in fields[3].split(","),
        }
    return list(found.values())


def _or_unknown(value: object | None, reason: str) -> object:
    return unknown(reason) if value is None else value

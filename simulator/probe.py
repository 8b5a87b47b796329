"""The node probe on a simulated host: the file is taken as a real host takes it, and its answer is the host's state.

What runs is not the probe's Python but its result: the document that docs/probe.md describes.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable

from simulator.machine import Machine
from simulator.settings import GPU_NAME, POWER_LIMIT_WATTS, HostSettings
from simulator.slurm.reply import Reply, failure

_BEGIN, _END = "=====gpufleet-probe-begin=====", "=====gpufleet-probe-end====="
_NOT_THERE = 85
_H100 = {
    "pci_device_id": "233010DE",
    "pci_subsystem_id": "16C110DE",
    "product_name": GPU_NAME,
    "brand": "NVIDIA",
    "architecture": "Hopper",
    "compute_capability": "9.0",
    "inforom_image": "G520.0200.00.05",
    "inforom_oem": "2.1",
    "inforom_ecc": "7.16",
    "display_active": False,
    "accounting_mode": False,
    "addressing_mode": "None",
    "virtualization_mode": "None",
    "mig_mode_current": False,
    "mig_mode_pending": False,
    "lost": False,
    "recovery_action": "None",
    "remapped_rows_correctable": 0,
    "remapped_rows_uncorrectable": 0,
    "remapped_rows_pending": False,
    "remapped_rows_failure": False,
    "remap_banks_max": 2560,
    "remap_banks_high": 0,
    "remap_banks_partial": 0,
    "remap_banks_low": 0,
    "remap_banks_none": 0,
    "clock_max_graphics_mhz": 1980,
    "clock_max_sm_mhz": 1980,
    "clock_max_memory_mhz": 2619,
    "clock_memory_mhz": 2619,
    "event_sw_power_cap": False,
    "event_hw_slowdown": False,
    "event_hw_thermal_slowdown": False,
    "event_hw_power_brake": False,
    "event_sw_thermal_slowdown": False,
    "power_limit_default_watts": POWER_LIMIT_WATTS[1],
    "power_limit_min_watts": POWER_LIMIT_WATTS[0],
    "power_limit_max_watts": POWER_LIMIT_WATTS[1],
    "temperature_shutdown_celsius": 92,
    "temperature_slowdown_celsius": 89,
    "temperature_max_celsius": 87,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "memory_total_mib": 81559,
    "memory_reserved_mib": 551,
    "memory_used_mib": 0,
    "fabric_state": "Completed",
    "fabric_status": "Success",
}
_ECC = tuple(
    f"ecc_{scope}_{place}{kind}"
    for scope in ("volatile", "aggregate")
    for place in ("", "dram_", "sram_")
    for kind in ("correctable", "uncorrectable")
)
_UNKNOWN = {"NVML 3: Not Supported": ["fan_speed_percent", "module_power_draw_watts", "fabric_cluster_uuid"]}


class ProbeAnswers:
    """The files that were sent to one host, and what the probe among them says."""

    def __init__(self, machine: Machine, settings: HostSettings, vbios: Callable[[], list[str]]) -> None:
        self._machine = machine
        self._settings = settings
        self._vbios = vbios
        self._files: dict[str, bytes] = {}
        self.kernel_log: list[str] = []
        self._rng = random.Random(f"probe {machine.name}")

    def wants_input(self, words: list[str]) -> bool:
        """Whether the command takes a file on its standard input."""
        return words[:2] == ["sh", "-c"] and len(words) > 2 and 'cat > "$1"' in words[2]

    def run(self, words: list[str], stdin: bytes, boot_id: str) -> Reply | None:
        """What `sh -c SCRIPT sh ARGUMENTS…` answers; None for a script that is none of the probe's."""
        if words[:2] != ["sh", "-c"] or len(words) < 5:
            return None
        script, arguments = words[2], words[4:]
        if 'mkdir -p "$1"' in script:
            return Reply(0)
        if 'cat > "$1"' in script:
            self._files[arguments[0]] = stdin
            return Reply(0)
        if "sha256sum" in script and len(arguments) >= 3:
            return self._move(*arguments[:3])
        if 'command -v "$python"' in script and len(arguments) >= 3:
            return self._probe(arguments[1], arguments[2], boot_id, arguments[3:])
        return None

    def _move(self, arrived: str, path: str, digest: str) -> Reply:
        content = self._files.pop(arrived, b"")
        got = hashlib.sha256(content).hexdigest()
        if got != digest:
            return failure(f"sha256 {got}, wanted {digest}\n", 65)
        self._files[path] = content
        return Reply(0)

    def _probe(self, path: str, digest: str, boot_id: str, options: list[str]) -> Reply:
        if hashlib.sha256(self._files.get(path, b"")).hexdigest() != digest:
            return Reply(_NOT_THERE)
        document = self._document(boot_id)
        given = next((option for option in options if option.startswith("--cursor=kmsg:")), "")
        boot, _, position = given.removeprefix("--cursor=kmsg:").rpartition(":")
        sections = document["sections"]
        assert isinstance(sections, dict)
        sections["kernel_log"] = self._log_since(int(position) if position.isdigit() else 0, boot_id, boot == boot_id)
        return Reply(0, f"{_BEGIN}\n{json.dumps(document, separators=(',', ':'))}\n{_END}\n")

    def _log_since(self, first: int, boot_id: str, continued: bool) -> dict[str, object]:
        cursor = f"kmsg:{boot_id}:{len(self.kernel_log)}"
        return {"source": "kmsg", "cursor": cursor, "continued": continued, "lines": self.kernel_log[first:]}

    def _document(self, boot_id: str) -> dict[str, object]:
        machine, settings = self._machine, self._settings
        devices = [self._device(slot) for slot in range(machine.gpus)]
        sections = {
            "gpus": {
                "nvml": None,
                "source": "nvml",
                "system": {"driver_version": settings.driver},
                "count": len(devices),
                "devices": devices,
            },
            "driver": {
                "loaded": {"version": settings.driver, "open": False},
                "on_disk": {"version": settings.driver},
                "user_space": {"version": settings.driver},
                "library_owner": "libnvidia-compute-550-server",
                "fabric_manager": {"version": settings.driver},
                "container_toolkit": {"version": "1.16.2"},
                "modules": {"nvidia": {}, "nvidia_uvm": {}},
                "kernels": [{"version": settings.kernel, "running": True, "nvidia_module": "nvidia.ko"}],
                "dkms": [{"module": "nvidia", "version": settings.driver, "built_for": [settings.kernel]}],
                "secure_boot": False,
                "tpm": {"major": 2},
            },
            "packages": {
                "manager": "dpkg",
                "packages": [
                    {"name": "nvidia-driver-550-server", "version": f"{settings.driver}-0ubuntu1", "hold": True}
                ],
                "services": {unit: {"state": state} for unit, state in settings.services.items()},
            },
            "system": {
                "hostname": machine.name,
                "boot_id": boot_id,
                "kernel": settings.kernel,
                "os": {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04.4 LTS"},
                "uptime_seconds": max(0.0, machine.clock.now() - machine.last_boot),
            },
            "pci": {"devices": [self._pci(slot) for slot in range(machine.gpus)]},
        }
        probe = {"python": "3.10.12", "wall_seconds": 0.41, "cpu_seconds": 0.22, "user": 0}
        return {"version": 1, "at": machine.clock.wall().timestamp(), "sections": sections, "probe": probe}

    def _device(self, slot: int) -> dict[str, object]:
        part, settings, versions = self._machine.parts[slot], self._settings.gpus[slot], self._vbios()
        heat = self._rng.randint(28, 38)
        known = _H100 | dict.fromkeys(_ECC, 0)
        known |= {
            "uuid": f"GPU-{part.uuid}",
            "serial": part.serial,
            "board_part_number": part.part_number,
            "pci_address": address(slot),
            "minor_number": slot,
            "module_id": slot + 1,
            "ecc_mode_current": settings.ecc,
            "ecc_mode_pending": settings.ecc_pending,
            "persistence_mode": settings.persistence,
            "compute_mode": settings.compute_mode,
            "performance_state": "P0",
            "power_limit_watts": settings.power_limit_watts,
            "power_draw_watts": 69.0 + heat / 10,
            "temperature_gpu_celsius": heat,
            "temperature_memory_celsius": heat + 9,
            "clock_graphics_mhz": 1980,
            "clock_sm_mhz": 1980,
            "utilization_gpu_percent": 0,
            "utilization_memory_percent": 0,
        }
        if slot < len(versions):
            known["vbios_version"] = versions[slot]
        return {"index": slot, "known": known, "unknown": _UNKNOWN}

    def _pci(self, slot: int) -> dict[str, object]:
        link = {"current_link_speed_gts": 32.0, "max_link_speed_gts": 32.0}
        width = {"current_link_width": 16, "max_link_width": 16}
        ident = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "driver": "nvidia"}
        return {"address": address(slot), **ident, **link, **width}


def address(slot: int) -> str:
    """The PCI address of the GPU in `slot`."""
    return f"0000:{0x18 + slot * 0x11:02x}:00.0"

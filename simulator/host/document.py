"""The node probe's document of a simulated host: the host's state in the shape that docs/probe.md describes."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable

from simulator.host.driver import Driver
from simulator.host.heat import Heat
from simulator.host.packages import INSTALLED
from simulator.host.services import Services
from simulator.host.smi import Smi
from simulator.host.state import DNF, RUNFILE, HostState
from simulator.settings import GPU_NAME, MIG_PROFILES, POWER_LIMIT_WATTS, MigInstance

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
_LISTED = ["*nvidia*", "datacenter-gpu-manager*", "linux-image*", "kernel-core"]
_EVENTS = {"event_gpu_idle": 0x1, "event_applications_clocks": 0x2, "event_sw_power_cap": 0x4}
_EVENTS |= {"event_hw_slowdown": 0x8, "event_sw_thermal_slowdown": 0x20}
_NVSWITCHES = 4
_MIG_MIB = 9984  # of one memory slice


class Document:
    """The sections of one host."""

    def __init__(
        self,
        host: HostState,
        driver: Driver,
        services: Services,
        heat: Heat,
        smi: Smi,
        vbios: Callable[[], list[str]],
    ) -> None:
        self._host = host
        self._driver = driver
        self._services = services
        self._heat = heat
        self._smi = smi
        self._vbios = vbios

    def sections(self, boot_id: str) -> dict[str, object]:
        """All sections but the kernel log."""
        host = self._host
        red_hat = host.manager == DNF
        system = {"id": "rhel", "version": "9.4", "name": "Red Hat Enterprise Linux 9.4 (Plow)"}
        ubuntu = {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04.4 LTS"}
        return {
            "gpus": self._gpus(),
            "driver": self._driver_section(),
            "packages": self._packages(),
            "system": {
                "hostname": host.machine.name,
                "boot_id": boot_id,
                "kernel": host.kernel,
                "os": system if red_hat else ubuntu,
                "uptime_seconds": host.up_seconds,
            },
            "pci": {"devices": [*map(self._pci, range(host.machine.gpus)), *map(_switch, range(_NVSWITCHES))]},
        }

    def _gpus(self) -> dict[str, object]:
        host = self._host
        if host.loaded is None:
            words = "the nvidia module is not loaded"
            return {"nvml": {"code": 9, "words": words}, "source": {"unknown": f"{words}, and NVML would load it"}}
        if host.user_space is None:
            words = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
            return {"nvml": {"code": 12, "words": words}, "source": {"unknown": "nvidia-smi is not installed"}}
        broken = self._smi.broken()
        if broken is not None:
            return {
                "nvml": {"code": broken.code, "words": "Driver/library version mismatch"},
                "source": "nvidia-smi",
                "exit_status": broken.code,
                "stderr": broken.stderr,
                "xml": base64.b64encode(gzip.compress(broken.stdout.encode(), 6, mtime=0)).decode(),
            }
        devices = [self._device(slot) for slot in range(host.machine.gpus)]
        return {
            "nvml": None,
            "source": "nvml",
            "system": {"driver_version": host.loaded.release},
            "count": len(devices),
            "devices": devices,
        }

    def _device(self, slot: int) -> dict[str, object]:
        host, versions, now = self._host, self._vbios(), self._heat.now(slot)
        part, gpu = host.machine.parts[slot], host.settings.gpus[slot]
        known = _H100 | dict.fromkeys(_ECC, 0)
        known |= {
            "uuid": f"GPU-{part.uuid}",
            "serial": part.serial,
            "board_part_number": part.part_number,
            "pci_address": address(slot),
            "minor_number": slot,
            "module_id": slot + 1,
            "ecc_mode_current": gpu.ecc,
            "ecc_mode_pending": gpu.ecc_pending,
            "mig_mode_current": gpu.mig,
            "mig_mode_pending": gpu.mig_pending,
            "persistence_mode": gpu.persistence,
            "compute_mode": gpu.compute_mode,
            "performance_state": "P0",
            "power_limit_watts": gpu.power_limit_watts,
            "power_draw_watts": round(now.watts, 1),
            "temperature_gpu_celsius": round(now.celsius),
            "temperature_memory_celsius": round(now.celsius) + 9,
            "clock_graphics_mhz": now.clock_mhz,
            "clock_sm_mhz": now.clock_mhz,
            "clock_application_graphics_mhz": gpu.application_clocks_mhz[1],
            "clock_application_memory_mhz": gpu.application_clocks_mhz[0],
            "utilization_gpu_percent": 97 if now.busy else 0,
            "utilization_memory_percent": 61 if now.busy else 0,
            "fabric_state": "Completed" if self._driver.fabric_ready else "In Progress",
            "processes": self._processes(slot),
        }
        known |= {name: bool(now.mask & bit) for name, bit in _EVENTS.items()}
        if gpu.mig:
            known["mig_instances"] = [_mig(number, one, part.uuid) for number, one in enumerate(gpu.instances)]
        if slot < len(versions):
            known["vbios_version"] = versions[slot]
        return {"index": slot, "known": known, "unknown": _UNKNOWN}

    def _processes(self, slot: int) -> list[dict[str, object]]:
        return [
            {"pid": process.pid, "kind": "C", "used_memory_mib": 71204}
            for process in self._services.holders()
            if process.cuda and f"/dev/nvidia{slot}" in process.devices
        ]

    def _driver_section(self) -> dict[str, object]:
        host = self._host
        loaded, disk, libraries, manager = host.loaded, host.on_disk, host.user_space, host.fabric_manager
        folder = "/usr/lib64" if host.manager == DNF else "/usr/lib/x86_64-linux-gnu"
        dkms = {"module": self._driver.dkms_name, "version": host.dkms_tree, "built_for": sorted(host.built)}
        return {
            "loaded": {"version": loaded.release, "open": loaded.open}
            if loaded is not None
            else {"unknown": "the nvidia module is not loaded"},
            "on_disk": {"version": disk.release, "signer": f"{host.machine.name} Secure Boot Module Signature key"}
            if disk is not None
            else {"unknown": "modinfo: ERROR: Module nvidia not found."},
            "user_space": {"version": libraries, "folders": {folder: [libraries]}}
            if libraries is not None
            else {"unknown": "no libnvidia-ml in the library folders"},
            "library_owner": host.library_owner
            or (False if libraries else {"unknown": "no libnvidia-ml in the library folders"}),
            "installers": {"runfile": host.manager == RUNFILE, "cuda_runfile": False, "container": False},
            "fabric_manager": {"version": manager} if manager else {"unknown": "nv-fabricmanager: not found"},
            "container_toolkit": {"version": "1.16.2"},
            "modules": {name: self._module(name) for name in sorted(host.modules)},
            "kernels": [self._kernel(name) for name in sorted(host.kernels)],
            "dkms": [dkms] if host.dkms_tree is not None else [],
            "secure_boot": host.machine.name in host.faults.secure_boot,
            "tpm": {"major": 2},
        }

    def _module(self, name: str) -> dict[str, object]:
        host = self._host
        atop = sorted(other for other in host.modules if other != name and name in ("nvidia", "nvidia_modeset"))
        version = host.loaded.release if host.loaded else None
        return {
            "version": version,
            "uses": self._driver.refcount(name),
            "holders": [other for other in atop if name == "nvidia" or other == "nvidia_drm"],
        }

    def _kernel(self, name: str) -> dict[str, object]:
        host = self._host
        return {
            "version": name,
            "running": name == host.kernel,
            "nvidia_module": "updates/dkms/nvidia.ko" if name in host.built else None,
            "headers": host.kernels[name],
        }

    def _packages(self) -> dict[str, object]:
        host = self._host
        found = host.packages.matching(_LISTED)
        return {
            "manager": "rpm" if host.manager == DNF else "dpkg",
            "listed": _LISTED,
            "packages": [
                {"name": name, "version": package.version, "hold": package.held and host.manager != DNF}
                for name, package in found.items()
                if package.state == INSTALLED
            ],
            "services": {unit: {"state": state} for unit, state in self._services.states.items()},
            "updates": {
                "apt_periodic": {"Unattended-Upgrade": "0"},
                "dnf_version_locks": [],
                "dnf_excludes": [],
            },
            "egress": {"motd_news": "0", "popularity_contest": "absent", "apport": "0", "proxies": {}},
        }

    def _pci(self, slot: int) -> dict[str, object]:
        link = {"current_link_speed_gts": 32.0, "max_link_speed_gts": 32.0}
        width = {"current_link_width": 16, "max_link_width": 16}
        bound = {"driver": "nvidia"} if self._host.loaded is not None else {}
        ident = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
        return {"address": address(slot), **ident, **bound, **link, **width}


def address(slot: int) -> str:
    """The PCI address of the GPU in `slot`."""
    return f"0000:{0x18 + slot * 0x11:02x}:00.0"


def _switch(number: int) -> dict[str, object]:
    ident = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}
    return {"address": f"0000:{0x05 + number:02x}:00.0", **ident}


def _mig(number: int, one: MigInstance, uuid: str) -> dict[str, object]:
    _, _, memory, processors = MIG_PROFILES[one.profile]
    return {
        "index": number,
        "uuid": one.uuid(uuid),
        "profile": one.profile,
        "gpu_instance_id": one.id,
        "compute_instance_id": 0,
        "multiprocessors": processors,
        "memory_total_mib": memory * _MIG_MIB,
    }

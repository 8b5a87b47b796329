"""What dcgm-exporter shows of a simulated host, in Prometheus' text format. Names: DCGM's fields, default counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simulator.host.heat import Heat
from simulator.host.services import EXPORTER, Services
from simulator.host.state import HostState
from simulator.host.xids import Xids
from simulator.settings import GPU_NAME

GAUGE, COUNTER = "gauge", "counter"
METRICS: Mapping[str, tuple[str, str]] = {
    "DCGM_FI_DEV_SM_CLOCK": (GAUGE, "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEM_CLOCK": (GAUGE, "Memory clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEMORY_TEMP": (GAUGE, "Memory temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP": (GAUGE, "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": (GAUGE, "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (COUNTER, "Total energy consumption since boot (in mJ)."),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (COUNTER, "Total number of PCIe retries."),
    "DCGM_FI_DEV_GPU_UTIL": (GAUGE, "GPU utilization (in %)."),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (GAUGE, "Memory utilization (in %)."),
    "DCGM_FI_DEV_XID_ERRORS": (GAUGE, "Value of the last XID error encountered."),
    "DCGM_FI_DEV_FB_FREE": (GAUGE, "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_USED": (GAUGE, "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (GAUGE, "Current clock event reasons (bitmask)."),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": (COUNTER, "Total number of single-bit volatile ECC errors."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (COUNTER, "Total number of double-bit volatile ECC errors."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (COUNTER, "Number of remapped rows for uncorrectable errors"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (COUNTER, "Number of remapped rows for correctable errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (GAUGE, "Whether remapping of rows has failed"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (GAUGE, "Ratio of cycles the tensor (HMMA) pipe is active."),
}
_MEMORY_MIB, _BUSY_MIB = 81008, 71204
_TENSOR_SHARE = 0.43  # of the cycles, while a training job runs


class Exporter:
    """One host's exporter."""

    def __init__(self, host: HostState, services: Services, heat: Heat, xids: Xids) -> None:
        self._host = host
        self._services = services
        self._heat = heat
        self._xids = xids

    def samples(self) -> dict[str, list[str]]:
        """Metric → its lines; nothing while the host, the service or the driver does not answer."""
        host = self._host
        if not host.machine.up or self._services.states.get(EXPORTER) != "active" or not host.usable:
            return {}
        self._xids.catch_up()
        found: dict[str, list[str]] = {name: [] for name in METRICS}
        for slot in range(host.machine.gpus):
            labels = self._labels(slot)
            for name, value in self._values(slot).items():
                found[name].append(
                    f"{name}{{{labels}}} {value:g}" if value < 1e6 else f"{name}{{{labels}}} {value:.0f}"
                )
        return found

    def _labels(self, slot: int) -> str:
        host = self._host
        known = {
            "gpu": str(slot),
            "UUID": f"GPU-{host.machine.parts[slot].uuid}",
            "pci_bus_id": f"00000000:{0x18 + slot * 0x11:02X}:00.0",
            "device": f"nvidia{slot}",
            "modelName": GPU_NAME,
            "Hostname": host.machine.name,
            "DCGM_FI_DRIVER_VERSION": host.loaded.release if host.loaded else "",
        }
        return ",".join(f'{name}="{value}"' for name, value in known.items())

    def _values(self, slot: int) -> dict[str, float]:
        host, now = self._host, self._heat.now(slot)
        clock = host.machine.clock.now()
        flutter = host.site.performance.noise("metrics", host.machine.name, slot, int(clock // 15))
        busy = 1.0 if now.busy else 0.0
        used = _BUSY_MIB * busy
        tensor = _TENSOR_SHARE * busy * (now.clock_mhz / 1980) * (1 + 0.01 * flutter)
        return {
            "DCGM_FI_DEV_SM_CLOCK": now.clock_mhz,
            "DCGM_FI_DEV_MEM_CLOCK": 2619,
            "DCGM_FI_DEV_MEMORY_TEMP": round(now.celsius + 9),
            "DCGM_FI_DEV_GPU_TEMP": round(now.celsius),
            "DCGM_FI_DEV_POWER_USAGE": round(now.watts * (1 + 0.01 * flutter), 3),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(host.up_seconds * 210_000),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
            "DCGM_FI_DEV_GPU_UTIL": round(97 * busy),
            "DCGM_FI_DEV_MEM_COPY_UTIL": round(61 * busy),
            "DCGM_FI_DEV_XID_ERRORS": self._xids.last.get(slot, 0),
            "DCGM_FI_DEV_FB_FREE": _MEMORY_MIB - used,
            "DCGM_FI_DEV_FB_USED": used,
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": now.mask,
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(tensor, 6),
        }


def exposition(hosts: Iterable[Mapping[str, list[str]]]) -> str:
    """The samples of all hosts together, metric by metric."""
    every = list(hosts)
    text: list[str] = []
    for name, (kind, help_text) in METRICS.items():
        lines = [line for samples in every for line in samples.get(name, ())]
        if lines:
            text += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *lines]
    return "".join(f"{line}\n" for line in text)

"""Which NVML call gives which attribute, in which unit. Names are those that the controller's readings use.

Sources: NVML's reference (nvml.h) for calls, units and enumerations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[..., object]


class Call(NamedTuple):
    """`names` are filled from what the first of `functions` that the library has returns, through `convert`."""

    names: str
    functions: str
    args: tuple[int, ...] = ()
    convert: Convert | None = None


class Field(NamedTuple):
    """An attribute that nvmlDeviceGetFieldValues gives; `scope` as NVML defines it for that field."""

    name: str
    field: int
    scope: int = 0
    divide_by: int = 1
    kind: str = "number"


def mib(count: int) -> int:
    return count >> 20


def watts(milliwatts: int) -> float:
    return milliwatts / 1000


def bits(name: str) -> Convert:
    return lambda value: name % value


def words(*known: str) -> Convert:
    """The word of an enumeration; a number that is not in it stays a number, in words."""
    return lambda value: known[value] if 0 <= value < len(known) else f"value {value}"


def flags(values: list[int]) -> tuple[bool, ...]:
    return tuple(bool(value) for value in values)


_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_BRANDS = ("Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NVIDIA vApps", "NVIDIA vPC", "NVIDIA vCS")
_BRANDS_ON = ("NVIDIA vWS", "NVIDIA vGaming", "Quadro RTX", "NVIDIA RTX", "NVIDIA", "GeForce RTX", "Titan RTX")
_EVENTS = (
    "event_gpu_idle event_applications_clocks event_sw_power_cap event_hw_slowdown event_sync_boost "
    "event_sw_thermal_slowdown event_hw_thermal_slowdown event_hw_power_brake event_display_clocks"
)
_MEMORY = "memory_total_mib memory_free_mib memory_used_mib"


def _events(mask: int) -> tuple[bool, ...]:
    return tuple(bool(mask >> bit & 1) for bit in range(9))


def _pci(info: object) -> tuple[str, str, str]:
    raw = "domain bus device pciDeviceId pciSubSystemId"
    domain, bus, device, ident, subsystem = (getattr(info, name) for name in raw.split())
    return f"{domain:04x}:{bus:02x}:{device:02x}.0", f"{ident:08X}", f"{subsystem:08X}"


def _attribute(name: str) -> Convert:
    return lambda value: getattr(value, name)


def _pstate(number: int) -> str | None:
    return None if number == 32 else f"P{number}"


def _ecc() -> tuple[Call, ...]:
    """Counts by scope (0 volatile, 1 aggregate), severity (0 corrected, 1 not) and place."""
    calls = []
    for counter, scope in enumerate(("volatile", "aggregate")):
        for error, severity in enumerate(("correctable", "uncorrectable")):
            calls.append(Call(f"ecc_{scope}_{severity}", "nvmlDeviceGetTotalEccErrors", (error, counter)))
            for place, number in (("dram", 2), ("sram", 7), ("register_file", 3), ("l1", 0), ("l2", 1)):
                if place in ("dram", "sram") or error:
                    name = f"ecc_{scope}_{place}_{severity}"
                    calls.append(Call(name, "nvmlDeviceGetMemoryErrorCounter", (error, counter, number)))
    return tuple(calls)


GROUPS: dict[str, tuple[Call, ...]] = {
    "identity": (
        Call("uuid", "nvmlDeviceGetUUID"),
        Call("serial", "nvmlDeviceGetSerial"),
        Call("pci_address pci_device_id pci_subsystem_id", "nvmlDeviceGetPciInfo_v3", (), _pci),
        Call("product_name", "nvmlDeviceGetName"),
        Call("brand", "nvmlDeviceGetBrand", (), words(*_BRANDS, *_BRANDS_ON)),
        Call("architecture", "nvmlDeviceGetArchitecture", (), lambda n: _ARCHITECTURES.get(n, f"value {n}")),
        Call("compute_capability", "nvmlDeviceGetCudaComputeCapability", (), lambda pair: f"{pair[0]}.{pair[1]}"),
        Call("minor_number", "nvmlDeviceGetMinorNumber"),
        Call("board_id", "nvmlDeviceGetBoardId", (), bits("0x%x")),
        Call("board_part_number", "nvmlDeviceGetBoardPartNumber"),
        Call("pdi", "nvmlDeviceGetPdi", (), bits("0x%016x")),
        Call("module_id", "nvmlDeviceGetModuleId"),
        Call("vbios_version", "nvmlDeviceGetVbiosVersion"),
        Call("inforom_image", "nvmlDeviceGetInforomImageVersion"),
        Call("inforom_oem", "nvmlDeviceGetInforomVersion", (0,)),
        Call("inforom_ecc", "nvmlDeviceGetInforomVersion", (1,)),
        Call("inforom_power", "nvmlDeviceGetInforomVersion", (2,)),
        Call("gsp_firmware_version", "nvmlDeviceGetGspFirmwareVersion"),
    ),
    "modes": (
        Call("persistence_mode", "nvmlDeviceGetPersistenceMode", (), bool),
        Call("display_active", "nvmlDeviceGetDisplayActive", (), bool),
        Call("accounting_mode", "nvmlDeviceGetAccountingMode", (), bool),
        Call("addressing_mode", "nvmlDeviceGetAddressingMode", (), words("None", "HMM", "ATS")),
        Call(
            "virtualization_mode",
            "nvmlDeviceGetVirtualizationMode",
            (),
            words("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"),
        ),
        Call("c2c_mode", "nvmlDeviceGetC2cModeInfoV", (), lambda info: bool(info.isC2cEnabled)),
        Call(
            "compute_mode",
            "nvmlDeviceGetComputeMode",
            (),
            words("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"),
        ),
        Call("performance_state", "nvmlDeviceGetPerformanceState", (), _pstate),
        Call("mig_mode_current mig_mode_pending", "nvmlDeviceGetMigMode", (), flags),
        Call("ecc_mode_current ecc_mode_pending", "nvmlDeviceGetEccMode", (), flags),
        Call("dram_encryption_current dram_encryption_pending", "nvmlDeviceGetDramEncryptionMode", (), flags),
    ),
    "ecc": (
        *_ecc(),
        Call("channel_repair_pending tpc_repair_pending", "nvmlDeviceGetRepairStatus", (), flags),
        Call("unrepairable_memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1", (), bool),
        Call(
            "remapped_rows_correctable remapped_rows_uncorrectable remapped_rows_pending remapped_rows_failure",
            "nvmlDeviceGetRemappedRows",
            (),
            lambda rows: (rows[0], rows[1], bool(rows[2]), bool(rows[3])),
        ),
        Call(
            "remap_banks_max remap_banks_high remap_banks_partial remap_banks_low remap_banks_none",
            "nvmlDeviceGetRowRemapperHistogram",
            (),
            lambda banks: (banks.max, banks.high, banks.partial, banks.low, banks.none),
        ),
        Call("retired_pages_single_bit", "nvmlDeviceGetRetiredPages", (0,), len),
        Call("retired_pages_double_bit", "nvmlDeviceGetRetiredPages", (1,), len),
        Call("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", (), bool),
    ),
    "clocks": (
        Call("clock_graphics_mhz", "nvmlDeviceGetClockInfo", (0,)),
        Call("clock_sm_mhz", "nvmlDeviceGetClockInfo", (1,)),
        Call("clock_memory_mhz", "nvmlDeviceGetClockInfo", (2,)),
        Call("clock_video_mhz", "nvmlDeviceGetClockInfo", (3,)),
        Call("clock_application_graphics_mhz", "nvmlDeviceGetApplicationsClock", (0,)),
        Call("clock_application_memory_mhz", "nvmlDeviceGetApplicationsClock", (2,)),
        Call("clock_max_graphics_mhz", "nvmlDeviceGetMaxClockInfo", (0,)),
        Call("clock_max_sm_mhz", "nvmlDeviceGetMaxClockInfo", (1,)),
        Call("clock_max_memory_mhz", "nvmlDeviceGetMaxClockInfo", (2,)),
        Call(
            _EVENTS,
            "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons",
            (),
            _events,
        ),
    ),
    "power": (
        Call("power_draw_watts", "nvmlDeviceGetPowerUsage", (), watts),
        Call("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", (), watts),
        Call("power_limit_requested_watts", "nvmlDeviceGetPowerManagementLimit", (), watts),
        Call("power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit", (), watts),
        Call(
            "power_limit_min_watts power_limit_max_watts",
            "nvmlDeviceGetPowerManagementLimitConstraints",
            (),
            lambda pair: (pair[0] / 1000, pair[1] / 1000),
        ),
        Call("temperature_gpu_celsius", "nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV", (0,)),
        Call("temperature_margin_celsius", "nvmlDeviceGetMarginTemperature"),
        Call("temperature_shutdown_celsius", "nvmlDeviceGetTemperatureThreshold", (0,)),
        Call("temperature_slowdown_celsius", "nvmlDeviceGetTemperatureThreshold", (1,)),
        Call("temperature_memory_max_celsius", "nvmlDeviceGetTemperatureThreshold", (2,)),
        Call("temperature_max_celsius", "nvmlDeviceGetTemperatureThreshold", (3,)),
        Call("fan_speed_percent", "nvmlDeviceGetFanSpeed"),
    ),
    "pcie": (
        Call("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        Call("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
        Call("pcie_generation_device_max", "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        Call("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        Call("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
        Call("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    ),
    "memory": (
        Call("bar1_total_mib", "nvmlDeviceGetBAR1MemoryInfo", (), lambda info: mib(info.bar1Total)),
        Call("bar1_used_mib", "nvmlDeviceGetBAR1MemoryInfo", (), lambda info: mib(info.bar1Used)),
        Call("utilization_gpu_percent", "nvmlDeviceGetUtilizationRates", (), _attribute("gpu")),
        Call("utilization_memory_percent", "nvmlDeviceGetUtilizationRates", (), _attribute("memory")),
        Call("utilization_encoder_percent", "nvmlDeviceGetEncoderUtilization", (), lambda pair: pair[0]),
        Call("utilization_decoder_percent", "nvmlDeviceGetDecoderUtilization", (), lambda pair: pair[0]),
        Call("utilization_jpeg_percent", "nvmlDeviceGetJpgUtilization", (), lambda pair: pair[0]),
        Call("utilization_ofa_percent", "nvmlDeviceGetOfaUtilization", (), lambda pair: pair[0]),
    ),
}

FIELDS: tuple[Field, ...] = (
    Field("temperature_memory_celsius", 82),
    Field("pcie_replay_rollovers", 95),
    Field("power_draw_average_watts", 185, 0, 1000),
    Field("power_draw_instant_watts", 186, 0, 1000),
    Field("module_power_draw_watts", 185, 1, 1000),
    Field("memory_power_draw_watts", 185, 2, 1000),
    Field("module_power_limit_watts", 190, 1, 1000),
    Field("temperature_shutdown_margin_celsius", 193),
    Field("temperature_slowdown_margin_celsius", 194),
    Field("temperature_max_margin_celsius", 196),
    Field("reset_required", 226, kind="flag"),
    Field("drain_and_reset_recommended", 227, kind="flag"),
    Field("recovery_action", 230, kind="word"),
    Field("counter_sw_power_cap_us", 74, 0, 1000),
    Field("counter_sw_thermal_slowdown_us", 269, 0, 1000),
    Field("counter_hw_thermal_slowdown_us", 270, 0, 1000),
    Field("counter_hw_power_brake_us", 271, 0, 1000),
    Field("remapped_rows_correctable_inactive", 301),
    Field("remapped_rows_uncorrectable_inactive", 302),
)

LINK_FIELDS: tuple[Field, ...] = (
    Field("replay", 161),
    Field("recovery", 162),
    Field("crc", 163),
    Field("speed_mbps", 164),
    Field("rx_errors", 208),
    Field("rx_remote_errors", 209),
    Field("malformed_packets", 206),
    Field("buffer_overruns", 207),
    Field("integrity_errors", 211),
    Field("tx_discards", 212),
    Field("recovery_successful", 213),
    Field("recovery_failed", 214),
    Field("effective_errors", 219),
    Field("symbol_errors", 221),
)
"""Counters of one NVLink; the scope is the link's number."""

MEMORY_V1 = _MEMORY
MEMORY_V2 = f"{_MEMORY} memory_reserved_mib"

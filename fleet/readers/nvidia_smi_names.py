"""How nvidia-smi names each attribute, from driver 390 to 610, in XML, text and CSV; and what all readers share.

A name is compared folded: lower case, only letters and digits, "/" between a section and what it holds. So
`<platformInfo><slot_number>`, "Platform Info / Slot Number" and `platform.slot_number` need two names, not three.
Sources: nvidia-smi's DTDs v9 to v13, its -q output, and `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

_ECC_LOCATIONS: Mapping[str, tuple[str, str]] = {
    "register_file_uncorrectable": ("double_bit/register_file", "register_file"),
    "l1_uncorrectable": ("double_bit/l1_cache", "l1_cache"),
    "l2_uncorrectable": ("double_bit/l2_cache", "l2_cache"),
    "uncorrectable": ("double_bit/total", "total"),
}

_NAMES: Mapping[str, str] = {
    "index": "index",
    "uuid": "uuid | gpu_uuid",
    "serial": "serial | serial_number | gpu_serial",
    "pci_address": "pci/pci_bus_id | pci/bus_id | pci.bus_id | gpu_bus_id",
    "pci_device_id": "pci/pci_device_id | pci/device_id | pci.device_id",
    "pci_subsystem_id": "pci/pci_sub_system_id | pci/sub_system_id | pci.sub_device_id",
    "product_name": "product_name | name | gpu_name",
    "brand": "product_brand",
    "architecture": "product_architecture",
    "compute_capability": "compute_cap",
    "minor_number": "minor_number",
    "board_id": "board_id",
    "board_part_number": "board_part_number",
    "gpu_part_number": "gpu_part_number",
    "fru_part_number": "gpu_fru_part_number | fru_part_number",
    "pdi": "pdi | gpu_pdi",
    "vbios_version": "vbios_version",
    "inforom_image": "inforom_version/img_version | inforom_version/image_version | inforom.img | inforom.image",
    "inforom_oem": "inforom_version/oem_object | inforom.oem",
    "inforom_ecc": "inforom_version/ecc_object | inforom.ecc",
    "inforom_checksum_valid": "inforom.checksum_validation | inforom_checksum_validation"
    " | inforom_version/checksum_validation",
    "inforom_power": "inforom_version/pwr_object | inforom_version/power_management_object | inforom.pwr"
    " | inforom.power",
    "gsp_firmware_version": "gsp_firmware_version",
    "driver_version": "driver_version | kmd_version",
    "module_id": "platform_info/module_id | gpu_module_id | platform.module_id | module_id",
    "chassis_serial": "platform_info/chassis_serial_number | platform.chassis_serial_number",
    "slot_number": "platform_info/slot_number | platform.slot_number",
    "tray_index": "platform_info/tray_index | platform.tray_index",
    "host_id": "platform_info/host_id | platform.host_id",
    "peer_type": "platform_info/peer_type | platform.peer_type",
    "fabric_guid": "platform_info/gpu_fabric_guid | platform.gpu_fabric_guid",
    "persistence_mode": "persistence_mode",
    "display_active": "display_active",
    "accounting_mode": "accounting_mode | accounting.mode",
    "addressing_mode": "addressing_mode",
    "virtualization_mode": "gpu_virtualization_mode/virtualization_mode",
    "c2c_mode": "c2c_mode | gpu_c2c_mode | c2c.mode",
    "egm": "capabilities/egm",
    "compute_mode": "compute_mode",
    "performance_state": "performance_state | pstate",
    "mig_mode_current": "mig_mode/current_mig | mig_mode/current | mig.mode.current",
    "mig_mode_pending": "mig_mode/pending_mig | mig_mode/pending | mig.mode.pending",
    "ecc_mode_current": "ecc_mode/current_ecc | ecc_mode/current | ecc.mode.current",
    "ecc_mode_pending": "ecc_mode/pending_ecc | ecc_mode/pending | ecc.mode.pending",
    "dram_encryption_current": "dram_encryption_mode/current_dram_encryption | dram_encryption_mode/current"
    " | dram_encryption.mode.current",
    "dram_encryption_pending": "dram_encryption_mode/pending_dram_encryption | dram_encryption_mode/pending"
    " | dram_encryption.mode.pending",
    "recovery_action": "gpu_recovery_action",
    "reset_required": "gpu_reset_status/reset_required",
    "drain_and_reset_recommended": "gpu_reset_status/drain_and_reset_recommended",
    "ecc_sram_threshold_exceeded": "ecc_errors/aggregate/sram_threshold_exceeded"
    " | ecc.errors.uncorrected.aggregate.sram.threshold_exceeded",
    "ecc_sram_source_l2": "ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2"
    " | ecc.errors.uncorrected.aggregate.sram.l2",
    "ecc_sram_source_sm": "ecc_errors/aggregate_uncorrectable_sram_sources/sram_sm"
    " | ecc.errors.uncorrected.aggregate.sram.sm",
    "ecc_sram_source_microcontroller": "ecc_errors/aggregate_uncorrectable_sram_sources/sram_microcontroller"
    " | ecc.errors.uncorrected.aggregate.sram.mcu",
    "ecc_sram_source_pcie": "ecc_errors/aggregate_uncorrectable_sram_sources/sram_pcie"
    " | ecc.errors.uncorrected.aggregate.sram.pcie",
    "ecc_sram_source_other": "ecc_errors/aggregate_uncorrectable_sram_sources/sram_other"
    " | ecc.errors.uncorrected.aggregate.sram.other",
    "channel_repair_pending": "ecc_errors/channel_repair_pending",
    "tpc_repair_pending": "ecc_errors/tpc_repair_pending",
    "unrepairable_memory": "ecc_errors/unrepairable_memory",
    "remapped_rows_correctable": "remapped_rows/remapped_row_corr | remapped_rows/correctable_error"
    " | remapped_rows.correctable",
    "remapped_rows_uncorrectable": "remapped_rows/remapped_row_unc | remapped_rows/uncorrectable_error"
    " | remapped_rows.uncorrectable",
    "remapped_rows_correctable_inactive": "remapped_rows/remapped_row_corr_inactive"
    " | remapped_rows/correctable_error_inactive | remapped_rows/inactive_correctable_error",
    "remapped_rows_uncorrectable_inactive": "remapped_rows/remapped_row_unc_inactive"
    " | remapped_rows/uncorrectable_error_inactive | remapped_rows/inactive_uncorrectable_error",
    "remapped_rows_pending": "remapped_rows/remapped_row_pending | remapped_rows/pending | remapped_rows.pending",
    "remapped_rows_failure": "remapped_rows/remapped_row_failure | remapped_rows/remapping_failure_occurred"
    " | remapped_rows/remapping_failure_occured | remapped_rows.failure",
    "retired_pages_single_bit": "retired_pages/multiple_single_bit_retirement/retired_count"
    " | retired_pages/single_bit_ecc | retired_pages.single_bit_ecc.count | retired_pages.sbe",
    "retired_pages_double_bit": "retired_pages/double_bit_retirement/retired_count"
    " | retired_pages/double_bit_ecc | retired_pages.double_bit.count | retired_pages.dbe",
    "retired_pages_pending": "retired_pages/pending_retirement | retired_pages/pending_blacklist"
    " | retired_pages/pending_page_blacklist | retired_pages/pending | retired_pages.pending",
    "clock_graphics_mhz": "clocks/graphics_clock | clocks/graphics | clocks.current.graphics | clocks.gr",
    "clock_sm_mhz": "clocks/sm_clock | clocks/sm | clocks.current.sm | clocks.sm",
    "clock_memory_mhz": "clocks/mem_clock | clocks/memory | clocks.current.memory | clocks.mem",
    "clock_video_mhz": "clocks/video_clock | clocks/video | clocks.current.video | clocks.video",
    "clock_application_graphics_mhz": "applications_clocks/graphics_clock | applications_clocks/graphics"
    " | clocks.applications.graphics | clocks.applications.gr",
    "clock_application_memory_mhz": "applications_clocks/mem_clock | applications_clocks/memory"
    " | clocks.applications.memory | clocks.applications.mem",
    "clock_max_graphics_mhz": "max_clocks/graphics_clock | max_clocks/graphics | clocks.max.graphics | clocks.max.gr",
    "clock_max_sm_mhz": "max_clocks/sm_clock | max_clocks/sm | clocks.max.sm",
    "clock_max_memory_mhz": "max_clocks/mem_clock | max_clocks/memory | clocks.max.memory | clocks.max.mem",
    "power_draw_watts": "power_readings/power_draw | power.draw",
    "power_draw_average_watts": "power_readings/average_power_draw | power.draw.average",
    "power_draw_instant_watts": "power_readings/instant_power_draw | power_readings/instantaneous_power_draw"
    " | power.draw.instant",
    "power_limit_watts": "power_readings/current_power_limit | power_readings/enforced_power_limit"
    " | power_readings/gpu_ceiling_power_limit/current_power_limit | enforced.power.limit"
    " | power_readings/power_limit | power.limit",
    "power_limit_requested_watts": "power_readings/requested_power_limit"
    " | power_readings/gpu_ceiling_power_limit/requested_power_limit",
    "power_limit_default_watts": "power_readings/default_power_limit"
    " | power_readings/gpu_ceiling_power_limit/default_power_limit | power.default_limit",
    "power_limit_min_watts": "power_readings/min_power_limit | power.min_limit",
    "power_limit_max_watts": "power_readings/max_power_limit | power.max_limit",
    "memory_power_draw_watts": "gpu_memory_power_readings/average_power_draw | gpu_memory_power_readings/power_draw",
    "module_power_draw_watts": "module_power_readings/instant_power_draw"
    " | module_power_readings/instantaneous_power_draw | module_power_readings/average_power_draw"
    " | module_power_readings/power_draw | module.power.draw.instant | module.power.draw.average",
    "module_power_limit_watts": "module_power_readings/current_power_limit | module.power.limit"
    " | module.enforced.power.limit",
    "temperature_gpu_celsius": "temperature/gpu_temp | temperature/gpu_current_temp | temperature.gpu",
    "temperature_memory_celsius": "temperature/memory_temp | temperature/memory_current_temp | temperature.memory",
    "temperature_margin_celsius": "temperature/gpu_temp_tlimit | temperature/gpu_t_limit_temp"
    " | temperature/gpu_current_t_limit_temp | temperature.gpu.tlimit",
    "temperature_shutdown_celsius": "temperature/gpu_temp_max_threshold | temperature/gpu_shutdown_temp",
    "temperature_slowdown_celsius": "temperature/gpu_temp_slow_threshold | temperature/gpu_slowdown_temp",
    "temperature_max_celsius": "temperature/gpu_temp_max_gpu_threshold | temperature/gpu_max_operating_temp",
    "temperature_memory_max_celsius": "temperature/gpu_temp_max_mem_threshold | temperature/memory_max_operating_temp",
    "temperature_shutdown_margin_celsius": "temperature/gpu_temp_max_tlimit_threshold"
    " | temperature/gpu_shutdown_t_limit_temp",
    "temperature_slowdown_margin_celsius": "temperature/gpu_temp_slow_tlimit_threshold"
    " | temperature/gpu_slowdown_t_limit_temp",
    "temperature_max_margin_celsius": "temperature/gpu_temp_max_gpu_tlimit_threshold"
    " | temperature/gpu_max_operating_t_limit_temp",
    "fan_speed_percent": "fan_speed",
    "pcie_generation": "pci/gpu_link_info/pcie_gen/current_link_gen | pci/gpu_link_info/pcie_generation/current"
    " | pcie.link.gen.current | pcie.link.gen.gpucurrent",
    "pcie_generation_max": "pci/gpu_link_info/pcie_gen/max_link_gen | pci/gpu_link_info/pcie_generation/max"
    " | pcie.link.gen.max",
    "pcie_generation_device_max": "pci/gpu_link_info/pcie_gen/max_device_link_gen"
    " | pci/gpu_link_info/pcie_generation/device_max | pcie.link.gen.gpumax",
    "pcie_generation_host_max": "pci/gpu_link_info/pcie_gen/max_host_link_gen"
    " | pci/gpu_link_info/pcie_generation/host_max | pcie.link.gen.hostmax",
    "pcie_width": "pci/gpu_link_info/link_widths/current_link_width | pci/gpu_link_info/link_width/current"
    " | pcie.link.width.current",
    "pcie_width_max": "pci/gpu_link_info/link_widths/max_link_width | pci/gpu_link_info/link_width/max"
    " | pcie.link.width.max",
    "pcie_replays": "pci/replay_counter | pci/replays_since_reset",
    "pcie_replay_rollovers": "pci/replay_rollover_counter | pci/replay_number_rollovers",
    "pcie_tx_kb_s": "pci/tx_util | pci/tx_throughput",
    "pcie_rx_kb_s": "pci/rx_util | pci/rx_throughput",
    "bar1_total_mib": "bar1_memory_usage/total",
    "bar1_used_mib": "bar1_memory_usage/used",
    "encoder_sessions": "encoder_stats/session_count | encoder_stats/active_sessions | encoder.stats.session_count",
    "encoder_average_fps": "encoder_stats/average_fps | encoder.stats.average_fps",
    "fabric_state": "fabric/state | fabric.state",
    "fabric_status": "fabric/status | fabric.status",
    "fabric_clique_id": "fabric/clique_id | fabric.clique_id",
    "fabric_cluster_uuid": "fabric/cluster_uuid | fabric.cluster_uuid",
    "fabric_health_summary": "fabric/health/summary | fabric.health.summary",
    "fabric_bandwidth": "fabric/health/bandwidth | fabric.health.bandwidth",
    "fabric_route_recovery": "fabric/health/route_recovery_in_progress | fabric.health.route_recovery_in_progress",
    "fabric_route_unhealthy": "fabric/health/route_unhealthy | fabric.health.route_unhealthy",
    "fabric_access_timeout_recovery": "fabric/health/access_timeout_recovery | fabric.health.access_timeout_recovery",
    "fabric_incorrect_configuration": "fabric/health/incorrect_configuration | fabric.health.incorrect_configuration",
    "fabric_partition_assigned": "fabric/health/partition_assigned | fabric.health.partition_assigned",
}


@lru_cache(maxsize=8192)
def fold(name: str) -> str:
    """A name for comparing; sections that were renamed have their newest name."""
    folded = re.sub(r"[^a-z0-9/]", "", name.lower())
    return folded.replace("pcigpulinkinfo", "gpulinkinfo").replace("gpupowerreadings", "powerreadings")


def _regular() -> Iterator[tuple[str, str]]:
    """Names that follow a rule: by scope, by clocks event, by engine, by histogram bin."""
    for scope in ("volatile", "aggregate"):
        for part in ("sram_correctable", "dram_correctable", "dram_uncorrectable", "sram_uncorrectable",
                     "sram_uncorrectable_parity", "sram_uncorrectable_secded"):  # fmt: skip
            yield f"ecc_{scope}_{part}", f"ecc_errors/{scope}/{part}"
            where, kind = part.split("_")[:2]
            fault = kind.replace("correctable", "corrected")
            yield f"ecc_{scope}_{part}", f"ecc.errors.{fault}.{scope}.{where}{''.join(part.split('_')[2:])}"
        for bits, kind in (("single_bit", "correctable"), ("double_bit", "uncorrectable")):
            yield f"ecc_{scope}_dram_{kind}", f"ecc_errors/{scope}/{bits}/device_memory"
            yield f"ecc_{scope}_dram_{kind}", f"ecc.errors.{kind.replace('able', 'ed')}.{scope}.device_memory"
        yield f"ecc_{scope}_correctable", f"ecc_errors/{scope}/single_bit/total"
        yield f"ecc_{scope}_correctable", f"ecc.errors.corrected.{scope}.total"
        for attribute, (element, column) in _ECC_LOCATIONS.items():
            yield f"ecc_{scope}_{attribute}", f"ecc_errors/{scope}/{element}"
            yield f"ecc_{scope}_{attribute}", f"ecc.errors.uncorrected.{scope}.{column}"
    for attribute, names in {
        "event_gpu_idle": ("gpu_idle", "idle"),
        "event_applications_clocks": ("applications_clocks_setting",),
        "event_sw_power_cap": ("sw_power_cap",),
        "event_hw_slowdown": ("hw_slowdown",),
        "event_hw_thermal_slowdown": ("hw_thermal_slowdown", "hw_slowdown/hw_thermal_slowdown"),
        "event_hw_power_brake": ("hw_power_brake_slowdown", "hw_slowdown/hw_power_brake_slowdown"),
        "event_sync_boost": ("sync_boost",),
        "event_sw_thermal_slowdown": ("sw_thermal_slowdown",),
        "event_display_clocks": ("display_clocks_setting", "display_clock_setting"),
    }.items():
        for name in names:
            for era in ("event", "throttle"):
                yield attribute, f"clocks_{era}_reasons/{name}"
                yield attribute, f"clocks_{era}_reasons/clocks_{era}_reason_{name}"
                yield attribute, f"clocks_{era}_reasons.{name}"
    for attribute, element, text in (
        ("counter_sw_power_cap_us", "sw_power_cap", "sw_power_capping"),
        ("counter_sw_thermal_slowdown_us", "sw_therm_slowdown", "sw_thermal_slowdown"),
        ("counter_hw_thermal_slowdown_us", "hw_therm_slowdown", "hw_thermal_slowdown"),
        ("counter_hw_power_brake_us", "hw_power_brake", "hw_power_braking"),
        ("counter_hw_power_brake_us", "hw_power_brake_slowdown", "hw_power_brake_slowdown"),
    ):
        yield attribute, f"clocks_event_reasons_counters/clocks_event_reasons_counters_{element}"
        yield attribute, f"clocks_event_reasons_counters/{text}"
        yield attribute, f"clocks_event_reasons_counters.{element}"
        yield attribute, f"clocks_event_reasons_counters.{attribute[8:-3]}"
    for engine in ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa"):
        yield f"utilization_{engine}_percent", f"utilization/{engine}_util"
        yield f"utilization_{engine}_percent", f"utilization/{engine}"
        yield f"utilization_{engine}_percent", f"utilization.{engine}"
    for size in ("total", "reserved", "used", "free"):
        yield f"memory_{size}_mib", f"fb_memory_usage/{size}"
        yield f"memory_{size}_mib", f"memory.{size}"
    for bin_ in ("max", "high", "partial", "low", "none"):
        yield f"remap_banks_{bin_}", f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{bin_}"
        yield f"remap_banks_{bin_}", f"remapped_rows/bank_remap_availability_histogram/{bin_}"
        yield f"remap_banks_{bin_}", f"remapped_rows.histogram.{bin_}"


def _table() -> dict[str, tuple[str, int]]:
    pairs = [(attribute, name) for attribute, names in _NAMES.items() for name in names.split(" | ")]
    ranks: dict[str, int] = {}
    table: dict[str, tuple[str, int]] = {}
    for attribute, name in (*pairs, *_regular()):
        rank = ranks[attribute] = ranks.get(attribute, 0) + 1
        table.setdefault(fold(name), (attribute, rank))
    return table


_TABLE: Mapping[str, tuple[str, int]] = _table()


_SECTIONS = frozenset(path[: at.start()] for path in _TABLE for at in re.finditer("/", path))


def is_section(path: str) -> bool:
    """Whether a folded path is a section that holds values with names known here."""
    return path in _SECTIONS


def is_value(path: str) -> bool:
    """Whether a folded path is a value with a name known here."""
    return path in _TABLE


def attribute_of(name: str) -> str | None:
    """The attribute that a path or a CSV column of this name gives, or None."""
    entry = _TABLE.get(fold(name))
    return None if entry is None else entry[0]


def attributes_of(paths: Mapping[str, str]) -> dict[str, str]:
    """Attribute names and texts from folded paths and texts.

    Where two paths give one attribute, the one that has a value wins, and of those the one named first in the table.
    """
    best: dict[str, tuple[bool, int, str]] = {}
    for path, text in paths.items():
        entry = _TABLE.get(path)
        if entry is None:
            continue
        attribute, rank = entry
        candidate = (text.strip().lower() in ("n/a", "[n/a]", ""), rank, text)
        if attribute not in best or candidate[:2] < best[attribute][:2]:
            best[attribute] = candidate
    return {attribute: text for attribute, (_, _, text) in best.items()}

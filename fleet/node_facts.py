"""A node's readings as flat facts: what history, baselines and drift are written in. Names: see fleet/facts.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from fleet.bios import BiosReading
from fleet.facts import NodeFacts, PartFacts
from fleet.findings import Finding
from fleet.gpu import GpuReading
from fleet.inventory_rows import serial_of
from fleet.json_values import text_at
from fleet.model import FirmwareComponent, FirmwareRole, SystemReading
from fleet.node_devices import read_devices
from fleet.node_health import health_of, state_findings
from fleet.node_reading import NodeReading
from fleet.serial_check import check_serial
from fleet.xid_counts import XID_COUNT, XidCounts

# Fact of a GPU → the attributes of GpuReading that it is read from, the first known one counts.
_GPU_FACTS: Mapping[str, tuple[str, ...]] = {
    "model": ("product_name",),
    "part_number": ("board_part_number", "gpu_part_number"),
    "vbios": ("vbios_version",),
    "inforom": ("inforom_image",),
    "gsp_firmware": ("gsp_firmware_version",),
    "module_id": ("module_id",),
    "ecc_mode": ("ecc_mode_current",),
    "ecc_mode_pending": ("ecc_mode_pending",),
    "mig_mode": ("mig_mode_current",),
    "mig_mode_pending": ("mig_mode_pending",),
    "persistence": ("persistence_mode",),
    "compute_mode": ("compute_mode",),
    "virtualization_mode": ("virtualization_mode",),
    "power_limit_watts": ("power_limit_requested_watts", "power_limit_watts"),
    "clock_application_graphics_mhz": ("clock_application_graphics_mhz",),
    "clock_application_memory_mhz": ("clock_application_memory_mhz",),
    "pcie_generation_max": ("pcie_generation_max",),
    "pcie_width_max": ("pcie_width_max",),
    "memory_total_mib": ("memory_total_mib",),
    "recovery_action": ("recovery_action",),
    "remapped_rows_pending": ("remapped_rows_pending",),
    "remapped_rows_failure": ("remapped_rows_failure",),
    "retired_pages_pending": ("retired_pages_pending",),
    "fabric_state": ("fabric_state",),
    "fabric_status": ("fabric_status",),
    "fabric_cluster_uuid": ("fabric_cluster_uuid",),
    "fabric_clique_id": ("fabric_clique_id",),
}
_GPU_NUMBERS = (
    *("temperature_gpu_celsius", "temperature_memory_celsius", "temperature_margin_celsius", "power_draw_watts"),
    *("clock_sm_mhz", "clock_memory_mhz", "utilization_gpu_percent", "utilization_memory_percent", "memory_used_mib"),
    *("pcie_generation", "pcie_width", "pcie_replays", "counter_hw_thermal_slowdown_us", "counter_hw_power_brake_us"),
    *("counter_sw_power_cap_us", "counter_sw_thermal_slowdown_us", "fan_speed_percent"),
    *("ecc_volatile_correctable", "ecc_volatile_uncorrectable", "ecc_aggregate_correctable"),
    *("ecc_aggregate_uncorrectable", "ecc_aggregate_sram_uncorrectable", "ecc_aggregate_dram_uncorrectable"),
    *("remapped_rows_correctable", "remapped_rows_uncorrectable", "remap_banks_none"),
    *("retired_pages_single_bit", "retired_pages_double_bit"),
)
_SWITCHES = {"ecc_mode", "ecc_mode_pending", "mig_mode", "mig_mode_pending", "persistence"}


def facts_of_probe(
    node: str,
    at: datetime,
    reading: NodeReading,
    xids: XidCounts | None = None,
    written_serial: str | None = None,
) -> NodeFacts:
    """What the probe read. A fact that the node could not tell stands in `unknown` with its reason.

    `at` is the controller's time: a node whose clock is wrong must not write its history into the future. `xids` are
    those since the last reading, None where the kernel log was not followed from there. `written_serial` is what the
    fleet file says.
    """
    known = _of_node(reading)
    if written_serial is not None:
        known["host.serial_check"] = check_serial(known["host.serial"], written_serial)
    devices = read_devices(reading.sections)
    known |= devices.facts
    unknown = {name: _why(name, reading.unknown) for name, value in known.items() if value is None}
    unknown |= {**_families_not_read(reading), **devices.unknown}
    gpus = reading.gpus or ()
    if reading.gpus is None:
        unknown["gpus"] = _why("gpus", reading.unknown)
    findings = state_findings(reading)
    if reading.gpus is None:
        unknown["health"] = unknown["gpus"]
    else:
        known["health"] = health_of(findings)
    named = [gpu for gpu in gpus if gpu.pci_address or gpu.serial or gpu.uuid]
    # A GPU without any name would be counted as one more each time: it is no part.
    unknown |= {f"gpus.{gpu.index}": _why_of_gpu(gpu, reading.unknown) for gpu in gpus if gpu not in named}
    return NodeFacts(
        node=node,
        at=at,
        source="probe",
        facts={name: value for name, value in known.items() if value is not None},
        unknown=unknown,
        numbers={
            "probe.wall_seconds": reading.wall_seconds,
            "clock.ahead_seconds": round((reading.at - at).total_seconds(), 1),
            XID_COUNT: None if xids is None else xids.total,
        },
        parts=(*(_part(gpu, reading.unknown, findings, xids) for gpu in named), *devices.parts),
    )


def _of_node(reading: NodeReading) -> dict[str, str | None]:
    """The node's own facts; None where one could not be told."""
    driver = reading.driver
    known: dict[str, str | None] = {
        "hostname": reading.hostname,
        "os.release": reading.os_release,
        "kernel.running": reading.kernel,
        "driver.loaded": driver.loaded,
        "driver.on_disk": driver.on_disk,
        "driver.user_space": driver.user_space,
        "driver.origin": driver.origin,
        "driver.open_module": _word(driver.open_module),
        "driver.kernels_without_module": _listed(driver.kernels_without_module),
        "fabric_manager.version": driver.fabric_manager,
        "container_toolkit.version": driver.container_toolkit,
        "secure_boot": _word(driver.secure_boot),
        "tpm": _word(driver.tpm),
        "gpu.count": None if reading.gpu_count is None else str(reading.gpu_count),
        "gpu.on_bus": None if reading.gpus_on_bus is None else str(reading.gpus_on_bus),
        "host.serial": serial_of(text_at(reading.sections.get("system"), "machine", "product_serial")),
        "probe.state": "read",
    }
    known |= {f"service.{u}": "absent" if s == "not-found" else s for u, s in (reading.services or {}).items()}
    known |= _software(reading)
    known |= {f"package.{package.name}": package.version for package in reading.packages or ()}
    known |= {f"package_held.{package.name}": "yes" for package in reading.packages or () if package.hold}
    return known


def facts_of_bmc(
    node: str,
    at: datetime,
    firmware: Iterable[FirmwareComponent],
    system: SystemReading | None,
    bios: BiosReading | None = None,
    written_serial: str | None = None,
) -> NodeFacts:
    """What the node's BMC showed: the running firmware, what waits for a reset, and the machine itself.

    `bios` are the attributes that somebody wants to know; None where nobody does. `written_serial` is what the fleet
    file says.
    """
    known = {"bmc.state": "read"}
    unknown: dict[str, str] = {}
    if bios is not None:
        known |= {f"bios.{name}": value for name, value in bios.attributes.items()}
        known |= {f"bios_waiting.{name}": value for name, value in bios.waiting.items()}
        unknown |= {f"bios.{name}": why for name, why in bios.unknown.items()}
        unknown |= {"bios_waiting.*": bios.waiting_unknown} if bios.waiting_unknown else {}
    for component in firmware:
        if component.role not in (FirmwareRole.ACTIVE, FirmwareRole.UNKNOWN, FirmwareRole.ABSENT):
            continue
        name = f"firmware.{component.id}"
        if component.role is FirmwareRole.ACTIVE and component.version is not None:
            known[name] = component.version
        else:
            unknown[name] = f"the BMC shows {component.state}, role {component.role.value}"
        if component.staged is not None:
            known[f"firmware_staged.{component.id}"] = component.staged
    if system is not None:
        told = {"system.model": system.model, "system.serial": system.serial, "bios.version": system.bios_version}
        if written_serial is not None:
            told["system.serial_check"] = check_serial(system.serial, written_serial)
        known |= {name: value for name, value in told.items() if value}
        unknown |= {name: "the BMC does not tell it" for name, value in told.items() if not value}
    return NodeFacts(node=node, at=at, source="bmc", facts=known, unknown=unknown)


def facts_of_failure(node: str, at: datetime, state: str, why: str, source: str = "probe") -> NodeFacts:
    """A host or BMC that could not be read: everything else that it told is unknown, with its last value."""
    return NodeFacts(node=node, at=at, source=source, facts={f"{source}.state": state}, unknown={"*": why})


def _software(reading: NodeReading) -> dict[str, str]:
    """Which packages were looked for, unattended upgrades, and the settings by which a node speaks to the outside."""
    known = {f"egress.{way}": setting for way, setting in (reading.egress or {}).items()}
    known |= {"packages.listed": " ".join(reading.packages_listed)} if reading.packages_listed else {}
    if reading.unattended_upgrades is not None:
        known["updates.unattended"] = "on" if reading.unattended_upgrades else "off"
    return known


def _families_not_read(reading: NodeReading) -> dict[str, str]:
    """What was known of these names before is not gone only because their section was not read."""
    read: tuple[tuple[object, str, tuple[str, ...]], ...] = (
        (reading.services, "services", ("service.*",)),
        (reading.packages, "packages", ("package.*", "package_held.*", "packages.listed")),
        (reading.egress, "egress", ("egress.*",)),
        (reading.unattended_upgrades, "updates", ("updates.unattended",)),
    )
    return {
        name: _why(f"packages.{part}", reading.unknown)
        for value, part, names in read
        if value is None
        for name in names
    }


def _why_of_gpu(gpu: GpuReading, reasons: Mapping[str, str]) -> str:
    return reasons.get(f"gpus.{gpu.index}") or ("the GPU is lost" if gpu.lost else "the driver does not tell it")


def _part(
    gpu: GpuReading, reasons: Mapping[str, str], findings: Iterable[Finding], xids: XidCounts | None
) -> PartFacts:
    told = {name: _first(gpu, attributes, name in _SWITCHES) for name, attributes in _GPU_FACTS.items()}
    why = _why_of_gpu(gpu, reasons)
    return PartFacts(
        kind="gpu",
        slot=gpu.pci_address or f"index {gpu.index}",
        serial=gpu.serial,
        uuid=gpu.uuid,
        facts={name: value for name, value in told.items() if value is not None}
        | {"health": health_of(findings, gpu.subject)},
        unknown={name: why for name, value in told.items() if value is None},
        numbers={name: getattr(gpu, name) for name in _GPU_NUMBERS}
        | {XID_COUNT: None if xids is None else xids.of(gpu.pci_address)},
    )


def _first(gpu: GpuReading, attributes: tuple[str, ...], switch: bool) -> str | None:
    value = next((found for name in attributes if (found := getattr(gpu, name)) is not None), None)
    if isinstance(value, bool):
        return ("enabled" if value else "disabled") if switch else _word(value)
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _word(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _listed(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else ", ".join(values) or "none"


# Facts whose path in the probe's document is another one.
_PATHS = {
    "hostname": "system.hostname",
    "os.release": "system.os",
    "kernel.running": "system.kernel",
    "driver.open_module": "driver.loaded",
    "driver.origin": "driver.library_owner",
    "driver.kernels_without_module": "driver.kernels",
    "fabric_manager.version": "driver.fabric_manager",
    "container_toolkit.version": "driver.container_toolkit",
    "secure_boot": "driver.secure_boot",
    "tpm": "driver.tpm",
    "gpu.count": "gpus.source",
    "gpu.on_bus": "pci",
    "gpus": "gpus.source",
    "host.serial": "system.machine",
    "host.serial_check": "system.machine",
}


def _why(name: str, reasons: Mapping[str, str]) -> str:
    """The probe's reason for this fact: of its own path, or of the section that it is part of."""
    parts = _PATHS.get(name, name).split(".")
    paths = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((reasons[path] for path in paths if path in reasons), "the probe did not tell it")

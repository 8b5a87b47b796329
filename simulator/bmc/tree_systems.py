"""The host (System_0) and the GPU baseboard (HGX_Baseboard_0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.bmc.device import RESET_TYPES
from simulator.bmc.host_settings import BOOT_ENABLED, BOOT_MODES, BOOT_TARGETS
from simulator.bmc.tree import OK, ROOT, Doc, Ids, Render, collection, link, resource
from simulator.bmc.tree_services import service_uuid
from simulator.machine import Power

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

HOST = "Systems/System_0"
BOARD = "Systems/HGX_Baseboard_0"
GPU_MODEL = "NVIDIA H100 80GB HBM3"


def power_text(bmc: Bmc) -> str:
    return "On" if bmc.machine.power is Power.ON else "Off"


def idle_or_absent(bmc: Bmc) -> Doc:
    """The status of a part that has power only with the host."""
    return OK if bmc.machine.power is Power.ON else {"State": "StandbyOffline"}


def gpu_number(bmc: Bmc, id_: str) -> int | None:
    """`GPU_SXM_3` → 3, None where the host has no such GPU."""
    text = id_.removeprefix("GPU_SXM_")
    return int(text) if text.isdecimal() and text[0] != "0" and int(text) <= len(bmc.machine.parts) else None


def _systems(_: Bmc, __: Ids) -> Doc:
    return collection("Systems", "ComputerSystem", ["System_0", "HGX_Baseboard_0"])


def _host(bmc: Bmc, _: Ids) -> Doc:
    reset = {
        "target": f"{ROOT}/{HOST}/Actions/ComputerSystem.Reset",
        "ResetType@Redfish.AllowableValues": RESET_TYPES,
    }
    return resource(
        HOST,
        "ComputerSystem.v1_19_0",
        "System_0",
        SystemType="Physical",
        Manufacturer="NVIDIA",
        Model=bmc.machine.model,
        SerialNumber=service_uuid(bmc, "serial")[:13].replace("-", "").upper(),
        UUID=service_uuid(bmc, "system"),
        HostName=bmc.machine.name,
        PowerState=power_text(bmc),
        PowerRestorePolicy="LastState",
        LastResetTime=bmc.host_last_reset,
        BiosVersion=bmc.shown_version("HostBIOS_0"),
        Boot=_boot(bmc),
        BootProgress={"LastState": _boot_progress(bmc)},
        ProcessorSummary={"Count": 2, "CoreCount": 112, "Model": "Intel Xeon Platinum 8480C"},
        MemorySummary={"TotalSystemMemoryGiB": 2048},
        Bios=link(f"{HOST}/Bios"),
        SecureBoot=link(f"{HOST}/SecureBoot"),
        LogServices=link(f"{HOST}/LogServices"),
        Links={"Chassis": [link("Chassis/Chassis_0")], "ManagedBy": [link("Managers/BMC_0")]},
        Status=idle_or_absent(bmc),
        Actions={"#ComputerSystem.Reset": reset},
    )


def _boot(bmc: Bmc) -> Doc:
    boot = bmc.settings.boot
    return {
        "BootSourceOverrideEnabled": boot["Enabled"],
        "BootSourceOverrideEnabled@Redfish.AllowableValues": BOOT_ENABLED,
        "BootSourceOverrideTarget": boot["Target"],
        "BootSourceOverrideTarget@Redfish.AllowableValues": BOOT_TARGETS,
        "BootSourceOverrideMode": boot["Mode"],
        "BootSourceOverrideMode@Redfish.AllowableValues": BOOT_MODES,
    }


def _boot_progress(bmc: Bmc) -> str:
    if bmc.machine.power is Power.OFF:
        return "None"
    return "OSRunning" if bmc.machine.up else "SystemHardwareInitializationComplete"


def _bios(bmc: Bmc, _: Ids) -> Doc:
    settings = {"@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": link(f"{HOST}/Bios/Settings")}
    return resource(
        f"{HOST}/Bios",
        "Bios.v1_2_0",
        "BIOS Configuration",
        Attributes=bmc.settings.bios,
        **{"@Redfish.Settings": {**settings, "SupportedApplyTimes": ["OnReset"]}},
    )


def _bios_settings(bmc: Bmc, _: Ids) -> Doc:
    doc = resource(f"{HOST}/Bios/Settings", "Bios.v1_2_0", "BIOS Configuration Pending Settings")
    return doc | {"Attributes": bmc.settings.pending_bios}


def _secure_boot(bmc: Bmc, _: Ids) -> Doc:
    return resource(
        f"{HOST}/SecureBoot",
        "SecureBoot.v1_1_0",
        "UEFI Secure Boot",
        SecureBootEnable=bmc.settings.secure_boot_enable,
        SecureBootCurrentBoot="Enabled" if bmc.settings.secure_boot_current else "Disabled",
        SecureBootMode="UserMode",
    )


def _board(bmc: Bmc, _: Ids) -> Doc:
    count = len(bmc.machine.parts)
    return resource(
        BOARD,
        "ComputerSystem.v1_19_0",
        "HGX_Baseboard_0",
        SystemType="Physical",
        Manufacturer="NVIDIA",
        Model=f"HGX H100 {count}-GPU",
        SerialNumber=service_uuid(bmc, "board")[:13].replace("-", "").upper(),
        UUID=service_uuid(bmc, "board"),
        PowerState=power_text(bmc),
        MemorySummary={"TotalSystemMemoryGiB": 80 * count},
        Processors=link(f"{BOARD}/Processors"),
        Links={"Chassis": [link("Chassis/HGX_Chassis_0")], "ManagedBy": [link("Managers/HGX_BMC_0")]},
        Status=idle_or_absent(bmc),
    )


def _processors(bmc: Bmc, _: Ids) -> Doc:
    ids = [f"GPU_SXM_{n}" for n in range(1, len(bmc.machine.parts) + 1)]
    return collection(f"{BOARD}/Processors", "Processor", ids)


def _gpu(bmc: Bmc, ids: Ids) -> Doc | None:
    number = gpu_number(bmc, ids[0])
    if number is None:
        return None
    part = bmc.machine.parts[number - 1]
    path = f"{BOARD}/Processors/{ids[0]}"
    return resource(
        path,
        "Processor.v1_16_0",
        ids[0],
        ProcessorType="GPU",
        Manufacturer="NVIDIA",
        Model=GPU_MODEL,
        PartNumber=part.part_number,
        SerialNumber=part.serial,
        UUID=part.uuid,
        FirmwareVersion=bmc.shown_version(f"HGX_FW_{ids[0]}"),
        MaxSpeedMHz=1980,
        MinSpeedMHz=345,
        MemorySummary={"TotalMemorySizeMiB": 81920, "ECCModeEnabled": True},
        Metrics=link(f"{path}/ProcessorMetrics"),
        EnvironmentMetrics=link(f"{path}/EnvironmentMetrics"),
        Links={"Chassis": link(f"Chassis/HGX_{ids[0]}")},
        Status=idle_or_absent(bmc),
    )


def _processor_metrics(bmc: Bmc, ids: Ids) -> Doc | None:
    if gpu_number(bmc, ids[0]) is None:
        return None
    return resource(
        f"{BOARD}/Processors/{ids[0]}/ProcessorMetrics",
        "ProcessorMetrics.v1_6_0",
        f"{ids[0]} Processor Metrics",
        OperatingSpeedMHz=1755,
        BandwidthPercent=0.0,
        PCIeErrors={
            "CorrectableErrorCount": 0,
            "FatalErrorCount": 0,
            "NonFatalErrorCount": 0,
            "ReplayCount": 0,
        },
    )


def _environment(bmc: Bmc, ids: Ids) -> Doc | None:
    number = gpu_number(bmc, ids[0])
    if number is None:
        return None
    on = bmc.machine.power is Power.ON
    return resource(
        f"{BOARD}/Processors/{ids[0]}/EnvironmentMetrics",
        "EnvironmentMetrics.v1_3_0",
        f"{ids[0]} Environment Metrics",
        TemperatureCelsius={"Reading": 31.0 + number if on else None},
        PowerWatts={"Reading": 72.0 + number if on else None},
    )


SYSTEMS: dict[str, Render] = {
    "Systems": _systems,
    HOST: _host,
    f"{HOST}/Bios": _bios,
    f"{HOST}/Bios/Settings": _bios_settings,
    f"{HOST}/SecureBoot": _secure_boot,
    BOARD: _board,
    f"{BOARD}/Processors": _processors,
    f"{BOARD}/Processors/{{}}": _gpu,
    f"{BOARD}/Processors/{{}}/ProcessorMetrics": _processor_metrics,
    f"{BOARD}/Processors/{{}}/EnvironmentMetrics": _environment,
}

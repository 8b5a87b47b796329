"""Chassis with their sensors, managers, and log services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.bmc.events import CAPACITY, Event
from simulator.bmc.tree import OK, ROOT, Doc, Ids, Render, collection, link, resource
from simulator.bmc.tree_services import service_uuid
from simulator.bmc.tree_systems import GPU_MODEL, HOST, gpu_number, idle_or_absent, power_text
from simulator.machine import Power

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

AUX_RESET_PATH = "Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"
AUX_RESET_INFO = "Chassis/BMC_0/Oem/Nvidia/AuxPowerResetActionInfo"
_SYSTEM_OF = {"BMC_0": "System_0", "Chassis_0": "System_0", "HGX_Chassis_0": "HGX_Baseboard_0"}


def _chassis_ids(bmc: Bmc) -> list[str]:
    return [*_SYSTEM_OF, *(f"HGX_GPU_SXM_{n}" for n in range(1, len(bmc.machine.parts) + 1))]


def _chassis_collection(bmc: Bmc, _: Ids) -> Doc:
    return collection("Chassis", "Chassis", _chassis_ids(bmc))


def _chassis(bmc: Bmc, ids: Ids) -> Doc | None:
    id_ = ids[0]
    if id_ not in _SYSTEM_OF:
        return _gpu_chassis(bmc, id_)
    manager = "HGX_BMC_0" if id_.startswith("HGX_") else "BMC_0"
    doc = resource(
        f"Chassis/{id_}",
        "Chassis.v1_21_0",
        id_,
        ChassisType={"BMC_0": "Component", "Chassis_0": "RackMount"}.get(id_, "Zone"),
        Manufacturer="NVIDIA",
        Model=bmc.machine.model,
        SerialNumber=service_uuid(bmc, id_)[:13].replace("-", "").upper(),
        PowerState=power_text(bmc),
        Sensors=link(f"Chassis/{id_}/Sensors"),
        Links={
            "ComputerSystems": [link(f"Systems/{_SYSTEM_OF[id_]}")],
            "ManagedBy": [link(f"Managers/{manager}")],
        },
        Status=OK,
    )
    if id_ == "BMC_0":
        reset = {"target": f"{ROOT}/{AUX_RESET_PATH}", "@Redfish.ActionInfo": f"{ROOT}/{AUX_RESET_INFO}"}
        doc["Actions"] = {"Oem": {"#NvidiaChassis.AuxPowerReset": reset}}
    return doc


def _gpu_chassis(bmc: Bmc, id_: str) -> Doc | None:
    gpu = id_.removeprefix("HGX_")
    number = gpu_number(bmc, gpu) if id_.startswith("HGX_") else None
    if number is None:
        return None
    part = bmc.machine.parts[number - 1]
    return resource(
        f"Chassis/{id_}",
        "Chassis.v1_21_0",
        id_,
        ChassisType="Component",
        Manufacturer="NVIDIA",
        Model=GPU_MODEL,
        PartNumber=part.part_number,
        SerialNumber=part.serial,
        UUID=part.uuid,
        Links={
            "ContainedBy": link("Chassis/HGX_Chassis_0"),
            "Processors": [link(f"Systems/HGX_Baseboard_0/Processors/{gpu}")],
            "ManagedBy": [link("Managers/HGX_BMC_0")],
        },
        Status=idle_or_absent(bmc),
    )


def _aux_reset_info(_: Bmc, __: Ids) -> Doc:
    parameter = {
        "Name": "ResetType",
        "Required": True,
        "DataType": "String",
        "AllowableValues": ["AuxPowerCycle"],
    }
    return resource(AUX_RESET_INFO, "ActionInfo.v1_3_0", "Auxiliary Power Reset Action Info", Parameters=[parameter])


def _sensors(bmc: Bmc, chassis: str) -> dict[str, tuple[str, str, str, float]]:
    """Name → (ReadingType, unit, PhysicalContext, reading with the host on)."""
    if chassis == "BMC_0":
        return {"BMC_0_Temp_0": ("Temperature", "Cel", "SystemBoard", 38.5)}
    if chassis == "Chassis_0":
        fans = {f"Fan_{n}_Speed": ("Rotational", "RPM", "Fan", 7200.0 + 10 * n) for n in range(6)}
        power = {f"PSU_{n}_Power": ("Power", "W", "PowerSupply", 610.0 + n) for n in range(6)}
        inlet = round(bmc.machine.inlet_celsius(), 1)
        return {"Inlet_0_Temp_0": ("Temperature", "Cel", "Intake", inlet), **fans, **power}
    gpus = range(1, len(bmc.machine.parts) + 1)
    temps = {f"GPU_SXM_{n}_Temp_0": ("Temperature", "Cel", "GPU", 31.0 + n) for n in gpus}
    power = {f"GPU_SXM_{n}_Power_0": ("Power", "W", "GPU", 72.0 + n) for n in gpus}
    inlet = round(bmc.machine.inlet_celsius() + 2.0, 1)
    return {"HGX_Inlet_0_Temp_0": ("Temperature", "Cel", "Intake", inlet), **temps, **power}


def _sensor_collection(bmc: Bmc, ids: Ids) -> Doc | None:
    if ids[0] not in _SYSTEM_OF:
        return None
    return collection(f"Chassis/{ids[0]}/Sensors", "Sensor", list(_sensors(bmc, ids[0])))


def _sensor(bmc: Bmc, ids: Ids) -> Doc | None:
    found = _sensors(bmc, ids[0]).get(ids[1]) if ids[0] in _SYSTEM_OF else None
    if found is None:
        return None
    kind, unit, context, reading = found
    standby = context in {"SystemBoard", "Intake"}
    alive = standby or bmc.machine.power is Power.ON
    return resource(
        f"Chassis/{ids[0]}/Sensors/{ids[1]}",
        "Sensor.v1_6_0",
        ids[1].replace("_", " "),
        ReadingType=kind,
        ReadingUnits=unit,
        PhysicalContext=context,
        Reading=reading if alive else None,
        Status={"State": "Enabled", "Health": "OK"} if alive else {"State": "UnavailableOffline"},
    )


def _managers(_: Bmc, __: Ids) -> Doc:
    return collection("Managers", "Manager", ["BMC_0", "HGX_BMC_0"])


def _manager(bmc: Bmc, ids: Ids) -> Doc | None:
    if ids[0] == "HGX_BMC_0":
        return _hgx_manager(bmc)
    if ids[0] != "BMC_0":
        return None
    target = f"{ROOT}/Managers/BMC_0/Actions/Manager.Reset"
    allowed = ["GracefulRestart", "ForceRestart"]
    return resource(
        "Managers/BMC_0",
        "Manager.v1_16_0",
        "OpenBmc Manager",
        ManagerType="BMC",
        Model="OpenBmc",
        FirmwareVersion=bmc.shown_version("FW_BMC_0"),
        UUID=service_uuid(bmc, "BMC_0"),
        ServiceEntryPointUUID=service_uuid(bmc, "service"),
        DateTime=bmc.time_text(),
        DateTimeLocalOffset="+00:00",
        LastResetTime=bmc.bmc_last_reset,
        PowerState="On",
        LogServices=link("Managers/BMC_0/LogServices"),
        Links={
            "ActiveSoftwareImage": link("UpdateService/FirmwareInventory/FW_BMC_0"),
            "SoftwareImages": [link("UpdateService/FirmwareInventory/FW_BMC_0")],
            "ManagerForServers": [link("Systems/System_0")],
            "ManagerForChassis": [link("Chassis/BMC_0")],
        },
        Actions={"#Manager.Reset": {"target": target, "ResetType@Redfish.AllowableValues": allowed}},
        Status=OK,
    )


def _hgx_manager(bmc: Bmc) -> Doc:
    return resource(
        "Managers/HGX_BMC_0",
        "Manager.v1_16_0",
        "HGX Manager",
        ManagerType="BMC",
        FirmwareVersion=bmc.shown_version("HGX_FW_BMC_0"),
        UUID=service_uuid(bmc, "HGX_BMC_0"),
        PowerState=power_text(bmc),
        Links={
            "ActiveSoftwareImage": link("UpdateService/FirmwareInventory/HGX_FW_BMC_0"),
            "SoftwareImages": [link("UpdateService/FirmwareInventory/HGX_FW_BMC_0")],
            "ManagerForServers": [link("Systems/HGX_Baseboard_0")],
            "ManagerForChassis": [link("Chassis/HGX_Chassis_0")],
        },
        Status=OK,
    )


def _log_services(owner: str) -> Render:
    return lambda _, __: collection(f"{owner}/LogServices", "LogService", ["SEL"])


def _log_service(owner: str) -> Render:
    path = f"{owner}/LogServices/SEL"

    def render(bmc: Bmc, _: Ids) -> Doc:
        return resource(
            path,
            "LogService.v1_3_1",
            "SEL Log Service",
            LogEntryType="SEL",
            OverWritePolicy="WrapsWhenFull",
            MaxNumberOfRecords=CAPACITY,
            DateTime=bmc.time_text(),
            DateTimeLocalOffset="+00:00",
            Entries=link(f"{path}/Entries"),
            Actions={"#LogService.ClearLog": {"target": f"{ROOT}/{path}/Actions/LogService.ClearLog"}},
            Status={"State": "Enabled", "Health": "OK"},
        )

    return render


def _entry_doc(path: str, event: Event) -> Doc:
    return resource(
        f"{path}/{event.id}",
        "LogEntry.v1_13_0",
        "System Event Log Entry",
        EntryType="Event",
        Severity=event.severity,
        Created=event.created,
        Message=event.message,
    )


def _entries(owner: str) -> Render:
    path = f"{owner}/LogServices/SEL/Entries"

    def render(bmc: Bmc, _: Ids) -> Doc:
        doc = collection(path, "LogEntry", [])
        members = [_entry_doc(path, event) for event in bmc.events.entries]
        return doc | {"Members": members, "Members@odata.count": len(members)}

    return render


def _entry(owner: str) -> Render:
    path = f"{owner}/LogServices/SEL/Entries"

    def render(bmc: Bmc, ids: Ids) -> Doc | None:
        event = bmc.events.find(ids[0])
        return _entry_doc(path, event) if event else None

    return render


def _logs(owner: str) -> dict[str, Render]:
    return {
        f"{owner}/LogServices": _log_services(owner),
        f"{owner}/LogServices/SEL": _log_service(owner),
        f"{owner}/LogServices/SEL/Entries": _entries(owner),
        f"{owner}/LogServices/SEL/Entries/{{}}": _entry(owner),
    }


CHASSIS: dict[str, Render] = {
    "Chassis": _chassis_collection,
    "Chassis/{}": _chassis,
    "Chassis/{}/Sensors": _sensor_collection,
    "Chassis/{}/Sensors/{}": _sensor,
    AUX_RESET_INFO: _aux_reset_info,
    "Managers": _managers,
    "Managers/{}": _manager,
    **_logs(HOST),
    **_logs("Managers/BMC_0"),
}

"""Who the BMC says it is: system, power and GPUs."""

from __future__ import annotations

from adapters.redfish.client import RedfishClient
from adapters.redfish.members import survey_members
from adapters.redfish.places import Places
from adapters.redfish.quirks import power_of
from fleet.errors import CredentialsRejected, FleetError
from fleet.json_values import JsonObject, object_at, objects_at, text_at
from fleet.model import GpuReading, ResetMarks, SystemReading


def read_system(client: RedfishClient, places: Places) -> SystemReading:
    """The host, and the GPUs of all systems; parts that cannot be read are listed under problems."""
    systems, missing = places.systems()
    problems = list(missing)
    # With a system missing, one that cannot be reset may be a mere baseboard: then the host is not known.
    told = bool(systems) and (not problems or "#ComputerSystem.Reset" in object_at(systems[0], "Actions"))
    host: JsonObject = systems[0] if told else {}
    if not systems and not problems:
        problems.append("the BMC lists no system")
    gpus = [gpu for system in systems for gpu in _gpus(client, system, problems)]
    chassis: JsonObject = {}
    if not all(text_at(host, key) for key in ("Manufacturer", "Model", "SerialNumber")):
        chassis = _chassis(client, host, problems)
    return SystemReading(
        vendor=text_at(host, "Manufacturer") or text_at(chassis, "Manufacturer") or text_at(client.root(), "Vendor"),
        model=text_at(host, "Model") or text_at(chassis, "Model"),
        serial=text_at(host, "SerialNumber") or text_at(chassis, "SerialNumber"),
        bios_version=text_at(host, "BiosVersion"),
        power=power_of(host),
        gpus=tuple(gpus),
        problems=tuple(problems),
    )


def read_marks(places: Places) -> ResetMarks:
    """Power and the two times that move with a reset."""
    host = places.host()
    manager = places.manager(host)
    return ResetMarks(
        power=power_of(host),
        host_last_reset=text_at(host, "LastResetTime"),
        bmc_last_reset=text_at(manager, "LastResetTime"),
    )


def _gpus(client: RedfishClient, system: JsonObject, problems: list[str]) -> list[GpuReading]:
    uri = text_at(system, "Processors", "@odata.id")
    if uri is None:
        return []
    try:
        found = survey_members(client, uri, "processor")
    except CredentialsRejected:
        raise
    except FleetError as error:
        problems.append(f"{error.message}; the GPUs there are not known")
        return []
    problems.extend(found.problems)
    return [_gpu(entry) for entry in found.entries if (text_at(entry, "ProcessorType") or "").upper() == "GPU"]


def _gpu(entry: JsonObject) -> GpuReading:
    return GpuReading(
        id=text_at(entry, "Id") or (text_at(entry, "@odata.id") or "").rpartition("/")[2],
        model=text_at(entry, "Model"),
        serial=text_at(entry, "SerialNumber"),
        uuid=text_at(entry, "UUID"),
        state=text_at(entry, "Status", "State") or "Unknown",
        health=text_at(entry, "Status", "Health"),
    )


def _chassis(client: RedfishClient, host: JsonObject, problems: list[str]) -> JsonObject:
    """The chassis that the host's system names as its own: some boards keep model and serial only there."""
    linked = objects_at(host, "Links", "Chassis")
    uri = text_at(linked[0], "@odata.id") if linked else None
    if uri is None:
        return {}
    try:
        return client.get(uri, "chassis")
    except CredentialsRejected:
        raise
    except FleetError as error:
        problems.append(error.message)
        return {}

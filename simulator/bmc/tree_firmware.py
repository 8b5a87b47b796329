"""The firmware inventory and component integrity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.bmc.tree import OK, Doc, Ids, Render, collection, link, resource

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

INVENTORY = "UpdateService/FirmwareInventory"


def _inventory(bmc: Bmc, _: Ids) -> Doc:
    return collection(INVENTORY, "SoftwareInventory", list(bmc.firmware.components))


def _component(bmc: Bmc, ids: Ids) -> Doc | None:
    component = bmc.firmware.components.get(ids[0])
    if component is None:
        return None
    return resource(
        f"{INVENTORY}/{component.id}",
        "SoftwareInventory.v1_8_0",
        "Software Inventory",
        Manufacturer="NVIDIA",
        SoftwareId=component.family.software_id,
        Version=bmc.shown_version(component.id),
        Updateable=component.family.updateable,
        WriteProtected=False,
        RelatedItem=[link(component.related)],
        Status=OK,
        Oem={"Nvidia": _slots(bmc, component.id)},
    )


def _slots(bmc: Bmc, id_: str) -> Doc:
    """Active and other slot, as NVIDIA's boards show them: a staged image is PendingActivation."""
    slots: Doc = {
        "@odata.type": "#NvidiaSoftwareInventory.v1_2_0.NvidiaSoftwareInventory",
        "ActiveFirmwareSlot": {
            "SlotId": 0,
            "Version": bmc.shown_version(id_),
            "FirmwareState": "Activated",
        },
    }
    staged, previous = bmc.firmware.staged.get(id_), bmc.firmware.previous.get(id_)
    if staged is not None:
        slots["InactiveFirmwareSlot"] = {"SlotId": 1, "Version": staged, "FirmwareState": "PendingActivation"}
    elif previous is not None and not bmc.is_stale(id_):
        slots["InactiveFirmwareSlot"] = {"SlotId": 1, "Version": previous, "FirmwareState": "Inactive"}
    return slots


def _integrity_ids(bmc: Bmc) -> list[str]:
    return [f"HGX_ERoT_GPU_SXM_{n}" for n in range(1, bmc.machine.gpus + 1)]


def _integrity_collection(bmc: Bmc, _: Ids) -> Doc:
    return collection("ComponentIntegrity", "ComponentIntegrity", _integrity_ids(bmc))


def _integrity(bmc: Bmc, ids: Ids) -> Doc | None:
    if ids[0] not in _integrity_ids(bmc):
        return None
    gpu = ids[0].removeprefix("HGX_ERoT_")
    return resource(
        f"ComponentIntegrity/{ids[0]}",
        "ComponentIntegrity.v1_2_0",
        f"SPDM Integrity for {ids[0]}",
        ComponentIntegrityType="SPDM",
        ComponentIntegrityTypeVersion="1.1.0",
        ComponentIntegrityEnabled=True,
        TargetComponentURI=f"/redfish/v1/Chassis/HGX_{gpu}",
        SPDM={"Requester": link("Managers/HGX_BMC_0")},
        Links={"ComponentsProtected": [link(f"Systems/HGX_Baseboard_0/Processors/{gpu}")]},
        Status=OK,
    )


FIRMWARE: dict[str, Render] = {
    INVENTORY: _inventory,
    INVENTORY + "/{}": _component,
    "ComponentIntegrity": _integrity_collection,
    "ComponentIntegrity/{}": _integrity,
}

"""How a BMC takes firmware: what its UpdateService resource offers.

Sources: DMTF UpdateService; the resources of NVIDIA (DGX, GH200), Supermicro and Dell boards as captured.
Action addresses are always read from `target`: some lack the "UpdateService." part.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.json_values import JsonObject, flag_at, number_at, object_at, text_at, texts_at

_APPLY_TIMES = "@Redfish.OperationApplyTimeSupport"


@dataclass(frozen=True, slots=True)
class UpdateService:
    """What is offered. Addresses are paths on the BMC, None where it offers none.

    `two_step`: the upload only stores the image, and StartUpdate begins the update. `busy_with` is the
    BMC's own word for an update under way. `max_image_bytes` is None where there is no stated limit.
    """

    enabled: bool | None
    multipart_uri: str | None
    http_push_uri: str | None
    simple_update: str | None
    simple_update_protocols: tuple[str, ...]
    start_update: str | None
    two_step: bool
    apply_times: tuple[str, ...]
    takes_force: bool
    inventory: str | None
    max_image_bytes: int | None
    busy_with: str | None


def read_update_service(body: JsonObject) -> UpdateService:
    """Read an UpdateService resource."""
    simple = object_at(body, "Actions", "#UpdateService.SimpleUpdate")
    start = text_at(body, "Actions", "#UpdateService.StartUpdate", "target")
    own_times = texts_at(body, f"MultipartHttpPushUri{_APPLY_TIMES}", "SupportedValues")
    any_times = own_times or texts_at(simple, _APPLY_TIMES, "SupportedValues")
    largest = number_at(body, "MaxImageSizeBytes")
    return UpdateService(
        enabled=flag_at(body, "ServiceEnabled"),
        multipart_uri=text_at(body, "MultipartHttpPushUri"),
        http_push_uri=text_at(body, "HttpPushUri"),
        simple_update=text_at(simple, "target"),
        simple_update_protocols=texts_at(simple, "TransferProtocol@Redfish.AllowableValues"),
        start_update=start,
        two_step=start is not None and "Immediate" not in any_times,
        apply_times=own_times,
        takes_force="ForceUpdate" in object_at(body, "HttpPushUriOptions"),
        inventory=text_at(body, "FirmwareInventory", "@odata.id"),
        max_image_bytes=int(largest) if largest else None,
        busy_with=_busy_with(body),
    )


def update_parameters(service: UpdateService, targets: tuple[str, ...]) -> dict[str, object]:
    """The JSON part of a multipart push; properties that this BMC does not show are left out."""
    parameters: dict[str, object] = {"Targets": list(targets)}
    if service.takes_force:
        parameters["ForceUpdate"] = False
    wanted = "OnStartUpdateRequest" if service.two_step else "Immediate"
    if wanted in service.apply_times:
        parameters["@Redfish.OperationApplyTime"] = wanted
    return parameters


def _busy_with(body: JsonObject) -> str | None:
    """AMI boards tell of an update under way in their own property; null or an end word is idle."""
    word = text_at(body, "Oem", "Ami", "UpdateStatus") or text_at(body, "Oem", "AMIUpdateService", "UpdateStatus")
    ended = {"completed", "complete", "failed", "idle", "none", "success", "successful", "ok", "aborted"}
    return None if word is None or word.casefold() in ended else word

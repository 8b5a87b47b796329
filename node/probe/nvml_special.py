"""NVML answers that are structures: field values, fabric, platform, processes, MIG devices, NVLinks."""

from __future__ import annotations

import math
from ctypes import byref
from typing import TYPE_CHECKING, Any

from .nvml_attributes import LINK_FIELDS, Field, mib
from .nvml_part import FUNCTION_NOT_FOUND, Failure, Part, attempt, call, failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_MAX_LINKS = 36
_LINK_COUNT = 91
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}  # by NVML's value type
_RECOVERY = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
_STATES = (None, "Not Started", "In Progress", "Completed")
_SUMMARIES = (None, "Healthy", "Unhealthy", "Limited Capacity")
_FLAGS = {
    "fabric_route_recovery": 2,
    "fabric_route_unhealthy": 4,
    "fabric_access_timeout_recovery": 6,
    "fabric_partition_assigned": 12,
}
_MISCONFIGURED = (
    None,
    "None",
    "Incorrect SysGuid",
    "Incorrect Chassis SN",
    "No Partition",
    "Insufficient NVLinks",
    "Incompatible GPU FW",
    "Invalid Location",
    "GPU State Invalid",
)


def read_fields(part: Part, fields: Sequence[Field]) -> None:
    """One call for all; each value has an error code of its own."""
    values = _values(part, [(field.field, field.scope) for field in fields], [field.name for field in fields])
    for field, value in zip(fields, values):  # noqa: B905  Python 3.8 has no `strict`
        if isinstance(value, str):
            part.miss([field.name], value)
        elif field.kind == "flag":
            part.known[field.name] = bool(value)
        elif field.kind == "word":
            number = int(value)
            part.known[field.name] = _RECOVERY[number] if 0 <= number < len(_RECOVERY) else f"value {number}"
        else:
            part.known[field.name] = value if field.divide_by == 1 else _divided(value, field)


def _divided(value: float, field: Field) -> float:
    return value / field.divide_by if field.name.endswith("_watts") else int(value) // field.divide_by


def _values(part: Part, fields: list[tuple[int, int]], names: Sequence[str]) -> list[float | str]:
    """A number, or the reason for none, of each field; empty (and `names` missed) where the call failed."""
    answer = call(part, "nvmlDeviceGetFieldValues", fields)
    if isinstance(answer, Failure):
        part.miss(names, answer.reason)
        return []
    return [_value(part.nvml, value) for value in answer]  # type: ignore[attr-defined]


def _value(nvml: ModuleType, value: Any) -> float | str:
    if value.nvmlReturn:
        return failure(nvml, value.nvmlReturn).reason
    member = _MEMBERS.get(value.valueType)
    number = getattr(value.value, member, None) if member else None
    if isinstance(number, int) or (isinstance(number, float) and math.isfinite(number)):
        return number
    return f"a value of type {value.valueType}"


def read_sram(part: Part) -> None:
    """SRAM errors by kind, and where the uncorrectable ones arose."""
    nvml = part.nvml

    def read() -> object:
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        nvml.nvmlDeviceGetSramEccErrorStatus(part.handle, byref(status))
        return (
            status.volatileUncParity,
            status.volatileUncSecDed,
            status.aggregateUncParity,
            status.aggregateUncSecDed,
            bool(status.bThresholdExceeded),
            status.aggregateUncBucketL2,
            status.aggregateUncBucketSm,
            status.aggregateUncBucketMcu,
            status.aggregateUncBucketPcie,
            status.aggregateUncBucketOther,
        )

    part.fill(
        "ecc_volatile_sram_uncorrectable_parity ecc_volatile_sram_uncorrectable_secded "
        "ecc_aggregate_sram_uncorrectable_parity ecc_aggregate_sram_uncorrectable_secded ecc_sram_threshold_exceeded "
        "ecc_sram_source_l2 ecc_sram_source_sm ecc_sram_source_microcontroller ecc_sram_source_pcie "
        "ecc_sram_source_other",
        read,
    )


def read_fabric(part: Part) -> None:
    """The GPU's membership in its NVLink fabric. Source: nvml.h, nvmlGpuFabricInfoV_t and its health mask."""
    nvml = part.nvml
    names = "fabric_state fabric_status fabric_clique_id fabric_cluster_uuid"

    def read(version: str) -> object:
        info = getattr(nvml, f"c_nvmlGpuFabricInfo_{version}_t")()
        nvml.nvmlDeviceGetGpuFabricInfoV(part.handle, byref(info))
        return info

    info: Any = attempt(nvml, lambda: read("v3"))
    if isinstance(info, Failure):
        info = attempt(nvml, lambda: read("v2"))
    if isinstance(info, Failure):
        part.miss([*names.split(), "fabric_health_summary", "fabric_bandwidth", *_FLAGS], info.reason)
        return
    started = info.state in (2, 3)
    status = "Success" if info.status == 0 else failure(nvml, info.status).reason
    part.keep(
        names.split(),
        (
            _STATES[info.state] if info.state < len(_STATES) else f"value {info.state}",
            status if started else None,
            info.cliqueId if started else None,
            _uuid(bytes(info.clusterUuid)) if started else None,
        ),
    )
    _fabric_health(part, info)


def _fabric_health(part: Part, info: Any) -> None:
    mask = info.healthMask
    summary = getattr(info, "healthSummary", 0)
    part.keep(["fabric_health_summary"], _SUMMARIES[summary] if summary < len(_SUMMARIES) else f"value {summary}")
    part.keep(["fabric_bandwidth"], (None, "Degraded", "Full", None)[mask & 3])
    for name, shift in _FLAGS.items():
        part.keep([name], (None, True, False, None)[mask >> shift & 3])
    wrong = mask >> 8 & 15
    part.keep(
        ["fabric_incorrect_configuration"], _MISCONFIGURED[wrong] if wrong < len(_MISCONFIGURED) else f"value {wrong}"
    )


def _uuid(content: bytes) -> str | None:
    digits = content.hex()
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(groups) if any(content) else None


def read_platform(part: Part) -> None:
    """Where the GPU sits in its chassis. Source: nvml.h, nvmlPlatformInfo_v2_t."""
    nvml = part.nvml

    def read() -> object:
        info = nvml.c_nvmlPlatformInfo_v2_t()
        nvml.nvmlDeviceGetPlatformInfo(part.handle, byref(info))
        raw = bytes(info)  # its fields are of type char, where a zero byte reads as no text
        serial = raw[20:36].split(b"\0")[0].decode("ascii").strip()
        peer = ("Direct Connected", "Switch Connected")[raw[39]] if raw[39] < 2 else f"value {raw[39]}"
        return serial or None, raw[36], raw[37], raw[38], peer

    part.fill("chassis_serial slot_number tray_index host_id peer_type", read)


def read_processes(part: Part) -> None:
    """`processes`: [{pid, kind, used_memory_mib, gpu_instance_id, compute_instance_id}]."""
    found: list[dict[str, object]] = []
    for kind, name in (("C", "Compute"), ("G", "Graphics")):
        answer = call(part, f"nvmlDeviceGet{name}RunningProcesses_v3")
        if isinstance(answer, Failure) and answer.code == FUNCTION_NOT_FOUND:
            answer = call(part, f"nvmlDeviceGet{name}RunningProcesses_v2")
        if isinstance(answer, Failure):
            part.miss(["processes"], answer.reason)
            return
        found += [_process(kind, process) for process in answer]  # type: ignore[attr-defined]
    part.known["processes"] = found


def _process(kind: str, process: Any) -> dict[str, object]:
    used = process.usedGpuMemory
    return {
        "pid": process.pid,
        "kind": kind,
        "used_memory_mib": None if used is None else mib(used),
        "gpu_instance_id": _instance(process.gpuInstanceId),
        "compute_instance_id": _instance(process.computeInstanceId),
    }


def _instance(number: int) -> int | None:
    return None if number == 0xFFFFFFFF else number


def read_mig(part: Part) -> None:
    """`mig_instances` where MIG is on."""
    nvml = part.nvml
    answer = call(part, "nvmlDeviceGetMigMode")
    if isinstance(answer, Failure):
        part.miss(["mig_instances"], answer.reason)
        return
    if not answer[0]:  # type: ignore[index]
        part.known["mig_instances"] = []
        return
    most = call(part, "nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(most, Failure):
        part.miss(["mig_instances"], most.reason)
        return
    found = []
    for number in range(most):  # type: ignore[call-overload]
        device = call(part, "nvmlDeviceGetMigDeviceHandleByIndex", number)
        if not isinstance(device, Failure):
            found.append(_mig_device(nvml, number, device))
    part.known["mig_instances"] = found


def _mig_device(nvml: ModuleType, number: int, device: object) -> dict[str, object]:
    part = Part(nvml, device)
    part.fill("uuid", lambda: nvml.nvmlDeviceGetUUID(device))
    part.fill("gpu_instance_id", lambda: nvml.nvmlDeviceGetGpuInstanceId(device))
    part.fill("compute_instance_id", lambda: nvml.nvmlDeviceGetComputeInstanceId(device))
    part.fill("profile", lambda: nvml.nvmlDeviceGetName(device).rpartition("MIG ")[2])
    part.fill("multiprocessors", lambda: nvml.nvmlDeviceGetAttributes_v2(device).multiprocessorCount)
    part.fill("memory_total_mib", lambda: mib(nvml.nvmlDeviceGetMemoryInfo(device).total))
    part.fill("memory_used_mib", lambda: mib(nvml.nvmlDeviceGetMemoryInfo(device).used))
    return {"index": number, **part.known}


def read_links(part: Part) -> None:
    """`nvlinks`: [{link, active, remote, counters}]; a link without a state does not exist on this GPU."""
    count = _values(part, [(_LINK_COUNT, 0)], [])
    most = int(count[0]) if count and not isinstance(count[0], str) else _MAX_LINKS
    links: list[dict[str, object]] = []
    for link in range(min(most, _MAX_LINKS)):
        state = call(part, "nvmlDeviceGetNvLinkState", link)
        if isinstance(state, Failure):
            if not links:
                part.miss(["nvlinks"], state.reason)
                return
            links.append({"link": link, "active": None})
            continue
        links.append({"link": link, "active": bool(state), **(_link(part, link) if state else {})})
    part.known["nvlinks"] = links


def _link(part: Part, link: int) -> dict[str, object]:
    values = _values(part, [(field.field, link) for field in LINK_FIELDS], [])
    pairs = zip(LINK_FIELDS, values)  # noqa: B905  Python 3.8 has no `strict`
    numbers = {field.name: value for field, value in pairs if not isinstance(value, str)}
    for name, counter in (("replay", 0), ("recovery", 1), ("crc", 2)):
        if name not in numbers:
            count = call(part, "nvmlDeviceGetNvLinkErrorCounter", link, counter)
            if isinstance(count, int):
                numbers[name] = count
    speed = numbers.pop("speed_mbps", None)
    remote = call(part, "nvmlDeviceGetNvLinkRemotePciInfo", link)
    version = call(part, "nvmlDeviceGetNvLinkVersion", link)
    return {
        "remote": None if isinstance(remote, Failure) else getattr(remote, "busId", None),
        "version": None if isinstance(version, Failure) else version,
        "speed_mbps": speed,
        "counters": numbers,
    }

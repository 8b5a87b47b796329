"""The GPUs of the node probe's document, as NVML or nvidia-smi told of them."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator

from fleet.gpu import GpuProcess, GpuReading, MigInstance, SmiReport
from fleet.gpu_values import RawValue, read_gpu
from fleet.json_values import JsonObject, flag_at, number_at, object_at, objects_at, text_at
from fleet.node_parts import count_at
from fleet.readers.nvidia_smi_xml import read_nvidia_smi_xml
from fleet.readers.nvlink_text import LinkedPart, LinkState, NvLink

_MAX_XML_BYTES = 4 << 20  # what the probe sends at most
_CODE = re.compile(r"^NVML (\d+):")
_LOST, _RESET_REQUIRED = 15, 16
_NO_FAULT = (3, 4, 6, 13)  # not supported, no permission, not found, no such function
_SPOKEN = {_LOST: "GPU is lost", _RESET_REQUIRED: "GPU requires reset"}


def read_gpus(section: JsonObject) -> tuple[GpuReading, ...] | None:
    """By NVML; None where it could not be used."""
    if text_at(section, "source") != "nvml" or not isinstance(section.get("devices"), list):
        return None
    driver = text_at(object_at(section, "system"), "driver_version")
    return tuple(_gpu(device, driver) for device in objects_at(section, "devices"))


def gpu_faults(section: JsonObject) -> Iterator[tuple[str, str]]:
    """Path and reason of what could not be read of single GPUs."""
    for device in objects_at(section, "devices"):
        why = text_at(device, "error", "words") or text_at(device, "unfinished")
        if why is not None:
            yield f"gpus.{count_at(device, 'index')}", why


def read_links(section: JsonObject) -> tuple[LinkedPart, ...]:
    """NVLinks of every GPU that told of them."""
    devices = objects_at(section, "devices")
    return tuple(_links(device) for device in devices if isinstance(object_at(device, "known").get("nvlinks"), list))


def read_smi(section: JsonObject) -> SmiReport | None:
    """nvidia-smi's answer, where NVML could not be used; None where there is none, or it is damaged."""
    packed = text_at(section, "xml")
    if text_at(section, "source") != "nvidia-smi" or packed is None:
        return None
    try:
        content = zlib.decompressobj(31).decompress(base64.b64decode(packed, validate=True), _MAX_XML_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return None
    return read_nvidia_smi_xml(f"{content.decode('utf-8', 'replace')}\n{text_at(section, 'stderr') or ''}")


def _gpu(device: JsonObject, driver: str | None) -> GpuReading:
    known = object_at(device, "known")
    values: dict[str, RawValue] = {n: v for n, v in known.items() if isinstance(v, str | int | float | bool)}
    values |= {"index": count_at(device, "index"), "driver_version": driver}
    for reason, names in object_at(device, "unknown").items():
        match = _CODE.match(reason)
        code = int(match[1]) if match else None
        if code not in _NO_FAULT and reason != "no value" and isinstance(names, list):
            values |= {name: _SPOKEN.get(code or 0, "ERR!") for name in names if isinstance(name, str)}
    error = count_at(device, "error", "code")
    values |= {"lost": True} if error == _LOST else {"reset_required": True} if error == _RESET_REQUIRED else {}
    processes, instances = known.get("processes"), known.get("mig_instances")
    return read_gpu(
        values,
        processes=tuple(map(_process, objects_at(known, "processes"))) if isinstance(processes, list) else None,
        mig_instances=tuple(map(_mig, objects_at(known, "mig_instances"))) if isinstance(instances, list) else None,
    )


def _links(device: JsonObject) -> LinkedPart:
    known = object_at(device, "known")
    states = {True: LinkState.UP, False: LinkState.DOWN, None: LinkState.UNKNOWN}
    links = []
    for entry in objects_at(known, "nvlinks"):
        speed = number_at(entry, "speed_mbps")
        counters = {name: number_at(entry, "counters", name) for name in object_at(entry, "counters")}
        links.append(
            NvLink(
                count_at(entry, "link") or 0,
                states[flag_at(entry, "active")],
                None if speed is None else speed / 1000,
                text_at(entry, "remote"),
                counters=counters,
            )
        )
    name = text_at(known, "pci_address") or count_at(device, "index")
    return LinkedPart(f"gpu {name}", text_at(known, "product_name"), text_at(known, "uuid"), tuple(links))


def _process(entry: JsonObject) -> GpuProcess:
    numbers = (count_at(entry, n) for n in ("used_memory_mib", "gpu_instance_id", "compute_instance_id"))
    return GpuProcess(count_at(entry, "pid"), text_at(entry, "name"), text_at(entry, "kind"), *numbers)


def _mig(entry: JsonObject) -> MigInstance:
    return MigInstance(
        count_at(entry, "index"),
        text_at(entry, "uuid"),
        text_at(entry, "profile"),
        count_at(entry, "gpu_instance_id"),
        count_at(entry, "compute_instance_id"),
        count_at(entry, "multiprocessors"),
        count_at(entry, "memory_total_mib"),
        count_at(entry, "memory_used_mib"),
    )

"""The typed reading of the node probe's document, whose shape docs/probe.md gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleet.errors import ConfigurationError
from fleet.gpu import GpuReading, SmiReport
from fleet.json_values import JsonObject, number_at, object_at, printable, text_at, texts_at, value_at
from fleet.node_gpus import gpu_faults, read_gpus, read_links, read_smi
from fleet.node_parts import (
    DriverReading,
    KernelLog,
    Package,
    PciDevice,
    count_at,
    read_driver,
    read_egress,
    read_kernel_log,
    read_packages,
    read_pci,
    read_services,
    read_unattended,
)
from fleet.readers.nvlink_text import LinkedPart

VERSION = 1
_MAX_DEPTH = 12
_ESCAPE_OR_WIDE = re.compile(r"\\u|[^\x00-\x7f]")  # where there is neither, no text can act on a terminal


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One look at one node. What is None, or missing from a mapping, is unknown; `unknown` gives reasons by path.

    `gpus` is None where GPUs could not be read at all; `gpu_count` is the driver's, `gpus_on_bus` the PCI bus's.
    `packages` covers the names that the patterns `packages_listed` fit. `egress` is way → setting, "off" or "absent".
    `sections` are the raw values of all sections, for what has no attribute here.
    """

    at: datetime
    hostname: str | None = None
    boot_id: str | None = None
    kernel: str | None = None
    os_release: str | None = None
    gpus: tuple[GpuReading, ...] | None = None
    gpu_source: str | None = None
    gpu_count: int | None = None
    gpus_on_bus: int | None = None
    nvlinks: tuple[LinkedPart, ...] = ()
    smi: SmiReport | None = None
    nvml_error: int | None = None
    driver: DriverReading = field(default_factory=DriverReading)
    packages: tuple[Package, ...] | None = None
    packages_listed: tuple[str, ...] = ()
    services: Mapping[str, str] | None = None
    unattended_upgrades: bool | None = None
    egress: Mapping[str, str] | None = None
    pci: tuple[PciDevice, ...] | None = None
    kernel_log: KernelLog | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, JsonObject] = field(default_factory=dict)
    wall_seconds: float | None = None
    cpu_seconds: float | None = None


def read_node(text: str) -> NodeReading:
    """Read a document. Raises ConfigurationError for what is no document, or one of another version."""
    try:
        document = json.loads(text)
        document = printable(document) if _ESCAPE_OR_WIDE.search(text) else document
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("the node's answer is no probe document: it is not JSON") from error
    version = value_at(document, "version")
    if version != VERSION or isinstance(version, bool):
        told = repr(version)[:40]
        raise ConfigurationError(f"the probe's document has version {told}, this gpufleet reads {VERSION}")
    at = number_at(document, "at")
    if at is None or not 0 <= at < 1e11:
        raise ConfigurationError("the probe's document does not say when it was made")
    sections = {name: object_at(document, "sections", name) for name in object_at(document, "sections")}
    return _reading(datetime.fromtimestamp(at, UTC), sections, object_at(document, "probe"))


def _reading(at: datetime, sections: Mapping[str, JsonObject], probe: JsonObject) -> NodeReading:
    system, gpus, packages = (sections.get(name, {}) for name in ("system", "gpus", "packages"))
    smi = read_smi(gpus)
    pci = read_pci(sections.get("pci", {}))
    unknown = dict(_reasons("", sections, 0)) | dict(gpu_faults(gpus))
    if "xml" in gpus and smi is None:
        unknown["gpus.xml"] = "the answer of nvidia-smi arrived damaged"
    if smi is not None and not smi.gpus:
        unknown["gpus.source"] = smi.errors[0].line if smi.errors else "nvidia-smi shows no GPU"
    return NodeReading(
        at=at,
        hostname=text_at(system, "hostname"),
        boot_id=text_at(system, "boot_id"),
        kernel=text_at(system, "kernel"),
        os_release=_release(object_at(system, "os")),
        gpus=(smi.gpus or None) if smi is not None else read_gpus(gpus),
        gpu_source=text_at(gpus, "source"),
        gpu_count=smi.attached_gpus if smi is not None else count_at(gpus, "count"),
        gpus_on_bus=None if pci is None else sum(device.is_nvidia_gpu for device in pci),
        nvlinks=read_links(gpus),
        smi=smi,
        nvml_error=count_at(gpus, "nvml", "code"),
        driver=read_driver(sections.get("driver", {})),
        packages=read_packages(packages),
        packages_listed=texts_at(packages, "listed"),
        services=read_services(packages),
        unattended_upgrades=read_unattended(packages),
        egress=read_egress(packages),
        pci=pci,
        kernel_log=read_kernel_log(sections.get("kernel_log", {})),
        unknown=unknown,
        sections=sections,
        wall_seconds=number_at(probe, "wall_seconds"),
        cpu_seconds=number_at(probe, "cpu_seconds"),
    )


def _reasons(path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Every {"unknown": "why"} and "unfinished" below, by dotted path; GPUs keep their own."""
    if not isinstance(value, Mapping) or depth > _MAX_DEPTH:
        return
    for name in ("unknown", "unfinished"):
        why = value.get(name)
        if isinstance(why, str):
            yield path or name, why
    for name, inner in value.items():
        yield from _reasons(f"{path}.{name}" if path else str(name), inner, depth + 1)


def _release(fields: JsonObject) -> str | None:
    """As the distribution names itself ("Ubuntu 24.04.3 LTS"), else its id and version."""
    parts = [text for text in (text_at(fields, "id"), text_at(fields, "version")) if text]
    return text_at(fields, "name") or " ".join(parts) or None

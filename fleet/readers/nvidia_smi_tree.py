"""The tree that nvidia-smi's XML and its -q text have in common, and the readings in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.gpu import GpuProcess, GpuReading, MigInstance
from fleet.gpu_values import is_unknown, number, plain, read_gpu
from fleet.readers.nvidia_smi_names import attributes_of, fold

_APART = frozenset({"migdevice", "migdevices", "processes", "accountedprocesses", "supportedclocks"})
_DEEPEST = 12


@dataclass(slots=True)
class Element:
    """A section or a value. `name` is folded, `text` as printed."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def first(self, *names: str) -> Element | None:
        """The first child that has one of the names."""
        return next((child for child in self.children if child.name in names), None)

    def value(self, *names: str) -> str | None:
        """The text of the first such child, None where it stands for no value."""
        child = self.first(*names)
        return None if child is None or is_unknown(child.text) else child.text.strip()


def gpu_reading(gpu: Element, address: str) -> GpuReading:
    """The reading of one GPU's section. `address` is the one that the section's own head names."""
    values = attributes_of(dict(_paths(gpu)))
    values.setdefault("pci_address", address)
    if any(child.name.startswith("gpuislost") for child in gpu.children):
        values["lost"] = "Yes"
    if is_unknown(values["pci_address"]):
        values["pci_address"] = address
    return read_gpu(values, mig_instances=_mig_instances(gpu), processes=_processes(gpu))


def _paths(gpu: Element) -> Iterator[tuple[str, str]]:
    """Folded path and text of every value, without MIG devices, processes and lists of clocks."""
    stack = [("", child, 1) for child in reversed(gpu.children)]
    while stack:
        path, element, depth = stack.pop()
        if element.name in _APART:
            continue
        where = fold(path + element.name)
        if element.text:
            yield where, element.text
        if depth < _DEEPEST:
            stack += [(where + "/", child, depth + 1) for child in reversed(element.children)]


def _mig_instances(gpu: Element) -> tuple[MigInstance, ...] | None:
    devices = [child for child in gpu.children if child.name == "migdevice"]
    container = gpu.first("migdevices")
    if container is not None:
        devices += [child for child in container.children if child.name == "migdevice"]
    if not devices:
        none = container is not None and plain(container.text) in ("none", "")
        return () if none or (container is None and gpu.first("migmode") is not None) else None
    return tuple(_mig_instance(device) for device in devices)


def _mig_instance(device: Element) -> MigInstance:
    memory = device.first("fbmemoryusage", "sharedfbmemoryusage") or Element("")
    shared = (device.first("deviceattributes") or Element("")).first("shared") or Element("")
    errors = device.first("eccerrorcount", "eccerrors") or Element("")
    volatile = errors.first("volatilecount", "volatile") or Element("")
    return MigInstance(
        index=_count(device, "index"),
        uuid=device.value("uuid", "miguuid"),
        gpu_instance_id=_count(device, "gpuinstanceid"),
        compute_instance_id=_count(device, "computeinstanceid"),
        multiprocessors=_count(shared, "multiprocessorcount"),
        memory_total_mib=_count(memory, "total"),
        memory_used_mib=_count(memory, "used"),
        ecc_sram_uncorrectable=_count(volatile, "sramuncorrectable"),
    )


def _processes(gpu: Element) -> tuple[GpuProcess, ...] | None:
    """The processes; none at all where the section is there and says so, None where it is missing or not readable."""
    section = gpu.first("processes")
    if section is None or (section.text.strip() and not section.children and plain(section.text) != "none"):
        return None
    found: list[GpuProcess] = []
    before = Element("")
    for child in section.children:
        if child.name == "processinfo":
            found.append(_process(child, child))
        elif child.name == "processid":
            found.append(_process(Element("", children=[child, *child.children]), before))
            before = Element("")
        else:
            before.children.append(child)
    return tuple(found)


def _process(own: Element, instance: Element) -> GpuProcess:
    return GpuProcess(
        pid=_count(own, "pid", "processid"),
        name=own.value("processname", "name"),
        kind=own.value("type"),
        used_memory_mib=_count(own, "usedmemory", "usedgpumemory"),
        gpu_instance_id=_count(instance, "gpuinstanceid"),
        compute_instance_id=_count(instance, "computeinstanceid"),
    )


def _count(element: Element, *names: str) -> int | None:
    text = element.value(*names)
    return None if text is None else number(text)

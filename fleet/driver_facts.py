"""What a driver change is decided on: one look at a node, its packages and whoever is in the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from fleet.driver_holders import Holder
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation
from fleet.driver_target import DriverTarget, FormerDriver, InstallKind
from fleet.json_values import flag_at, object_at, objects_at, text_at
from fleet.node_reading import NodeReading


@dataclass(frozen=True, slots=True)
class Kernel:
    """An installed kernel. `module` is whether it has an nvidia module; None: not known."""

    version: str
    running: bool = False
    headers: bool | None = None
    module: bool | None = None


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """The package manager's answers. None: not asked, or no answer. `refresh` is what a refresh complained of.

    `runfile_sha256` is the digest of the runfile on the node, None where there is no such file.
    """

    kind: InstallKind = InstallKind.UNKNOWN
    manager: str | None = None
    installed: tuple[InstalledPackage, ...] = ()
    audit: tuple[str, ...] | None = None
    held: tuple[str, ...] = ()
    offered: tuple[OfferedPackage, ...] = ()
    records: tuple[PackageRecord, ...] = ()
    simulation: Simulation | None = None
    refresh: str = ""
    runfile_sha256: str | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Name → version of what is installed whole."""
        return {package.name: package.version for package in self.installed if package.whole}


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Everything that the preflight judges. `free_mib` is by mount of /usr, /boot and /var.

    `active_upgraders` are units that change packages and run now. `signer` is the on-disk module's, "" for unsigned.
    `driver_refusal` is what the scheduler tells of whose the driver is (SchedulerNode).
    """

    target: DriverTarget
    reading: NodeReading
    today: date
    packages: PackageFacts = field(default_factory=PackageFacts)
    former: FormerDriver | None = None
    free_mib: Mapping[str, int] = field(default_factory=dict)
    holders: tuple[Holder, ...] | None = None
    active_upgraders: tuple[str, ...] = ()
    signer: str | None = None
    driver_refusal: str | None = None
    kubernetes: bool | None = None


def kernels_of(reading: NodeReading) -> tuple[Kernel, ...]:
    """The installed kernels, oldest first."""
    found = []
    for entry in objects_at(reading.sections.get("driver"), "kernels"):
        version = text_at(entry, "version")
        if version is not None:
            module = text_at(entry, "nvidia_module") is not None if "nvidia_module" in entry else None
            found.append(Kernel(version, flag_at(entry, "running") is True, flag_at(entry, "headers"), module))
    return tuple(sorted(found, key=lambda kernel: kernel_order(kernel.version)))


def kernel_order(version: str) -> tuple[tuple[int, str], ...]:
    """Orders kernel releases by their numbers: 6.8.0-100 is after 6.8.0-45."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", version))


def kernels_that_matter(reading: NodeReading) -> tuple[Kernel, ...]:
    """The running kernel and the one that the next boot takes: the newest that is installed."""
    kernels = kernels_of(reading)
    newest = kernels[-1:]
    return tuple(dict.fromkeys([*(kernel for kernel in kernels if kernel.running), *newest]))


def bound_drivers(reading: NodeReading) -> dict[str, tuple[str, ...]]:
    """Kernel driver → addresses of the GPUs that it is bound to; "" where none is."""
    found: dict[str, list[str]] = {}
    for device in reading.pci or ():
        if device.is_nvidia_gpu:
            found.setdefault(device.driver or "", []).append(device.address)
    return {driver: tuple(addresses) for driver, addresses in found.items()}


_NVSWITCHES = ("0x1af1", "0x22a3", "0x29bc")  # of the A100, H100 and Blackwell boards


def has_nvswitch(reading: NodeReading) -> bool | None:
    """Does the PCI bus show an NVIDIA bridge that is no GPU (class 0x0680)? None where the bus was not read."""
    if reading.pci is None:
        return None
    return any(
        device.vendor == "0x10de"
        and ((device.device_class or "").startswith("0x0680") or (device.device or "") in _NVSWITCHES)
        for device in reading.pci
    )


def memory_mode(reading: NodeReading) -> str | None:
    """What the driver's parameter CoherentGPUMemoryMode says: "driver" is CDMM, "numa" is NUMA."""
    parameters = object_at(reading.sections.get("driver"), "parameters")
    return text_at(parameters, "CoherentGPUMemoryMode")


def dpkg_or_rpm(reading: NodeReading) -> str | None:
    """The node's package manager as the probe tells it."""
    return text_at(reading.sections.get("packages"), "manager")


def masked_already(reading: NodeReading) -> frozenset[str]:
    """Units that somebody has masked: they are left so."""
    services = object_at(reading.sections.get("packages"), "services")
    return frozenset(name for name in services if (text_at(services, name, "enabled") or "").startswith("masked"))


def platform_of(reading: NodeReading) -> str | None:
    """Distribution, its version and the machine ("ubuntu 24.04 x86_64"): what one repository's packages are built for.

    None where a part of it was not read.
    """
    system = reading.sections.get("system")
    parts = (text_at(system, "os", "id"), text_at(system, "os", "version"), text_at(system, "architecture"))
    known = [part for part in parts if part is not None]
    return " ".join(known) if len(known) == len(parts) else None

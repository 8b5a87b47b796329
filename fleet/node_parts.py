"""The typed parts of the node probe's document besides the GPUs: driver, packages, services, PCI bus, kernel log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.json_values import JsonObject, flag_at, number_at, object_at, objects_at, text_at, texts_at, value_at

_DNF_TIMERS = ("dnf-automatic.timer", "dnf-automatic-install.timer")


def count_at(tree: object, *path: str) -> int | None:
    """A whole number; None where it is missing or something else."""
    number = number_at(tree, *path)
    return None if number is None else int(number)


@dataclass(frozen=True, slots=True)
class DriverReading:
    """The driver's parts; None is unknown, and `NodeReading.unknown` says why.

    `open_module` is None where the kernel does not tell. `library_versions` has more than one entry where two
    drivers lie over one another. `origin` is a package's name, "runfile", "container" or "unpackaged".
    """

    loaded: str | None = None
    on_disk: str | None = None
    user_space: str | None = None
    library_versions: tuple[str, ...] = ()
    open_module: bool | None = None
    origin: str | None = None
    fabric_manager: str | None = None
    container_toolkit: str | None = None
    modules: frozenset[str] | None = None  # loaded, of those that matter to GPUs
    dkms: Mapping[str, tuple[str, ...]] | None = None  # "module/version" → kernels it is built for
    kernels_without_module: tuple[str, ...] | None = None
    secure_boot: bool | None = None
    tpm: bool | None = None


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    hold: bool = False


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Lines as dmesg prints them, oldest first. `missed` and `omitted` lines are not among them."""

    cursor: str | None = None
    lines: tuple[str, ...] = ()
    continued: bool = False
    missed: int = 0
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A function on the PCI bus. Speeds are in GT/s, widths in lanes; None where the kernel does not know."""

    address: str
    vendor: str | None = None
    device: str | None = None
    device_class: str | None = None
    driver: str | None = None
    speed_gts: float | None = None
    speed_max_gts: float | None = None
    width: int | None = None
    width_max: int | None = None
    slot_speed_max_gts: float | None = None
    slot_width_max: int | None = None
    aer_correctable: int | None = None
    aer_nonfatal: int | None = None
    aer_fatal: int | None = None

    @property
    def is_nvidia_gpu(self) -> bool:
        return self.vendor == "0x10de" and (self.device_class or "").startswith(("0x0300", "0x0302"))


def read_driver(section: JsonObject) -> DriverReading:
    """The section `driver`."""
    folders = object_at(section, "user_space", "folders")
    return DriverReading(
        text_at(section, "loaded", "version"),
        text_at(section, "on_disk", "version"),
        text_at(section, "user_space", "version"),
        tuple(sorted({version for folder in folders for version in texts_at(folders, folder)})),
        flag_at(section, "loaded", "open"),
        _origin(section),
        text_at(section, "fabric_manager", "version"),
        text_at(section, "container_toolkit", "version"),
        frozenset(object_at(section, "modules")) if "modules" in section else None,
        {
            f"{text_at(entry, 'module')}/{text_at(entry, 'version')}": texts_at(entry, "built_for")
            for entry in objects_at(section, "dkms")
        }
        if "dkms" in section
        else None,
        tuple(
            text_at(kernel, "version") or "?"
            for kernel in objects_at(section, "kernels")
            if "nvidia_module" in kernel and kernel["nvidia_module"] is None
        )
        if "kernels" in section
        else None,
        flag_at(section, "secure_boot"),
        False if value_at(section, "tpm") is False else True if "major" in object_at(section, "tpm") else None,
    )


def _origin(section: JsonObject) -> str | None:
    owner = value_at(section, "library_owner")
    if isinstance(owner, str):
        return owner
    for name in ("container", "runfile"):
        if flag_at(section, "installers", name):
            return name
    return "unpackaged" if owner is False else None


def read_packages(section: JsonObject) -> tuple[Package, ...] | None:
    """What the section `packages` lists; not every package of the node."""
    if not isinstance(section.get("packages"), list):
        return None
    found = []
    for entry in objects_at(section, "packages"):
        name, version = text_at(entry, "name"), text_at(entry, "version")
        if name is not None and version is not None:
            found.append(Package(name, version, flag_at(entry, "hold") is True))
    return tuple(found)


def read_services(section: JsonObject) -> Mapping[str, str] | None:
    """Unit → systemd's active state, or "not-found"."""
    services = object_at(section, "services")
    if not services or isinstance(services.get("unknown"), str):
        return None
    states = {name: text_at(services, name, "state") for name in services}
    return {name: state for name, state in states.items() if state is not None}


def read_pci(section: JsonObject) -> tuple[PciDevice, ...] | None:
    """The section `pci`."""
    if not isinstance(section.get("devices"), list):
        return None
    return tuple(_device(entry) for entry in objects_at(section, "devices"))


def _device(entry: JsonObject) -> PciDevice:
    slot = object_at(entry, "slot")
    return PciDevice(
        text_at(entry, "address") or "?",
        text_at(entry, "vendor"),
        text_at(entry, "device"),
        text_at(entry, "class"),
        text_at(entry, "driver"),
        number_at(entry, "current_link_speed_gts"),
        number_at(entry, "max_link_speed_gts"),
        count_at(entry, "current_link_width"),
        count_at(entry, "max_link_width"),
        number_at(slot, "max_link_speed_gts"),
        count_at(slot, "max_link_width"),
        *(count_at(entry, f"aer_{kind}") for kind in ("correctable", "nonfatal", "fatal")),
    )


def read_kernel_log(section: JsonObject) -> KernelLog | None:
    """The section `kernel_log`."""
    if not isinstance(section.get("lines"), list):
        return None
    counts = (count_at(section, name) or 0 for name in ("missed", "omitted"))
    return KernelLog(
        text_at(section, "cursor"), texts_at(section, "lines"), flag_at(section, "continued") is True, *counts
    )


def read_egress(section: JsonObject) -> Mapping[str, str] | None:
    """Ways out: a setting's own text, the proxies, the interfaces of the default route ("off" for none)."""
    egress = object_at(section, "egress")
    if not egress:
        return None
    ways = {name: text for name in egress if (text := text_at(egress, name)) is not None}
    if isinstance(egress.get("default_route"), list):
        ways["default_route"] = " ".join(texts_at(egress, "default_route")) or "off"
    if "proxies" in egress:
        ways["proxy"] = " ".join(str(url) for url in object_at(egress, "proxies").values()) or "off"
    return ways


def read_unattended(section: JsonObject) -> bool | None:
    """Do packages change by themselves, by apt's or dnf's own timers?"""
    if text_at(section, "manager") == "dpkg" and "updates" in section:
        return text_at(section, "updates", "apt_periodic", "Unattended-Upgrade") not in (None, "0")
    services = read_services(section) or {}
    timers = [services[timer] for timer in _DNF_TIMERS if timer in services]
    return "active" in timers if timers else None

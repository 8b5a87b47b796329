"""The firmware of an HGX H100 node: which components there are, what is active, what waits for a reset.

Component names follow NVIDIA's HGX boards (`HGX_FW_GPU_SXM_1`, `HGX_FW_ERoT_NVSwitch_0` …); versions have the
vendors' shapes but are invented. An image is one JSON line (family, component patterns, version) and padding.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from fleet.model import ResetKind

VINTAGES = ("2023-11", "2024-05", "2024-11")
"""Ages of a node's firmware, oldest first; the last one is what `demo_bundle_entries` brings."""

ACTIVATES: Mapping[ResetKind, frozenset[ResetKind]] = {
    kind: frozenset(list(ResetKind)[: list(ResetKind).index(kind) + 1]) for kind in ResetKind
}
"""Which staged components a reset activates: its own kind and the weaker ones (`fleet.model.ResetKind`)."""

_FORMAT = "gpufleet-simulator-image/1"
_PADDING = 64 * 1024
_MAX_HEADER = 4096


@dataclass(frozen=True, slots=True)
class Family:
    """Components that share one image. `versions` are by vintage; one entry stands for all."""

    prefix: str
    related: str  # Redfish path below /redfish/v1, with {n} for the index
    reset: ResetKind
    versions: tuple[str, ...]
    software_id: str
    indexes: tuple[str, ...] = ("0",)
    updateable: bool = True

    def version(self, vintage: int) -> str:
        return self.versions[min(vintage, len(self.versions) - 1)]


@dataclass(frozen=True, slots=True)
class Component:
    """One entry of the inventory, the same on every node of the model."""

    id: str
    family: Family
    related: str


_AC, _BMC, _HOST = ResetKind.AC_CYCLE, ResetKind.BMC_RESET, ResetKind.HOST_REBOOT
_BOARD, _GPU = "Chassis/HGX_Chassis_0", "Chassis/HGX_GPU_SXM_{n}"
_EROT = ("00.02.0182.0000_n00", "01.03.0136.0000_n01", "01.03.0183.0000_n04")
_HGX_BMC = ("HGX-22.10-1-rc67", "HGX-22.10-1-rc80", "HGX-24.08-2")
_VBIOS = ("96.00.74.00.01", "96.00.89.00.01", "96.00.A5.00.03")
_NVSWITCH = ("96.10.3F.00.01", "96.10.55.00.01", "96.10.6D.00.01")


@cache
def _families(gpus: int) -> tuple[Family, ...]:
    slots = tuple(str(n) for n in range(1, gpus + 1))
    protected = ("BMC_0", "FPGA_0", "PCIeSwitch_0", *(f"GPU_SXM_{n}" for n in slots))
    erot = (*protected, *(f"NVSwitch_{n}" for n in range(4)))
    return (
        Family("FW_BMC_", "Managers/BMC_0", _BMC, ("23.10.12", "24.04.07", "24.09.17"), "0x0010"),
        Family("FW_ERoT_", "Chassis/BMC_0", _AC, ("01.03.0118.0000_n01",), "0xFF00", ("BMC_0",)),
        Family("HostBIOS_", "Systems/System_0", _HOST, ("1.0.8", "1.3.6", "1.4.2"), "0x0040"),
        Family("FW_CPLD_", "Chassis/BMC_0", _AC, ("0.2.1.6", "0.2.1.9"), "0x0060", tuple("01")),
        Family("FW_NIC_", "Chassis/Chassis_0", _HOST, ("28.39.2048", "28.41.1000"), "0x0080", tuple("01")),
        Family("FW_PSU_", "Chassis/Chassis_0", ResetKind.NONE, ("0202.0204",), "0x0090", tuple("012345")),
        Family("HGX_FW_BMC_", "Managers/HGX_BMC_0", _BMC, _HGX_BMC, "0x001E"),
        Family("HGX_FW_ERoT_", _BOARD, _AC, _EROT, "0xFF00", erot),
        Family("HGX_FW_FPGA_", _BOARD, _AC, ("2.53", "2.A5"), "0x0025"),
        Family("HGX_FW_GPU_SXM_", _GPU, _HOST, _VBIOS, "0x0020", slots),
        Family("HGX_FW_NVSwitch_", _BOARD, _AC, _NVSWITCH, "0x0022", tuple("0123")),
        Family("HGX_FW_PCIeRetimer_", _BOARD, _AC, ("2.7.9", "2.7.20"), "0x0023", tuple("01234567")),
        Family("HGX_FW_PCIeSwitch_", _BOARD, _AC, ("1.9.5F", "1.9.81"), "0x0024"),
        Family("HGX_InfoROM_GPU_SXM_", _GPU, _AC, ("G520.0200.00.05",), "0x0030", slots, updateable=False),
    )


@cache
def hgx_h100_components(gpus: int) -> Mapping[str, Component]:
    """Every component of the model by id: 52 with 8 GPUs, 40 with 4."""
    return {
        family.prefix + n: Component(family.prefix + n, family, family.related.format(n=n))
        for family in _families(gpus)
        for n in family.indexes
    }


class FirmwareSet:
    """One node's versions. `revision` grows with every change, so that a rendering can be kept."""

    def __init__(self, components: Mapping[str, Component], active: dict[str, str]) -> None:
        self.components = components
        self.active = active
        self.staged: dict[str, str] = {}
        self.previous: dict[str, str] = {}
        self.revision = 0

    def write(self, component: str, version: str) -> bool:
        """Put a version into the component; True where it runs at once, False where it waits for a reset."""
        self.revision += 1
        if self.components[component].family.reset is ResetKind.NONE:
            self._run(component, version)
            return True
        self.staged[component] = version
        return False

    def activate(self, reset: ResetKind) -> tuple[tuple[str, str], ...]:
        """Run what waits for `reset` or a weaker one; the (component, version) pairs that changed."""
        kinds = ACTIVATES[reset]
        ready = [(id_, v) for id_, v in self.staged.items() if self.components[id_].family.reset in kinds]
        for id_, version in ready:
            del self.staged[id_]
            self._run(id_, version)
        self.revision += bool(ready)
        return tuple(ready)

    def behind(self, images: Iterable[FirmwareImage]) -> dict[str, str]:
        """Components whose active version is not the images': id → the images' version."""
        return {
            id_: image.version
            for image in images
            for id_ in self.components
            if image.fits(id_) and self.active[id_] != image.version
        }

    def _run(self, component: str, version: str) -> None:
        self.previous[component] = self.active[component]
        self.active[component] = version


def hgx_h100_firmware(rng: random.Random, vintage: str, gpus: int = 8) -> FirmwareSet:
    """A node of that vintage; some families are newer, and now and then one replaced GPU is.

    Raises ValueError for a vintage that is not in VINTAGES.
    """
    if vintage not in VINTAGES:
        raise ValueError(f"no firmware vintage {vintage!r}: use one of {', '.join(VINTAGES)}")
    age = VINTAGES.index(vintage)
    active: dict[str, str] = {}
    for family in _families(gpus):
        ahead = age + (rng.random() < 0.15)
        active |= {family.prefix + n: family.version(ahead) for n in family.indexes}
    if rng.random() < 0.05:
        vbios = next(family for family in _families(gpus) if family.prefix == "HGX_FW_GPU_SXM_")
        active[vbios.prefix + rng.choice(vbios.indexes)] = vbios.versions[-1]
    return FirmwareSet(hgx_h100_components(gpus), active)


@dataclass(frozen=True, slots=True)
class FirmwareImage:
    """What a BMC reads from an image's first line."""

    family: str
    components: tuple[str, ...]  # shell patterns
    version: str

    def fits(self, component: str) -> bool:
        return any(fnmatchcase(component, pattern) for pattern in self.components)


def build_image(image: FirmwareImage, rng: random.Random) -> bytes:
    """The file: header line and 64 KiB of padding, so that two builds by one seed are equal."""
    header = {
        "format": _FORMAT,
        "family": image.family,
        "components": list(image.components),
        "version": image.version,
    }
    return json.dumps(header).encode() + b"\n" + rng.randbytes(_PADDING)


def read_image(content: bytes) -> FirmwareImage:
    """Read the header line. Raises ValueError where `content` is no such image."""
    line = content[:_MAX_HEADER].split(b"\n", 1)[0]
    try:
        header = json.loads(line)
    except ValueError as error:
        raise ValueError("the image has no readable header") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ValueError(f"the image is not of the format {_FORMAT}")
    patterns, version = header.get("components"), header.get("version")
    if not isinstance(patterns, list) or not patterns or not isinstance(version, str) or not version:
        raise ValueError("the image's header lacks components or version")
    return FirmwareImage(str(header.get("family", "")), tuple(str(p) for p in patterns), version)


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """One step of a bundle: the image, the components it is for, and the reset that activates them."""

    order: int
    image: FirmwareImage
    components: tuple[str, ...]
    reset: ResetKind
    from_versions: tuple[str, ...]  # older versions that nodes of some vintage have
    content: bytes


def demo_bundle_entries(gpus: int = 8) -> tuple[BundleEntry, ...]:
    """ERoT, then BMC, then GPU VBIOS (one image for all GPUs), then NVSwitch; the bytes never change."""
    entries = []
    order = ("HGX_FW_ERoT_", "HGX_FW_BMC_", "HGX_FW_GPU_SXM_", "HGX_FW_NVSwitch_")
    for position, prefix in enumerate(order):
        family = next(family for family in _families(gpus) if family.prefix == prefix)
        image = FirmwareImage(prefix.rstrip("_"), (prefix + "*",), family.versions[-1])
        content = build_image(image, random.Random(f"{prefix} {image.version}"))
        components = tuple(prefix + n for n in family.indexes)
        entries.append(BundleEntry(position, image, components, family.reset, family.versions[:-1], content))
    return tuple(entries)

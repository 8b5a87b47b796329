"""What driver a node is to have, package by package, and what it had before: the values that a driver plan holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Self

from pydantic import StringConstraints, field_validator, model_validator

from fleet.drivers import parse_driver
from fleet.gpu_settings import NodeGpuSettings
from fleet.setting_types import Strict

PackageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*(:[a-z0-9]+)?$")]
PackageVersion = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:^_-]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
HostPath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")]


class InstallKind(StrEnum):
    """How a driver came onto a node. Only apt, dnf and runfile can be changed; BUNDLED came with a CUDA toolkit."""

    APT = "apt"
    DNF = "dnf"
    RUNFILE = "runfile"
    BUNDLED = "bundled"
    CONTAINER = "container"
    UNKNOWN = "unknown"


class ModuleFlavour(StrEnum):
    """Which of NVIDIA's kernel modules."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


class RebootPolicy(StrEnum):
    """Whether the node may be rebooted for its driver. ALWAYS does not unload the old module first."""

    NEVER = "never"
    WHEN_NEEDED = "when_needed"
    ALWAYS = "always"


class PackagePin(Strict):
    """One package at exactly one version (an rpm's is epoch:version-release). `sha256` is that of its file."""

    name: PackageName
    version: PackageVersion
    sha256: Sha256 | None = None


class RunfilePin(Strict):
    """NVIDIA's installer as a file that lies on the node."""

    path: HostPath
    sha256: Sha256 | None = None


class DriverTarget(Strict):
    """A driver as a node is to have it. `flavour` None: as the packages bring it."""

    version: str
    kind: InstallKind
    flavour: ModuleFlavour | None = None
    packages: tuple[PackagePin, ...] = ()
    runfile: RunfilePin | None = None
    reboot: RebootPolicy = RebootPolicy.WHEN_NEEDED

    @field_validator("version")
    @classmethod
    def _a_release(cls, version: str) -> str:
        found = parse_driver(version)
        if found is None or found.text != version or len(found.parts) < 2:
            raise ValueError(f"{version[:40]!r} is no driver release; give one in full, as 580.95.05")
        return version

    @model_validator(mode="after")
    def _installable(self) -> Self:
        if self.kind in (InstallKind.APT, InstallKind.DNF) and not self.packages:
            raise ValueError(f"{self.kind.value} needs the packages to install")
        if self.kind is InstallKind.RUNFILE and self.runfile is None:
            raise ValueError("runfile needs the file to install")
        if self.kind not in (InstallKind.APT, InstallKind.DNF, InstallKind.RUNFILE):
            raise ValueError(f"a driver cannot be installed as {self.kind.value!r}; apt, dnf or runfile")
        return self

    @property
    def fabric_manager(self) -> PackagePin | None:
        """The pin of the fabric manager, where the target brings one."""
        return next((pin for pin in self.packages if is_fabric_manager(pin.name)), None)


class FormerDriver(Strict):
    """What was on the node before anything was changed: what a rollback reinstalls and sets.

    `driver` is None where that cannot be reinstalled; `why_not` says why. `modules` are the loaded ones in the order
    in which they are unloaded, `services` the active ones in the order in which they are stopped, `maskable` the
    units of automatic upgrades that nobody had masked. `held` are package names, `gpus` the UUIDs.
    """

    version: str | None = None
    driver: DriverTarget | None = None
    why_not: str = ""
    held: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    maskable: tuple[str, ...] = ()
    settings: NodeGpuSettings = NodeGpuSettings()
    gpus: tuple[str, ...] = ()
    kernel: str | None = None


_FABRIC_MANAGER = re.compile(r"fabric-?manager")
_DRIVER_PACKAGE = re.compile(
    r"^(?:lib)?nvidia(?:-|$)|^cuda-drivers|^libcuda1$|^libnv(?:cuvid|optix|oml)|^xserver-xorg-video-nvidia|^kmod-nvidia"
    r"|^linux-(?:modules|objects|signatures)-nvidia|^xorg-x11-drv-nvidia|^akmod-nvidia|^dnf-plugin-nvidia$"
)
_NOT_THE_DRIVER = re.compile(
    r"nvidia-(?:container|ctk|docker|cuda-toolkit|settings-legacy|imex-channels)|^nvidia-(?:l4t|mlnx|peer-memory)"
    r"|nvidia-(?:gds|fs)(?:-|$)|^libnvidia-container"
)


def is_fabric_manager(name: str) -> bool:
    """Is a package of this name the fabric manager (nvidia-fabricmanager-570, nvidia-fabric-manager …)?"""
    return _FABRIC_MANAGER.search(name) is not None


def is_driver_package(name: str) -> bool:
    """Does a package of this name belong to a driver, of whatever version and distribution?"""
    plain = name.partition(":")[0]
    return _DRIVER_PACKAGE.search(plain) is not None and _NOT_THE_DRIVER.search(plain) is None


def same_release(version: str | None, release: str) -> bool | None:
    """Is `version` (of a package, a module or a program) the driver release `release`? None where it does not tell."""
    found, wanted = parse_driver(version or ""), parse_driver(release)
    if found is None or wanted is None:
        return None
    shared = min(len(found.parts), len(wanted.parts))
    if found.parts[:shared] != wanted.parts[:shared]:
        return False
    return True if len(found.parts) == len(wanted.parts) else None


def missing_pins(pins: Iterable[PackagePin], installed: dict[str, str]) -> tuple[PackagePin, ...]:
    """The pins that `installed` (name → version) does not show at their version."""
    return tuple(pin for pin in pins if installed.get(pin.name) != pin.version)

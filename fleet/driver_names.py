"""Which packages make up the driver on a node, and what they are called in the branch that is wanted.

The names differ by who packages them. Ubuntu's archive puts the branch into each name, and into some the release
(nvidia-driver-570-server, nvidia-firmware-570-server-570.133.20); NVIDIA's own repository did so in part up to R570
(cuda-drivers-570, nvidia-fabricmanager-570) and names without a branch since R580 (nvidia-open, nvidia-driver-cuda);
its rpms never had one. Sources: packages.ubuntu.com, and NVIDIA's Driver Installation Guide 580, "Version locking".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord
from fleet.driver_target import (
    DriverTarget,
    InstallKind,
    ModuleFlavour,
    PackagePin,
    RebootPolicy,
    RunfilePin,
    is_driver_package,
    is_fabric_manager,
    same_release,
)
from fleet.drivers import DriverVersion, parse_driver
from fleet.errors import NotQualified
from fleet.node_reading import NodeReading

_BRANCH_IN_NAME = re.compile(r"(?<=-)([3-9][0-9]{2})(?=-|$)")
_RELEASE_IN_NAME = re.compile(r"(?<=-)[3-9][0-9]{2}\.[0-9]+(?:\.[0-9]+)*(?=-|$)")
_PINNING = "nvidia-driver-pinning-"
_RUNFILE = re.compile(r"NVIDIA-Linux-\w+-([3-9][0-9]{2}\.[0-9]+(?:\.[0-9]+)?)[\w.-]*\.run$")


def installed_version(reading: NodeReading) -> str | None:
    """The driver release that is installed: the module on disk, else the user space, else what is loaded."""
    driver = reading.driver
    return next((one for one in (driver.on_disk, driver.user_space, driver.loaded) if one), None)


def kind_of(reading: NodeReading, installed: Iterable[InstalledPackage], manager: str | None) -> InstallKind:
    """How the driver came onto the node. `manager` is "dpkg" or "rpm" as the probe tells."""
    origin = reading.driver.origin
    installers = reading.sections.get("driver", {}).get("installers")
    toolkit = isinstance(installers, Mapping) and installers.get("cuda_runfile") is True
    if origin == "container":
        return InstallKind.CONTAINER
    if origin in ("runfile", "unpackaged"):
        return InstallKind.BUNDLED if toolkit else InstallKind.RUNFILE if origin == "runfile" else InstallKind.UNKNOWN
    driver_names = [package.name for package in installed if is_driver_package(package.name)]
    if (origin is not None and is_driver_package(origin)) or driver_names:
        return {"dpkg": InstallKind.APT, "rpm": InstallKind.DNF}.get(manager or "", InstallKind.UNKNOWN)
    return InstallKind.UNKNOWN


def driver_packages(installed: Iterable[InstalledPackage], release: str) -> tuple[InstalledPackage, ...]:
    """The packages of the driver `release`: those that are one by name and carry exactly its version."""
    return tuple(
        package
        for package in installed
        if is_driver_package(package.name)
        and (same_release(package.version, release) is True or package.name.startswith(_PINNING))
    )


def candidate_names(name: str, now: DriverVersion, wanted: DriverVersion) -> tuple[str, ...]:
    """What the package `name` of driver `now` may be called for `wanted`, the likeliest first."""
    text = wanted.text
    renamed = _RELEASE_IN_NAME.sub(text, name)
    renamed = _BRANCH_IN_NAME.sub(lambda match: _branch(match[1], now, wanted), renamed)
    without = _BRANCH_IN_NAME.sub("", name).replace("--", "-").rstrip("-")
    kept = [renamed, *([without] if without != name and wanted.branch != now.branch else [])]
    if is_fabric_manager(name):
        kept += [f"nvidia-fabricmanager-{wanted.branch}", "nvidia-fabricmanager", "nvidia-fabric-manager"]
    return tuple(dict.fromkeys(kept))


def _branch(found: str, now: DriverVersion, wanted: DriverVersion) -> str:
    return str(wanted.branch) if found == str(now.branch) else found


def names_to_ask(installed: Iterable[InstalledPackage], release: str, wanted: str) -> tuple[str, ...]:
    """Every name that may be needed for `wanted`, so that the repositories can be asked once.

    Raises NotQualified where one of the versions is no release.
    """
    now, then = _release(release), _release(wanted)
    found = driver_packages(installed, release)
    return tuple(dict.fromkeys(name for package in found for name in candidate_names(package.name, now, then)))


def driver_target_for(
    reading: NodeReading,
    wanted: str,
    installed: Iterable[InstalledPackage] = (),
    offered: Iterable[OfferedPackage] = (),
    records: Iterable[PackageRecord] = (),
    *,
    manager: str | None = None,
    runfile: RunfilePin | None = None,
    reboot: RebootPolicy = RebootPolicy.WHEN_NEEDED,
) -> DriverTarget:
    """The target that brings this node to `wanted` ("580.95.05") by the way in which its driver came.

    `offered` and `records` are the repositories' answers for `names_to_ask`. Raises NotQualified with what is
    nearest: another version that is offered, another kind of install.
    """
    known = tuple(installed)
    kind = kind_of(reading, known, manager)
    release = installed_version(reading)
    _release(wanted)
    flavour = flavour_of(reading, known)
    if kind is InstallKind.RUNFILE:
        return _by_runfile(wanted, runfile, flavour, reboot)
    if kind not in (InstallKind.APT, InstallKind.DNF):
        raise NotQualified(_cannot(kind, reading))
    if release is None:
        raise NotQualified("its driver's version is not known, so nobody can tell which of its packages are meant")
    pins = _pins(driver_packages(known, release), release, wanted, tuple(offered), tuple(records))
    return DriverTarget(version=wanted, kind=kind, flavour=flavour, packages=pins, reboot=reboot)


def flavour_of(reading: NodeReading, installed: Iterable[InstalledPackage]) -> ModuleFlavour | None:
    """As the loaded module tells; else as a package's name does."""
    if reading.driver.open_module is not None:
        return ModuleFlavour.OPEN if reading.driver.open_module else ModuleFlavour.PROPRIETARY
    names = [one.name for one in installed if is_driver_package(one.name)]
    modules = [
        name for name in names if re.search(r"dkms|kmod|kernel-(?:open|source)|modules-nvidia|^nvidia-open", name)
    ]
    if not modules:
        return None
    return ModuleFlavour.OPEN if any("open" in name for name in modules) else ModuleFlavour.PROPRIETARY


def _by_runfile(
    wanted: str, runfile: RunfilePin | None, flavour: ModuleFlavour | None, reboot: RebootPolicy
) -> DriverTarget:
    if runfile is None:
        raise NotQualified(
            f"its driver came by NVIDIA's runfile; name the file of {wanted} on the node and its SHA-256"
        )
    named = _RUNFILE.search(runfile.path)
    if named is not None and named[1] != wanted:
        raise NotQualified(f"{runfile.path} is the installer of {named[1]}, not of {wanted}")
    return DriverTarget(version=wanted, kind=InstallKind.RUNFILE, flavour=flavour, runfile=runfile, reboot=reboot)


def _cannot(kind: InstallKind, reading: NodeReading) -> str:
    if kind is InstallKind.BUNDLED:
        return "its driver came with a CUDA toolkit's runfile; uninstall it (nvidia-uninstall) and install by packages"
    if kind is InstallKind.CONTAINER:
        return "its driver runs from a container: the GPU Operator changes it, through its own upgrade"
    origin = reading.driver.origin
    told = f"its driver belongs to {origin!r}" if origin else "nobody can tell where its driver came from"
    return f"{told}; apt, dnf and runfile installs can be changed"


def _pins(
    packages: tuple[InstalledPackage, ...],
    release: str,
    wanted: str,
    offered: tuple[OfferedPackage, ...],
    records: tuple[PackageRecord, ...],
) -> tuple[PackagePin, ...]:
    if not packages:
        raise NotQualified(f"none of its packages carries the driver's version {release}; are two installs mixed?")
    digests = {(record.name, record.version): record.sha256 for record in records}
    pins: dict[str, PackagePin] = {}
    for package in packages:
        found = _offer(package.name, release, wanted, offered)
        if found is not None:
            pins[found.name] = PackagePin(
                name=found.name, version=found.version, sha256=digests.get((found.name, found.version))
            )
    return tuple(pins[name] for name in sorted(pins))


def _offer(name: str, release: str, wanted: str, offered: tuple[OfferedPackage, ...]) -> OfferedPackage | None:
    """The version to install under one of the candidate names; None for a pin of a branch that needs none now."""
    now, then = _release(release), _release(wanted)
    names = candidate_names(name, now, then)
    listed = [one for one in offered if one.sources or one.version]
    for candidate in names:
        fits = [one for one in listed if one.name == candidate and same_release(one.version, wanted) is True]
        if fits:
            return next((one for one in fits if one.sources), fits[0])
    if name.startswith(_PINNING):
        return next((one for one in listed if one.name in names), None)
    raise NotQualified(_nearest(names, wanted, listed))


def _nearest(names: tuple[str, ...], wanted: str, offered: list[OfferedPackage]) -> str:
    versions = [one for one in offered if one.name in names]
    if versions:
        releases = list(dict.fromkeys(found.text for one in versions if (found := parse_driver(one.version))))
        shown = ", ".join((get_close_matches(wanted, releases, 3, 0.0) or releases)[:3])
        return f"{versions[0].name} is not offered as {wanted}; its repositories have {shown}"
    return f"no repository of the node offers {' or '.join(names[:3])}; is the repository of {wanted} set up?"


def _release(text: str) -> DriverVersion:
    found = parse_driver(text)
    if found is None or len(found.parts) < 2:
        raise NotQualified(f"{text[:40]!r} is no driver release; give one in full, as 580.95.05")
    return found

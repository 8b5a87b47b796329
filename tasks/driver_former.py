"""What is on the node before anything is changed, written down once: a rollback goes back to it."""

from __future__ import annotations

import posixpath

from fleet.driver_facts import dpkg_or_rpm, masked_already
from fleet.driver_holders import loaded_modules
from fleet.driver_names import driver_packages, flavour_of, installed_version, kind_of
from fleet.driver_packages import InstalledPackage
from fleet.driver_target import (
    DriverTarget,
    FormerDriver,
    InstallKind,
    PackagePin,
    RunfilePin,
    is_driver_package,
)
from fleet.drivers import parse_driver
from fleet.gpu_settings import settings_of
from fleet.node_reading import NodeReading
from ledger import Outcome
from tasks.driver_work import DriverWork
from tasks.visit import Visit

SECTIONS = ("gpus", "driver", "packages", "system", "pci")
_STEP = "driver:former"


def recorded_former(visit: Visit) -> FormerDriver | None:
    """What this operation wrote down; None where it never came so far."""
    entry = visit.last(_STEP)
    if entry is None or entry.outcome is not Outcome.DONE:
        return None
    return FormerDriver.model_validate(entry.result["former"])


def ensure_former(work: DriverWork) -> FormerDriver:
    """Write down what is there, the first time; afterwards what was written."""
    known = recorded_former(work.visit)
    if known is not None:
        return known
    work.visit.say("reads the driver that is there")
    with work.visit.step(_STEP, {"target": work.target.version}) as evidence:
        former = _read(work)
        evidence["former"] = former.model_dump(mode="json")
    return former


def _read(work: DriverWork) -> FormerDriver:
    reading = work.read(*SECTIONS)
    packages = work.packages
    installed = () if packages is None else work.ask(packages.installed)
    held = () if packages is None else work.ask(packages.held)
    driver, why_not = _driver(work, reading, installed)
    wanted = (*work.settings.holders, *work.settings.stop_if_holding)
    active = set(work.ask(lambda: work.host.active_units(wanted)))
    settings = settings_of(reading.gpus)
    return FormerDriver(
        version=installed_version(reading),
        driver=driver,
        why_not=why_not,
        held=tuple(name for name in held if is_driver_package(name)),
        modules=loaded_modules(reading) or (),
        services=tuple(unit for unit in work.settings.holders if unit in active),
        maskable=_maskable(work, reading),
        settings=settings,
        gpus=tuple(gpu.uuid for gpu in settings.gpus if gpu.uuid),
        kernel=reading.kernel,
    )


def _maskable(work: DriverWork, reading: NodeReading) -> tuple[str, ...]:
    """Upgraders of this node's package manager that nobody has masked."""
    already = masked_already(reading)
    manager = dpkg_or_rpm(reading)
    foreign = {"dpkg": "dnf", "rpm": "apt"}.get(manager or "", "-")
    return tuple(
        unit
        for unit in work.settings.upgraders
        if not unit.startswith(foreign)
        and not (manager == "rpm" and unit.startswith("unattended"))
        and unit not in already
        and unit.removesuffix(".service") not in already
    )


def _driver(
    work: DriverWork, reading: NodeReading, installed: tuple[InstalledPackage, ...]
) -> tuple[DriverTarget | None, str]:
    """The former driver as something to install, or why it is not."""
    version = installed_version(reading)
    found = None if version is None else parse_driver(version)
    if version is None or found is None or len(found.parts) < 2:
        return None, "no driver is seen on the node" if version is None else f"{version[:40]!r} is no driver release"
    kind = kind_of(reading, installed, dpkg_or_rpm(reading))
    flavour, reboot = flavour_of(reading, installed), work.target.reboot
    if kind is InstallKind.RUNFILE:
        runfile = _former_runfile(work, found.text)
        if runfile is None:
            return None, f"the runfile of {found.text} does not lie beside the new one"
        return DriverTarget(version=found.text, kind=kind, flavour=flavour, runfile=runfile, reboot=reboot), ""
    if kind not in (InstallKind.APT, InstallKind.DNF):
        return None, f"its driver came by {kind.value}"
    pins = tuple(PackagePin(name=p.name, version=p.version) for p in driver_packages(installed, found.text))
    if not pins:
        return None, f"none of its packages carries the driver's version {found.text}"
    return DriverTarget(version=found.text, kind=kind, flavour=flavour, packages=pins, reboot=reboot), ""


def _former_runfile(work: DriverWork, version: str) -> RunfilePin | None:
    target = work.target
    if target.runfile is None:
        return None
    folder, name = posixpath.split(target.runfile.path)
    path = posixpath.join(folder, name.replace(target.version, version))
    digest = work.ask(lambda: work.host.sha256(path)) if path != target.runfile.path else None
    return None if digest is None else RunfilePin(path=path, sha256=digest)

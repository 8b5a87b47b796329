"""The driver's packages as a way, there or back, found them: what tells whether anything was changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.driver_target import is_driver_package
from tasks.driver_work import DriverWork


@dataclass(frozen=True, slots=True)
class FoundPackages:
    """`versions` has name → version of the driver's packages that were whole, `held` the names of those held."""

    versions: Mapping[str, str]
    held: tuple[str, ...] = ()


def ensure_found(work: DriverWork) -> None:
    """Write down which packages are there before this way changes any, once."""
    if recorded_found(work) is not None or work.happened("install") or work.happened("repair"):
        return
    with work.visit.step(f"{work.name}:found", {}) as evidence:
        evidence |= {"packages": driver_versions(work), "held": list(held_names(work))}


def recorded_found(work: DriverWork) -> FoundPackages | None:
    """What was written down; None where this way never came so far."""
    step = f"{work.name}:found"
    entry = work.visit.last(step)
    if entry is None or not work.visit.done(step):
        return None
    packages, held = entry.result.get("packages"), entry.result.get("held")
    versions = {str(name): str(version) for name, version in packages.items()} if isinstance(packages, Mapping) else {}
    return FoundPackages(versions, tuple(str(name) for name in held) if isinstance(held, list) else ())


def nothing_changed(work: DriverWork) -> bool:
    """Whether the driver's packages are still whole and those that this way found.

    An installer that is no package manager, once begun, is never taken to have changed nothing.
    """
    if not work.happened("install") and not work.happened("repair"):
        return True
    found, packages = recorded_found(work), work.packages
    broken = None if packages is None else packages.audit()
    if found is None or broken is None or any(is_driver_package(name) or " " in name for name in broken):
        return False  # where the audit names no package, nobody can tell which it means
    return driver_versions(work) == found.versions


def driver_versions(work: DriverWork) -> dict[str, str]:
    """Name → version of the driver's packages that are installed whole."""
    return {name: version for name, version in work.installed().items() if is_driver_package(name)}


def held_names(work: DriverWork) -> tuple[str, ...]:
    """The driver's packages that are held now."""
    packages = work.packages
    return () if packages is None else tuple(n for n in work.ask(packages.held) if is_driver_package(n))

"""Is a node's driver one driver? Loaded module, module on disk, user space and fabric manager against the target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.driver_facts import Kernel, has_nvswitch
from fleet.driver_target import DriverTarget, InstallKind, missing_pins, same_release
from fleet.gpu import SmiErrorKind
from fleet.gpu_settings import LostSetting
from fleet.node_reading import NodeReading


@dataclass(frozen=True, slots=True)
class DriverParts:
    """The versions that were read back; None: not known, or not there."""

    loaded: str | None = None
    on_disk: str | None = None
    user_space: str | None = None
    fabric_manager: str | None = None

    def as_detail(self) -> dict[str, object]:
        """For the journal."""
        return {
            "loaded": self.loaded,
            "on_disk": self.on_disk,
            "user_space": self.user_space,
            "fabric_manager": self.fabric_manager,
        }


@dataclass(frozen=True, slots=True)
class DriverOutcome:
    """What became of a node's driver. `version` is what was wanted, `parts` what was read back.

    `settings_lost` are the settings that the install had lost, before they were set again; `held_by` those who stood
    in the way for a time; `notes` what is worth knowing.
    """

    changed: bool
    version: str
    parts: DriverParts
    settings_lost: tuple[LostSetting, ...] = ()
    rebooted: bool = False
    held_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a node stands on the way to a target. `wrong` are the parts that are not it, `unknown` those not read."""

    parts: DriverParts
    packages_there: bool
    wrong: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    mismatch: bool = False

    @property
    def is_target(self) -> bool:
        return self.packages_there and not self.wrong and not self.unknown and not self.mismatch

    @property
    def said(self) -> str:
        """What is not as it must be."""
        words = [*self.wrong, *(f"{name} is not known" for name in self.unknown)]
        if not self.packages_there:
            words.insert(0, "its packages are not the target's")
        if self.mismatch:
            words.append("NVML: driver and library are two versions")
        return "; ".join(words)


def parts_of(reading: NodeReading) -> DriverParts:
    driver = reading.driver
    return DriverParts(driver.loaded, driver.on_disk, driver.user_space, driver.fabric_manager)


def standing(target: DriverTarget, reading: NodeReading, installed: dict[str, str]) -> Standing:
    """Judge a reading. `installed` is name → version of the packages that are installed whole.

    The fabric manager counts where the target brings one, or where the board has NVSwitches and one is there.
    """
    parts = parts_of(reading)
    wanted = {"module loaded": parts.loaded, "module on disk": parts.on_disk, "user space": parts.user_space}
    manager_counts = target.fabric_manager is not None or (
        target.kind is InstallKind.RUNFILE and parts.fabric_manager is not None and has_nvswitch(reading) is not False
    )
    if manager_counts:
        wanted["fabric manager"] = parts.fabric_manager
    wrong, unknown = [], []
    for name, version in wanted.items():
        same = same_release(version, target.version)
        if same is False:
            wrong.append(f"{name} is {version}, not {target.version}")
        elif same is None:
            unknown.append(name)
    if len(reading.driver.library_versions) > 1:
        wrong.append(f"libraries of {' and '.join(reading.driver.library_versions)} lie over one another")
    there = target.kind is InstallKind.RUNFILE or not missing_pins(target.packages, installed)
    if target.kind is InstallKind.RUNFILE:
        there = same_release(parts.on_disk, target.version) is True
        there = there and same_release(parts.user_space, target.version) is True
    return Standing(parts, there, tuple(wrong), tuple(unknown), says_mismatch(reading))


_NVML_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH


def says_mismatch(reading: NodeReading) -> bool:
    """Does NVML or nvidia-smi say that driver and library are of two versions?"""
    if reading.nvml_error == _NVML_MISMATCH:
        return True
    errors = reading.smi.errors if reading.smi is not None else ()
    return any(error.kind is SmiErrorKind.LIBRARY_MISMATCH for error in errors)


def unbuilt(kernels: Iterable[tuple[Kernel, str | None]], version: str) -> tuple[str, ...]:
    """Kernels whose module on disk (as modinfo tells, None: none) is not `version`, with what is there.

    A kernel without headers cannot have one built; the running one counts all the same.
    """
    return tuple(
        f"{kernel.version} has {found or 'no module'}"
        for kernel, found in kernels
        if (kernel.headers is not False or kernel.running) and same_release(found, version) is not True
    )

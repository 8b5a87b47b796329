"""NVIDIA's runfile installer on a host: a driver that no package manager knows of."""

from __future__ import annotations

from fleet.driver_target import ModuleFlavour, RunfilePin
from fleet.drivers import parse_driver

_OPEN_BY_DEFAULT_SINCE = 560  # NVIDIA's Driver Installation Guide 610, "Kernel Modules"


def install_command(runfile: RunfilePin, version: str, flavour: ModuleFlavour | None) -> tuple[str, ...]:
    """The installer, which replaces an earlier runfile's driver; the modules' kind where it is not the default."""
    found = parse_driver(version)
    is_open = found is not None and found.branch >= _OPEN_BY_DEFAULT_SINCE
    default = ModuleFlavour.OPEN if is_open else ModuleFlavour.PROPRIETARY
    kind = () if flavour in (None, default) else (f"--kernel-module-type={flavour}",)
    return ("sh", runfile.path, "--silent", "--dkms", "--no-questions", "--ui=none", *kind)


def uninstall_command() -> tuple[str, ...]:
    return ("nvidia-uninstall", "--silent", "--ui=none")

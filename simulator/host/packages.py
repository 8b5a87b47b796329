"""The packages of a simulated host: what is installed, in which state, and what is held."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from simulator.host.releases import KERNEL, driver_debs, driver_rpms, family, release_of

INSTALLED, UNPACKED, HALF_CONFIGURED, CONFIG_FILES = "i", "U", "F", "c"
_KEEPS_CONFIG_FILES = frozenset({"nvidia-kernel-common", "nvidia-compute-utils", "nvidia-fabricmanager"})
_STATUS = {
    INSTALLED: "installed",
    UNPACKED: "unpacked",
    HALF_CONFIGURED: "half-configured",
    CONFIG_FILES: "config-files",
}


@dataclass
class Installed:
    """One package. `state` is the second letter of dpkg's abbreviation, "i" for installed."""

    version: str
    state: str = INSTALLED
    held: bool = False

    @property
    def abbreviation(self) -> str:
        """dpkg's three characters: "ii ", "hi ", "iU ", "rc "."""
        wanted = "r" if self.state == CONFIG_FILES else "h" if self.held else "i"
        return f"{wanted}{self.state} "

    @property
    def status(self) -> str:
        """dpkg's three words: "install ok installed"."""
        wanted = "deinstall" if self.state == CONFIG_FILES else "hold" if self.held else "install"
        return f"{wanted} ok {_STATUS[self.state]}"


class Packages:
    """By name. `interrupted` is so while dpkg was killed in the middle and has not been told to go on."""

    def __init__(self, known: dict[str, Installed]) -> None:
        self._known = known
        self.interrupted = False

    def matching(self, patterns: list[str]) -> dict[str, Installed]:
        """Those whose name fits one of the patterns, in the order of their names; all of them without a pattern."""
        plain = [pattern.partition(":")[0] for pattern in patterns]
        fits = (name for name in self._known if not plain or any(fnmatchcase(name, pattern) for pattern in plain))
        return {name: self._known[name] for name in sorted(fits)}

    def get(self, name: str) -> Installed | None:
        """The package where it is there in any state but that of its configuration files alone."""
        found = self._known.get(name.partition(":")[0])
        return None if found is None or found.state == CONFIG_FILES else found

    def present(self) -> dict[str, Installed]:
        return {name: package for name, package in self._known.items() if package.state != CONFIG_FILES}

    def unpack(self, name: str, version: str) -> None:
        """The files are there, and nothing is set up yet."""
        before = self.get(name)
        self._known[name] = Installed(version, UNPACKED, before is not None and before.held)

    def set_state(self, name: str, state: str) -> None:
        self._known[name].state = state

    def hold(self, name: str, held: bool) -> bool:
        """False where there is no such package."""
        found = self._known.get(name)
        if found is None:
            return False
        found.held = held
        return True

    def remove(self, name: str) -> None:
        """As `apt-get remove`: configuration files stay where the package has some."""
        if family(name) in _KEEPS_CONFIG_FILES:
            self._known[name] = Installed(self._known[name].version, CONFIG_FILES)
        else:
            self._known.pop(name, None)

    def unfinished(self) -> dict[str, Installed]:
        """Packages that were unpacked and not set up, or only half."""
        return {name: p for name, p in sorted(self._known.items()) if p.state in (UNPACKED, HALF_CONFIGURED)}

    def release(self, *families: str) -> str | None:
        """The driver release of the first package of one of these families that is there."""
        for name, package in self.present().items():
            if family(name) in families:
                return release_of(package.version)
        return None

    def name_of(self, *families: str) -> str | None:
        """The name of the first package of one of these families that is there."""
        return next((name for name in self.present() if family(name) in families), None)


def ubuntu(release: str | None, hold_kernel: bool) -> Packages:
    """An Ubuntu 22.04 host with this driver from its packages, or without one. The driver's own package is held."""
    branch = (release or "").partition(".")[0]
    known = {
        f"linux-image-{KERNEL}": Installed("5.15.0-105.115", held=hold_kernel),
        f"linux-headers-{KERNEL}": Installed("5.15.0-105.115", held=hold_kernel),
        "datacenter-gpu-manager-4-core": Installed("1:4.5.2-1"),
        "dkms": Installed("2.8.7-2ubuntu2.2"),
        "nvidia-container-toolkit": Installed("1.16.2-1"),
    }
    debs = driver_debs(release) if release else {}
    known |= {name: Installed(version, held=name == f"nvidia-driver-{branch}-server") for name, version in debs.items()}
    return Packages(known)


def red_hat(release: str) -> Packages:
    """A RHEL 9 host with this driver from NVIDIA's repository."""
    known = {
        "kernel-core": Installed("5.14.0-427.13.1.el9_4"),
        "kernel-devel": Installed("5.14.0-427.13.1.el9_4"),
        "datacenter-gpu-manager-4-core": Installed("1:4.5.2-1"),
        "dkms": Installed("3.0.13-1.el9"),
        "nvidia-container-toolkit": Installed("1.16.2-1"),
    }
    return Packages(known | {name: Installed(version) for name, version in driver_rpms(release).items()})

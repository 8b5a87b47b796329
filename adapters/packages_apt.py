"""dpkg and apt on a host."""

from __future__ import annotations

from adapters.packages_locks import APT_LOCKS, read_locks
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation
from fleet.driver_packages_apt import (
    DPKG_FORMAT,
    read_audit,
    read_installed,
    read_names,
    read_policy,
    read_records,
    read_simulation,
)
from fleet.driver_target import PackagePin
from fleet.errors import TransientError
from fleet.package_locks import LockHolder
from fleet.ports import Host

_PATTERNS = (
    *("*nvidia*", "cuda*", "libcuda*", "libnv*", "datacenter-gpu-manager*", "nvlsm", "linux-image*", "linux-headers*"),
    *("linux-generic*", "linux-objects-nvidia*"),
)
_ENVIRONMENT = ("env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l")
_INSTALL = ("install", "-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages")
_SLOW = 180.0


class AptPackages:
    """One host's packages."""

    def __init__(self, host: Host, node: str) -> None:
        self._host = host
        self._node = node

    def installed(self) -> tuple[InstalledPackage, ...]:
        result = self._host.run(("dpkg-query", "-W", "-f", DPKG_FORMAT, *_PATTERNS))
        if result.code not in (0, 1):  # 1: a pattern fits nothing
            raise TransientError(f"dpkg-query does not answer: {result.stderr.strip()[-200:]}", node=self._node)
        return read_installed(result.stdout)

    def audit(self) -> tuple[str, ...] | None:
        result = self._host.run(("dpkg", "--audit"), _SLOW)
        return read_audit(result.stdout) if result.code in (0, 1) and not result.stderr.strip() else None

    def locks(self) -> tuple[LockHolder, ...] | None:
        return read_locks(self._host, APT_LOCKS)

    def held(self) -> tuple[str, ...]:
        result = self._host.run(("apt-mark", "showhold"))
        if result.code:
            raise TransientError(f"apt-mark does not answer: {result.stderr.strip()[-200:]}", node=self._node)
        return read_names(result.stdout)

    def offered(self, names: tuple[str, ...]) -> tuple[OfferedPackage, ...]:
        if not names:
            return ()
        return read_policy(self._host.run(("apt-cache", "policy", *names), _SLOW).stdout)

    def records(self, pins: tuple[PackagePin, ...]) -> tuple[PackageRecord, ...]:
        if not pins:
            return ()
        return read_records(self._host.run(("apt-cache", "show", *_named(pins)), _SLOW).stdout)

    def simulate(self, pins: tuple[PackagePin, ...]) -> Simulation | None:
        result = self._host.run((*_ENVIRONMENT, "apt-get", "-s", *_INSTALL, *_named(pins)), _SLOW)
        return read_simulation(result.code, result.stdout, result.stderr)

    def refresh_command(self) -> tuple[str, ...] | None:
        return (*_ENVIRONMENT, "apt-get", "update")

    def install_command(self, pins: tuple[PackagePin, ...], downgrade: bool) -> tuple[str, ...]:  # noqa: ARG002
        return (*_ENVIRONMENT, "apt-get", "-o", "Dpkg::Options::=--force-confold", *_INSTALL, *_named(pins))

    def repair_commands(self) -> tuple[tuple[str, ...], ...]:
        return (*_ENVIRONMENT, "dpkg", "--configure", "-a"), (*_ENVIRONMENT, "apt-get", "install", "-f", "-y")

    def hold(self, names: tuple[str, ...]) -> None:
        if names:
            self._host.run(("apt-mark", "hold", *names))

    def release(self, names: tuple[str, ...]) -> None:
        if names:
            self._host.run(("apt-mark", "unhold", *names))


def _named(pins: tuple[PackagePin, ...]) -> tuple[str, ...]:
    return tuple(f"{pin.name}={pin.version}" for pin in pins)

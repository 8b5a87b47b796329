"""rpm and dnf on a host."""

from __future__ import annotations

from adapters.packages_locks import RPM_LOCKS, read_locks
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation
from fleet.driver_packages_rpm import RPM_FORMAT, read_available, read_rpms, read_version_locks
from fleet.driver_target import PackagePin
from fleet.errors import TransientError
from fleet.package_locks import LockHolder
from fleet.ports import Host

_PATTERNS = (
    *("*nvidia*", "cuda*", "libnv*", "datacenter-gpu-manager*", "nvlsm", "kernel", "kernel-core", "kernel-devel"),
)
_SLOW = 180.0
_WITHOUT_THE_DEAD = "--setopt=*.skip_if_unavailable=True"
"""One repository that is away stops nothing: what it alone offers is then not offered."""


class DnfPackages:
    """One host's packages."""

    def __init__(self, host: Host, node: str) -> None:
        self._host = host
        self._node = node

    def installed(self) -> tuple[InstalledPackage, ...]:
        result = self._host.run(("rpm", "-qa", "--qf", RPM_FORMAT, *_PATTERNS), _SLOW)
        if result.code:
            raise TransientError(f"rpm does not answer: {result.stderr.strip()[-200:]}", node=self._node)
        return read_rpms(result.stdout)

    def audit(self) -> tuple[str, ...] | None:
        """Packages that are there twice at two versions: an rpm transaction that was cut off leaves both."""
        seen: dict[tuple[str, str], set[str]] = {}
        for package in self.installed():
            if not package.name.startswith("kernel"):
                seen.setdefault((package.name, package.architecture), set()).add(package.version)
        return tuple(name for (name, _), versions in seen.items() if len(versions) > 1)

    def locks(self) -> tuple[LockHolder, ...] | None:
        return read_locks(self._host, RPM_LOCKS)

    def held(self) -> tuple[str, ...]:
        result = self._host.run(("dnf", "versionlock", "list"), _SLOW)
        return read_version_locks(result.stdout) if result.code == 0 else ()  # the plugin may not be there

    def offered(self, names: tuple[str, ...]) -> tuple[OfferedPackage, ...]:
        if not names:
            return ()
        words = ("dnf", "-q", _WITHOUT_THE_DEAD, "--showduplicates", "list", "--available", *names)
        return read_available(self._host.run(words, _SLOW).stdout)

    def records(self, pins: tuple[PackagePin, ...]) -> tuple[PackageRecord, ...]:  # noqa: ARG002
        """dnf tells no digest of a package file; its signature is checked at the install (gpgcheck)."""
        return ()

    def simulate(self, pins: tuple[PackagePin, ...]) -> Simulation | None:  # noqa: ARG002
        return None

    def refresh_command(self) -> tuple[str, ...] | None:
        """Each dnf command looks at the age of its index; here it is told which repositories are away."""
        return "env", "LC_ALL=C", "dnf", _WITHOUT_THE_DEAD, "makecache"

    def install_command(self, pins: tuple[PackagePin, ...], downgrade: bool) -> tuple[str, ...]:
        names = tuple(f"{pin.name}-{pin.version}" for pin in pins)
        verb = "downgrade" if downgrade else "install"
        return "env", "LC_ALL=C", "dnf", "-y", "--setopt=gpgcheck=1", _WITHOUT_THE_DEAD, verb, *names

    def repair_commands(self) -> tuple[tuple[str, ...], ...]:
        return ()

    def hold(self, names: tuple[str, ...]) -> None:
        if names:
            self._host.run(("dnf", "versionlock", "add", *names), _SLOW)

    def release(self, names: tuple[str, ...]) -> None:
        if names:
            self._host.run(("dnf", "versionlock", "delete", *names), _SLOW)

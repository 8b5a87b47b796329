"""What a driver change needs of a package manager, whichever it is."""

from __future__ import annotations

from typing import Protocol

from adapters.packages_apt import AptPackages
from adapters.packages_dnf import DnfPackages
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation
from fleet.driver_target import InstallKind, PackagePin
from fleet.errors import NotQualified
from fleet.package_locks import LockHolder
from fleet.ports import Host


class Packages(Protocol):
    """Reads are one exchange each. What changes packages is a command, to be run as a job of the host."""

    def installed(self) -> tuple[InstalledPackage, ...]:
        """The driver's, CUDA's and the kernels' packages. Raises TransientError where it does not answer."""
        ...

    def audit(self) -> tuple[str, ...] | None:
        """Names of packages that are not installed whole; None where it does not tell."""
        ...

    def locks(self) -> tuple[LockHolder, ...] | None:
        """Who holds the locks of the package manager now; None where the host does not tell."""
        ...

    def held(self) -> tuple[str, ...]:
        """Names of packages that are not to be changed."""
        ...

    def offered(self, names: tuple[str, ...]) -> tuple[OfferedPackage, ...]: ...

    def records(self, pins: tuple[PackagePin, ...]) -> tuple[PackageRecord, ...]:
        """What the indexes say of these files."""
        ...

    def simulate(self, pins: tuple[PackagePin, ...]) -> Simulation | None:
        """What an install would do; None where this one cannot try it out."""
        ...

    def refresh_command(self) -> tuple[str, ...] | None: ...

    def install_command(self, pins: tuple[PackagePin, ...], downgrade: bool) -> tuple[str, ...]: ...

    def repair_commands(self) -> tuple[tuple[str, ...], ...]:
        """What finishes an install that was cut off, the gentlest first."""
        ...

    def hold(self, names: tuple[str, ...]) -> None: ...

    def release(self, names: tuple[str, ...]) -> None: ...


def packages_of(kind: InstallKind, host: Host, node: str) -> Packages:
    """The package manager of the node. Raises NotQualified for a kind that has none."""
    if kind is InstallKind.APT:
        return AptPackages(host, node)
    if kind is InstallKind.DNF:
        return DnfPackages(host, node)
    raise NotQualified(f"{kind.value} has no package manager; apt or dnf", node=node)

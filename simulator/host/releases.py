"""What the simulated repositories offer: driver releases, their packages by distribution, and what these need.

The releases and the CUDA version of each are as NVIDIA published them; package names are those of Ubuntu's archive
(server flavour) and of NVIDIA's repository for RHEL 9. Files exist only as a size and a digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

RELEASES: Mapping[str, str] = {  # release → CUDA version
    "550.54.15": "12.4",
    "550.90.07": "12.4",
    "570.172.08": "12.8",
    "570.195.03": "12.8",
    "580.65.06": "13.0",
    "580.95.05": "13.0",
    "580.105.08": "13.0",
}
FIRST = "550.54.15"
REVISION = "0ubuntu0.22.04.1"
KERNEL, NEXT_KERNEL = "5.15.0-105-generic", "5.15.0-119-generic"
RPM_KERNEL = "5.14.0-427.13.1.el9_4.x86_64"

_SERVER = (
    "nvidia-driver-{}-server",
    "nvidia-dkms-{}-server",
    "nvidia-kernel-source-{}-server",
    "nvidia-kernel-common-{}-server",
    "nvidia-utils-{}-server",
    "nvidia-compute-utils-{}-server",
    "libnvidia-compute-{}-server",
    "libnvidia-cfg1-{}-server",
    "nvidia-fabricmanager-{}",
    "libnvidia-nscq-{}",
)
_OPEN = ("nvidia-driver-{}-server-open", "nvidia-dkms-{}-server-open", "nvidia-kernel-source-{}-server-open")
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "nvidia-driver": (
        "nvidia-dkms",
        "nvidia-kernel-source",
        "nvidia-kernel-common",
        "nvidia-utils",
        "nvidia-compute-utils",
        "libnvidia-compute",
        "libnvidia-cfg1",
    ),
    "nvidia-dkms": ("nvidia-kernel-source", "nvidia-kernel-common"),
    "nvidia-kernel-common": ("nvidia-firmware",),
    "nvidia-utils": ("libnvidia-compute",),
    "nvidia-compute-utils": ("libnvidia-compute",),
}
_FAMILY = re.compile(r"-\d{3}(?:-server)?(?:-open)?$")
_RPMS = (
    "nvidia-driver",
    "nvidia-driver-cuda",
    "nvidia-driver-libs",
    "nvidia-driver-cuda-libs",
    "kmod-nvidia-latest-dkms",
    "nvidia-kmod-common",
    "nvidia-persistenced",
    "nvidia-modprobe",
    "libnvidia-cfg",
    "libnvidia-ml",
)
_RPMS_WITHOUT_EPOCH = ("nvidia-fabric-manager", "libnvidia-nscq")


@dataclass(frozen=True, slots=True)
class Offer:
    """A package at a version in a repository. `needs` are (package, version) that must be there with it."""

    name: str
    version: str
    needs: tuple[tuple[str, str], ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"{self.name} {self.version}".encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the package's file, the same each time."""
        return 20_000 + int(self.sha256[:7], 16) % 60_000_000


def release_of(version: str) -> str:
    """580.95.05 of "3:580.95.05-1.el9" or "580.95.05-0ubuntu0.22.04.1"."""
    return version.rpartition(":")[2].partition("-")[0]


def sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def family(name: str) -> str:
    """nvidia-dkms of nvidia-dkms-570-server-open: packages of one family and different names exclude each other."""
    return _FAMILY.sub("", name)


def library_version(release: str) -> str:
    """NVML's own version, which leaves out the third number: 570.172 of 570.172.08."""
    return ".".join(release.split(".")[:2])


def deb_version(release: str) -> str:
    return f"{release}-{REVISION}"


def driver_debs(release: str) -> dict[str, str]:
    """Name → version of the packages of a whole driver, as a host has them."""
    branch = release.partition(".")[0]
    names = [name.format(branch) for name in _SERVER]
    return dict.fromkeys([*names, f"nvidia-firmware-{branch}-server-{release}"], deb_version(release))


def driver_rpms(release: str) -> dict[str, str]:
    with_epoch = dict.fromkeys(_RPMS, f"3:{release}-1.el9")
    return with_epoch | dict.fromkeys(_RPMS_WITHOUT_EPOCH, f"{release}-1")


def _needs(name: str, release: str) -> tuple[tuple[str, str], ...]:
    """What a package of a driver needs at its own version, in its own flavour."""
    branch = release.partition(".")[0]
    open_modules = name.endswith("-open")
    version = deb_version(release)
    found: list[tuple[str, str]] = []
    for base in _NEEDS.get(family(name), ()):
        own = base in {"nvidia-dkms", "nvidia-kernel-source"} and open_modules
        tail = f"-{release}" if base == "nvidia-firmware" else "-open" if own else ""
        found.append((f"{base}-{branch}-server{tail}", version))
    return tuple(found)


def _make_debs() -> dict[str, tuple[Offer, ...]]:
    found: dict[str, list[Offer]] = {}
    for release in RELEASES:
        branch = release.partition(".")[0]
        names = [*driver_debs(release), *(name.format(branch) for name in _OPEN), "nvidia-persistenced"]
        for name in names:
            found.setdefault(name, []).append(Offer(name, deb_version(release), _needs(name, release)))
    return {name: _newest_first(offers) for name, offers in found.items()}


def _make_rpms() -> dict[str, tuple[Offer, ...]]:
    found: dict[str, list[Offer]] = {}
    for release in RELEASES:
        for name, version in driver_rpms(release).items():
            found.setdefault(name, []).append(Offer(name, version))
    return {name: _newest_first(offers) for name, offers in found.items()}


def _newest_first(offers: list[Offer]) -> tuple[Offer, ...]:
    return tuple(sorted(offers, key=lambda offer: sort_key(offer.version), reverse=True))


DEBS: Mapping[str, tuple[Offer, ...]] = _make_debs()
RPMS: Mapping[str, tuple[Offer, ...]] = _make_rpms()


def find(repository: Mapping[str, tuple[Offer, ...]], name: str, version: str | None = None) -> Offer | None:
    """The package at `version`, or the newest one."""
    offers = repository.get(name, ())
    return next((offer for offer in offers if version in (None, offer.version)), None)

"""Which packages a driver is made of, under every way of naming them, and what an unknown shape is told."""

from __future__ import annotations

import pytest

from fleet.driver_names import candidate_names, driver_packages, driver_target_for, kind_of, names_to_ask
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord
from fleet.driver_target import (
    DriverTarget,
    InstallKind,
    ModuleFlavour,
    PackagePin,
    RunfilePin,
    is_driver_package,
    same_release,
)
from fleet.drivers import parse_driver
from fleet.errors import NotQualified
from fleet.node_parts import DriverReading
from fleet.node_reading import NodeReading, read_node

OLD, NEW = "570.133.20", "580.95.05"


def reading(origin: str | None = "libnvidia-compute-570-server", **more: object) -> NodeReading:
    plain = read_node('{"version": 1, "at": 1796040000, "sections": {}, "probe": {}}')
    driver = DriverReading(loaded=OLD, on_disk=OLD, user_space=OLD, open_module=True, origin=origin)
    object.__setattr__(plain, "driver", driver)
    for name, value in more.items():
        object.__setattr__(plain, name, value)
    return plain


def installed(*pairs: str) -> tuple[InstalledPackage, ...]:
    return tuple(InstalledPackage(*pair.split("=", 1)) for pair in pairs)


def offered(*pairs: str) -> tuple[OfferedPackage, ...]:
    return tuple(OfferedPackage(*pair.split("=", 1), ("500 http://mirror.example x",)) for pair in pairs)


def pins(target: DriverTarget) -> dict[str, str]:
    return {pin.name: pin.version for pin in target.packages}


UBUNTU = installed(
    "nvidia-dkms-570-server-open=570.133.20-0ubuntu0.24.04.1",
    "libnvidia-compute-570-server=570.133.20-0ubuntu0.24.04.1",
    "nvidia-firmware-570-server-570.133.20=570.133.20-0ubuntu0.24.04.1",
    "nvidia-fabricmanager-570=570.133.20-1",
    "nvidia-container-toolkit=1.17.4-1",
    "cuda-toolkit-12-8=12.8.1-1",
    "linux-image-6.8.0-45-generic=6.8.0-45.45",
)


def test_ubuntus_names_carry_the_branch_and_some_the_release() -> None:
    offers = offered(
        "nvidia-dkms-580-server-open=580.95.05-0ubuntu0.24.04.2",
        "libnvidia-compute-580-server=580.95.05-0ubuntu0.24.04.2",
        "nvidia-firmware-580-server-580.95.05=580.95.05-0ubuntu0.24.04.2",
        "nvidia-fabricmanager-580=580.95.05-1",
    )
    target = driver_target_for(reading(), NEW, UBUNTU, offers, manager="dpkg")
    assert pins(target) == {offer.name: offer.version for offer in offers}
    assert (target.kind, target.flavour) == (InstallKind.APT, ModuleFlavour.OPEN)
    assert {offer.name for offer in offers} <= set(names_to_ask(UBUNTU, OLD, NEW))


def test_nvidias_repository_names_without_a_branch_from_580_on() -> None:
    before = installed("nvidia-open-570=570.133.20-1ubuntu1", "cuda-drivers-fabricmanager-570=570.133.20-1")
    offers = offered("nvidia-open=580.95.05-1ubuntu1", "nvidia-open=590.44.01-1", "nvidia-fabricmanager=580.95.05-1")
    target = driver_target_for(reading("libnvidia-compute-570"), NEW, before, offers, manager="dpkg")
    assert pins(target) == {"nvidia-open": "580.95.05-1ubuntu1", "nvidia-fabricmanager": "580.95.05-1"}


def test_rpms_keep_their_names_and_their_epoch() -> None:
    before = installed("nvidia-driver=3:570.133.20-1.el9", "kmod-nvidia-open-dkms=3:570.133.20-1.el9")
    offers = offered("nvidia-driver=3:580.95.05-1.el9", "kmod-nvidia-open-dkms=3:580.95.05-1.el9")
    target = driver_target_for(reading("nvidia-driver-cuda-libs"), NEW, before, offers, manager="rpm")
    assert target.kind is InstallKind.DNF
    assert pins(target) == {offer.name: offer.version for offer in offers}


def test_a_release_of_the_same_branch_keeps_every_name() -> None:
    offers = offered(
        *(f"{name}=570.172.08-1" for name in ("nvidia-dkms-570-server-open", "libnvidia-compute-570-server")),
        "nvidia-firmware-570-server-570.172.08=570.172.08-1",
        "nvidia-fabricmanager-570=570.172.08-1",
    )
    assert set(pins(driver_target_for(reading(), "570.172.08", UBUNTU, offers, manager="dpkg"))) == {
        offer.name for offer in offers
    }


def test_a_version_that_is_not_offered_is_refused_with_what_is_nearest() -> None:
    offers = offered("nvidia-dkms-580-server-open=580.82.07-1", "nvidia-dkms-580-server-open=580.105.08-1")
    with pytest.raises(NotQualified, match=r"not offered as 580.95.05; its repositories have .*580"):
        driver_target_for(reading(), NEW, UBUNTU, offers, manager="dpkg")
    with pytest.raises(NotQualified, match=r"is the repository of 580\.95\.05 set up"):
        driver_target_for(reading(), NEW, UBUNTU, (), manager="dpkg")


@pytest.mark.parametrize(
    ("origin", "sections", "why"),
    [
        ("container", {}, "GPU Operator changes it"),
        ("runfile", {"driver": {"installers": {"cuda_runfile": True}}}, "CUDA toolkit"),
        ("unpackaged", {}, "belongs to 'unpackaged'"),
        (None, {}, "nobody can tell"),
    ],
)
def test_an_install_that_cannot_be_changed_is_never_guessed(origin: str | None, sections: object, why: str) -> None:
    with pytest.raises(NotQualified, match=why):
        driver_target_for(reading(origin, sections=sections), NEW)


def test_a_runfile_needs_the_file_of_that_release() -> None:
    right = RunfilePin(path=f"/srv/NVIDIA-Linux-x86_64-{NEW}.run", sha256="0" * 64)
    assert driver_target_for(reading("runfile"), NEW, runfile=right).kind is InstallKind.RUNFILE
    with pytest.raises(NotQualified, match="name the file"):
        driver_target_for(reading("runfile"), NEW)
    with pytest.raises(NotQualified, match=r"installer of 570\.133\.20"):
        driver_target_for(reading("runfile"), NEW, runfile=RunfilePin(path=f"/srv/NVIDIA-Linux-x86_64-{OLD}.run"))


@pytest.mark.parametrize("wanted", ["580", "R580", "latest", "", "580.95.05-1"])
def test_what_is_no_release_is_refused(wanted: str) -> None:
    with pytest.raises((NotQualified, ValueError)):
        driver_target_for(reading(), wanted, UBUNTU, (), manager="dpkg")


def test_the_index_gives_each_pin_its_digest() -> None:
    before = installed("nvidia-open=570.133.20-1")
    offers = offered("nvidia-open=580.95.05-1")
    records = (PackageRecord("nvidia-open", "580.95.05-1", "ab" * 32), PackageRecord("nvidia-open", "1", "cd" * 32))
    target = driver_target_for(reading("nvidia-open"), NEW, before, offers, records, manager="dpkg")
    assert target.packages == (PackagePin(name="nvidia-open", version="580.95.05-1", sha256="ab" * 32),)


def test_a_driver_on_no_package_manager_that_is_known_is_of_no_kind() -> None:
    assert kind_of(reading("nvidia-driver"), (), None) is InstallKind.UNKNOWN
    assert kind_of(reading("nvidia-driver"), (), "dpkg") is InstallKind.APT


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("nvidia-dkms-580-open", True),
        ("libnvidia-compute-580:amd64", True),
        ("libnvidia-nscq-580", True),
        ("nvidia-imex-580", True),
        ("nvidia-persistenced", True),
        ("cuda-drivers-fabricmanager-580", True),
        ("linux-modules-nvidia-580-server-open-generic", True),
        ("kmod-nvidia-open-dkms", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("nvidia-docker2", False),
        ("cuda-toolkit-13-0", False),
        ("datacenter-gpu-manager-4-core", False),
        ("nvidia-gds-13-0", False),
        ("linux-image-6.8.0-45-generic", False),
        ("slurm-wlm", False),
    ],
)
def test_what_belongs_to_the_driver_is_told_by_its_name(name: str, is_one: bool) -> None:
    assert is_driver_package(name) is is_one


def test_packages_of_other_versions_are_not_the_drivers() -> None:
    found = driver_packages(installed("nvidia-settings=510.1-1", "nvidia-open=570.133.20-1"), OLD)
    assert [package.name for package in found] == ["nvidia-open"]


def test_only_the_branch_in_a_name_is_replaced() -> None:
    old, new = parse_driver(OLD), parse_driver(NEW)
    assert old is not None
    assert new is not None
    assert candidate_names("linux-objects-nvidia-570-server-6.8.0-45-generic", old, new)[0] == (
        "linux-objects-nvidia-580-server-6.8.0-45-generic"
    )
    assert candidate_names("nvidia-open", old, new) == ("nvidia-open",)


def test_two_part_releases_are_releases_and_a_short_form_tells_nothing() -> None:
    assert same_release("580.178-1", "580.178") is True
    assert same_release("580.178", "580.178.04") is None
    assert same_release("580.173.02", "580.178") is False
    assert same_release(None, NEW) is None
    assert same_release("580.95.5", NEW) is True

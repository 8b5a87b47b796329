"""What stops a driver change before it begins, or sends it back, each with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.driver_host_fake import OLD, DriverSite, change, check_whole, restore
from unit.driver_state_fake import NEXT_KERNEL, OLD_NAMES

from fleet.errors import DriverInstallFailed, DriverMismatch, FleetError, NotQualified


@pytest.fixture
def site(tmp_path: Path) -> DriverSite:
    return DriverSite(tmp_path)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("E: The repository 'http://mirror x Release' is not signed.", "no good signature"),
        ("W: GPG error: http://mirror x InRelease: NO_PUBKEY A4B469963BF863CC", "no good signature"),
        ("E: Failed to fetch http://mirror/dists/x/InRelease  Hash Sum mismatch", "not what its signature says"),
        ("Err:1 http://mirror x InRelease\n  Temporary failure resolving 'mirror'", "do not answer"),
    ],
)
def test_a_repository_that_cannot_be_trusted_or_reached_stops_it_before_anything(
    site: DriverSite, said: str, why: str
) -> None:
    site.gpu_host.update_says = said
    with pytest.raises(NotQualified, match=why):
        change(site)
    check_whole(site.gpu_host, OLD)
    assert not [c for c in site.gpu_host.commands if c[:2] == ("systemctl", "stop")]


def test_a_package_with_another_digest_than_the_plans_is_not_installed(site: DriverSite) -> None:
    site.gpu_host.digests = {"nvidia-dkms-580-server-open": "0" * 64}
    with pytest.raises(NotQualified, match="SHA-256 0000"):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_a_file_that_arrives_damaged_leaves_the_former_driver_running(site: DriverSite) -> None:
    site.gpu_host.install_fault = "E: Failed to fetch http://x/nvidia.deb  Hash Sum mismatch"
    with pytest.raises(NotQualified, match="not what its digest says"):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_a_repository_that_goes_away_in_the_middle_leaves_the_former_driver_running(site: DriverSite) -> None:
    site.gpu_host.install_fault = "E: Failed to fetch http://x/nvidia.deb  Connection timed out"
    with pytest.raises(NotQualified, match="its packages cannot be fetched"):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_an_install_that_fails_twice_is_a_failure_and_the_way_back_mends_it(site: DriverSite) -> None:
    site.gpu_host.install_fault = "dpkg: error processing package nvidia-dkms-580-server-open (--configure)"
    with pytest.raises(DriverInstallFailed, match="error processing package"):
        change(site)
    assert len(site.gpu_host.installs) == 2
    site.gpu_host.install_fault = ""
    restore(site)
    check_whole(site.gpu_host, OLD)


def test_a_module_that_was_not_built_for_the_next_kernel_is_found_before_a_boot_finds_it(site: DriverSite) -> None:
    site.gpu_host.kernels[NEXT_KERNEL] = True
    site.gpu_host.dkms_fails_for = {NEXT_KERNEL}
    with pytest.raises(DriverMismatch, match=NEXT_KERNEL):
        change(site)
    site.gpu_host.dkms_fails_for = set()
    restore(site)
    check_whole(site.gpu_host, OLD)


def test_headers_of_the_next_kernel_are_missing_and_nothing_is_touched(site: DriverSite) -> None:
    site.gpu_host.kernels[NEXT_KERNEL] = False
    with pytest.raises(NotQualified, match=f"headers of the next kernel {NEXT_KERNEL}"):
        change(site)
    check_whole(site.gpu_host, OLD)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "Secure Boot"),
        ("modprobe: ERROR: could not insert 'nvidia': No such device", "no GPU that it drives"),
    ],
)
def test_a_driver_that_does_not_load_says_why_and_the_way_back_works(site: DriverSite, said: str, why: str) -> None:
    site.gpu_host.load_fault = said
    with pytest.raises(DriverMismatch, match=why):
        change(site)
    outcome = restore(site)
    assert outcome.parts.loaded == OLD
    check_whole(site.gpu_host, OLD)


def test_nouveau_is_found_and_the_node_is_not_touched(site: DriverSite) -> None:
    site.gpu_host.bound = "nouveau"
    with pytest.raises(NotQualified, match="wrong kernel driver bound: nouveau"):
        change(site)
    assert site.gpu_host.installs == []


def test_without_a_way_back_nothing_begins(site: DriverSite) -> None:
    site.gpu_host.offered = {n: v for n, v in site.gpu_host.offered.items() if n not in OLD_NAMES}
    with pytest.raises(NotQualified, match="no repository offers the former"):
        change(site)
    check_whole(site.gpu_host, OLD)


def test_nothing_was_begun_so_there_is_nothing_to_go_back_to(site: DriverSite) -> None:
    assert restore(site).changed is False
    check_whole(site.gpu_host, OLD)


def test_every_refusal_is_an_error_of_the_fleet(site: DriverSite) -> None:
    site.gpu_host.secure_boot, site.gpu_host.signer = True, ""
    with pytest.raises(FleetError, match="Secure Boot is on"):
        change(site)

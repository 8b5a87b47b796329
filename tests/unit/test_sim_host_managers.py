"""Simulated hosts whose driver came by dnf, or by NVIDIA's own installer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sim_host_bench import MODULES, NODE, HostBench

from adapters.packages_dnf import DnfPackages
from fleet.driver_target import PackagePin
from simulator.host.releases import driver_rpms
from simulator.host.runfile import runfile_digest

NEW, FORMER = "570.172.08", "550.54.15"
FILE = f"/opt/drivers/NVIDIA-Linux-x86_64-{NEW}.run"
QUIETLY = ("--silent", "--dkms", "--no-questions", "--ui=none")


@pytest.fixture
def red_hat(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path, "{dnf: gpu-0001}")
    yield found
    found.close()


@pytest.fixture
def runfile(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path, "{runfile: gpu-0001}")
    yield found
    found.close()


def pins(release: str) -> tuple[PackagePin, ...]:
    return tuple(PackagePin(name=name, version=version) for name, version in driver_rpms(release).items())


def change(bench: HostBench, release: str, downgrade: bool = False) -> dict[str, object]:
    bench.start_job(release, *DnfPackages(bench, NODE).install_command(pins(release), downgrade))
    bench.advance(120)
    return bench.read_job(release)


def test_rpm_and_dnf_tell_what_is_installed_and_what_is_offered(red_hat: HostBench) -> None:
    packages = DnfPackages(red_hat, NODE)
    found = {package.name: package.version for package in packages.installed()}
    assert {name: found[name] for name in driver_rpms(FORMER)} == driver_rpms(FORMER)
    offered = {(offer.name, offer.version) for offer in packages.offered(("nvidia-driver", "nvidia-fabric-manager"))}
    assert ("nvidia-driver", "3:570.172.08-1.el9") in offered
    assert ("nvidia-fabric-manager", "570.172.08-1") in offered
    assert red_hat.ask("dpkg-query", "-W").code == 127
    assert red_hat.probe().os_release == "Red Hat Enterprise Linux 9.4 (Plow)"


def test_dnf_goes_up_and_down_again(red_hat: HostBench) -> None:
    assert change(red_hat, NEW)["code"] == 0
    reading = red_hat.probe()
    assert (reading.driver.loaded, reading.driver.on_disk, reading.driver.user_space) == (FORMER, NEW, NEW)
    assert (reading.driver.fabric_manager, reading.nvml_error) == (NEW, 18)
    up = red_hat.ask("dnf", "-y", "install", f"nvidia-driver-{driver_rpms(FORMER)['nvidia-driver']}")
    assert "already installed" in up.stdout
    assert change(red_hat, FORMER, downgrade=True)["code"] == 0
    assert red_hat.probe().driver.on_disk == FORMER
    assert [line["version"] for line in red_hat.truth("driver_install")] == [NEW, FORMER]


def test_a_version_lock_keeps_a_package(red_hat: HostBench) -> None:
    packages = DnfPackages(red_hat, NODE)
    packages.hold(("nvidia-driver",))
    assert packages.held() == ("nvidia-driver",)
    assert "Unable to find a match" in red_hat.ask("dnf", "-y", "install", "nvidia-driver-3:570.172.08-1.el9").stderr
    packages.release(("nvidia-driver",))
    assert packages.held() == ()


def test_a_runfile_is_named_by_its_digest_and_installs_only_without_a_loaded_module(runfile: HostBench) -> None:
    assert runfile.ask("sha256sum", FILE).stdout == f"{runfile_digest(NEW)}  {FILE}\n"
    assert runfile.ask("sha256sum", FILE.replace("08.run", "09.run")).code == 1
    refused = runfile.ask("sh", FILE, *QUIETLY)
    assert "appears to already be loaded in your kernel" in refused.stderr
    runfile.stop_holders()
    assert runfile.ask("modprobe", "-r", *MODULES).code == 0
    runfile.start_job("run", "sh", FILE, *QUIETLY)
    runfile.advance(100)
    assert runfile.read_job("run")["code"] == 0
    assert runfile.ask("modprobe", "nvidia").code == 0
    reading = runfile.probe()
    assert (reading.driver.loaded, reading.driver.origin) == (NEW, "runfile")
    assert runfile.ask("dkms", "status").stdout == f"nvidia/{NEW}, 5.15.0-105-generic, x86_64: installed\n"


def test_the_uninstaller_leaves_no_driver(runfile: HostBench) -> None:
    runfile.stop_holders()
    runfile.ask("modprobe", "-r", *MODULES)
    assert runfile.ask("nvidia-uninstall", "--silent", "--ui=none").code == 0
    reading = runfile.probe()
    assert (reading.driver.on_disk, reading.driver.user_space) == (None, None)
    assert runfile.ask("nvidia-uninstall", "--silent").code == 127
    assert runfile.ask("nvidia-smi").code == 127


def test_a_runfile_is_refused_where_packages_brought_the_driver(tmp_path: Path) -> None:
    bench = HostBench(tmp_path)
    assert "An alternate method of installing" in bench.ask("sh", FILE, *QUIETLY).stderr
    bench.close()

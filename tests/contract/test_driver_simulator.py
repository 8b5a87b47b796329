"""A driver change against simulated hosts: by apt, by dnf, and by NVIDIA's own installer, there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.driver_host_fake import PLAIN, DriverSite
from unit.sim_host_bench import HOLDERS, NODE, HostBench
from unit.site_fakes import SiteClock

from adapters.driver_host import DriverHost
from fleet.driver_target import DriverTarget, RunfilePin
from fleet.errors import DriverBlocked, DriverInstallFailed, DriverMismatch, FleetError, NotQualified
from fleet.gpu_settings import settings_of
from fleet.model import Node
from simulator.host.runfile import runfile_digest
from tasks.driver import change_driver, read_driver_target, restore_driver

NEW, FORMER = "580.95.05", "550.54.15"
FILE = f"/opt/drivers/NVIDIA-Linux-x86_64-{NEW}.run"


class BenchClock(SiteClock):
    """Where we wait, the simulated host's time passes too."""

    def __init__(self, bench: HostBench) -> None:
        super().__init__()
        self._bench = bench

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._bench.advance(seconds)


class SimulatedSite(DriverSite):
    def __init__(self, folder: Path, drivers: str) -> None:
        super().__init__(folder / "site")
        self.bench = HostBench(folder, drivers)
        self.clock = BenchClock(self.bench)

    def host(self, node: Node) -> HostBench:  # type: ignore[override]
        return self.bench

    def file_host(self, node: Node) -> HostBench:  # type: ignore[override]
        return self.bench

    def versions(self) -> set[str | None]:
        driver = self.bench.probe().driver
        return {driver.loaded, driver.on_disk, driver.user_space, driver.fabric_manager}

    def target(self) -> DriverTarget:
        runfile = RunfilePin(path=FILE, sha256=runfile_digest(NEW))
        return read_driver_target(DriverHost(self.bench, NODE), NODE, NEW, runfile)

    def running(self) -> list[str]:
        return [unit for unit in HOLDERS if self.bench.ask("systemctl", "is-active", unit).stdout == "active\n"]


@pytest.fixture
def site_with(tmp_path: Path) -> Iterator[Callable[[str], SimulatedSite]]:
    made: list[SimulatedSite] = []

    def make(drivers: str) -> SimulatedSite:
        made.append(SimulatedSite(tmp_path, drivers))
        return made[-1]

    yield make
    for site in made:
        site.bench.close()


@pytest.mark.parametrize("kind", ["{}", "{dnf: gpu-0001}", "{runfile: gpu-0001}"])
def test_every_kind_of_install_goes_up_and_back(site_with: Callable[[str], SimulatedSite], kind: str) -> None:
    site = site_with(kind)
    site.bench.ask("nvidia-smi", "-i", "3", "-pl", "500")
    site.bench.ask("nvidia-smi", "-i", "3", "-c", "3")
    before, services = settings_of(site.bench.probe().gpus), site.running()
    outcome = change_driver(site.new_visit(), site.target(), PLAIN)
    assert site.versions() == {NEW}
    assert {lost.setting for lost in outcome.settings_lost} >= {"power_limit_watts", "compute_mode"}
    assert (settings_of(site.bench.probe().gpus), site.running()) == (before, services)
    restore_driver(site.new_visit(), PLAIN)
    assert site.versions() == {FORMER}
    assert (settings_of(site.bench.probe().gpus), site.running()) == (before, services)


def test_a_strangers_process_blocks_the_node_and_is_named(site_with: Callable[[str], SimulatedSite]) -> None:
    site = site_with("{stray_holder: gpu-0001}")
    with pytest.raises(DriverBlocked, match=r"pid 4121 \(python3\) of alice"):
        change_driver(site.new_visit(), site.target(), PLAIN)
    assert site.versions() == {FORMER}
    assert len(site.running()) == len(HOLDERS)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("does_not_load", DriverMismatch),
        ("dkms_fails", DriverInstallFailed),
        ("apt_busy", DriverBlocked),
        ("secure_boot", DriverMismatch),
        ("disk_full", NotQualified),
        ("hold_kernel", None),
        ("new_kernel", None),
        ("new_kernel_without_headers", NotQualified),
    ],
)
def test_whatever_is_wrong_with_a_host_it_ends_on_one_version(
    site_with: Callable[[str], SimulatedSite], fault: str, error: type[FleetError] | None
) -> None:
    site = site_with(f"{{{fault}: gpu-0001}}")
    wanted = site.target()
    if error is None:
        change_driver(site.new_visit(), wanted, PLAIN)
    else:
        with pytest.raises(error):
            change_driver(site.new_visit(), wanted, PLAIN)
        restore_driver(site.new_visit(), PLAIN)
    assert site.versions() == ({NEW} if error is None else {FORMER})
    assert len(site.running()) == len(HOLDERS)


def test_a_package_that_is_another_than_on_the_other_nodes_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    good, bad = SimulatedSite(tmp_path / "good", "{}"), SimulatedSite(tmp_path, "{wrong_digest: gpu-0001}")
    with pytest.raises(NotQualified, match="SHA-256"):
        change_driver(bad.new_visit(), good.target(), PLAIN)
    assert bad.versions() == {FORMER}
    good.bench.close()
    bad.bench.close()

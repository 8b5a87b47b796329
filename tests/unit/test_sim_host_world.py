"""Driver changes on a whole simulated fleet, reached over its real protocols."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from adapters.driver_host import DriverHost
from adapters.packages_apt import AptPackages
from blocks.fleet import Fleet
from fleet.driver_jobs import JobState
from fleet.driver_target import PackagePin
from fleet.errors import NodeUnreachable
from simulator.driver_verdict import DriverExpectations, judge_drivers
from simulator.host.releases import driver_debs
from simulator.scenario import read_scenario
from simulator.world import World, WorldOptions

NEW, FORMER = "580.95.05", "550.54.15"
FAULTS = """
drivers:
  stray_holder: gpu-0003
  settings: {power_limit_watts: 650}
"""


@dataclass
class Site:
    world: World
    fleet: Fleet
    folder: Path

    def host(self, node: str) -> DriverHost:
        place = next(entry for entry in self.fleet.spec().inventory() if entry.name == node)
        return DriverHost(self.fleet.host(place), node)

    def metrics(self, node: str = "") -> httpx.Response:
        url = json.loads((self.folder / "simulator.json").read_text())["metrics"]
        return httpx.get(f"{url}/{node}" if node else url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running fleet of four nodes, a second of which is ten minutes."""
    place = tmp_path_factory.mktemp("drivers")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    options = WorldOptions(place, nodes=4, racks=2, gpus_per_node=2, time_scale=600.0, jobs=False, faults=FAULTS)
    world = World(options)
    asyncio.run_coroutine_threadsafe(world.start(), loop).result(30)
    yield Site(world, Fleet(fleet_file=str(place / "fleet.yaml")), place)
    asyncio.run_coroutine_threadsafe(world.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def install(site: Site, host: DriverHost, release: str, name: str) -> None:
    pins = tuple(PackagePin(name=package, version=version) for package, version in driver_debs(release).items())
    packages = AptPackages(host.root, name)
    host.jobs.start(name, packages.install_command(pins, downgrade=False))
    while (job := host.jobs.read(name)).state is JobState.RUNNING:
        pass
    assert job.succeeded, job.tail


def test_a_driver_is_changed_over_ssh_and_the_truth_log_agrees(site: Site) -> None:
    host = site.host("gpu-0001")
    units = ("dcgm-exporter", "nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced")
    assert host.active_units(units) == units
    for unit in units:
        assert host.stop(unit).code == 0
    install(site, host, NEW, "change-1")
    assert host.read(("gpus", "driver")).nvml_error == 18
    assert host.unload(("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")).code == 0
    assert host.load("nvidia").code == 0
    for unit in reversed(units):
        assert host.start(unit).code == 0
    assert host.set_gpu(("nvidia-smi", "-pl", "650")).code == 0
    reading = host.read(())
    assert {reading.driver.loaded, reading.driver.user_space, reading.driver.fabric_manager} == {NEW}
    told = judge_drivers(site.folder / "truth.jsonl", DriverExpectations(FORMER, others={"gpu-0001": NEW}))
    assert told.wrong() == ()
    assert told.changed == ("gpu-0001",)


def test_a_reboot_is_a_job_that_has_ended_before_the_host_goes(site: Site) -> None:
    host = site.host("gpu-0002")
    before = host.boot_id()
    host.jobs.start("reboot-1", ("systemctl", "reboot"))
    assert host.jobs.read("reboot-1").state is JobState.ENDED
    machine, came_back = site.world.machines["gpu-0002"], threading.Event()
    machine.listeners.append(lambda changed: came_back.set() if changed.up else None)
    assert came_back.wait(20)
    assert boot_id_of(host) != before
    assert host.jobs.read("reboot-1").state is JobState.ENDED


def boot_id_of(host: DriverHost) -> str:
    """As soon as the host's port is open again: that is in the same turn of the simulator's loop, or the next ones."""
    while True:
        try:
            return host.boot_id()
        except NodeUnreachable:
            continue


def test_a_stranger_on_one_node_is_told(site: Site) -> None:
    assert [holder.user for holder in site.host("gpu-0003").holders() or () if holder.user == "alice"] == ["alice"]


def test_the_exporters_metrics_are_served_for_the_fleet_and_for_a_node(site: Site) -> None:
    whole = site.metrics()
    assert whole.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    temperatures = [line for line in whole.text.splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    hosts = {line.partition('Hostname="')[2].partition('"')[0] for line in temperatures}
    assert {"gpu-0003", "gpu-0004"} <= hosts
    one = site.metrics("gpu-0004").text
    assert one.count("# TYPE DCGM_FI_DEV_XID_ERRORS gauge") == 1
    assert one.count('Hostname="gpu-0004"') == one.count('modelName="NVIDIA H100 80GB HBM3"')
    assert f'DCGM_FI_DRIVER_VERSION="{FORMER}"' in one
    assert site.metrics("gpu-9999").status_code == 404


def test_a_node_whose_exporter_is_stopped_gives_no_metrics_and_no_zeros(site: Site) -> None:
    host = site.host("gpu-0004")
    host.stop("dcgm-exporter")
    assert site.metrics("gpu-0004").status_code == 503
    assert 'Hostname="gpu-0004"' not in site.metrics().text
    host.start("dcgm-exporter")
    assert site.metrics("gpu-0004").status_code == 200


def test_the_bmc_shows_the_air_that_the_gpus_breathe(site: Site) -> None:
    heat = site.world.hosts["gpu-0004"].heat
    assert site.world.machines["gpu-0004"].inlet_celsius() == pytest.approx(heat.inlet(), abs=1.0)
    assert 18 < heat.inlet() < 30


def test_the_scenario_of_the_canary_has_a_slower_driver_and_settings_of_its_own() -> None:
    scenario = read_scenario("driver_canary")
    assert scenario.fleet.nodes == 64
    assert "drivers:" in scenario.faults_text()

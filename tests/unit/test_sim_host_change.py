"""The product's whole driver change on a simulated host, judged by the host's own truth log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.driver_host_fake import DriverSite
from unit.sim_host_bench import NODE, HostBench

from adapters.driver_host import DriverHost
from fleet.driver_target import RunfilePin
from fleet.errors import DriverBlocked, DriverMismatch, FleetError
from simulator.driver_verdict import DriverExpectations, judge_drivers
from simulator.host.runfile import runfile_digest
from tasks.driver import OBSERVED, DriverSteps, change_driver, read_driver_target, restore_driver

NEW, FORMER = "580.95.05", "550.54.15"
PLAIN = DriverSteps(*(step.fn for step in OBSERVED))  # type: ignore[attr-defined]
TUNED = "settings: {power_limit_watts: 650, application_clocks_mhz: [2619, 1755], mig: [3g.40gb, 1g.10gb]}"


class Change:
    """A site whose one host is the simulated one; its time passes while somebody waits."""

    def __init__(self, folder: Path, drivers: str) -> None:
        self._folder = folder
        self.bench = HostBench(folder, drivers, gpus=2)
        self._first = [gpu.values() for gpu in self.bench.host.state.settings.gpus]
        self.site = DriverSite(folder / "site")
        self.site.gpu_host = self.bench  # type: ignore[assignment]
        sleep = self.site.clock.sleep

        def sleep_there_too(seconds: float) -> None:
            sleep(seconds)
            self.bench.advance(seconds)

        self.site.clock.sleep = sleep_there_too  # type: ignore[method-assign]
        runfile = RunfilePin(path=f"/opt/NVIDIA-Linux-x86_64-{NEW}.run", sha256=runfile_digest(NEW))
        self.target = read_driver_target(
            DriverHost(self.bench, NODE), NODE, NEW, runfile if self.bench.host.state.manager == "runfile" else None
        )

    def change(self) -> None:
        change_driver(self.site.new_visit(), self.target, PLAIN)

    def restore(self) -> None:
        restore_driver(self.site.new_visit(), PLAIN)

    def wrong(self, release: str) -> tuple[str, ...]:
        fleet = {"t": 0, "event": "fleet", "racks": {"r1": [NODE]}, "drivers": FORMER, "settings": self._first}
        path = self._folder / "whole.jsonl"
        path.write_text(f"{json.dumps(fleet)}\n{(self._folder / 'truth.jsonl').read_text()}")
        return judge_drivers(path, DriverExpectations(release)).wrong()


@pytest.mark.parametrize(
    "drivers", [f"{{{TUNED}}}", "{dnf: gpu-0001}", "{runfile: gpu-0001}", "{new_kernel: gpu-0001}"]
)
def test_a_node_gets_the_new_driver_whole_with_its_settings_and_goes_back(tmp_path: Path, drivers: str) -> None:
    change = Change(tmp_path, drivers)
    change.change()
    assert change.wrong(NEW) == ()
    if "runfile" not in drivers:  # the former installer is not part of the plan
        change.restore()
        assert change.wrong(FORMER) == ()
    change.bench.close()


@pytest.mark.parametrize("lost", ["persistence", "power_limit_watts", "ecc", "mig_mode"])
def test_a_setting_that_the_driver_lost_is_put_back(tmp_path: Path, lost: str) -> None:
    settings = TUNED if lost == "mig_mode" else "settings: {power_limit_watts: 650}"
    change = Change(tmp_path, f'{{"{NEW}": {{settings_lost: [{lost}]}}, {settings}}}')
    change.change()
    assert change.wrong(NEW) == ()
    change.bench.close()


@pytest.mark.parametrize("fault", ["dkms_fails", "does_not_load"])
def test_a_driver_that_is_not_to_be_had_on_a_node_leads_back_to_the_former_one(tmp_path: Path, fault: str) -> None:
    change = Change(tmp_path, f'{{"{NEW}": {{{fault}: gpu-0001}}, {TUNED}}}')
    with pytest.raises(FleetError):
        change.change()
    change.restore()
    assert change.wrong(FORMER) == ()
    change.bench.close()


def test_a_node_that_somebody_uses_is_left_as_it_was(tmp_path: Path) -> None:
    change = Change(tmp_path, "{stray_holder: gpu-0001}")
    with pytest.raises(DriverBlocked, match=r"pid 4121 \(python3\) of alice"):
        change.change()
    assert change.bench.truth("driver_install") == []
    assert change.wrong(FORMER) == ()
    change.bench.close()


def test_a_host_that_loses_power_in_the_install_ends_on_one_version(tmp_path: Path) -> None:
    change = Change(tmp_path, f"{{{TUNED}}}")
    advance, cut = change.bench.advance, []

    def advance_until_it_installs(seconds: float) -> None:
        advance(seconds)
        if change.bench.packages_broken() and not cut:
            cut.append(change.bench.clock.now())
            change.bench.do(change.bench.machine.power_off)
            change.bench.do(change.bench.machine.power_on)
            advance(200)

    change.bench.advance = advance_until_it_installs  # type: ignore[method-assign]
    try:
        change.change()
    except DriverMismatch:
        change.change()
    assert len(cut) == 1
    assert change.wrong(NEW) == ()
    change.bench.close()

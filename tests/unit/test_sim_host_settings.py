"""What nvidia-smi sets on a simulated host, what a reload or a boot loses of it, and what the probe reads back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sim_host_bench import HostBench

from fleet.gpu_settings import commands_for, lost, settings_of


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path, gpus=4)
    yield found
    found.close()


def smi(bench: HostBench, *words: str) -> str:
    answer = bench.ask("nvidia-smi", *words)
    assert answer.code == 0, answer.stderr
    return answer.stdout


def change_all(bench: HostBench) -> None:
    smi(bench, "-i", "0", "-pl", "650")
    smi(bench, "-i", "1", "-ac", "2619,1755")
    smi(bench, "-i", "2", "-c", "3")
    bench.ask("systemctl", "stop", "nvidia-dcgm")
    bench.ask("systemctl", "stop", "dcgm-exporter")
    smi(bench, "-i", "3", "-mig", "1")
    smi(bench, "mig", "-i", "3", "-cgi", "9,3g.40gb", "-C")


def test_settings_are_read_back_by_the_probe(bench: HostBench) -> None:
    change_all(bench)
    gpus = settings_of(bench.probe().gpus).gpus
    assert gpus[0].power_limit_watts == 650
    assert gpus[1].clocks_mhz == (1755, 2619)
    assert gpus[2].compute_mode == 3
    assert (gpus[3].mig_mode, gpus[3].mig) == (True, ("3g.40gb", "3g.40gb"))
    assert "  MIG 3g.40gb     Device  1: (UUID: MIG-" in smi(bench, "-L")


def test_a_reload_loses_limits_clocks_modes_and_mig_devices_and_keeps_mig_mode_and_ecc(bench: HostBench) -> None:
    change_all(bench)
    smi(bench, "-i", "0", "-e", "0")
    before = settings_of(bench.probe().gpus)
    bench.stop_holders()
    bench.reload()
    after = settings_of(bench.probe().gpus)
    assert {(one.gpu, one.setting) for one in lost(before, after)} == {
        (0, "power_limit_watts"),
        (1, "clocks_mhz"),
        (2, "compute_mode"),
        (3, "mig"),
        *((slot, "persistence") for slot in range(4)),
    }
    assert (after.gpus[0].ecc, after.gpus[0].ecc_pending) == (True, False)


def test_the_commands_that_the_product_gives_bring_every_setting_back(bench: HostBench) -> None:
    change_all(bench)
    before = settings_of(bench.probe().gpus)
    bench.stop_holders()
    bench.reload()
    for command in commands_for(before, settings_of(bench.probe().gpus)):
        assert bench.ask(*command).code == 0, command
    assert lost(before, settings_of(bench.probe().gpus)) == ()


def test_ecc_waits_for_a_boot(bench: HostBench) -> None:
    assert "Reboot required." in smi(bench, "-i", "1", "-e", "0")
    reading = bench.probe().gpus
    assert reading is not None
    assert (reading[1].ecc_mode_current, reading[1].ecc_mode_pending) == (True, False)
    bench.do(bench.machine.reboot)
    bench.advance(200)
    reading = bench.probe().gpus
    assert reading is not None
    assert (reading[1].ecc_mode_current, reading[0].ecc_mode_current) == (False, True)


def test_mig_mode_waits_where_a_monitor_holds_the_gpu(bench: HostBench) -> None:
    assert "is in pending enable state for GPU 00000000:18:00.0" in smi(bench, "-i", "0", "-mig", "1")
    gpu = settings_of(bench.probe().gpus).gpus[0]
    assert (gpu.mig_mode, gpu.mig_pending) == (False, True)
    bench.do(bench.machine.reboot)
    bench.advance(200)
    gpu = settings_of(bench.probe().gpus).gpus[0]
    assert (gpu.mig_mode, gpu.mig) == (True, ())


def test_mig_devices_that_do_not_fit_are_refused_whole(bench: HostBench) -> None:
    change_all(bench)
    refused = bench.ask("nvidia-smi", "mig", "-i", "3", "-cgi", "1g.10gb", "-C")
    assert (refused.code, "Insufficient Resources" in refused.stdout) == (19, True)
    assert settings_of(bench.probe().gpus).gpus[3].mig == ("3g.40gb", "3g.40gb")
    assert bench.ask("nvidia-smi", "mig", "-i", "0", "-cgi", "9", "-C").code == 6


def test_a_limit_out_of_range_is_refused(bench: HostBench) -> None:
    refused = bench.ask("nvidia-smi", "-i", "0", "-pl", "900")
    assert refused.code == 2
    assert "between 200.00 W and 700.00 W" in refused.stderr
    assert settings_of(bench.probe().gpus).gpus[0].power_limit_watts == 700


def test_every_change_is_in_the_truth_log_with_who_made_it(bench: HostBench) -> None:
    smi(bench, "-i", "2", "-pl", "500")
    bench.stop_holders()
    bench.reload()
    found = [(line["gpu"], line["name"], line["value"], line["by"]) for line in bench.truth("setting")]
    assert found[0] == (2, "power_limit_watts", 500.0, "nvidia-smi")
    assert (2, "power_limit_watts", 700.0, "driver") in found
    assert found.count((0, "persistence", False, "driver")) == 1
    assert not [line for line in found if line[1] == "ecc"]


def test_a_driver_that_loses_a_setting_sets_it_wrongly_once_after_its_install(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, '{"570.172.08": {settings_lost: [persistence, power_limit_watts]}}', gpus=2)
    bench.stop_holders()
    bench.install("570.172.08")
    bench.reload()
    bench.start_holders()
    gpu = settings_of(bench.probe().gpus).gpus[0]
    assert (gpu.persistence, gpu.power_limit_watts) == (False, 500.0)
    smi(bench, "-pm", "1")
    smi(bench, "-pl", "650")
    bench.stop_holders()
    bench.reload()
    gpu = settings_of(bench.probe().gpus).gpus[0]
    assert (gpu.persistence, gpu.power_limit_watts) == (False, 700.0)
    bench.close()


def test_the_fleet_may_begin_with_settings_of_its_own(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{settings: {power_limit_watts: 600, mig: [3g.40gb, 1g.10gb]}}", gpus=2)
    gpus = settings_of(bench.probe().gpus).gpus
    assert [gpu.power_limit_watts for gpu in gpus] == [600, 600]
    assert (gpus[0].mig, gpus[1].mig) == (("3g.40gb", "1g.10gb"), ())
    assert bench.truth("setting") == []
    bench.close()

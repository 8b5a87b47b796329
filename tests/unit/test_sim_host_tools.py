"""Measurement tools of a simulated host: what they print, as the product reads it, and the truth behind it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sim_host_bench import HostBench

from fleet.measure_readers.conditions import conditions_query, processes_query, read_conditions, read_processes
from fleet.measure_readers.dcgmproftester import dcgmproftester_values, wrong_dcgmproftester
from fleet.measure_readers.nccl_tests import nccl_value
from fleet.measure_readers.nvbandwidth import nvbandwidth_values
from fleet.measure_readers.values import ToolReading
from simulator.host.performance import LEVELS, Measure, Performance, Place

BANDWIDTH = ("nvbandwidth", "-j", "-t", "device_local_copy")
HOST_TO_DEVICE = ("nvbandwidth", "-j", "-t", "host_to_device_memcpy_ce")
ALL_REDUCE = ("all_reduce_perf", "-b", "8G", "-e", "8G", "-g", "8", "-n", "20")
GEMM = ("dcgmproftester12", "--no-dcgm-validation", "-t", "1004", "-d", "10")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path)
    yield found
    found.close()


def read(bench: HostBench, command: tuple[str, ...]) -> ToolReading:
    answer = bench.ask(*command)
    text = f"{answer.stdout}\n{answer.stderr}"
    if command[0] == "nvbandwidth":
        return nvbandwidth_values(text, command[3], 8)
    return nccl_value(text, 8) if command[0] == "all_reduce_perf" else dcgmproftester_values(text, 8)


def values(bench: HostBench, command: tuple[str, ...]) -> list[float]:
    found = [value.value for value in read(bench, command).values]
    assert None not in found, read(bench, command)
    return [value for value in found if value is not None]


@pytest.mark.parametrize(
    ("command", "measure", "count"),
    [
        (BANDWIDTH, Measure.HBM, 8),
        (HOST_TO_DEVICE, Measure.HOST_DEVICE, 8),
        (ALL_REDUCE, Measure.ALL_REDUCE, 1),
        (GEMM, Measure.GEMM, 8),
    ],
)
def test_a_tool_prints_what_the_products_reader_reads(
    bench: HostBench, command: tuple[str, ...], measure: Measure, count: int
) -> None:
    began = bench.clock.now()
    found = values(bench, command)
    assert len(found) == count
    assert all(value == pytest.approx(LEVELS[measure], rel=0.08) for value in found)
    assert 10 <= bench.clock.now() - began <= 20


def test_two_runs_differ_by_half_a_per_cent_and_two_nodes_by_more(tmp_path: Path) -> None:
    performance = Performance(7)
    places = [Place(f"gpu-{n:04d}", "r1") for n in range(400)]
    runs = [performance.noise("run", n) for n in range(2000)]
    levels = [performance.level(place, None, Measure.ALL_REDUCE) / LEVELS[Measure.ALL_REDUCE] for place in places]
    gpus = [performance.level(places[0], slot, Measure.HBM) for slot in range(400)]
    assert statistics.stdev(runs) == pytest.approx(1.0, abs=0.05)
    assert statistics.stdev(levels) == pytest.approx(0.012, abs=0.002)
    assert statistics.stdev(gpus) / statistics.fmean(gpus) == pytest.approx(0.004, abs=0.001)


def test_repeated_runs_on_one_node_differ_by_no_more_than_the_stated_noise(bench: HostBench) -> None:
    found = [values(bench, ALL_REDUCE)[0] for _ in range(25)]
    assert 0.002 < statistics.stdev(found) / statistics.fmean(found) < 0.009


def test_a_slower_driver_is_slower_in_its_measure_alone(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, '{"570.172.08": {all_reduce: -0.05}}')

    def mean(command: tuple[str, ...]) -> float:
        return statistics.fmean(statistics.fmean(values(bench, command)) for _ in range(6))

    before = [mean(ALL_REDUCE), mean(BANDWIDTH)]
    bench.install("570.172.08")
    bench.stop_holders()
    bench.reload()
    bench.start_holders()
    after = [mean(ALL_REDUCE), mean(BANDWIDTH)]
    assert after[0] / before[0] == pytest.approx(0.95, abs=0.008)
    assert after[1] / before[1] == pytest.approx(1.0, abs=0.008)
    bench.close()


def test_a_lost_persistence_mode_costs_nine_per_cent_of_all_reduce(bench: HostBench) -> None:
    before = statistics.fmean(values(bench, ALL_REDUCE)[0] for _ in range(5))
    bench.ask("nvidia-smi", "-pm", "0")
    after = statistics.fmean(values(bench, ALL_REDUCE)[0] for _ in range(5))
    assert after / before == pytest.approx(0.91, abs=0.01)


def test_a_power_limit_costs_gemm_and_is_seen_in_the_clocks_event_reasons_while_it_runs(bench: HostBench) -> None:
    before = statistics.fmean(values(bench, GEMM))
    bench.ask("nvidia-smi", "-pl", "400")
    assert {gpu.slowed for gpu in conditions(bench)} == {()}
    bench.start_job("gemm", *GEMM)
    bench.advance(5)
    during = conditions(bench)
    assert {gpu.slowed for gpu in during} == {("sw_power_cap",)}
    assert {gpu.power_limit_watts for gpu in during} == {400.0}
    processes = read_processes(bench.ask(*processes_query()).stdout)
    assert {process.name for process in processes or ()} == {"dcgmproftester1"}
    bench.advance(15)
    assert bench.read_job("gemm")["state"] == "ended"
    assert read_processes(bench.ask(*processes_query()).stdout) == ()
    bench.advance(600)
    assert statistics.fmean(values(bench, GEMM)) / before < 0.85


def conditions(bench: HostBench) -> tuple[object, ...]:
    return read_conditions(bench.ask(*conditions_query()).stdout).gpus


def test_a_gpu_that_has_worked_cools_down_slowly(bench: HostBench) -> None:
    def hottest() -> float:
        found = read_conditions(bench.ask(*conditions_query()).stdout).gpus
        return max(gpu.celsius or 0.0 for gpu in found)

    idle = hottest()
    bench.ask(*GEMM)
    after = hottest()
    bench.advance(60)
    later = hottest()
    bench.advance(600)
    assert after > later + 5 > idle + 10
    assert hottest() == pytest.approx(idle, abs=3)


def test_a_hot_driver_throttles(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, '{"550.54.15": {heat_celsius: 30}}')
    bench.start_job("gemm", *GEMM)
    bench.advance(5)
    found = read_conditions(bench.ask(*conditions_query()).stdout).gpus
    assert {gpu.slowed for gpu in found} == {("sw_thermal",)}
    bench.close()


def test_tools_say_why_they_cannot_measure(bench: HostBench) -> None:
    bench.install("580.95.05")
    for command in (BANDWIDTH, ALL_REDUCE, GEMM):
        missing = {value.missing for value in read(bench, command).values}
        assert all("unsupported display driver" in text or "unable to initialise" in text for text in missing), missing
    bench.stop_holders()
    bench.reload()
    assert "system not yet initialized" in bench.ask(*ALL_REDUCE).stdout
    bench.start_holders()
    assert len(values(bench, BANDWIDTH)) == 8
    assert len(values(bench, GEMM)) == 8


def test_a_dcgmproftester_of_another_cuda_version_says_so_and_that_of_twelve_runs_on_thirteen(bench: HostBench) -> None:
    for major in (11, 13):
        wrong = bench.ask(f"dcgmproftester{major}", *GEMM[1:])
        assert wrong_dcgmproftester(wrong.stdout + wrong.stderr)
    bench.stop_holders()
    bench.install("580.95.05")
    bench.reload()
    bench.start_holders()
    assert "Running version 12 binary with CUDA driver version 13." in bench.ask(*GEMM).stdout
    assert values(bench, ("dcgmproftester13", *GEMM[1:])) == pytest.approx(values(bench, GEMM), rel=0.03)


def test_a_tool_that_is_not_there_is_not_found(bench: HostBench) -> None:
    assert bench.ask("gpu-burn", "60").code == 127
    assert bench.ask("nvbandwidth", "-j", "-t", "no_such_test").stdout.count("Not Found") == 1

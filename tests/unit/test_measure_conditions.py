"""nvidia-smi's answers about the conditions of a measurement: what is not told is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.measure_readers.conditions import (
    OLD_REASONS,
    conditions_query,
    is_unknown_field,
    read_conditions,
    read_gpu_list,
    read_processes,
)

UUID = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3{}"


def test_a_gpu_at_its_power_cap_is_slowed_by_it() -> None:
    (gpu,) = read_conditions("0, 0x0000000000000004, 63, 700.00, 699.12, 1410\n").gpus
    assert gpu.slowed == ("sw_power_cap",)
    assert (gpu.celsius, gpu.power_limit_watts, gpu.power_draw_watts, gpu.sm_mhz) == (63.0, 700.0, 699.12, 1410.0)


def test_idle_clocks_and_clock_settings_slow_nothing() -> None:
    gpus = read_conditions("0, 0x0000000000000001, 31, 700.00, 72.1, 345\n1, 0x2, 31, 700.00, 72.1, 345\n").gpus
    assert [gpu.slowed for gpu in gpus] == [(), ()]


def test_several_reasons_are_all_named() -> None:
    (gpu,) = read_conditions("3, 0x00000000000000E8, 91, 700.00, 350.0, 1005\n").gpus
    assert gpu.index == 3
    assert gpu.slowed == ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


@pytest.mark.parametrize("word", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]"])
def test_what_the_driver_does_not_tell_is_not_known(word: str) -> None:
    (gpu,) = read_conditions(f"0, {word}, {word}, {word}, {word}, {word}\n").gpus
    assert (gpu.slowed, gpu.celsius, gpu.power_limit_watts) == (None, None, None)


def test_units_headings_windows_line_ends_and_decimal_commas_do_not_matter() -> None:
    text = (
        "index, clocks_event_reasons.active, temperature.gpu, power.limit [W], power.draw [W], clocks.sm [MHz]\r\n"
        "0, 0x0000000000000000, 40, 700,00 W, 120,50 W, 1980 MHz\r\n"
    )
    (gpu,) = read_conditions(text).gpus
    assert (gpu.slowed, gpu.power_limit_watts, gpu.sm_mhz) == ((), 700.0, 1980.0)


def test_a_gpu_that_is_lost_does_not_hide_the_others() -> None:
    text = (
        "0, 0x0000000000000000, 40, 700.00, 120.50, 1980\n"
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n"
    )
    reading = read_conditions(text)
    assert [gpu.index for gpu in reading.gpus] == [0]
    assert "device handle" in reading.problem


def test_a_driver_that_does_not_answer_is_a_problem_and_no_gpu() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    reading = read_conditions(text)
    assert reading.gpus == ()
    assert "mismatch" in reading.problem
    assert read_conditions("").problem


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    said = 'Field "clocks_event_reasons.active" is not a valid field to query.\n'
    assert is_unknown_field(said)
    assert "clocks_throttle_reasons.active" in conditions_query(OLD_REASONS)[1]
    assert read_conditions(said).gpus == ()


def test_processes_are_counted_by_gpu() -> None:
    text = f"{UUID.format(1)}, 4321, python, train.py\n{UUID.format(2)}, 77, [Insufficient Permissions]\n"
    processes = read_processes(text)
    assert processes is not None
    assert [(process.gpu_uuid, process.pid) for process in processes] == [(UUID.format(1), 4321), (UUID.format(2), 77)]
    assert processes[0].name == "python, train.py"


def test_no_answer_is_not_no_process() -> None:
    assert read_processes("\n") == ()
    assert read_processes("No running compute processes found\n") == ()
    assert read_processes("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") is None
    assert read_processes("Segmentation fault\n") is None


def test_the_list_gives_each_index_its_uuid() -> None:
    text = (
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(1)})\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-6c89852c-d268-c3f3-1b07-005d5ae1dc31)\n"
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(2)})\n"
    )
    assert read_gpu_list(text) == {0: UUID.format(1), 1: UUID.format(2)}
    assert read_gpu_list("No devices were found\n") == {}


@given(st.text(max_size=300))
def test_no_text_breaks_it(noise: str) -> None:
    for text in (noise, "0, 0x0000000000000004, 63, " + noise):
        reading = read_conditions(text)
        assert all(gpu.index >= 0 for gpu in reading.gpus)
        read_processes(text)
        read_gpu_list(text)

"""dcgmproftester's lines give each GPU one rate, or the reason why there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.measure_texts import proftester

from fleet.measure_readers.dcgmproftester import dcgmproftester_values, wrong_dcgmproftester

RISING = ["1e+05", "7.01e+05", "7.02e+05", "7.01e+05", "7.02e+05"]


def _values(text: str, gpus: int | None) -> list[tuple[int | None, float | None]]:
    return [(value.gpu, value.value) for value in dcgmproftester_values(text, gpus).values]


def test_the_value_is_the_mean_without_the_start() -> None:
    assert _values(proftester([RISING]), 1) == [(0, pytest.approx(701_500.0))]


@pytest.mark.parametrize(
    ("shape", "dot"),
    [("Worker {gpu}:0 [1004]: ", "."), ("Worker {gpu}:0[1004]: ", ""), ("Worker {gpu}/1/0:0[1004]: ", ".")],
)
def test_every_version_names_its_gpus(shape: str, dot: str) -> None:
    text = proftester([["250362.2", "252917.0", "253971.7"], ["240000.0"] * 3], shape, dot)
    found = dict(_values(text, 2))
    assert found == {0: pytest.approx(252417.0, rel=0.01), 1: pytest.approx(240000.0)}


def test_lines_without_a_worker_are_of_the_one_gpu() -> None:
    text = proftester([["27334.5", "27795.5", "27846.0"]], shape="", dot="")
    assert _values(text, 1) == [(0, pytest.approx(27658.7, rel=0.01))]


def test_lines_without_a_worker_are_of_no_certain_gpu_where_there_are_several() -> None:
    text = proftester([["27334.5", "27795.5", "27846.0"]], shape="", dot="")
    assert [gpu for gpu, _ in _values(text, 8)] == [None]


def test_a_gpu_that_printed_nothing_is_missing() -> None:
    values = dcgmproftester_values(proftester([RISING]), 2).values
    assert values[1].value is None
    assert "no rate" in values[1].missing


def test_too_few_lines_make_no_mean() -> None:
    assert _values(proftester([["7e+05", "7e+05"]]), 1) == [(0, None)]


def test_rates_of_zero_are_no_measurement() -> None:
    assert _values(proftester([["0", "0", "0", "0"]]), 1) == [(0, None)]


def test_a_field_without_a_rate_says_so() -> None:
    text = "Worker 0:0[1007]: Fp32EngineActive: target max, dcgm 0\n" * 9
    (value,) = dcgmproftester_values(text, 1).values
    assert "no rate for this field" in value.missing


def test_a_tool_for_another_cuda_version_is_told() -> None:
    text = "Wrong version of dcgmproftester is used. Expected Cuda version is 12. Installed Cuda version is 13.\n"
    assert wrong_dcgmproftester(text)
    assert not wrong_dcgmproftester(proftester([RISING]))
    assert "Wrong version" in dcgmproftester_values(text, 1).values[0].missing


def test_the_word_failed_without_values_is_a_reason_and_the_word_passed_is_no_value() -> None:
    text = "GPU 0, TestField 1004 test PASSED.\nAll Tests Passed.\n"
    (value,) = dcgmproftester_values(text, 1).values
    assert value.value is None


def test_the_bus_of_a_worker_is_read() -> None:
    text = "Worker 3:0[1004]: Message: Bus ID 00000000:9B:00.0 mapped to cuda device ID 0\r\n" + proftester([RISING])
    assert dcgmproftester_values(text, 1).addresses == {3: "0000:9b:00"}


@given(st.text(max_size=300), st.integers(0, 900))
def test_no_text_breaks_it(noise: str, at: int) -> None:
    for text in (noise, proftester([RISING, RISING])[:at] + noise):
        for value in dcgmproftester_values(text, 2).values:
            assert (value.value is None) == bool(value.missing)

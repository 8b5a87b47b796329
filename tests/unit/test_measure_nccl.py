"""nccl-tests give one bus bandwidth for the node, or the reason why there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.measure_texts import all_reduce

from fleet.measure_readers.nccl_tests import nccl_value


def _value(text: str, gpus: int | None = 8) -> float | None:
    (value,) = nccl_value(text, gpus).values
    assert value.gpu is None
    return value.value


def _reason(text: str, gpus: int | None = 8) -> str:
    (value,) = nccl_value(text, gpus).values
    assert value.value is None
    return value.missing


def test_the_value_is_the_mean_of_out_of_place_and_in_place() -> None:
    assert _value(all_reduce(480.5, 481.5)) == pytest.approx(481.0)


def test_a_run_that_was_not_checked_still_measured() -> None:
    assert _value(all_reduce(wrong="N/A")) == pytest.approx(481.0)


def test_wrong_results_measure_nothing() -> None:
    assert "wrong values" in _reason(all_reduce(wrong="3"))


def test_fewer_gpus_than_the_node_has_measure_nothing() -> None:
    assert "4 of 8" in _reason(all_reduce(ranks=4))
    assert _value(all_reduce(ranks=4), gpus=None) is not None


def test_a_run_without_its_last_lines_measured_nothing() -> None:
    assert "did not run to its end" in _reason(all_reduce(cut=True))


def test_a_failure_is_the_reason() -> None:
    text = all_reduce(cut=True) + "gpu-0001: Test NCCL failure common.cu:958 'unhandled cuda error / '\n"
    assert "Test NCCL failure" in _reason(text)


def test_too_few_gpus_for_the_command_are_the_reason() -> None:
    assert "8 requested but only 7" in _reason("Invalid number of GPUs: 8 requested but only 7 were found.\n")


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-gpu-0001-7@1,0]<stdout>: ", "0: "])
def test_the_ranks_that_launchers_put_before_each_line_do_not_matter(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in all_reduce().splitlines())
    assert _value(text) == pytest.approx(481.0)


def test_log_lines_of_nccl_between_the_rows_do_not_matter() -> None:
    log = "gpu-0001:71234:71301 [3] NCCL INFO Channel 00/24 : 3[3] -> 4[4] via P2P/IPC\n"
    text = "".join(f"{log}{line}\r\n" for line in all_reduce().splitlines())
    assert _value(text) == pytest.approx(481.0)


def test_columns_per_iteration_and_the_time_of_day_are_not_taken_for_bandwidth() -> None:
    assert _value(all_reduce(extra=True)) == pytest.approx(481.0)
    assert _value(all_reduce(stamp="  2026-11-30 12:00:00")) == pytest.approx(481.0)


def test_of_several_sizes_the_largest_counts() -> None:
    half = "    30.10    0.03    0.06      0"
    small = f"        1024           256     float     sum      -1{half}{half}\n"
    text = all_reduce().replace("  8589934592", small + "  8589934592", 1)
    assert _value(text) == pytest.approx(481.0)


def test_other_output_is_a_reason() -> None:
    assert _reason("")
    assert _reason("bash: all_reduce_perf: command not found\n")


@given(st.text(max_size=300), st.integers(0, 2000))
def test_no_text_breaks_it(noise: str, at: int) -> None:
    for text in (noise, all_reduce()[:at] + noise, all_reduce(extra=True)[:at] + noise):
        (value,) = nccl_value(text, 8).values
        assert (value.value is None) == bool(value.missing)

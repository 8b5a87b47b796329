"""nvbandwidth's output, whatever its version, gives each GPU its bandwidth or the reason why there is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.measure_texts import HBM_TEST, nvbandwidth_json, nvbandwidth_text

from fleet.measure_readers.nvbandwidth import CaseStatus, nvbandwidth_values, read_nvbandwidth

H2D = "host_to_device_memcpy_ce"


def _document(*cases: dict[str, object], **more: object) -> str:
    return json.dumps({"nvbandwidth": {"version": "v0.6", "testcases": list(cases), **more}})


def _values(text: str, test: str = HBM_TEST, gpus: int | None = None) -> list[float | None]:
    return [value.value for value in nvbandwidth_values(text, test, gpus).values]


def _reason(text: str, test: str = HBM_TEST, gpus: int | None = 1) -> str:
    (value,) = nvbandwidth_values(text, test, gpus).values
    assert value.value is None
    return value.missing


def test_each_gpu_gets_its_value_from_json() -> None:
    reading = nvbandwidth_values(nvbandwidth_json([1201.5, 1199.25]), HBM_TEST, 2)
    assert [(value.gpu, value.value) for value in reading.values] == [(0, 1201.5), (1, 1199.25)]
    assert reading.tool == "nvbandwidth 0.8"


@pytest.mark.parametrize("end", ["SUM", "&&&& PERF"])
def test_each_gpu_gets_its_value_from_the_text_of_old_and_new_versions(end: str) -> None:
    reading = nvbandwidth_values(nvbandwidth_text([55.21, 54.9, 55.07], H2D, end), H2D, 3)
    assert [value.value for value in reading.values] == [55.21, 54.9, 55.07]
    assert reading.tool == "nvbandwidth 0.4"


def test_windows_line_ends_and_noise_around_json_do_not_matter() -> None:
    noise = "WARNING: garbage {{{}\n"
    text = noise + nvbandwidth_json([1201.0]).replace("\n", "\r\n") + "WARNING: }} more\r\n"
    assert _values(text) == [1201.0]


def test_a_gpu_without_a_value_is_missing_and_not_zero() -> None:
    values = nvbandwidth_values(nvbandwidth_json([1201.0, None]), HBM_TEST, 3).values
    assert [value.value for value in values] == [1201.0, None, None]
    assert all("no value" in value.missing for value in values[1:])


def test_a_zero_is_no_measurement() -> None:
    assert "no measurement" in _reason(nvbandwidth_json([0.0]))


def test_a_waived_test_says_so() -> None:
    text = _document({"name": HBM_TEST, "status": "Waived"})
    assert "waived" in _reason(text)
    assert "waived" in _reason(f"Waiving {HBM_TEST}.\n")


def test_a_test_that_failed_stands_twice_and_is_failed() -> None:
    text = _document({"name": H2D, "status": "Running"}, {"name": H2D, "status": "Error"})
    run = read_nvbandwidth(text)
    case = run.case(H2D)
    assert case is not None
    assert case.status is CaseStatus.ERROR
    assert "failed" in _reason(text, H2D)


def test_an_error_of_the_driver_is_the_reason() -> None:
    error = "[CUDA_ERROR_ECC_UNCORRECTABLE] uncorrectable ECC error encountered in expression cuMemcpyAsync"
    text = _document({"name": HBM_TEST, "status": "Running"}, error=error)
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in _reason(text)


def test_a_version_without_the_test_is_named_as_the_reason_in_json_and_in_text() -> None:
    said = _reason(_document({"name": HBM_TEST, "status": "ERROR"}))
    assert "has no test device_local_copy" in said
    assert "0.7" in said
    newer = json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": [{"name": HBM_TEST, "status": "Not Found"}]}})
    assert _reason(newer) == "this nvbandwidth has no test device_local_copy"
    assert "has no test" in _reason(f"ERROR: Testcase {HBM_TEST} not found!\n")


def test_a_table_that_was_cut_loses_its_last_number() -> None:
    whole = nvbandwidth_text([55.21, 54.9, 55.07], H2D)
    cut = whole[: whole.index("55.07") + 3]
    assert _values(cut, H2D, 3) == [55.21, 54.9, None]


def test_json_that_was_cut_gives_what_was_whole() -> None:
    text = nvbandwidth_json([1201.0, 1203.0])
    cut = text[: text.index('"name"')]
    assert read_nvbandwidth(cut).complete is False
    assert nvbandwidth_values(cut, HBM_TEST, 2).values[0].value is None


def test_between_gpus_each_gets_its_slowest_link_without_its_own_place() -> None:
    rows = [["N/A", "390.1", "388.0"], ["391.0", "N/A", "130.5"], ["389.2", "131.0", "N/A"]]
    text = _document({"name": "device_to_device_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": rows})
    assert _values(text, "device_to_device_memcpy_read_ce", 3) == [388.0, 130.5, 131.0]


def test_rows_of_several_cpus_give_each_gpu_its_nearest() -> None:
    text = (
        f"Running {H2D}.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n          0         1\n"
        f"0     55.60     48.10\n1     47.90     55.50\n\nSUM {H2D} 207.10\nCOEFFICIENT_OF_VARIATION {H2D} 0.00\n"
    )
    assert _values(text, H2D, 2) == [55.6, 55.5]


def test_a_copy_inside_each_gpu_may_stand_on_the_diagonal() -> None:
    rows = [["1201.0", "N/A"], ["N/A", "1203.0"]]
    text = _document({"name": HBM_TEST, "status": "Passed", "bandwidth_matrix": rows})
    assert _values(text, HBM_TEST, 2) == [1201.0, 1203.0]


def test_a_link_that_was_not_measured_leaves_the_slowest_unknown() -> None:
    rows = [["N/A", "390.1", "N/A"], ["391.0", "N/A", "390.5"], ["N/A", "391.0", "N/A"]]
    text = _document({"name": "device_to_device_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": rows})
    assert _values(text, "device_to_device_memcpy_read_ce", 3) == [None, 390.5, None]


def test_addresses_of_the_gpus_are_read_where_the_version_prints_them() -> None:
    text = nvbandwidth_json([1.0, 2.0], addresses=("00000000:9b:00", "00000000:1b:00"))
    assert nvbandwidth_values(text, HBM_TEST, 2).addresses == {0: "0000:9b:00", 1: "0000:1b:00"}


def test_other_output_is_a_reason_for_each_gpu() -> None:
    values = nvbandwidth_values("Segmentation fault (core dumped)\n", HBM_TEST, 8).values
    assert [value.gpu for value in values] == list(range(8))
    assert all(value.value is None and value.missing for value in values)


@given(st.text(max_size=400), st.integers(0, 900))
def test_no_text_breaks_it_and_no_value_comes_from_nowhere(noise: str, at: int) -> None:
    whole = nvbandwidth_json([1201.5, 1199.25])
    for text in (noise, whole[:at] + noise, nvbandwidth_text([55.5], H2D)[:at] + noise):
        for test in (HBM_TEST, H2D):
            for value in nvbandwidth_values(text, test, 2).values:
                assert (value.value is None) == bool(value.missing)

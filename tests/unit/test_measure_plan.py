"""Settings become commands; an operator's own command is read by its path; samples go to JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from fleet.canary_settings import ALL_REDUCE, BUILT_IN, GEMM, HBM_BANDWIDTH, CanarySettings
from fleet.canonical import canonical_json
from fleet.measure_plan import benchmark_measures, measure_plan, not_comparable
from fleet.measure_readers.json_value import json_values, path_steps
from fleet.measure_record import MeasuredWith, Measurements, RawOutput
from fleet.measures import Conditions, Measure, MeasureKind, Phase, Sample
from fleet.sample_json import (
    measurements_from_json,
    measurements_to_json,
    measures_from_json,
    measures_to_json,
    samples_from_json,
    samples_to_json,
)

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OWN = {"command": ["/opt/step-time", "--json"], "json_path": "results[0].seconds", "unit": "s", "better": "lower"}


def _settings(**given: object) -> CanarySettings:
    return CanarySettings.model_validate(given)


def test_an_hgx_node_is_measured_by_four_benchmarks_and_the_hot_one_comes_last() -> None:
    plan = measure_plan(_settings(), 8)
    assert [command.candidates[0] for command in plan] == [
        ("nvbandwidth", "-j", "-t", "device_local_copy"),
        ("nvbandwidth", "-j", "-t", "host_to_device_memcpy_ce"),
        ("all_reduce_perf", "-b", "8G", "-e", "8G", "-g", "8", "-n", "20"),
        ("dcgmproftester13", "--no-dcgm-validation", "-t", "1004", "-d", "10"),
    ]
    assert [command.cool for command in plan] == [True, True, True, False]


def test_a_node_with_one_gpu_has_no_all_reduce() -> None:
    assert ALL_REDUCE.name not in {command.measure.name for command in measure_plan(_settings(), 1)}
    assert ALL_REDUCE.name in {measure.name for measure in benchmark_measures(_settings(), None)}


def test_a_change_of_the_cuda_version_leaves_gemm_out_unless_the_settings_say_otherwise() -> None:
    assert [measure.name for measure in not_comparable(_settings(), 12, 13)] == ["gemm"]
    assert not_comparable(_settings(), 12, 12) == ()
    assert not_comparable(_settings(tools={"across_cuda_versions": True}), 12, 13) == ()


def test_a_measure_is_switched_off_and_another_gets_a_margin() -> None:
    settings = _settings(measures={"gemm": {"measured": False}, "hbm_bandwidth": {"margin": 0.03}}, margin=0.025)
    measures = {measure.name: measure for measure in benchmark_measures(settings, 8)}
    assert GEMM.name not in measures
    assert measures[HBM_BANDWIDTH.name].margin == 0.03
    assert measures[ALL_REDUCE.name].margin == 0.025


def test_a_slip_of_the_pen_in_a_measures_name_is_found() -> None:
    settings = _settings(measures={"gem": {"measured": False}, "sm_clock": {}})
    assert settings.unknown_measures(("sm_clock",)) == ("gem",)


def test_a_count_keeps_its_own_margin_unless_one_is_given() -> None:
    xid = Measure("xid", "", GEMM.better, MeasureKind.COUNT, 1.0)
    kept, given = _settings().margined(xid), _settings(measures={"xid": {"margin": 0.5}}).margined(xid)
    assert kept is not None
    assert given is not None
    assert (kept.margin, given.margin) == (1.0, 0.5)


def test_a_command_of_ones_own_is_a_measure() -> None:
    settings = _settings(commands={"step_time": OWN})
    (command,) = (one for one in measure_plan(settings, 8) if one.measure.name == "step_time")
    reading = command.read('log\n{"results": [{"seconds": "1.25"}]}\n', 8)
    assert [(value.gpu, value.value) for value in reading.values] == [(None, 1.25)]
    assert command.measure.better.value == "lower"


@pytest.mark.parametrize(
    "wrong",
    [
        {"commands": {"gemm": OWN}},
        {"commands": {"mine": {**OWN, "json_path": "a..b"}}},
        {"commands": {"mine": {**OWN, "command": []}}},
        {"alpha": 0},
        {"marginn": 0.02},
        {"tools": {"all_reduce_bytes": "8 GiB"}},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        _settings(**wrong)


def test_the_looks_of_a_design_are_shares_that_end_with_all_the_data() -> None:
    design = _settings(looks=4).design(BUILT_IN)
    assert design.looks == (0.25, 0.5, 0.75, 1.0)
    assert (design.alpha, design.runs) == (0.01, 3)


@pytest.mark.parametrize("path", ["", "a.", "[x]", "a[0", "a b]"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        path_steps(path)


def test_a_list_gives_each_gpu_its_number_and_names_the_gaps() -> None:
    text = json.dumps({"bw": [1.5, None, True, 0]})
    values = json_values(text, "bw", 5, True, "mine").values
    assert [value.value for value in values] == [1.5, None, None, None, None]
    assert all(value.missing for value in values[1:])


def test_json_without_the_path_and_no_json_are_reasons() -> None:
    assert json_values('{"a": 1}', "bw", None, False, "mine").values[0].missing == "mine printed no bw"
    assert "no JSON" in json_values("Killed", "bw", 8, True, "mine").values[7].missing


def test_samples_go_to_json_and_back() -> None:
    conditions = Conditions(("sw_power_cap",), 24.5, 61.0, 700.0, 0)
    samples = (
        Sample("gpu-0001", "gemm", Phase.BEFORE, AT, 701_500.25, 3, 2, conditions=conditions),
        Sample("gpu-0001", "all_reduce", Phase.AFTER, AT, None, missing="all_reduce_perf is not installed"),
        Sample("gpu-0001", "xid", Phase.AFTER, AT, 0.0, exposure_hours=12.0, conditions=Conditions(throttled=())),
    )
    text = canonical_json({"samples": samples_to_json(samples)})
    assert samples_from_json(json.loads(text)["samples"]) == samples


def test_a_measurement_goes_to_json_and_back() -> None:
    raw = RawOutput("gemm", 0, ("dcgmproftester12", "-t", "1004"), "dcgmproftester", 0, "a" * 64)
    with_ = MeasuredWith({"gemm": raw.command}, {"gemm": raw.tool}, {"GPU-1": 0})
    measurements = Measurements((Sample("n", "gemm", Phase.BEFORE, AT, 1.0),), (raw,), with_)
    assert measurements_from_json(json.loads(canonical_json(measurements_to_json(measurements)))) == measurements
    assert measurements_from_json(measurements_to_json(Measurements(()))) == Measurements(())
    assert measures_from_json(json.loads(json.dumps(measures_to_json(BUILT_IN)))) == BUILT_IN


@pytest.mark.parametrize("wrong", [None, "x", [{"node": "n"}], [{"node": "n", "measure": "m", "phase": "later"}]])
def test_other_json_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="validation error"):
        samples_from_json(wrong)

"""Samples from series: what is missing, blank, at rest, doubled or replaced is said, and is no zero."""

from __future__ import annotations

import math

import pytest
from unit.series_tools import AFTER, AFTER_MINUTES, BEFORE, MINUTES, SETTINGS, busy, one, read, series

from fleet.measures import Phase
from fleet.metrics_port import Series
from fleet.metrics_settings import MetricsSettings
from fleet.series_catalog import load_series_rules, rules_for
from fleet.series_labels import NodeNames
from fleet.series_notes import NoteKind

CLOCK = "DCGM_FI_DEV_SM_CLOCK"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
XID = "DCGM_FI_DEV_XID_ERRORS"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
MASK = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def test_a_level_is_the_median_of_its_points() -> None:
    sample = one({CLOCK: [series([1700] * 29 + [1755] * 31)]})
    assert (sample.value, sample.gpu, sample.missing, sample.at) == (1755.0, 0, "", BEFORE.end)


def test_points_of_a_gpu_at_rest_are_left_out() -> None:
    use = [98 if minute % 3 else 0 for minute in MINUTES]
    clocks = [1755 if minute % 3 else 345 for minute in MINUTES]
    assert one({CLOCK: [series(clocks)], UTIL: [series(use)]}).value == 1755.0


def test_a_gpu_at_rest_says_nothing_of_its_clocks() -> None:
    sample = one({CLOCK: [series(345)], UTIL: [series(2)]})
    assert sample.value is None
    assert sample.missing == "the GPU was at rest: busy at 0 of 60 points"


def test_where_the_utilisation_is_not_known_neither_is_the_busy_clock() -> None:
    assert one({CLOCK: [series(1755)], UTIL: []}).missing == "whether the GPU was busy is not known"


@pytest.mark.parametrize(
    "blank",
    [
        *(2147483632 + n for n in range(4)),
        *(9223372036854775792 + n for n in range(4)),
        *(140737488355328.0 + n for n in range(4)),
        1.40737488355328e16,
        2147483632.0 / 1000,
        2147483632.0 * 1e6,
        -2147483632.0,
        -9223372036854775808.0,
        float("nan"),
        float("inf"),
        float("-inf"),
    ],
)
@pytest.mark.parametrize("measure", ["sm_clock", "ecc_corrected"])
def test_a_blank_is_no_value_and_no_zero(blank: float, measure: str) -> None:
    name = CLOCK if measure == "sm_clock" else "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
    sample = one({name: [series(blank)]}, measure)
    assert sample.value is None
    assert sample.missing == "DCGM has no value"


def test_what_no_clock_can_be_is_no_value() -> None:
    assert one({CLOCK: [series(1e5)]}).missing == "DCGM has no value"


def test_a_few_blanks_do_not_move_a_level() -> None:
    values = [9.223372036854776e18 if minute % 10 == 0 else 1755 for minute in MINUTES]
    assert one({CLOCK: [series(values)]}).value == 1755.0


def test_an_incomplete_window_is_missing_and_says_where() -> None:
    sample = one({CLOCK: [series(1755, MINUTES[:20])]})
    assert sample.value is None
    assert sample.missing == "33% of its points; it ended 40 min before the window did"


def test_a_series_that_began_inside_a_window_counts_nothing_for_the_time_before() -> None:
    sample = one({REPLAYS: [series(0, MINUTES[40:])]}, "pcie_replays")
    assert sample.value is None
    assert sample.missing == "33% of its points; it began 41 min after the window did"


def test_no_series_and_no_points_are_told_apart() -> None:
    answers = {CLOCK: [series(1755)]}
    reading = read(answers, windows=(BEFORE, AFTER))
    assert [s.missing for s in reading.samples] == ["", "no points"]
    assert one({UTIL: [busy()]}).missing == "no series"
    assert read({}, "xids").absent == ("xids",)


def test_a_node_that_no_series_names_has_one_missing_sample() -> None:
    reading = read({CLOCK: [series(1755)]}, nodes=("gpu001", "gpu002"))
    (sample,) = [s for s in reading.samples if s.node == "gpu002"]
    assert (sample.gpu, sample.value, sample.missing) == (None, None, "no series of this node")
    assert sample.conditions.throttled is None


def test_what_a_partial_answer_lacks_is_not_called_gone() -> None:
    sample = read({CLOCK: []}, warnings=("store 7: deadline exceeded",)).samples[0]
    assert sample.missing == "no series; the answer was partial: store 7: deadline exceeded"


def test_renamed_metrics_and_labels_of_a_new_exporter_are_the_same_gpu() -> None:
    new = Series(
        {"hostname": "gpu001.site", "gpu": "0", "UUID": "GPU-a", "DCGM_FI_SYSTEM_DRIVER_VERSION": "580.95.05"},
        series(0, AFTER_MINUTES).times,
        (1.755e9,) * 60,
    )
    old = series(1755, DCGM_FI_DRIVER_VERSION="570.124.06")
    reading = read({CLOCK: [old], "DCGM_FI_DEV_SM_CLOCK_HERTZ": [new]}, windows=(BEFORE, AFTER))
    assert [s.value for s in reading.samples] == [1755.0, 1755.0]
    assert reading.notes == ()


def test_a_utilisation_that_is_a_share_counts_as_a_percentage() -> None:
    answers = {CLOCK: [series(1755)], UTIL: [], "DCGM_FI_DEV_GPU_UTIL_RATIO": [series(0.97)]}
    assert one(answers).value == 1755.0
    answers["DCGM_FI_DEV_GPU_UTIL_RATIO"] = [series(97)]
    assert one(answers).value == 1755.0


def test_two_exporters_of_one_gpu_give_one_sample() -> None:
    reading = read({CLOCK: [series(1755, instance="a:9400"), series(1755, MINUTES[:50], instance="b:9400")]})
    assert [s.value for s in reading.samples] == [1755.0]
    assert [n.kind for n in reading.notes] == [NoteKind.DOUBLED]


def test_two_sources_that_disagree_are_no_value() -> None:
    sample = one({CLOCK: [series(1755, job="a"), series(1200, job="b")]})
    assert (sample.value, sample.missing) == (None, "two series of this GPU disagree")


def test_a_label_that_changes_with_every_job_makes_one_line() -> None:
    first, second = MINUTES[:20] + MINUTES[40:], MINUTES[20:40]
    reading = read({CLOCK: [series(1755, first), series(1755, second, pod="train-7")]})
    assert [s.value for s in reading.samples] == [1755.0]
    assert reading.notes == ()


def test_steps_in_which_a_label_changes_belong_to_both_series_and_tear_nothing() -> None:
    idle = [n for n in MINUTES if n % 20 < 10]
    work = [n for n in MINUTES if n % 20 >= 9 or n % 20 == 0]
    reading = read({CLOCK: [series(345, idle), series(1755, work, pod="train-7")]})
    assert reading.samples[0].missing == ""
    assert reading.notes == ()


def test_slices_of_a_gpu_stand_for_it_where_they_agree() -> None:
    slices = [series(1755, GPU_I_ID=str(n)) for n in range(3)]
    assert one({CLOCK: slices}).value == 1755.0
    parts = [series(0.2 * n, GPU_I_ID=str(n)) for n in range(1, 3)]
    assert one({"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": parts}, "tensor_active").value is None


def test_a_gpu_keeps_its_slot_when_the_numbers_move() -> None:
    def moved(value: float, before: str, after: str, uuid: str) -> list[Series]:
        return [series(value, gpu=before, uuid=uuid), series(value, AFTER_MINUTES, gpu=after, uuid=uuid)]

    clocks = [series(1700, gpu="0", uuid="GPU-a"), *moved(1755, "1", "0", "GPU-b")]
    use = [busy(MINUTES), *(s for s in moved(98, "1", "0", "GPU-b"))]
    reading = read({CLOCK: clocks, UTIL: use}, windows=(BEFORE, AFTER))
    after = {s.gpu: (s.value, s.missing) for s in reading.samples if s.phase is Phase.AFTER}
    assert after == {0: (None, "no points"), 1: (1755.0, "")}


def test_another_gpu_in_the_slot_is_not_compared_with_the_former_one() -> None:
    clocks = [series(1755), series(1755, AFTER_MINUTES, uuid="GPU-new")]
    use = [busy(MINUTES), busy(AFTER_MINUTES, uuid="GPU-new")]
    reading = read({CLOCK: clocks, UTIL: use}, windows=(BEFORE, AFTER))
    assert [(s.value, s.missing) for s in reading.samples] == [(1755.0, ""), (None, "another GPU is in the slot")]
    assert [(n.kind, n.text) for n in reading.notes] == [(NoteKind.REPLACED, "GPU-a then GPU-new")]


def test_a_counter_that_begins_again_counts_what_it_shows_since() -> None:
    values = [100 + n // 10 for n in range(30)] + [n // 10 for n in range(30)]
    reading = read({REPLAYS: [series(values)]}, "pcie_replays")
    (sample,) = reading.samples
    assert sample.value == 2 + 0 + 2
    assert sample.exposure_hours == pytest.approx(59 / 60)
    assert [n.kind for n in reading.notes] == [NoteKind.RESET]


def test_a_counter_that_passes_32_bits_did_not_begin_again() -> None:
    values = [2**32 - 31 + n for n in range(31)] + list(range(29))
    reading = read({REPLAYS: [series(values)]}, "pcie_replays")
    assert reading.samples[0].value == 59.0
    assert [n.kind for n in reading.notes] == [NoteKind.WRAPPED]


def test_a_counter_that_the_part_keeps_does_not_become_less() -> None:
    sample = one({REMAPPED: [series([3] * 30 + [1] * 30)]}, "rows_remapped_uncorrected")
    assert sample.value is None
    assert "another part" in sample.missing


def test_an_increase_goes_on_from_the_last_point_before_the_window() -> None:
    later = AFTER_MINUTES
    values = [7] * 60 + [9] * 60
    minutes = tuple(range(61, 121)) + later
    assert one({REPLAYS: [series(values, minutes)]}, "pcie_replays", (AFTER,)).value == 2.0


def test_a_last_xid_is_counted_when_it_changes_and_not_while_it_stands() -> None:
    values = [0] * 10 + [48] * 20 + [79] * 10 + [0] * 10 + [79] * 10
    reading = read({XID: [series(values)]}, "xids")
    assert reading.samples[0].value == 3.0
    assert [n.text for n in reading.notes] == ["Xid 48, 79, 79"]


def test_an_xid_that_stood_before_the_window_is_an_old_one() -> None:
    reading = read({XID: [series(43), series(43, AFTER_MINUTES, err_code="43")]}, "xids", (BEFORE, AFTER))
    assert [s.value for s in reading.samples] == [0.0, 0.0]
    assert [(n.phase, n.text) for n in reading.notes] == [
        (Phase.BEFORE, "shows 43 from the beginning; since when is not known")
    ]


def test_an_xid_that_came_between_the_windows_counts_for_the_second() -> None:
    answers = {XID: [series(0), series(119, AFTER_MINUTES, err_code="119")]}
    assert [s.value for s in read(answers, "xids", (BEFORE, AFTER)).samples] == [0.0, 1.0]


def test_a_missing_xid_metric_is_not_no_xid() -> None:
    sample = one({CLOCK: [series(1755)]}, "xids")
    assert (sample.value, sample.missing) == (None, "no series")


def test_a_flag_counts_when_it_is_raised() -> None:
    name = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
    assert one({name: [series([0] * 30 + [1] * 30)]}, "row_remap_failures").value == 1.0
    assert one({name: [series(1)]}, "row_remap_failures").value == 0.0


def test_reasons_that_held_the_clocks_are_conditions_of_every_sample() -> None:
    masks = [0x48 if minute % 4 == 0 else 0x4 if minute % 4 == 1 else 0x1 for minute in MINUTES]
    sample = one({CLOCK: [series(1500)], MASK: [series(masks)]})
    assert sample.conditions.throttled == ("hw_slowdown", "hw_thermal", "sw_power_cap")


def test_a_moment_of_throttling_and_an_idle_bit_are_none() -> None:
    masks = [0x40 if minute == 7 else 0x1 for minute in MINUTES]
    assert one({CLOCK: [series(1755)], MASK: [series(masks)]}).conditions.throttled == ()


def test_a_mask_that_is_blank_says_not_that_nothing_throttled() -> None:
    blank = {CLOCK: [series(1755)], MASK: [series(9223372036854775794)]}
    assert one(blank).conditions.throttled is None


def test_temperature_and_power_limit_stand_beside_the_value() -> None:
    answers = {
        CLOCK: [series(1755)],
        "DCGM_FI_DEV_GPU_TEMP": [series(64)],
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": [series(700)],
    }
    conditions = one(answers).conditions
    assert (conditions.gpu_celsius, conditions.power_limit_watts, conditions.others) == (64.0, 700.0, None)


def test_a_gpu_that_falls_silent_while_its_node_goes_on_is_named() -> None:
    clocks = [series(1755), series(1755, MINUTES[:30], gpu="1", uuid="GPU-b")]
    use = [busy(MINUTES), busy(MINUTES[:30], gpu="1", uuid="GPU-b")]
    reading = read({CLOCK: clocks, UTIL: use})
    assert [(n.kind, n.gpu) for n in reading.notes] == [(NoteKind.LOST, 1)]


def test_several_windows_of_a_phase_are_its_runs() -> None:
    half = BEFORE.start + (BEFORE.end - BEFORE.start) / 2
    first = type(BEFORE)(Phase.BEFORE, BEFORE.start, half, 0)
    second = type(BEFORE)(Phase.BEFORE, half, BEFORE.end, 1)
    reading = read({CLOCK: [series([1700] * 30 + [1800] * 30)]}, windows=(first, second))
    assert [(s.run, s.value) for s in reading.samples] == [(0, 1700.0), (1, 1800.0)]
    assert set(reading.complete.values()) == {1.0}


def test_inlet_temperature_is_that_of_the_coolest_sensor() -> None:
    from fleet.series import read_samples

    def sensor(celsius: float, name: str) -> Series:
        return Series({"instance": "gpu001:9290", "name": name}, (BEFORE.start.timestamp() + 60,), (celsius,))

    reading = read_samples(
        rules_for(["sm_clock"]),
        {CLOCK: [series(1755)], UTIL: [busy()]},
        NodeNames(("gpu001",)),
        (BEFORE,),
        SETTINGS,
        inlet=[sensor(23.0, "Inlet Temp"), sensor(38.0, "Exhaust Temp"), sensor(math.nan, "Temp 3")],
    )
    assert reading.samples[0].conditions.inlet_celsius == 23.0


@pytest.mark.parametrize("rule", load_series_rules(), ids=lambda rule: rule.measure)
def test_every_measure_of_the_catalogue_survives_any_values(rule: object) -> None:
    from fleet.series_catalog import SeriesRule

    assert isinstance(rule, SeriesRule)
    odd = [float("nan"), -1.0, 0.0, 1.5, 1e300, 2**53 + 1.0, float("inf"), 3.0] * 7 + [0.5] * 4
    answers = {name.name: [series(odd), series(odd[::-1], gpu="", uuid="")] for name in rule.names}
    for settings in (SETTINGS, MetricsSettings(url="https://m", least_complete=0.0)):
        read(answers, rule.measure, settings=settings)

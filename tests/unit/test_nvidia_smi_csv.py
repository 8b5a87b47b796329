"""nvidia-smi's CSV queries."""

from __future__ import annotations

import pytest

from fleet.gpu import RecoveryAction
from fleet.readers.nvidia_smi_csv import explain, read_nvidia_smi_csv, recognises

A = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
B = "GPU-bbbbbbbb-1111-2222-3333-444444444444"


def _codes(text: str) -> list[tuple[str, str]]:
    return [(finding.subject, finding.code) for finding in explain(text).findings]


@pytest.mark.parametrize("units", [" MiB", ""])
def test_units_and_nounits_give_the_same_values(units: str) -> None:
    unit = " [MiB]" if units else ""
    text = f"index, uuid, memory.total{unit}, memory.used{unit}\n0, {A}, 81559{units}, 59{units}\n"
    gpu = read_nvidia_smi_csv(text).gpus[0]
    assert (gpu.index, gpu.uuid, gpu.memory_total_mib, gpu.memory_used_mib) == (0, A, 81559, 59)


def test_every_way_of_saying_nothing_is_unknown() -> None:
    for nothing in (
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "Requested functionality has been deprecated",
    ):
        text = f"uuid, temperature.memory, ecc.errors.uncorrected.volatile.total\n{A}, {nothing}, {nothing}\n"
        gpu = read_nvidia_smi_csv(text).gpus[0]
        assert (gpu.temperature_memory_celsius, gpu.ecc_volatile_uncorrectable) == (None, None)


def test_a_lost_gpu_is_found_and_its_neighbour_is_not() -> None:
    text = (
        "index, gpu_bus_id, temperature.gpu, power.draw [W]\n"
        "0, 00000000:1B:00.0, 41, 88.10 W\n1, 00000000:43:00.0, [GPU is lost], [GPU is lost]\n"
    )
    assert _codes(text) == [("gpu 0000:43:00.0", "gpu.lost")]


def test_a_gpu_that_requires_a_reset_is_found_by_its_values() -> None:
    text = "index, temperature.gpu\n0, 41\n1, [GPU requires reset]\n"
    assert _codes(text) == [("gpu 1", "recovery.gpu_reset")]


def test_the_mask_of_clocks_events_is_taken_apart() -> None:
    for column in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        text = f"index, {column}\n0, 0x0000000000000048\n1, 0x0000000000000001\n2, [N/A]\n"
        hot, idle, unknown = read_nvidia_smi_csv(text).gpus
        assert (hot.event_hw_slowdown, hot.event_hw_thermal_slowdown, hot.event_gpu_idle) == (True, True, False)
        assert (idle.event_gpu_idle, idle.event_hw_slowdown, unknown.event_hw_slowdown) == (True, False, None)
        assert _codes(text) == [("gpu 0", "clocks.hw_thermal_slowdown")]


@pytest.mark.parametrize(
    ("word", "action"),
    [
        ("None", RecoveryAction.NONE),
        ("Reset", RecoveryAction.GPU_RESET),
        ("GPU Reset", RecoveryAction.GPU_RESET),
        ("Node Reboot", RecoveryAction.NODE_REBOOT),
        ("Reboot", RecoveryAction.NODE_REBOOT),
        ("Drain P2P", RecoveryAction.DRAIN_P2P),
        ("Drain and Reset", RecoveryAction.DRAIN_AND_RESET),
        ("Bus Reset", RecoveryAction.BUS_RESET),
        ("Polish", RecoveryAction.OTHER),
        ("[N/A]", None),
    ],
)
def test_each_recovery_action_is_read(word: str, action: RecoveryAction | None) -> None:
    report = read_nvidia_smi_csv(f"index, gpu_recovery_action\n0, {word}\n")
    assert report.gpus[0].recovery_action == action
    assert bool(explain(f"index, gpu_recovery_action\n0, {word}\n").findings) == (
        action not in (None, RecoveryAction.NONE)
    )


def test_a_column_of_nothing_but_none_is_not_taken_for_a_recovery_action() -> None:
    report = read_nvidia_smi_csv("0, None\n1, None\n")
    assert [gpu.recovery_action for gpu in report.gpus] == [None, None]
    assert report.unknown == ("column 2 without a header",)


def test_retired_pages_are_counted_by_address() -> None:
    text = (
        "gpu_uuid, retired_pages.address, retired_pages.cause\n"
        f"{A}, 0x00000000001a2b3c, Double Bit ECC\n{A}, 0x00000000001a2b3d, Single Bit ECC\n"
        f"{B}, [N/A], Single Bit ECC\n"
    )
    first, second = read_nvidia_smi_csv(text).gpus
    assert [page.cause for page in first.retired_pages or ()] == ["Double Bit ECC", "Single Bit ECC"]
    assert second.retired_pages == ()


def test_remapped_rows_pending_and_failed_are_two_findings() -> None:
    text = (
        "gpu_uuid, gpu_bus_id, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, "
        "remapped_rows.failure\n"
        f"{A}, 00000000:1B:00.0, 0, 1, 1, 0\n{B}, 00000000:43:00.0, 0, 9, 0, 1\n"
    )
    assert _codes(text) == [
        ("gpu 0000:1b:00.0", "ecc.row_remap_pending"),
        ("gpu 0000:43:00.0", "ecc.row_remap_failed"),
    ]


def test_processes_go_to_their_gpu_and_keep_commas_in_their_names() -> None:
    text = f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{A}, 77, python, -c, 1005 MiB\n{A}, 78, x, [N/A]\n"
    (gpu,) = read_nvidia_smi_csv(text).gpus
    assert [(p.pid, p.name, p.used_memory_mib) for p in gpu.processes or ()] == [
        (77, "python, -c", 1005),
        (78, "x", None),
    ]


def test_processes_without_a_gpu_column_belong_to_the_node() -> None:
    report = read_nvidia_smi_csv("pid, process_name, used_memory [MiB]\n77, python, 1005 MiB\n")
    assert (report.gpus, report.processes[0].pid) == ((), 77)


def test_two_driver_versions_in_the_rows_are_found() -> None:
    text = f"uuid, driver_version\n{A}, 580.95.05\n{B}, 570.148.08\n"
    report = read_nvidia_smi_csv(text)
    assert report.driver_version is None
    assert _codes(text) == [("node", "driver.two_versions")]


def test_the_driver_counts_more_gpus_than_there_are_rows() -> None:
    assert _codes(f"uuid, count\n{A}, 8\n") == [("node", "gpu.count_mismatch")]


def test_an_inforom_that_fails_its_checksum_is_found() -> None:
    text = "index, inforom.checksum_validation\n0, valid\n1, invalid\n2, [N/A]\n"
    assert _codes(text) == [("gpu 1", "inforom.corrupted")]


def test_a_decimal_comma_and_an_unknown_column_do_no_harm() -> None:
    report = read_nvidia_smi_csv("index, power.draw [W], power.of_love\n0, 67,03 W, high\n")
    assert report.gpus[0].power_draw_watts == pytest.approx(67.03)
    assert report.unknown == ("column power.of_love",)


def test_a_torn_row_is_named_and_the_others_are_read() -> None:
    report = read_nvidia_smi_csv(f"index, uuid, memory.total [MiB]\n0, {A}, 81559 MiB\n1, GPU-bbb")
    assert (len(report.gpus), len(report.unknown)) == (1, 1)


def test_a_thousand_lines_of_junk_are_counted_and_not_listed() -> None:
    report = read_nvidia_smi_csv(f"index, uuid\n0, {A}\n" + "something else\n" * 1000)
    assert (len(report.gpus), report.unknown[-1]) == (1, "990 more such rows")


def test_a_gpu_that_is_lost_while_it_is_watched_keeps_its_name() -> None:
    text = f"uuid, index, temperature.gpu\n{A}, 4, 64\n[GPU is lost], 4, [GPU is lost]\n"
    (gpu,) = read_nvidia_smi_csv(text).gpus
    assert (gpu.uuid, gpu.index, gpu.lost, gpu.temperature_gpu_celsius) == (A, 4, True, None)


def test_a_repeated_query_keeps_the_last_values() -> None:
    text = "index, temperature.gpu\n0, 40\nindex, temperature.gpu\n0, 55\n"
    assert [gpu.temperature_gpu_celsius for gpu in read_nvidia_smi_csv(text).gpus] == [55]


def test_each_row_is_read_by_the_header_above_it() -> None:
    text = (
        f"index, uuid, temperature.gpu\n0, {A}, 40\n"
        f"uuid, remapped_rows.failure, index\n{B}, Yes, 0\n"
        f"index, uuid, temperature.gpu\n0, {A}, 41\n"
    )
    first, second = read_nvidia_smi_csv(text).gpus
    assert (first.uuid, first.index, first.temperature_gpu_celsius) == (A, 0, 41)
    assert (second.uuid, second.index, second.remapped_rows_failure) == (B, 0, True)
    assert [code for _, code in _codes(text)] == ["ecc.row_remap_failed"]


def test_two_hosts_with_the_same_count_are_no_mismatch() -> None:
    text = f"uuid, count\n{A}, 1\nuuid, count\n{B}, 1\n"
    assert _codes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "name,serial,rack\nnode1,123,r1\n",
        "index, name\n0, alpha\n",
        "timestamp, pid\n1, 2\n",
        "a, b\n1, None\n",
        "driver_version\nname\nuuid\npci.bus_id\n",
        "",
        ", ,\n",
    ],
)
def test_other_tables_are_not_claimed(text: str) -> None:
    assert not recognises(text)

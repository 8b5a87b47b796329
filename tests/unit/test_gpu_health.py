"""What is wrong with a GPU, from one reading of it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fleet.findings import Action, Severity
from fleet.gpu import GpuReading, MigInstance, RecoveryAction, SmiReport
from fleet.gpu_health import GpuLimits, findings_of_gpu, untold_of_gpu
from fleet.gpu_report import explain_report, findings_of_report
from fleet.gpu_values import ATTRIBUTES, clock_events, read_gpu, recovery_action
from fleet.readers.pci_address import pci_address


def _codes(gpu: GpuReading, limits: GpuLimits | None = None) -> list[str]:
    return [finding.code for finding in findings_of_gpu(gpu, limits or GpuLimits())]


def test_a_reading_that_knows_nothing_has_no_finding_and_is_not_called_well() -> None:
    assert _codes(GpuReading()) == []
    assert len(untold_of_gpu(GpuReading(index=3))) == 4
    assert all(text.startswith("gpu 3") for text in untold_of_gpu(GpuReading(index=3)))


@pytest.mark.parametrize(
    ("action", "severity", "what"),
    [
        (RecoveryAction.GPU_RESET, Severity.FATAL, Action.RESET_GPU),
        (RecoveryAction.NODE_REBOOT, Severity.FATAL, Action.REBOOT_NODE),
        (RecoveryAction.DRAIN_P2P, Severity.ERROR, Action.INVESTIGATE),
        (RecoveryAction.DRAIN_AND_RESET, Severity.ERROR, Action.RESET_GPU),
        (RecoveryAction.RECOVER_IMEX_DOMAIN, Severity.ERROR, Action.RESTART_SERVICE),
        (RecoveryAction.OTHER, Severity.ERROR, Action.INVESTIGATE),
    ],
)
def test_what_the_driver_asks_for_is_asked_for(action: RecoveryAction, severity: Severity, what: Action) -> None:
    (finding,) = findings_of_gpu(GpuReading(recovery_action=action))
    assert (finding.code, finding.severity, finding.action) == (f"recovery.{action}", severity, what)


def test_every_number_of_nvml_is_its_recovery_action() -> None:
    assert [recovery_action(str(number)) for number in range(8)] == list(RecoveryAction)[:8]
    assert recovery_action("0x4") is RecoveryAction.DRAIN_AND_RESET
    assert (recovery_action("8"), recovery_action("maybe")) == (None, None)


def test_a_mask_of_heat_is_one_finding_and_idle_or_a_power_cap_none() -> None:
    assert _codes(read_gpu(dict(clock_events(0x48)))) == ["clocks.hw_thermal_slowdown"]
    assert _codes(read_gpu(dict(clock_events(0x88)))) == ["clocks.hw_power_brake"]
    assert _codes(read_gpu(dict(clock_events(0x8)))) == ["clocks.hw_slowdown"]
    assert _codes(read_gpu(dict(clock_events(0x20)))) == ["clocks.sw_thermal_slowdown"]
    for benign in (0x0, 0x1, 0x2, 0x4, 0x10, 0x100):
        assert _codes(read_gpu(dict(clock_events(benign)))) == []


def test_a_slow_link_counts_only_for_a_gpu_at_work() -> None:
    idle = GpuReading(performance_state="P8", pcie_generation=1, pcie_generation_max=5, pcie_width=8, pcie_width_max=16)
    busy = GpuReading(performance_state="P2", utilization_gpu_percent=90, pcie_generation=1, pcie_generation_max=5)
    full = GpuReading(performance_state="P0", pcie_generation=5, pcie_generation_max=5, pcie_width=8, pcie_width_max=16)
    assert (_codes(idle), _codes(busy), _codes(full)) == ([], ["pcie.generation_degraded"], ["pcie.width_degraded"])
    assert _codes(GpuReading(performance_state="P0", pcie_width=8)) == []


def test_a_failed_remapping_is_diagnosed_before_anything_is_returned() -> None:
    (finding,) = findings_of_gpu(GpuReading(remapped_rows_failure=True, remapped_rows_pending=False))
    assert (finding.code, finding.action) == ("ecc.row_remap_failed", Action.RUN_DIAGNOSTICS)
    (finding,) = findings_of_gpu(GpuReading(remapped_rows_failure=False, remapped_rows_pending=True))
    assert (finding.code, finding.action) == ("ecc.row_remap_pending", Action.RESET_GPU)


def test_the_limits_are_a_policy() -> None:
    pages = GpuReading(retired_pages_single_bit=58, retired_pages_double_bit=4)
    assert (_codes(pages), _codes(pages, GpuLimits(retired_pages=60))) == ([], ["ecc.page_retirement_limit"])
    assert _codes(GpuReading(remapped_rows_uncorrectable=511)) == []
    assert _codes(GpuReading(remapped_rows_uncorrectable=512)) == ["ecc.row_remap_limit"]


def test_errors_in_sram_beyond_the_threshold_cost_the_part() -> None:
    gpu = GpuReading(ecc_sram_threshold_exceeded=True, unrepairable_memory=True, channel_repair_pending=True)
    assert _codes(gpu) == ["ecc.sram_threshold_exceeded", "ecc.unrepairable_memory", "ecc.channel_repair_pending"]


def test_heat_is_judged_by_degrees_or_by_the_margin_that_is_left() -> None:
    assert _codes(GpuReading(temperature_gpu_celsius=93, temperature_slowdown_celsius=93)) == ["temperature.slowdown"]
    assert _codes(GpuReading(temperature_margin_celsius=-2, temperature_slowdown_margin_celsius=-2)) == [
        "temperature.slowdown"
    ]
    assert _codes(GpuReading(temperature_margin_celsius=40, temperature_slowdown_margin_celsius=-2)) == []
    assert _codes(GpuReading(temperature_gpu_celsius=93)) == []


@pytest.mark.parametrize(
    ("gpu", "codes"),
    [
        (GpuReading(fabric_state="Completed", fabric_status="Success"), []),
        (GpuReading(fabric_state="In Progress"), ["fabric.not_ready"]),
        (GpuReading(fabric_state="Not Started"), ["fabric.not_ready"]),
        (GpuReading(fabric_state="Completed", fabric_status="Unknown Error"), ["fabric.failed"]),
        (GpuReading(fabric_state="Failure"), ["fabric.failed"]),
        (GpuReading(fabric_bandwidth="Degraded"), ["fabric.bandwidth_degraded"]),
        (GpuReading(fabric_health_summary="Unhealthy"), ["fabric.unhealthy"]),
        (GpuReading(fabric_health_summary="Limited Capacity"), ["fabric.unhealthy"]),
        (GpuReading(fabric_route_recovery=True), ["fabric.route_recovery"]),
        (GpuReading(fabric_incorrect_configuration="Incompatible GPU Firmware"), ["fabric.misconfigured"]),
        (GpuReading(fabric_incorrect_configuration="None"), []),
        (GpuReading(fabric_route_unhealthy=False, fabric_partition_assigned=None), []),
    ],
)
def test_the_fabric_is_well_only_where_every_part_of_it_is(gpu: GpuReading, codes: list[str]) -> None:
    assert _codes(gpu) == codes


def test_modes_that_wait_for_a_reset_are_found() -> None:
    gpu = GpuReading(ecc_mode_current=True, ecc_mode_pending=False, mig_mode_current=False, mig_mode_pending=True)
    assert _codes(gpu) == ["mode.ecc_pending", "mode.mig_pending"]
    assert _codes(GpuReading(mig_mode_current=True)) == []


def test_mig_without_instances_is_found_and_its_memory_errors_are_seen() -> None:
    assert _codes(GpuReading(mig_mode_current=True, mig_instances=())) == ["mig.no_instances"]
    torn = GpuReading(mig_mode_current=True, mig_instances=(MigInstance(index=0, ecc_sram_uncorrectable=1),))
    assert _codes(torn) == ["ecc.uncorrectable_volatile"]


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA GB200", True),
        ("NVIDIA B200", True),
        ("NVIDIA GH200 480GB", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA L40S", True),
        ("Tesla T4", True),
        ("NVIDIA GeForce RTX 2080 SUPER", False),
        ("NVIDIA RTX A4000", False),
        ("Quadro GV100", False),
    ],
)
def test_persistence_is_missed_only_on_a_server_gpu(name: str, server: bool) -> None:
    assert _codes(GpuReading(product_name=name, persistence_mode=False)) == (["mode.persistence_off"] if server else [])


def test_a_single_failed_reading_passes_and_many_do_not() -> None:
    (finding,) = findings_of_gpu(GpuReading(unreadable=("power_draw_watts",)))
    assert (finding.severity, finding.action) == (Severity.INFO, Action.WATCH)
    many = GpuReading(unreadable=("power_draw_watts", "fan_speed_percent", "performance_state"))
    assert _codes(many) == ["gpu.unreadable"]


def test_values_of_nvml_need_no_text() -> None:
    gpu = read_gpu(
        {"index": 0, "pci_address": "00000000:3B:00.0", "memory_total_mib": 81559, "power_draw_watts": 71.5,
         "mig_mode_current": False, "recovery_action": 1, "temperature_memory_celsius": None, "no_such": 1}
    )  # fmt: skip
    assert (gpu.pci_address, gpu.memory_total_mib, gpu.power_draw_watts) == ("0000:3b:00.0", 81559, 71.5)
    assert (gpu.mig_mode_current, gpu.recovery_action) == (False, RecoveryAction.GPU_RESET)
    assert (gpu.temperature_memory_celsius, gpu.unparsed) == (None, ())


def test_units_are_brought_to_the_attribute_s_own() -> None:
    gpu = read_gpu(
        {"memory_total_mib": "80 GiB", "power_draw_watts": "71500 mW", "pcie_width": "x16", "pcie_tx_kb_s": "2 MB/s"}
    )
    assert (gpu.memory_total_mib, gpu.power_draw_watts, gpu.pcie_width, gpu.pcie_tx_kb_s) == (81920, 71.5, 16, 2000)
    assert read_gpu({"memory_total_mib": "80 parsecs"}).unparsed == ("memory_total_mib=80 parsecs",)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:29:00.0", "0000:29:00.0"),
        ("00008ED0:00:00.0", "8ed0:00:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("3B:00.0", "0000:3b:00.0"),
        ("00010000:06:00.0", "10000:06:00.0"),
        ("000:BA:80.0", None),
        ("0000:BA:20.0", None),
        ("0000:3b:00", None),
        ("", None),
    ],
)
def test_an_address_is_normalised_or_none(text: str, address: str | None) -> None:
    assert pci_address(text) == address


def test_a_reading_has_far_more_than_fifty_attributes_and_all_begin_unknown() -> None:
    assert len(ATTRIBUTES) > 150
    assert all(getattr(GpuReading(), f.name) in (None, ()) for f in fields(GpuReading))


def test_a_report_of_fewer_gpus_than_attached_is_a_mismatch_unless_it_is_cut() -> None:
    report = SmiReport(attached_gpus=8, gpus=(GpuReading(index=0),), driver_version="580.95.05")
    cut = SmiReport(attached_gpus=8, gpus=(GpuReading(index=0),), driver_version="580.95.05", complete=False)
    assert [finding.code for finding in findings_of_report(report)] == ["gpu.count_mismatch"]
    assert findings_of_report(cut) == ()
    assert any("not whole" in unknown for unknown in explain_report("nvidia-smi.xml", cut).unknown)

"""Every real answer of nvidia-smi in the public corpus has its right value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from fleet.findings import Action, Explanation, Severity
from fleet.gpu import GpuReading, RecoveryAction, SmiReport
from fleet.readers import nvidia_smi_csv, nvidia_smi_table, nvidia_smi_text, nvidia_smi_xml
from fleet.readers.nvidia_smi_csv import read_nvidia_smi_csv
from fleet.readers.nvidia_smi_table import read_nvidia_smi_table
from fleet.readers.nvidia_smi_text import read_nvidia_smi_text
from fleet.readers.nvidia_smi_xml import read_nvidia_smi_xml

pytestmark = pytest.mark.corpus

READERS = (nvidia_smi_xml, nvidia_smi_text, nvidia_smi_csv, nvidia_smi_table)
_READ: dict[str, Callable[[str], SmiReport]] = {
    "qx": read_nvidia_smi_xml,
    "q_": read_nvidia_smi_text,
    "cs": read_nvidia_smi_csv,
}
SHAPES: dict[str, Callable[[str], str]] = {
    "Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "a host's name before each line": lambda text: "".join(f"node01: {line}\n" for line in text.splitlines()),
    "a log's time before each line": lambda text: "".join(
        f"Jul 14 09:00:{n % 60:02} node7 smi[12]: {line}\n" for n, line in enumerate(text.splitlines())
    ),
    "junk before and after": lambda text: f"$ nvidia-smi\nLast login: now\n{text}\nroot@node:~# exit\n",
    "an indented paste": lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
    "colours and a byte order mark": lambda text: f"\ufeff\x1b[1m{text}\x1b[0m",
}


@pytest.fixture
def corpus(shared: Path) -> Path:
    return shared / "corpus" / "nvsmi"


def _report(corpus: Path, name: str) -> SmiReport:
    return _READ.get(name[:2], read_nvidia_smi_table)((corpus / name).read_text())


def _explain(corpus: Path, name: str) -> Explanation:
    text = (corpus / name).read_text()
    (reader,) = [reader for reader in READERS if reader.recognises(text)]
    return reader.explain(text)


def _found(explanation: Explanation) -> set[tuple[str, str]]:
    return {(finding.subject, finding.code) for finding in explanation.findings}


def _known(gpu: GpuReading) -> int:
    return sum(getattr(gpu, f.name) not in (None, ()) for f in fields(gpu))


def test_exactly_one_reader_knows_each_file(corpus: Path) -> None:
    for path in sorted(corpus.iterdir()):
        claims = [reader.__name__ for reader in READERS if reader.recognises(path.read_text())]
        assert len(claims) == 1, (path.name, claims)


def test_no_reader_claims_what_other_tools_print(shared: Path) -> None:
    for kind in ("dcgm", "dmesg", "fwver", "net", "redfish", "slurm"):
        for path in sorted((shared / "corpus" / kind).iterdir()):
            claims = [reader.__name__ for reader in READERS if reader.recognises(path.read_text(errors="replace"))]
            assert claims == [], path.name


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_of_a_paste_changes_no_value(corpus: Path, shape: str) -> None:
    for path in sorted(corpus.iterdir()):
        text = path.read_text()
        read = _READ.get(path.name[:2], read_nvidia_smi_table)
        plain, shaped = read(text), read(SHAPES[shape](text))
        assert shaped.gpus == plain.gpus, path.name
        assert shaped.driver_version == plain.driver_version, path.name
        assert [error.kind for error in shaped.errors] == [error.kind for error in plain.errors], path.name


def test_not_available_is_neither_zero_nor_a_fault_on_a_gb200(corpus: Path) -> None:
    report = _report(corpus, "qx_gb200_580.173_real.xml")
    gpu = report.gpus[0]
    assert (report.schema, report.driver_version, report.attached_gpus) == ("v13", "580.173.02", 4)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_clique_id) == ("Completed", "Success", 2)
    assert gpu.fabric_health_summary == "Healthy"
    assert (gpu.fabric_incorrect_configuration, gpu.fabric_partition_assigned) == (None, None)
    assert gpu.recovery_action is RecoveryAction.NONE
    assert gpu.vbios_version == "97.00.B9.00.69"
    assert (gpu.temperature_margin_celsius, gpu.temperature_slowdown_margin_celsius) == (60, -2)
    assert gpu.temperature_slowdown_celsius is None
    assert (gpu.remapped_rows_correctable_inactive, gpu.remap_banks_max, gpu.slot_number) == (0, 3968, 14)
    assert _found(_explain(corpus, "qx_gb200_580.173_real.xml")) == {("node", "gpu.count_mismatch")}


def test_a_reading_knows_far_more_than_fifty_attributes(corpus: Path) -> None:
    assert _known(_report(corpus, "qx_gb200_580.173_real.xml").gpus[0]) > 130
    assert _known(_report(corpus, "q_h100_mig_590_real.txt").gpus[0]) > 100


def test_an_h100_without_fabric_health_is_well(corpus: Path) -> None:
    gpu = _report(corpus, "qx_h100_580.105_real.xml").gpus[0]
    assert (gpu.fabric_state, gpu.fabric_route_unhealthy) == ("Completed", None)
    assert (gpu.vbios_version, gpu.inforom_image) == ("96.00.99.00.01", "G520.0200.00.05")
    assert gpu.retired_pages_single_bit is None
    assert _found(_explain(corpus, "qx_h100_580.105_real.xml")) == {("node", "gpu.count_mismatch")}


def test_the_schema_does_not_follow_the_driver_branch(corpus: Path) -> None:
    report = _report(corpus, "qx_a100_570.148_real.xml")
    gpu = report.gpus[0]
    assert (report.schema, report.driver_version) == ("v12", "570.148.08")
    assert (gpu.mig_mode_current, gpu.mig_instances) == (False, ())
    assert (gpu.remapped_rows_pending, gpu.remapped_rows_failure) == (False, False)
    assert (gpu.temperature_slowdown_celsius is not None, gpu.temperature_margin_celsius) == (True, None)
    assert _explain(corpus, "qx_a100_570.148_real.xml").findings == ()


def test_mig_memory_stays_apart_and_its_remapped_rows_are_unknown(corpus: Path) -> None:
    gpu = _report(corpus, "qx_a100_mig_535.54_real.xml").gpus[0]
    assert gpu.mig_instances is not None
    assert [mig.gpu_instance_id for mig in gpu.mig_instances] == [3, 4, 5, 6]
    assert (gpu.memory_total_mib, gpu.mig_instances[0].memory_total_mib) == (81920, 19968)
    assert gpu.remapped_rows_pending is None
    explanation = _explain(corpus, "qx_a100_mig_535.54_real.xml")
    assert any("memory waits for a repair" in unknown for unknown in explanation.unknown)


def test_the_old_names_of_power_and_clocks_are_read(corpus: Path) -> None:
    gpu = _report(corpus, "qx_t4_515.105_real.xml").gpus[0]
    assert gpu.power_draw_watts == pytest.approx(26.78)
    assert (gpu.event_hw_slowdown, gpu.event_sw_power_cap) == (False, False)
    assert (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit, gpu.retired_pages_pending) == (0, 0, False)
    assert (gpu.processes or ())[1].name == "python"


def test_a_record_without_driver_is_not_whole_and_its_driver_unknown(corpus: Path) -> None:
    report = _report(corpus, "qx_nodriver_1070ti_v10_partial.xml")
    assert (report.driver_version, report.attached_gpus, report.complete) == (None, None, False)
    assert report.gpus[0].uuid == "GPU-cb1d5b38-5730-7410-5e8c-3421b540a091"
    assert "the version of the loaded driver" in _explain(corpus, "qx_nodriver_1070ti_v10_partial.xml").unknown


def test_a_completed_fabric_can_still_be_unhealthy(corpus: Path) -> None:
    explanation = _explain(corpus, "qx_gb200_fabric_degraded_mock.xml")
    assert _found(explanation) == {("gpu 0000:0b:00.0", "fabric.route_unhealthy")}


def test_the_text_form_of_a_mig_h100_is_read_section_by_section(corpus: Path) -> None:
    gpu = _report(corpus, "q_h100_mig_590_real.txt").gpus[0]
    assert gpu.mig_instances is not None
    assert [mig.gpu_instance_id for mig in gpu.mig_instances] == [2, 3, 9, 10]
    assert gpu.mig_instances[0].multiprocessors == 60
    assert (gpu.remapped_rows_pending, gpu.utilization_gpu_percent, gpu.memory_total_mib) == (None, None, 81559)
    assert (gpu.event_gpu_idle, gpu.event_hw_thermal_slowdown) == (True, False)
    assert gpu.clock_application_graphics_mhz is None
    assert (gpu.memory_power_draw_watts, gpu.pcie_replays, gpu.processes) == (44.0, 9, ())
    assert _explain(corpus, "q_h100_mig_590_real.txt").findings == ()


def test_placeholder_rows_are_no_retired_pages(corpus: Path) -> None:
    gpu = _report(corpus, "csv_retired_pages_h100_590_real.csv").gpus[0]
    assert gpu.retired_pages == ()
    assert _explain(corpus, "csv_retired_pages_h100_590_real.csv").findings == ()


def test_mig_devices_are_not_counted_as_gpus(corpus: Path) -> None:
    (gpu,) = _report(corpus, "L_h100_mig_590_real.txt").gpus
    assert [mig.profile for mig in gpu.mig_instances or ()] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]


def test_a_cumulative_counter_is_no_throttling_and_the_new_driver_names_are_read(corpus: Path) -> None:
    report = _report(corpus, "q_rtx2080s_610_real.txt")
    assert (report.driver_version, report.cuda_version) == ("610.57.04", "13.3")
    assert report.gpus[0].counter_sw_power_cap_us == 15_814_235_622
    assert (report.gpus[0].power_limit_watts, report.gpus[0].power_draw_watts) == (250.0, 38.89)
    assert _explain(corpus, "q_rtx2080s_610_real.txt").findings == ()


def test_pending_and_the_count_of_retired_pages_are_independent(corpus: Path) -> None:
    gpus = _report(corpus, "q_retired_pages_8gpu_535_testdata.txt").gpus
    totals = [(gpu.retired_pages_single_bit or 0) + (gpu.retired_pages_double_bit or 0) for gpu in gpus]
    assert totals == [65, 63, 0, 6, 0, 65, 0, 64]
    assert [gpu.retired_pages_pending for gpu in gpus] == [False, True] * 4
    found = _found(_explain(corpus, "q_retired_pages_8gpu_535_testdata.txt"))
    assert ("gpu 0004:00:00.0", "ecc.page_retirement_pending") in found
    assert ("gpu 0004:00:00.0", "ecc.page_retirement_limit") not in found
    assert ("gpu 0001:00:00.0", "ecc.page_retirement_limit") in found
    assert ("gpu 0001:00:00.0", "ecc.page_retirement_pending") not in found


def test_one_error_in_one_cell_drains_nothing(corpus: Path) -> None:
    (gpu,) = _report(corpus, "table_err_power_transient_v100_real.txt").gpus
    assert (gpu.unreadable, gpu.power_draw_watts, gpu.power_limit_watts) == (("power_draw_watts",), None, 250.0)
    (finding,) = _explain(corpus, "table_err_power_transient_v100_real.txt").findings
    assert (finding.severity, finding.action) == (Severity.INFO, Action.WATCH)


def test_a_recovery_action_without_a_header_is_seen(corpus: Path) -> None:
    assert _found(_explain(corpus, "csv_recovery_action_reset_real.csv")) == {("gpu 1", "recovery.gpu_reset")}


def test_a_gpu_that_cannot_be_reached_is_found_by_its_address(corpus: Path) -> None:
    found = _found(_explain(corpus, "stderr_handle_unknown_error_space.txt"))
    assert found == {("gpu 0000:0b:00.0", "gpu.unreachable")}


def test_an_impossible_address_is_reported_as_printed_and_never_guessed(corpus: Path) -> None:
    explanation = _explain(corpus, "stderr_handle_odd_fn.txt")
    assert _found(explanation) == {("gpu 000:BA:80.0", "gpu.unreachable")}
    assert _report(corpus, "stderr_handle_odd_fn.txt").errors[0].gpu is None
    assert any("'000:BA:80.0' is no PCI address" in unknown for unknown in explanation.unknown)


def test_a_driver_that_does_not_run_is_found(corpus: Path) -> None:
    assert _found(_explain(corpus, "stderr_comm.txt")) == {("node", "driver.not_running")}


def test_driver_390_has_no_cuda_line_and_no_sections_for_what_came_later(corpus: Path) -> None:
    report = _report(corpus, "q_v100_390_excerpt.txt")
    gpu = report.gpus[0]
    assert (report.driver_version, report.cuda_version, gpu.mig_mode_current) == ("390.30", None, None)
    assert (gpu.vbios_version, gpu.inforom_oem, gpu.inforom_ecc) == ("88.00.13.00.02", "1.1", "5.0")


def test_the_mismatch_of_the_bug_report_names_both_versions(shared: Path) -> None:
    text = (shared / "corpus" / "bugs" / "03_nvml_mismatch_patch.md").read_text()
    (finding,) = [f for f in nvidia_smi_table.explain(text).findings if f.code == "driver.library_mismatch"]
    assert "580.178" in finding.evidence

"""Every DCGM output of the public corpus has its right value, read in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.findings import DRAINS, Action, Severity
from fleet.readers import dcgm_diag_json, dcgm_health, dcgm_metrics, dcgm_text, nvlink
from fleet.readers.dcgm_diag import DiagResult, Proof, diag_findings, judge_diag
from fleet.readers.dcgm_diag_json import read_diag_json
from fleet.readers.dcgm_metrics import read_dcgm_metrics
from fleet.readers.dcgm_text import read_diag_text
from fleet.readers.nvlink import link_findings
from fleet.readers.nvlink_text import LinkState, read_nvlink

pytestmark = pytest.mark.corpus


def _corpus(shared: Path, name: str) -> str:
    return (shared / "corpus" / "dcgm" / name).read_text()


@pytest.mark.parametrize("name", ["diag_2.x_pass.json", "diag_rc205_all_pass.json", "diag_3.3.1_all_skip.json"])
def test_deployment_passes_of_old_versions_say_nothing_about_hardware(shared: Path, name: str) -> None:
    verdict = judge_diag(read_diag_json(_corpus(shared, name)))
    assert (verdict.software, verdict.hardware) == (Proof.PASS, Proof.INCONCLUSIVE)


@pytest.mark.parametrize("name", ["diag_4.2.3_level2_skips_real.json", "diag_4.5.2_level2_skips_real.json"])
def test_a_real_node_that_skipped_every_hardware_test_is_inconclusive(shared: Path, name: str) -> None:
    explained = dcgm_diag_json.explain(_corpus(shared, name))
    assert explained.subjects[0].facts["hardware"] == "inconclusive"
    assert [found.code for found in explained.findings] == ["dcgm.persistence_mode"]
    assert any("SRAM" in note for note in explained.unknown)


def test_of_eight_gpus_with_configuration_errors_the_one_with_ecc_is_drained(shared: Path) -> None:
    found = diag_findings(read_diag_json(_corpus(shared, "diag_4.x_config_and_hw_fail.json")))
    hard = [item for item in found if item.severity is Severity.ERROR]
    assert [(item.subject, item.code, item.action in DRAINS) for item in hard] == [
        ("gpu 3", "dcgm.volatile_dbe_detected", True)
    ]
    assert len(found) == 9


def test_a_warning_without_severity_is_the_hardwares(shared: Path) -> None:
    report = read_diag_json(_corpus(shared, "diag_4.x_no_severity_fail_closed.json"))
    assert judge_diag(report).hardware is Proof.FAIL
    assert diag_findings(report)[0].subject == "gpu 0"


def test_a_pass_without_memory_is_inconclusive(shared: Path) -> None:
    report = read_diag_json(_corpus(shared, "diag_4.5_memory_alloc_error_but_pass.json"))
    assert judge_diag(report).hardware is Proof.INCONCLUSIVE
    assert [item.code for item in diag_findings(report)] == ["dcgm.memory_alloc"]


def test_a_memory_test_that_failed_for_heat_asks_for_cooling(shared: Path) -> None:
    (found,) = dcgm_text.explain(_corpus(shared, "diag_3.x_table_thermal_fail.txt")).findings
    assert (found.subject, found.code, found.action) == ("gpu 0", "dcgm.thermal_violations", Action.CHECK_COOLING)


def test_a_real_table_of_4_2_3_is_read(shared: Path) -> None:
    report = read_diag_text(_corpus(shared, "diag_4.2.3_table_software_pergpu.txt"))
    assert (report.version, report.driver, report.device_ids) == ("4.2.3", "570.148.08", ("26b9",))
    passed = [(t.entity, t.result) for t in report.tests if t.name == "software"]
    assert passed == [(f"gpu {n}", DiagResult.PASS) for n in range(4)]


@pytest.mark.parametrize("name", ["dcgm/diag_unknown_test_names_3_to_4.txt", "bugs/33_dcgm_upgrade_test_names.md"])
def test_an_upgrade_that_takes_the_tests_away_is_said(shared: Path, name: str) -> None:
    text = (shared / "corpus" / name).read_text()
    assert [found.code for found in dcgm_text.explain(text).findings] == ["dcgm.tests_not_found"]


def test_an_unhealthy_imex_is_a_question_of_the_platform(shared: Path) -> None:
    explained = dcgm_health.explain(_corpus(shared, "health_imex_minus3_single_node.txt"))
    (found,) = explained.findings
    assert (found.subject, found.code, found.severity) == ("gpu 0", "dcgm.imex_unhealthy", Severity.WARNING)
    assert found.action not in DRAINS
    assert any("multi-node" in note for note in explained.unknown)


def test_blanks_are_unknown_also_a_hundredfold(shared: Path) -> None:
    samples = read_dcgm_metrics(_corpus(shared, "metrics_fp64_blank.prom"))
    assert [sample.value for sample in samples] == [None, None, None, pytest.approx(0.9125968658836753)]


def test_a_count_of_xids_has_the_xid_in_its_label(shared: Path) -> None:
    (found,) = dcgm_metrics.explain(_corpus(shared, "metrics_xid_active_name_mismatch.prom")).findings
    assert (found.subject, found.code) == ("gpu 0", "xid.42")
    assert "1 times in the last 300 s" in found.text


def test_an_absent_metric_is_unknown_and_a_domain_is_kept(shared: Path) -> None:
    explained = dcgm_metrics.explain(_corpus(shared, "metrics_gb200_domain_metric_absent.prom"))
    assert [subject.name for subject in explained.subjects] == ["gpu 3"]
    assert explained.subjects[0].facts["pci address"] == "0019:01:00"
    assert explained.findings == ()
    assert any("XID_ERRORS" in note for note in explained.unknown)
    assert any("RETIRED" in note for note in explained.unknown)


def test_down_and_disabled_links_are_told_apart(shared: Path) -> None:
    first, second = read_nvlink(_corpus(shared, "nvlink_status_down_and_disabled.txt"))
    assert [link.index for link in first.links if link.state is LinkState.DOWN] == [3]
    assert [link.index for link in second.links if link.state is LinkState.DOWN] == [6]
    assert [link.index for link in second.links if link.state is LinkState.DISABLED] == [10, 11]
    assert [found.code for found in link_findings(second)] == ["nvlink.down", "nvlink.disabled"]


def test_all_links_down_is_decided_by_the_platforms_number(shared: Path) -> None:
    text = _corpus(shared, "nvlink_all_down_but_diag_pass.txt")
    parts = read_nvlink(text)
    assert [part.count(LinkState.DOWN) for part in parts] == [18, 18]
    assert all(link_findings(part, expected=0) == () for part in parts)
    assert [link_findings(part, expected=12)[0].severity for part in parts] == [Severity.ERROR] * 2
    assert len(nvlink.explain(text).unknown) == 2


def test_each_text_is_known_by_one_reader(shared: Path) -> None:
    readers = (dcgm_diag_json, dcgm_health, dcgm_metrics, dcgm_text, nvlink)
    for path in (shared / "corpus" / "dcgm").iterdir():
        assert [reader.recognises(path.read_text()) for reader in readers].count(True) == 1, path.name

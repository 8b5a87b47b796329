"""A diagnostic of DCGM proves what it proves: in JSON and as a table, whole, cut, or with a log around it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import DRAINS, Action, Explanation, Severity
from fleet.readers import dcgm_diag_json, dcgm_text
from fleet.readers.dcgm_diag import DiagReport, DiagResult, Proof, diag_findings, judge_diag
from fleet.readers.dcgm_diag_json import read_diag_json
from fleet.readers.dcgm_errors import Weight, error_named, errors, finding, identify, weight_of
from fleet.readers.dcgm_text import read_diag_text


def _run(*tests: tuple[str, str, dict[str, object]], gpus: int = 1) -> str:
    """A run of DCGM 4.x: a category, a test and the results by GPU each."""
    categories = [
        {
            "category": category,
            "tests": [{"name": name, "results": [{"entity_group": "GPU", "entity_id": int(g), **_result(r)}]}]
            if isinstance(r, dict)
            else [{"name": name, "results": [{"entity_group": "GPU", "entity_id": int(g), "status": r}]}],
        }
        for category, name, results in tests
        for g, r in results.items()
    ]
    entities = [{"entity_id": n, "device_id": "2330", "serial_num": f"165000000{n}"} for n in range(gpus)]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {"version": "4.4.1", "Driver Version Detected": "580.95.05"},
    }
    return json.dumps(document, indent=1)


def _result(result: dict[str, object]) -> dict[str, object]:
    return {"status": result["status"], "warnings": [{k: v for k, v in result.items() if k != "status"}]}


_GOOD = ("Hardware", "memory", {"0": "Pass"})
_CONFIG = {"status": "Fail", "error_id": 29, "error_severity": 5, "warning": "Persistence mode for GPU 0 is disabled."}
_ECC = {"status": "Fail", "error_id": 4, "error_severity": 2, "warning": "Double bit errors on GPU 0"}


def test_a_hardware_test_that_passed_on_every_gpu_is_a_pass() -> None:
    verdict = judge_diag(read_diag_json(_run(_GOOD)))
    assert (verdict.hardware, verdict.reasons) == (Proof.PASS, ())


def test_the_version_the_driver_and_the_serials_are_read() -> None:
    report = read_diag_json(_run(_GOOD, gpus=2))
    assert (report.version, report.driver, report.device_ids) == ("4.4.1", "580.95.05", ("2330",))
    assert report.serials == {"gpu 0": "1650000000", "gpu 1": "1650000001"}


@pytest.mark.parametrize("word", ["Skip", "Not Run", "Warn", "mumble", "SKIPPED"])
def test_what_did_not_pass_is_no_pass(word: str) -> None:
    verdict = judge_diag(read_diag_json(_run(_GOOD, ("Integration", "pcie", {"0": word}))))
    assert verdict.hardware is Proof.INCONCLUSIVE
    assert any("pcie" in reason for reason in verdict.reasons)


def test_a_test_that_this_node_need_not_run_may_be_skipped() -> None:
    report = read_diag_json(_run(_GOOD, ("Hardware", "eud", {"0": "Skip"})))
    assert judge_diag(report).hardware is Proof.INCONCLUSIVE
    assert judge_diag(report, frozenset({"EUD"})).hardware is Proof.PASS
    failed = read_diag_json(_run(_GOOD, ("Hardware", "eud", {"0": "Fail"})))
    assert judge_diag(failed, frozenset({"EUD"})).hardware is Proof.FAIL


def test_a_gpu_without_any_result_is_not_proven() -> None:
    verdict = judge_diag(read_diag_json(_run(_GOOD, gpus=2)))
    assert verdict.hardware is Proof.INCONCLUSIVE
    assert any("gpu 1" in reason for reason in verdict.reasons)


def test_a_configuration_error_condemns_no_hardware_and_proves_none() -> None:
    report = read_diag_json(_run(("Deployment", "software", {"0": _CONFIG})))
    verdict = judge_diag(report)
    assert (verdict.software, verdict.hardware) == (Proof.FAIL, Proof.INCONCLUSIVE)
    (found,) = diag_findings(report)
    assert (found.code, found.severity, found.action) == (
        "dcgm.persistence_mode",
        Severity.WARNING,
        Action.FIX_CONFIGURATION,
    )


def test_one_hardware_error_among_configuration_errors_decides() -> None:
    report = read_diag_json(_run(("Deployment", "software", {"0": _CONFIG, "1": _ECC})))
    assert judge_diag(report).hardware is Proof.FAIL
    first = diag_findings(report)[0]
    assert (first.subject, first.code, first.severity) == ("gpu 1", "dcgm.volatile_dbe_detected", Severity.ERROR)
    assert first.action in DRAINS


def test_a_failure_without_any_message_is_the_hardwares() -> None:
    report = read_diag_json(_run(("Hardware", "sm stress", {"3": "FAIL"})))
    assert judge_diag(report).hardware is Proof.FAIL
    (found,) = diag_findings(report)
    assert (found.subject, found.code, found.action) == ("gpu 3", "dcgm.test_failed", Action.RUN_DIAGNOSTICS)


def test_an_isolating_error_under_a_pass_is_no_pass() -> None:
    report = read_diag_json(_run(_GOOD, ("Hardware", "pulse_test", {"0": {**_ECC, "status": "Pass"}})))
    assert judge_diag(report).hardware is Proof.FAIL


def test_a_number_that_does_not_fit_its_message_is_not_believed() -> None:
    assert identify(12, "Uncorrectable ECC memory error on GPU 3") is error_named("DCGM_FR_VOLATILE_DBE_DETECTED")
    assert identify(41, "thermal violations on GPU 1") is error_named("DCGM_FR_THERMAL_VIOLATIONS_TS")
    assert identify(9999, "no words that are known") is None


def test_numbers_may_be_texts_and_blanks_are_no_gpu() -> None:
    text = json.dumps(
        {
            "DCGM GPU Diagnostic": {
                "version": "2.4.7",
                "test_categories": [
                    {
                        "category": "Hardware",
                        "tests": [
                            {"name": "GPU Memory", "results": [{"gpu_ids": "0,1, 2", "status": "PASS"}]},
                            {"name": "Diagnostic", "results": [{"gpu_id": 2147483632, "status": "FAIL"}]},
                            {
                                "name": "Pulse",
                                "results": [
                                    {
                                        "entity_id": "1",
                                        "status": "fail",
                                        "warnings": [{"error_id": "29", "error_severity": "5", "warning": "x"}],
                                    }
                                ],
                            },
                        ],
                    }
                ],
            }
        }
    )
    report = read_diag_json(text)
    assert [(t.name, t.entity) for t in report.tests] == [
        *[("GPU Memory", f"gpu {n}") for n in range(3)],
        ("Diagnostic", None),
        ("Pulse", "gpu 1"),
    ]
    assert report.tests[-1].warnings[0].weight is Weight.CONFIG


@pytest.mark.parametrize(
    ("word", "weight"), [("2", Weight.ISOLATE), ("config", Weight.CONFIG), ("9", None), ("", None)]
)
def test_a_severity_is_a_number_or_a_name(word: str, weight: Weight | None) -> None:
    assert weight_of(word) is weight


def test_a_summary_that_fails_where_no_part_does_is_heard() -> None:
    text = '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "nvbandwidth", '
    text += '"results": [{"entity_id": 0, "status": "Pass"}], "test_summary": {"status": "Fail"}}]}]}}'
    assert judge_diag(read_diag_json(text)).hardware is Proof.FAIL


def test_log_lines_before_and_a_prompt_behind_do_no_harm() -> None:
    text = f'2026-01-02T03:04:05Z {{"event": "start"}}\r\n[INFO] {{go}}\r\n{_run(_GOOD)}\r\nroot@node7:~# '
    assert dcgm_diag_json.recognises(text)
    assert judge_diag(read_diag_json(text)).hardware is Proof.PASS


def test_a_run_that_was_cut_keeps_what_it_has_and_is_no_pass() -> None:
    whole = _run(_GOOD, ("Hardware", "diagnostic", {"0": "Pass"}))
    report = read_diag_json(whole[: whole.index('"diagnostic"') + 5])
    assert report.complete is False
    assert [(t.name, t.result) for t in report.tests] == [("memory", DiagResult.PASS)]
    assert judge_diag(report).hardware is Proof.INCONCLUSIVE


def test_a_runtime_error_is_why_nothing_was_judged() -> None:
    report = read_diag_json('{"DCGM Diagnostic": {"runtime_error": "Unable to connect to the host engine"}}')
    (found,) = diag_findings(report)
    assert (found.code, found.action) == ("dcgm.did_not_run", Action.RESTART_SERVICE)
    assert judge_diag(report).hardware is Proof.INCONCLUSIVE


def test_an_odd_exit_beside_a_good_report_is_a_finding_about_the_tool() -> None:
    report = read_diag_json(_run(_GOOD))
    (found,) = diag_findings(report, exit_status=205)
    assert (found.code, found.severity) == ("dcgm.exit_status", Severity.WARNING)
    assert judge_diag(report).hardware is Proof.PASS
    assert diag_findings(report, exit_status=0) == ()


_TABLE_4 = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.3.1                                          |
| Driver Version Detected   | 575.57.08                                      |
| GPU Device IDs Detected   | 2330, 2330                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | The row remapping of GPU 1 failed and no spar  |
|                           | e row is left.                                 |
| pulse_test                | Skip                                           |
|                           | GPU0: Skip                                     |
|                           | GPU1: Skip                                     |
+---------------------------+------------------------------------------------+
"""


@pytest.mark.parametrize("prefix", ["", "node7: ", "2026-01-02T03:04:05.678Z stdout F ", "\x1b[1m"])
def test_the_table_of_4_x_has_a_row_per_gpu(prefix: str) -> None:
    report = read_diag_text("\r\n".join(prefix + line for line in _TABLE_4.splitlines()))
    assert (report.version, report.driver, report.complete) == ("4.3.1", "575.57.08", True)
    results = [(t.name, t.entity, t.result) for t in report.tests]
    assert results[2:4] == [("memory", "gpu 0", DiagResult.PASS), ("memory", "gpu 1", DiagResult.FAIL)]
    (found,) = diag_findings(report)
    assert (found.subject, found.code) == ("gpu 1", "dcgm.row_remap_failure")
    assert "no spare row is left" in found.evidence
    assert judge_diag(report).hardware is Proof.FAIL


def test_the_table_of_3_x_lists_the_gpus_behind_the_result() -> None:
    report = read_diag_text(
        """\
| Diagnostic                | Result                                         |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - All                                     |
| Diagnostic                | Pass - GPUs: 0, 2                              |
|                           | Skip - GPU: 1                                  |
+---------------------------+------------------------------------------------+
"""
    )
    assert [(t.name, t.entity, t.result) for t in report.tests][2:] == [
        ("Diagnostic", "gpu 0", DiagResult.PASS),
        ("Diagnostic", "gpu 2", DiagResult.PASS),
        ("Diagnostic", "gpu 1", DiagResult.SKIP),
    ]
    assert judge_diag(report).hardware is Proof.INCONCLUSIVE


def test_a_table_without_its_frame_was_cut() -> None:
    report = read_diag_text(_TABLE_4.split("| pulse_test")[0])
    assert report.complete is False


def test_a_test_that_the_new_version_lacks_is_a_matter_of_packages() -> None:
    text = "$ dcgmi diag -r pulse_test\nError: requested tests were not found among the plugins\n"
    assert dcgm_text.recognises(text)
    (found,) = dcgm_text.explain(text).findings
    assert (found.code, found.action) == ("dcgm.tests_not_found", Action.UPDATE_SOFTWARE)
    assert judge_diag(read_diag_text(text)).hardware is Proof.INCONCLUSIVE


def test_every_code_of_the_catalogue_has_an_action() -> None:
    assert len(errors()) == 133
    for error in errors().values():
        found = finding("gpu 0", error.name, error_id=error.id)
        assert found.code == f"dcgm.{error.name.removeprefix('DCGM_FR_').lower()}"
        assert found.action is not Action.NONE


@given(st.text())
def test_any_text_gives_a_report_that_is_no_pass(text: str) -> None:
    for report in (read_diag_json(text), read_diag_text(text)):
        assert isinstance(report, DiagReport)
        assert judge_diag(report).hardware is not Proof.PASS


@given(st.integers(0, 1200), st.text(max_size=20))
def test_any_damage_to_a_document_gives_an_answer(place: int, junk: str) -> None:
    text = _run(_GOOD, ("Deployment", "software", {"0": _CONFIG}))
    for damaged in (text[:place] + junk, text[:place] + junk + text[place:], _TABLE_4[:place] + junk):
        assert isinstance(dcgm_diag_json.explain(damaged), Explanation)
        assert isinstance(dcgm_text.explain(damaged), Explanation)


@given(st.integers(0, 600))
def test_the_beginning_of_a_run_is_never_a_pass(place: int) -> None:
    text = _run(_GOOD, ("Hardware", "diagnostic", {"0": "Pass"}))
    cut = min(place, text.index("entity_groups"))
    assert judge_diag(read_diag_json(text[:cut])).hardware is Proof.INCONCLUSIVE

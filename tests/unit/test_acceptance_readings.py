"""What the readers give as evidence: reports are believed for what they say of each part, never for how they ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.test_acceptance import CALM, DIAG, H2D, gpu, judged, node_of

from fleet.acceptance_parts import Part, PartKind
from fleet.acceptance_readings import run_of_diag, state_of, values_of
from fleet.acceptance_rules import rule_named
from fleet.acceptance_verdict import NodeVerdict
from fleet.canary_verdict import Outcome
from fleet.findings import Severity
from fleet.gpu import GpuReading
from fleet.measures import Phase, Sample
from fleet.node_reading import NodeReading
from fleet.readers.dcgm_diag import DiagReport, DiagResult, DiagTest, DiagWarning
from fleet.readers.dcgm_diag_json import read_diag_json

AT = datetime(2026, 11, 30, tzinfo=UTC)
PARTS = tuple(gpu(0, slot) for slot in range(2))


def diag(*tests: DiagTest, errors: tuple[str, ...] = (), complete: bool = True) -> NodeVerdict:
    report = DiagReport("4.2.3", "570.133.20", ("gpu 0", "gpu 1"), tests, errors, complete)
    node = replace(node_of(0, [], {}, gpus=2), runs=(run_of_diag("n0", DIAG.id, report, PARTS),))
    return judged([node], DIAG, name="n0")


def of(entity: str | None, result: DiagResult, *warnings: DiagWarning, name: str = "memory") -> DiagTest:
    return DiagTest("Hardware", name, entity, result, warnings)


def test_gpus_that_a_hardware_test_passed_on_are_proven() -> None:
    assert diag(of("gpu 0", DiagResult.PASS), of("gpu 1", DiagResult.PASS)).outcome is Outcome.PASS


def test_a_gpu_that_no_hardware_test_judged_does_not_pass() -> None:
    verdict = diag(of("gpu 0", DiagResult.PASS), of("gpu 1", DiagResult.SKIP))
    assert [one.outcome for one in verdict.tests[1].parts] == [Outcome.PASS, Outcome.INCONCLUSIVE]


def test_a_pass_of_the_deployment_tests_alone_proves_nothing() -> None:
    software = DiagTest("Deployment", "software", "gpu 0", DiagResult.PASS)
    assert diag(software).outcome is Outcome.INCONCLUSIVE


def test_a_pass_after_an_allocation_error_proves_nothing() -> None:
    warning = DiagWarning("Unable to allocate memory on GPU 0")
    verdict = diag(of("gpu 0", DiagResult.PASS, warning), of("gpu 1", DiagResult.PASS))
    assert verdict.tests[1].parts[0].outcome is not Outcome.PASS


def test_a_report_that_is_cut_proves_nothing() -> None:
    assert diag(of(None, DiagResult.PASS), complete=False).outcome is Outcome.INCONCLUSIVE


def test_a_run_that_did_not_do_its_work_was_not_run() -> None:
    verdict = diag(errors=("cannot connect to the hostengine",))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "cannot connect to the hostengine" in verdict.tests[1].parts[0].text


def test_a_failed_hardware_test_fails_its_gpu() -> None:
    verdict = diag(of("gpu 0", DiagResult.PASS), of("gpu 1", DiagResult.FAIL))
    assert list(verdict.faulty) == ["gpu:16501"]


def test_a_serial_in_the_report_goes_before_its_number() -> None:
    tests = (of("gpu 0", DiagResult.PASS), of("gpu 1", DiagResult.SKIP))
    swapped = DiagReport(tests=tests, complete=True, serials={"gpu 0": "16501", "gpu 1": "16500"})
    assert run_of_diag("n0", DIAG.id, swapped, PARTS).proven == (PARTS[1],)


def test_samples_keep_their_reason_and_their_conditions() -> None:
    samples = [
        Sample("n0", "host_to_device", Phase.BEFORE, AT, 55.0, 0, conditions=CALM),
        Sample("n0", "host_to_device", Phase.BEFORE, AT, None, 1, missing="no row for it"),
        Sample("n0", "host_to_device", Phase.BEFORE, AT, 54.0, 9),
    ]
    found = values_of(samples, H2D, PARTS, "GB/s")
    assert [one.part.slot for one in found] == ["0", "1", "9"]
    assert (found[0].conditions, found[0].part.serial) == (CALM, "16500")
    assert (found[1].value, found[1].missing) == (None, "no row for it")


def test_a_value_of_the_node_is_the_nodes() -> None:
    (found,) = values_of(
        [Sample("n0", "x", Phase.BEFORE, AT, 470.0)], rule_named("node/nccl/all_reduce"), PARTS, "GB/s"
    )
    assert found.part == Part("n0")


def test_a_look_that_did_not_show_the_gpus_is_none() -> None:
    assert state_of("n0", NodeReading(AT), PARTS) is None
    assert state_of("n0", NodeReading(AT, gpus=()), PARTS) == ()


def test_what_is_wrong_with_a_gpu_is_put_on_its_part() -> None:
    here = (Part("n0", PartKind.GPU, "0000:3b:00.0", "165"),)
    reading = GpuReading(index=0, pci_address="0000:3b:00.0", remapped_rows_failure=True)
    (found,) = state_of("n0", NodeReading(AT, gpus=(reading,)), here) or ()
    assert (found.part, found.finding.code) == (here[0], "ecc.row_remap_failed")
    assert found.finding.severity is Severity.ERROR


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", ["diag_4.2.3_level2_skips_real.json", "diag_4.5.2_level2_skips_real.json", "diag_3.3.1_all_skip.json"]
)
def test_a_real_run_that_skipped_its_tests_accepts_nothing(shared: Path, name: str) -> None:
    text = (shared / "corpus" / "dcgm" / name).read_text(encoding="utf-8", errors="replace")
    run = run_of_diag("n0", DIAG.id, read_diag_json(text), PARTS)
    assert run.proven == ()
    node = replace(node_of(0, [], {}, gpus=2), runs=(run,))
    assert judged([node], DIAG, name="n0").outcome is Outcome.INCONCLUSIVE


@given(st.text(max_size=200))
def test_no_text_of_a_diagnostic_passes_or_crashes(text: str) -> None:
    run = run_of_diag("n0", DIAG.id, read_diag_json(text), PARTS)
    assert run.proven == ()

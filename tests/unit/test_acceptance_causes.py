"""Why a value falls short, and whose fault that is: what is the part's, and what says nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.test_acceptance import (
    CALM,
    DIAG,
    GEMM,
    H2D,
    HBM,
    HEAT,
    but,
    gpu,
    healthy,
    judged,
    node_of,
    part_in,
    rack,
    settings_of,
)

from fleet.acceptance_bearing import Bearing, bearing_of, cause_of
from fleet.acceptance_configuration import setting_findings, usual_settings
from fleet.acceptance_evidence import RunEvidence
from fleet.acceptance_parts import PartFinding, PartKind, node_part, placed
from fleet.acceptance_rules import CauseKind
from fleet.canary_verdict import Outcome
from fleet.findings import Action, Finding, Severity
from fleet.gpu_settings import NodeGpuSettings
from fleet.measures import Conditions


def test_a_throttled_value_says_nothing_of_the_gpu_and_names_cooling() -> None:
    hot = replace(CALM, throttled=("hw_thermal",), gpu_celsius=88.0)
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.5), lambda n, s: hot if (n, s) == (3, 5) else CALM)
    found = part_in(judged(nodes, H2D), H2D, 5)
    assert (found.outcome, found.repeat) == (Outcome.INCONCLUSIVE, True)
    assert found.causes[0].kind is CauseKind.COOLING
    assert any("hw_thermal" in text for text in found.causes[0].evidence)


def test_a_good_value_of_a_throttled_gpu_is_no_pass_either() -> None:
    hot = replace(CALM, throttled=("sw_thermal",))
    nodes = rack(H2D, healthy(55.0), lambda n, s: hot if (n, s) == (3, 5) else CALM)
    assert part_in(judged(nodes, H2D), H2D, 5).outcome is Outcome.INCONCLUSIVE


def test_another_process_on_the_gpu_is_contamination() -> None:
    busy = replace(CALM, others=1)
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.6), lambda n, s: busy if (n, s) == (3, 5) else CALM)
    found = part_in(judged(nodes, H2D), H2D, 5)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.causes[0].kind is CauseKind.CONTAMINATION


def test_a_shortfall_under_unknown_conditions_fails_nothing_and_a_good_value_still_passes() -> None:
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.8), lambda *_: Conditions())
    verdict = judged(nodes, H2D)
    assert part_in(verdict, H2D, 5).outcome is Outcome.INCONCLUSIVE
    assert "not known" in part_in(verdict, H2D, 5).text
    assert part_in(verdict, H2D, 4).outcome is Outcome.PASS


def test_a_power_limit_below_the_boards_default_is_mended_first() -> None:
    nodes = rack(GEMM, but(healthy(50000.0), (3, 5), share=0.8))
    nodes[3] = replace(nodes[3], settings=settings_of(gpu5=500.0))
    verdict = judged(nodes, GEMM)
    found = part_in(verdict, GEMM, 5)
    assert (found.outcome, found.repeat) == (Outcome.INCONCLUSIVE, True)
    assert found.causes[0].kind is CauseKind.CONFIGURATION
    assert any("power limit 500 W, the board's default 700 W" in text for text in verdict.to_mend)
    assert verdict.faulty == {}


def test_a_power_limit_read_beside_the_value_counts_as_a_setting_too() -> None:
    low = replace(CALM, power_limit_watts=500.0)
    nodes = rack(GEMM, but(healthy(50000.0), (3, 5), share=0.8), lambda n, s: low if (n, s) == (3, 5) else CALM)
    found = part_in(judged([replace(node, settings=None) for node in nodes], GEMM), GEMM, 5)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.causes[0].kind is CauseKind.CONFIGURATION


def test_a_configuration_finding_of_a_test_is_never_a_verdict_on_hardware() -> None:
    node = node_of(0, [], {})
    off = Finding("gpu 1", "dcgm.persistence_mode", Severity.WARNING, Action.FIX_CONFIGURATION, "mode off")
    run = RunEvidence("n0", DIAG.id, findings=(PartFinding(gpu(0, 1), off),), proven=node.parts)
    verdict = judged([replace(node, runs=(run,))], DIAG, name="n0")
    assert part_in(verdict, DIAG, 1).outcome is Outcome.INCONCLUSIVE
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.to_repeat == (DIAG.id,)


def test_one_hardware_finding_decides_beside_configuration() -> None:
    node = node_of(0, [], {})
    found = (
        Finding("gpu 1", "dcgm.persistence_mode", Severity.WARNING, Action.FIX_CONFIGURATION, "mode off"),
        Finding("gpu 1", "dcgm.faulty_memory", Severity.ERROR, Action.CONTACT_VENDOR, "memory mismatch"),
    )
    run = RunEvidence("n0", DIAG.id, findings=tuple(PartFinding(gpu(0, 1), one) for one in found))
    part = part_in(judged([replace(node, runs=(run,))], DIAG, name="n0"), DIAG, 1)
    assert part.outcome is Outcome.FAIL
    assert CauseKind.MEMORY in [cause.kind for cause in part.causes]


def test_a_finding_on_a_part_that_has_no_value_has_a_verdict_of_its_own() -> None:
    nodes = rack(H2D, healthy(55.0))
    wrong = Finding("node", "nccl.wrong_results", Severity.ERROR, Action.RUN_DIAGNOSTICS, "#wrong at 2 sizes")
    run = replace(nodes[3].runs[0], findings=(PartFinding(node_part("n3"), wrong),))
    nodes[3] = replace(nodes[3], runs=(run,))
    assert "node:n3" in judged(nodes, H2D).faulty


def test_a_whole_slow_node_is_the_fault_and_not_its_gpus() -> None:
    slow = but(healthy(55.0), *((3, slot) for slot in range(8)), share=0.93)
    verdict = judged(rack(H2D, slow), H2D)
    assert list(verdict.faulty) == ["node:n3"]
    gpus = [one for one in verdict.tests[1].parts if one.part.kind is PartKind.GPU]
    assert {one.outcome for one in gpus} == {Outcome.INCONCLUSIVE}
    assert {one.causes[0].kind for one in gpus} == {CauseKind.NODE}


def test_a_weak_gpu_in_a_slow_node_is_named_beside_the_node() -> None:
    slow = but(healthy(55.0), *((3, slot) for slot in range(8)), share=0.93)
    verdict = judged(rack(H2D, but(slow, (3, 5), share=0.9)), H2D)
    assert set(verdict.faulty) == {"node:n3", "gpu:16535"}


def test_a_slot_that_is_slow_on_most_nodes_is_the_place_and_not_the_parts() -> None:
    slow = but(healthy(55.0), *((node, 5) for node in range(8)), share=0.93)
    verdict = judged(rack(H2D, slow), H2D)
    found = part_in(verdict, H2D, 5)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert CauseKind.PLACE in [cause.kind for cause in found.causes]
    assert verdict.faulty == {}


def test_pcie_errors_make_the_link_the_likelier_cause() -> None:
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.5))
    narrow = Finding("gpu 5", "pcie.width_degraded", Severity.WARNING, Action.CHECK_LINK, "width 8 of 16 in P0")
    nodes[3] = replace(nodes[3], state=(PartFinding(gpu(3, 5), narrow),))
    found = part_in(judged(nodes, H2D), H2D, 5)
    assert (found.outcome, found.causes[0].kind) == (Outcome.FAIL, CauseKind.LINK)
    assert "width 8 of 16" in found.causes[0].evidence[0]


def test_a_narrow_link_explains_no_slow_memory() -> None:
    nodes = rack(HBM, but(healthy(2900.0), (3, 5), share=0.9))
    narrow = Finding("gpu 5", "pcie.width_degraded", Severity.WARNING, Action.CHECK_LINK, "width 8 of 16 in P0")
    nodes[3] = replace(nodes[3], state=(PartFinding(gpu(3, 5), narrow),))
    found = part_in(judged(nodes, HBM), HBM, 5)
    assert found.outcome is Outcome.FAIL
    assert CauseKind.LINK not in [cause.kind for cause in found.causes]


def test_where_all_was_looked_at_it_is_the_part() -> None:
    found = part_in(judged(rack(HBM, but(healthy(2900.0), (3, 5), share=0.9)), HBM), HBM, 5)
    assert [cause.kind for cause in found.causes] == [CauseKind.PART]


def test_a_hot_gpu_fails_the_test_of_heat_unless_the_room_is_too_warm() -> None:
    hot = replace(CALM, throttled=("hw_thermal",), gpu_celsius=90.0)
    nodes = rack(HEAT, lambda n, s: 90.0 if (n, s) == (3, 5) else 62.0, lambda n, s: hot if (n, s) == (3, 5) else CALM)
    found = part_in(judged(nodes, HEAT), HEAT, 5)
    assert (found.outcome, found.causes[0].kind) == (Outcome.FAIL, CauseKind.COOLING)
    warm = replace(hot, inlet_celsius=41.0)
    nodes = rack(HEAT, lambda n, s: 90.0 if (n, s) == (3, 5) else 62.0, lambda n, s: warm if (n, s) == (3, 5) else CALM)
    assert part_in(judged(nodes, HEAT), HEAT, 5).outcome is Outcome.INCONCLUSIVE


def test_a_gpu_far_warmer_than_its_like_fails_before_it_throttles() -> None:
    nodes = rack(HEAT, lambda n, s: 78.0 if (n, s) == (3, 5) else 60.0 + s / 4)
    verdict = judged(nodes, HEAT)
    assert part_in(verdict, HEAT, 5).outcome is Outcome.FAIL
    assert verdict.tests[1].parts[0].outcome is Outcome.PASS


def test_a_power_cap_that_all_reach_is_how_the_test_runs() -> None:
    capped = replace(CALM, throttled=("sw_power_cap",))
    assert judged(rack(HBM, healthy(2900.0), lambda *_: capped), HBM).outcome is Outcome.PASS
    alone = rack(HBM, healthy(2900.0), lambda n, s: capped if (n, s) == (3, 5) else CALM)
    found = part_in(judged(alone, HBM), HBM, 5)
    assert (found.outcome, found.causes[0].kind) == (Outcome.INCONCLUSIVE, CauseKind.POWER)


@pytest.mark.parametrize(
    ("code", "severity", "action", "bearing"),
    [
        ("ecc.row_remap_failed", Severity.ERROR, Action.RUN_DIAGNOSTICS, Bearing.HARDWARE),
        ("ecc.row_remap_pending", Severity.WARNING, Action.RESET_GPU, Bearing.DOUBT),
        ("gpu.lost", Severity.FATAL, Action.REBOOT_NODE, Bearing.HARDWARE),
        ("driver.library_mismatch", Severity.ERROR, Action.REBOOT_NODE, Bearing.CONFIGURATION),
        ("dcgm.tests_not_found", Severity.WARNING, Action.UPDATE_SOFTWARE, Bearing.CONFIGURATION),
        ("fabric.failed", Severity.ERROR, Action.RESTART_SERVICE, Bearing.CONFIGURATION),
        ("xid.45", Severity.WARNING, Action.RESTART_SERVICE, Bearing.DOUBT),
        ("xid.31", Severity.WARNING, Action.RESTART_APPLICATION, Bearing.DOUBT),
        ("xid.79", Severity.FATAL, Action.REBOOT_NODE, Bearing.HARDWARE),
        ("clocks.hw_thermal_slowdown", Severity.ERROR, Action.CHECK_COOLING, Bearing.CONDITION),
        ("dcgm.clocks_event_thermal", Severity.WARNING, Action.CHECK_COOLING, Bearing.CONDITION),
        ("mode.persistence_off", Severity.INFO, Action.FIX_CONFIGURATION, Bearing.NOTE),
        ("something.new", Severity.ERROR, Action.NONE, Bearing.DOUBT),
    ],
)
def test_what_a_finding_decides(code: str, severity: Severity, action: Action, bearing: Bearing) -> None:
    assert bearing_of(Finding("gpu 0", code, severity, action, "as printed")) is bearing


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("xid.94", CauseKind.MEMORY),
        ("xid.74", CauseKind.LINK),
        ("xid.79", None),
        ("nvlink.links_missing", CauseKind.LINK),
        ("ib.link_went_down", CauseKind.LINK),
        ("dcgm.volatile_dbe_detected", CauseKind.MEMORY),
        ("dcgm.pci_replay_rate", CauseKind.LINK),
        ("memory.uncorrected", CauseKind.MEMORY),
        ("clocks.hw_power_brake", CauseKind.POWER),
        ("clocks.hw_thermal_slowdown", CauseKind.COOLING),
    ],
)
def test_what_a_finding_is_about(code: str, kind: CauseKind | None) -> None:
    assert cause_of(Finding("gpu 0", code, Severity.ERROR, Action.RUN_DIAGNOSTICS, "as printed")) is kind


def test_a_setting_is_held_against_most_gpus_of_the_model() -> None:
    right, odd = settings_of(), settings_of()
    odd = NodeGpuSettings(gpus=(odd.gpus[0].model_copy(update={"ecc": False}), *odd.gpus[1:]))
    parts = [gpu(0, slot) for slot in range(8)]
    found = setting_findings("n0", odd, parts, usual_settings([right, odd]))
    assert [(str(one.part.slot), one.finding.code) for one in found] == [("0", "setting.ecc")]
    assert "ECC enabled on 15 of 16 GPUs" in found[0].finding.evidence


def test_a_power_limit_that_the_whole_model_has_is_no_finding() -> None:
    low = settings_of(**{f"gpu{slot}": 600.0 for slot in range(8)})
    parts = [gpu(0, slot) for slot in range(8)]
    assert setting_findings("n0", low, parts, usual_settings([low, low])) == ()


def test_the_one_gpu_with_the_boards_power_limit_is_not_the_odd_one() -> None:
    low = settings_of(**{f"gpu{slot}": 600.0 for slot in range(1, 8)})
    parts = [gpu(0, slot) for slot in range(8)]
    assert setting_findings("n0", low, parts, usual_settings([low])) == ()


def test_settings_that_were_not_read_are_no_finding() -> None:
    assert setting_findings("n0", None, [], usual_settings([])) == ()


def test_a_subject_that_fits_no_part_stays_the_nodes() -> None:
    parts = [gpu(0, slot) for slot in range(2)]
    subjects = ("gpu 1", "gpu 7", "node", "switch 0000:06:00.0", "gpu 1 link 4", "")
    found = placed("n0", [Finding(one, "a.b", Severity.ERROR, Action.NONE, "") for one in subjects], parts)
    assert [(one.part.kind, one.part.slot) for one in found] == [
        (PartKind.GPU, "1"),
        (PartKind.NODE, ""),
        (PartKind.NODE, ""),
        (PartKind.NODE, ""),
        (PartKind.GPU, "1"),
        (PartKind.NODE, ""),
    ]


def test_a_test_of_heat_does_not_pass_where_throttling_is_not_known() -> None:
    nodes = rack(HEAT, lambda *_: 60.0, lambda *_: Conditions(gpu_celsius=60.0))
    assert part_in(judged(nodes, HEAT), HEAT, 5).outcome is Outcome.INCONCLUSIVE


def test_a_gpu_warmer_than_its_like_points_at_its_cooling_before_it_throttles() -> None:
    warm = replace(CALM, gpu_celsius=70.0)
    nodes = rack(HBM, but(healthy(2900.0), (3, 5), share=0.9), lambda n, s: warm if (n, s) == (3, 5) else CALM)
    found = part_in(judged(nodes, HBM), HBM, 5)
    assert found.outcome is Outcome.FAIL
    assert [(cause.kind, cause.sureness.word) for cause in found.causes] == [(CauseKind.COOLING, "likely")]
    assert found.causes[0].evidence == ("70 C, its like 60 C",)


def test_warmer_air_at_the_inlet_points_at_the_room() -> None:
    warm = replace(CALM, gpu_celsius=70.0, inlet_celsius=31.0)
    nodes = rack(HBM, but(healthy(2900.0), (3, 5), share=0.9), lambda n, s: warm if (n, s) == (3, 5) else CALM)
    (cause,) = part_in(judged(nodes, HBM), HBM, 5).causes
    assert cause.kind is CauseKind.COOLING
    assert "warmer air" in cause.text
    assert cause.evidence == ("inlet 31 C, its like 24 C", "70 C, its like 60 C")


def test_a_power_brake_is_a_matter_of_power() -> None:
    braked = replace(CALM, throttled=("hw_slowdown", "hw_power_brake"))
    nodes = rack(HBM, healthy(2900.0), lambda n, s: braked if (n, s) == (3, 5) else CALM)
    found = part_in(judged(nodes, HBM), HBM, 5)
    assert [(cause.kind, cause.sureness.word) for cause in found.causes] == [(CauseKind.POWER, "sure")]


def test_a_slowdown_without_its_reason_leaves_heat_and_power_open() -> None:
    slowed = replace(CALM, throttled=("hw_slowdown",))
    nodes = rack(HBM, healthy(2900.0), lambda n, s: slowed if (n, s) == (3, 5) else CALM)
    kinds = {cause.kind: cause.sureness.word for cause in part_in(judged(nodes, HBM), HBM, 5).causes}
    assert (kinds[CauseKind.POWER], kinds[CauseKind.COOLING]) == ("possible", "possible")


def test_where_errors_were_not_read_the_part_is_not_blamed() -> None:
    nodes = [replace(node, state=None) for node in rack(HBM, but(healthy(2900.0), (3, 5), share=0.9))]
    (cause,) = part_in(judged(nodes, HBM), HBM, 5).causes
    assert cause.kind is CauseKind.UNKNOWN
    assert cause.evidence == ("errors of links and memory were not read after the test",)


def test_a_possible_cause_is_kept_where_not_everything_was_read() -> None:
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.9), lambda *_: replace(CALM, gpu_celsius=None))
    corrected = Finding("gpu 5", "pcie.aer_corrected", Severity.INFO, Action.WATCH, "900 corrected errors")
    nodes[3] = replace(nodes[3], state=(PartFinding(gpu(3, 5), corrected),))
    causes = part_in(judged(nodes, H2D), H2D, 5).causes
    assert [(cause.kind, cause.sureness.word) for cause in causes] == [(CauseKind.LINK, "possible")]


def test_corrected_errors_are_named_behind_the_part_where_all_was_read() -> None:
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.9))
    corrected = Finding("gpu 5", "pcie.aer_corrected", Severity.INFO, Action.WATCH, "900 corrected errors")
    nodes[3] = replace(nodes[3], state=(PartFinding(gpu(3, 5), corrected),))
    causes = part_in(judged(nodes, H2D), H2D, 5).causes
    assert [cause.kind for cause in causes] == [CauseKind.PART, CauseKind.LINK]


@pytest.mark.parametrize(("field", "code"), [("ecc", "setting.ecc"), ("mig_mode", "setting.mig_mode")])
def test_ecc_that_is_off_and_mig_that_is_on_are_mended_even_on_a_lone_gpu(field: str, code: str) -> None:
    (one, *_) = settings_of().gpus
    odd = NodeGpuSettings(gpus=(one.model_copy(update={field: field == "mig_mode"}),))
    found = setting_findings("n0", odd, [gpu(0, 0)], usual_settings([odd]))
    assert [part.finding.code for part in found] == [code]


def test_a_subject_that_fits_two_parts_is_put_on_neither() -> None:
    twins = [gpu(0, 1), replace(gpu(0, 1), serial="other")]
    (found,) = placed("n0", [Finding("gpu 1", "a.b", Severity.ERROR, Action.NONE, "")], twins)
    assert found.part == node_part("n0")


def test_clocks_held_down_for_a_reason_that_is_not_known_fail_nothing() -> None:
    odd = replace(CALM, throttled=("some_new_reason",))
    found = part_in(judged(rack(HEAT, lambda *_: 60.0, lambda *_: odd), HEAT), HEAT, 5)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "some_new_reason" in found.text

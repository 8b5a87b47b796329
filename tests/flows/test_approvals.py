"""Who may let a wave pass: signatures, forms and policies, attacked on a real Prefect server."""

from __future__ import annotations

import pytest

from fleet.gates import GateStatus
from ledger import NodeStatus, OperationState
from tests.flows.operated_site import (
    HALTED_EXIT,
    OPERATOR,
    OTHER_OPERATOR,
    REFUSED_EXIT,
    SECURITY,
    STRANGER,
    Site,
    edit_fleet,
    replace_text,
)

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]


def test_a_wave_waits_suspended_until_the_right_signature_and_asks_once(site: Site) -> None:
    operation = site.begun["signed"]
    first = site.wait_at_gate(operation)

    stranger = site.try_to_approve(operation, STRANGER)
    assert stranger.returncode == REFUSED_EXIT, stranger.stderr
    assert "not in the allowed-signers file" in stranger.stderr
    assert site.resume_in_ui(operation, None) == "REJECT"
    assert site.run_state(operation) == "PAUSED"

    site.fill_form(operation, site.sign(first, operation="fw-20200101-aaaa"))
    site.wait_at_gate(operation)
    site.fill_form(operation, "looks good to me")
    site.wait_at_gate(operation)
    key, other_operation, free_text = site.refusals(operation)
    assert "not in the allowed-signers file" in key
    assert "not over this text" in other_operation
    assert "signed approvals only" in free_text
    assert not site.truth().nodes[site.nodes("signed")[0]].flashed

    assert site.approve(operation) == GateStatus.APPROVED
    second = site.wait_at_gate(operation, wave=2)
    site.fill_form(operation, site.sign(first))
    site.wait_at_gate(operation, wave=2)
    assert "not over this text" in site.refusals(operation)[-1]
    site.fill_form(operation, site.sign(second))
    site.wait_until(operation, OperationState.DONE)

    assert site.actions(operation).count("gate.open") == 2
    assert site.actions(operation).count("gate.approve") == 2
    assert len(site.with_status(operation, NodeStatus.UPDATED)) == 2
    assert site.at_rest("signed")


def test_two_people_of_the_two_roles_must_sign(site: Site) -> None:
    operation = site.begun["two"]
    gate = site.wait_at_gate(operation)
    assert site.approve(operation) == GateStatus.OPEN
    assert site.operation(operation).reason == "wave 1: 1 of 2 approvals; no approval yet from role security"
    again = site.try_to_approve(operation, OPERATOR)
    assert again.returncode == REFUSED_EXIT, again.stdout + again.stderr
    assert "another person must" in again.stderr

    site.fill_form(operation, site.sign(gate))
    site.wait_at_gate(operation)
    assert [reason for reason in site.refusals(operation) if "another person must" not in reason] == []
    assert len(site.refusals(operation)) == 2

    assert site.approve(operation, 1, OTHER_OPERATOR) == GateStatus.OPEN
    site.fill_form(operation, "recorded")
    site.wait_at_gate(operation)
    assert "no approval yet from role security" in site.operation(operation).reason

    site.fill_form(operation, site.sign(gate, SECURITY))
    site.wait_until(operation, OperationState.DONE)
    assert len(site.refusals(operation)) == 2


def test_free_text_passes_where_the_policy_allows_it_and_only_with_a_name(site: Site) -> None:
    operation = site.begun["free"]
    site.wait_at_gate(operation)
    site.fill_form(operation, "none", approver="  ")
    site.wait_at_gate(operation)
    assert site.refusals(operation) == ["an approval needs the approver's name"]
    site.fill_form(operation, "none", approver="Ada", comment="change 4711")
    site.wait_until(operation, OperationState.DONE)
    approval = site.ledger.gates.approvals(site.ledger.gates.newest(operation).id)[0]  # type: ignore[union-attr]
    assert (approval.principal, approval.signed, approval.comment) == ("Ada", False, "change 4711")


def test_a_rejected_gate_halts_and_is_asked_anew_after_resume(site: Site) -> None:
    operation = site.begun["rejected"]
    gate = site.wait_at_gate(operation)
    old = site.sign(gate)
    assert site.approve(operation, 1, OPERATOR, "--reject", "--comment", "not on a Friday") == GateStatus.REJECTED
    halted = site.wait_until(operation, OperationState.HALTED)
    assert halted.reason == "wave 1 was rejected"
    assert site.halt_reasons(operation) == ["wave 1 was rejected"]
    assert site.gpufleet("status", operation).returncode == HALTED_EXIT
    assert not site.truth().nodes[site.nodes("rejected")[0]].flashed

    site.done("resume", operation, "--wave", "1")
    site.wait_at_gate(operation, round_number=2)
    site.fill_form(operation, old)
    site.wait_at_gate(operation, round_number=2)
    assert "not over this text" in site.refusals(operation)[-1]
    assert site.approve(operation) == GateStatus.APPROVED
    site.wait_until(operation, OperationState.DONE)


def test_a_gate_that_nobody_answers_in_time_halts_and_can_be_asked_again(site: Site) -> None:
    operation = site.begun["late"]
    halted = site.wait_until(operation, OperationState.HALTED, seconds=150)
    late = site.try_to_approve(operation, OPERATOR)
    assert late.returncode != 0
    assert "timed_out" in late.stderr
    assert "nobody approved in time" in halted.reason
    assert any("nobody approved in time" in reason for reason in site.halt_reasons(operation))

    site.done("resume", operation)
    site.wait_at_gate(operation, round_number=2)
    assert site.approve(operation) == GateStatus.APPROVED
    site.wait_until(operation, OperationState.DONE)


def test_a_changed_policy_voids_the_plan_until_it_is_as_planned(site: Site) -> None:
    operation = site.begun["policy"]
    site.wait_at_gate(operation)
    was = site.file.read_text()
    edit_fleet(site.file, lambda tree: tree["pools"]["policy"].update(capacity_floor=0.01))
    assert site.approve(operation) == GateStatus.APPROVED
    halted = site.wait_until(operation, OperationState.HALTED)
    assert "the fleet file's pools differ from the plan's" in halted.reason
    assert any("differ from the plan's" in reason for reason in site.halt_reasons(operation))
    assert not site.truth().nodes[site.nodes("policy")[0]].flashed

    replace_text(site.file, was)
    site.done("resume", operation)
    site.wait_until(operation, OperationState.DONE)
    assert site.actions(operation).count("gate.open") == 1


def test_a_changed_bundle_is_refused_even_when_it_is_signed(site: Site) -> None:
    manifest = site.folder / "changed-bundle" / "bundle.yaml"
    was, signature = manifest.read_text(), manifest.with_name("bundle.yaml.sig").read_text()
    operation = site.begun["bundle"]
    site.wait_at_gate(operation)
    manifest.write_text(was + "# another one\n")
    site.sign_bundle(manifest.parent)
    assert site.approve(operation) == GateStatus.APPROVED
    halted = site.wait_until(operation, OperationState.HALTED)
    assert "is not the one that was planned" in halted.reason

    manifest.write_text(was + "# and this one nobody signed\n")
    site.done("resume", operation)
    site.wait("the second halt", lambda: len(site.halt_reasons(operation)) == 2)
    assert "not over this text" in site.halt_reasons(operation)[-1]
    site.wait_until(operation, OperationState.HALTED)
    assert not site.truth().nodes[site.nodes("bundle")[0]].flashed

    manifest.write_text(was)
    manifest.with_name("bundle.yaml.sig").write_text(signature)
    site.done("resume", operation)
    site.wait_until(operation, OperationState.DONE)
    assert site.actions(operation).count("gate.approve") == 1

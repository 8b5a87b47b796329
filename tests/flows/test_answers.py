"""Which answers at a gate may be recorded: every replay of a signature is refused, with the reason."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.signatures import SignatureRefused, sign
from blocks.fleet import Fleet
from fleet.approvals import APPROVAL_NAMESPACE, BUNDLE_NAMESPACE, approval_text
from fleet.config import GatePolicy, Signer
from fleet.errors import ConfigurationError
from fleet.gates import Approval, Decision, GateStatus, GateTerms
from ledger import Gate
from tasks.gate import check_answer

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GATE = Gate(1, "fw-20261130-7k3q", 2, 1, "ab" * 32, GateTerms(1, (), NOW + timedelta(days=1)), NOW, GateStatus.OPEN)
POLICY = GatePolicy(allowed_signers="allowed_signers", signers=(Signer(principal="ada", roles=("operator",)),))
FLEET_FILE = """\
version: 1
fleet: prod
bmc: {user: admin, password: {env: BMC_PASSWORD}}
ssh: {user: root, key: {file: id_ed25519}}
gate: {unsigned: true}
pools: {train: {}}
racks: {r1: {}}
nodes: [{name: n1, rack: r1, pool: train, model: m, bmc: "https://127.0.0.2:8001", ssh: "127.0.0.2:22"}]
"""


@dataclass
class Desk:
    """A fleet whose allowed-signers file names Ada."""

    fleet: Fleet
    key: Path

    def sign(self, gate: Gate = GATE, fleet: str = "prod", decision: str = "approve", name: str = "") -> str:
        text = approval_text(fleet, gate.operation, gate.wave, gate.round_number, gate.digest, decision)
        return sign(text, name or APPROVAL_NAMESPACE, self.key)

    def check(self, signature: str, policy: GatePolicy = POLICY, approver: str = "somebody") -> Approval:
        return check_answer(self.fleet, GATE, policy, Decision.APPROVE, approver, signature, "")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "fleet.yaml").write_text(FLEET_FILE)
    key = tmp_path / "ada_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "allowed_signers").write_text(f"ada {key.with_suffix('.pub').read_text()}")
    return Desk(Fleet(fleet_file=str(tmp_path / "fleet.yaml")), key)


def test_the_right_signature_is_the_signers_whatever_name_the_form_gives(desk: Desk) -> None:
    approval = desk.check(desk.sign(), approver="root")
    assert (approval.principal, approval.roles, approval.signed) == ("ada", ("operator",), True)
    assert (approval.fingerprint or "").startswith("SHA256:")


@pytest.mark.parametrize(
    "signed",
    [
        pytest.param(replace(GATE, wave=1), id="another wave"),
        pytest.param(replace(GATE, round_number=2), id="another round"),
        pytest.param(replace(GATE, operation="fw-20261130-aaaa"), id="another operation"),
        pytest.param(replace(GATE, digest="cd" * 32), id="another plan"),
    ],
)
def test_a_signature_over_another_gate_is_refused(desk: Desk, signed: Gate) -> None:
    with pytest.raises(SignatureRefused, match="not over this text"):
        desk.check(desk.sign(signed))


def test_a_signature_for_another_fleet_or_decision_or_purpose_is_refused(desk: Desk) -> None:
    for signature in (desk.sign(fleet="dev"), desk.sign(decision="reject"), desk.sign(name=BUNDLE_NAMESPACE)):
        with pytest.raises(SignatureRefused, match="not over this text"):
            desk.check(signature)


def test_a_key_that_is_not_allowed_is_refused(desk: Desk) -> None:
    signature = desk.sign()
    (desk.key.parent / "allowed_signers").write_text("")
    with pytest.raises(SignatureRefused, match="not in the allowed-signers file"):
        desk.check(signature)


def test_a_damaged_signature_is_refused(desk: Desk) -> None:
    lines = desk.sign().splitlines()
    with pytest.raises(SignatureRefused):
        desk.check("\n".join([lines[0], lines[1][::-1], *lines[2:]]))
    with pytest.raises(SignatureRefused):
        desk.check("-----BEGIN SSH SIGNATURE-----\n")


def test_free_text_is_refused_unless_the_policy_allows_it(desk: Desk) -> None:
    with pytest.raises(SignatureRefused, match="use `gpufleet approve`"):
        desk.check("none")
    unsigned = GatePolicy(unsigned=True)
    with pytest.raises(SignatureRefused, match="the approver's name"):
        desk.check("none", unsigned, approver=" ")
    approval = desk.check("none", unsigned, approver="Ada")
    assert (approval.principal, approval.roles, approval.signed) == ("Ada", (), False)


def test_a_policy_without_signers_says_what_to_mend(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="names no allowed_signers"):
        desk.check(desk.sign(), GatePolicy(unsigned=True))

"""Approvals are signatures: over this text, by an allowed key, for this purpose."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from adapters import signatures
from adapters.signatures import SignatureRefused, sign, verify
from fleet.approvals import APPROVAL_NAMESPACE, approval_text

TEXT = approval_text("lab", "fw-1", 2, 1, "d" * 64, "approve")

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def make_key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return make_key(tmp_path, "alice")


@pytest.fixture
def allowed(tmp_path: Path, alice: Path) -> Path:
    path = tmp_path / "allowed_signers"
    public = alice.with_suffix(".pub").read_text().split()
    path.write_text(f"alice@example.com {public[0]} {public[1]}\n")
    return path


@pytest.fixture(params=["ssh-keygen", "sshsig"])
def verifier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the tool, and where it is missing."""
    if request.param == "sshsig":
        real = shutil.which
        monkeypatch.setattr(signatures.shutil, "which", lambda name: None if name == "ssh-keygen" else real(name))
    return str(request.param)


def test_a_right_signature_names_the_principal_and_the_key(
    alice: Path, allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = sign(TEXT, APPROVAL_NAMESPACE, alice)
    with_tool = verify(TEXT, signature, APPROVAL_NAMESPACE, allowed)
    monkeypatch.setattr(signatures.shutil, "which", lambda _: None)
    without = verify(TEXT, signature, APPROVAL_NAMESPACE, allowed)
    assert with_tool == without
    assert with_tool.principal == "alice@example.com"
    assert with_tool.fingerprint.startswith("SHA256:")


@pytest.mark.parametrize(
    "other",
    [
        approval_text("lab", "fw-1", 3, 1, "d" * 64, "approve"),
        approval_text("lab", "fw-1", 2, 2, "d" * 64, "approve"),
        approval_text("lab", "fw-1", 2, 1, "e" * 64, "approve"),
        approval_text("lab", "fw-2", 2, 1, "d" * 64, "approve"),
        approval_text("other", "fw-1", 2, 1, "d" * 64, "approve"),
        approval_text("lab", "fw-1", 2, 1, "d" * 64, "reject"),
    ],
)
def test_a_signature_for_anything_else_is_refused(other: str, alice: Path, allowed: Path) -> None:
    signature = sign(TEXT, APPROVAL_NAMESPACE, alice)
    with pytest.raises(SignatureRefused, match="not over this text"):
        verify(other, signature, APPROVAL_NAMESPACE, allowed)


def test_another_purpose_is_refused(alice: Path, allowed: Path, verifier: str) -> None:
    signature = sign(TEXT, "file", alice) if verifier == "ssh-keygen" else ""
    with pytest.raises(SignatureRefused):
        verify(TEXT, signature, APPROVAL_NAMESPACE, allowed)


def test_a_key_that_is_not_allowed_is_refused(tmp_path: Path, allowed: Path) -> None:
    signature = sign(TEXT, APPROVAL_NAMESPACE, make_key(tmp_path, "mallory"))
    with pytest.raises(SignatureRefused, match="not in the allowed-signers"):
        verify(TEXT, signature, APPROVAL_NAMESPACE, allowed)


def test_an_expired_key_is_refused(alice: Path, allowed: Path) -> None:
    allowed.write_text(allowed.read_text().replace("com ssh-", 'com valid-before="20200101" ssh-'))
    signature = sign(TEXT, APPROVAL_NAMESPACE, alice)
    with pytest.raises(SignatureRefused):
        verify(TEXT, signature, APPROVAL_NAMESPACE, allowed)


@pytest.mark.parametrize("text", ["", "yes", "-----BEGIN SSH SIGNATURE-----\nnonsense\n-----END SSH SIGNATURE-----"])
def test_what_is_no_signature_is_refused(text: str, allowed: Path, verifier: str) -> None:
    with pytest.raises(SignatureRefused):
        verify(TEXT, text, APPROVAL_NAMESPACE, allowed)

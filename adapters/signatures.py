"""OpenSSH signatures: `ssh-keygen -Y`, and the sshsig package where there is no ssh-keygen."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import sshsig
from sshsig import InvalidSignature
from sshsig.allowed_signers import load_allowed_signers_file

from fleet.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Verified:
    """Who signed: a principal of the allowed-signers file, and the key's fingerprint (SHA256:…)."""

    principal: str
    fingerprint: str


class SignatureRefused(ConfigurationError):
    """The signature is not one of an allowed signer over this very text."""


def sign(text: str, namespace: str, key: Path) -> str:
    """Sign with a private key file (or a public one whose private half an agent holds).

    Raises ConfigurationError where ssh-keygen is missing or refuses the key.
    """
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise ConfigurationError("signing needs ssh-keygen (package openssh-client)")
    if not key.is_file():
        raise ConfigurationError(f"no key file {key}")
    done = subprocess.run(  # noqa: S603
        [tool, "-q", "-Y", "sign", "-n", namespace, "-f", str(key)],
        input=text.encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise ConfigurationError(f"ssh-keygen could not sign with {key}: {done.stderr.decode().strip()}")
    return done.stdout.decode()


def verify(text: str, signature: str, namespace: str, allowed_signers: Path) -> Verified:
    """Check a signature against an allowed-signers file (options namespaces, valid-after, valid-before count).

    Raises SignatureRefused with the reason, ConfigurationError where the file cannot be read.
    """
    if not allowed_signers.is_file():
        raise ConfigurationError(f"no allowed-signers file {allowed_signers}")
    if "BEGIN SSH SIGNATURE" not in signature:
        raise SignatureRefused("not an SSH signature (it starts with -----BEGIN SSH SIGNATURE-----)")
    tool = shutil.which("ssh-keygen")
    if tool is None:
        return _verify_without_tool(text, signature, namespace, allowed_signers)
    with tempfile.NamedTemporaryFile("w", suffix=".sig") as file:
        file.write(signature)
        file.flush()
        return _verify_with_tool(tool, text, Path(file.name), namespace, allowed_signers)


def _verify_with_tool(tool: str, text: str, signature: Path, namespace: str, allowed: Path) -> Verified:
    found = _run([tool, "-Y", "find-principals", "-s", str(signature), "-f", str(allowed)], b"")
    principals = [line for line in found.stdout.decode().split("\n") if line]
    if found.returncode != 0 or not principals:
        raise SignatureRefused("the signing key is not in the allowed-signers file")
    reason = ""
    for principal in principals:
        done = _run(
            [tool, "-Y", "verify", "-f", str(allowed), "-I", principal, "-n", namespace, "-s", str(signature)],
            text.encode(),
        )
        if done.returncode == 0:
            return Verified(principal, done.stdout.decode().strip().rpartition(" ")[2])
        reason = (done.stderr + done.stdout).decode().strip().splitlines()[-1]
    raise SignatureRefused(f"the signature is not over this text, or not valid now ({reason})")


def _run(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(arguments, input=stdin, capture_output=True, check=False, timeout=60)  # noqa: S603


def _verify_without_tool(text: str, signature: str, namespace: str, allowed: Path) -> Verified:
    """Plain ed25519 keys only: a line with options is refused rather than half understood."""
    try:
        key = sshsig.check_signature(text.encode(), signature, namespace)
        for signer in load_allowed_signers_file(allowed):
            if signer.options is None and f"{signer.key_type} {signer.base64_key}" == key.openssh_str():
                return Verified(signer.principals.split(",")[0], key.sha256_str())
    except (InvalidSignature, NotImplementedError, ValueError) as error:
        raise SignatureRefused(f"the signature is not over this text ({error})") from error
    raise SignatureRefused("the signing key is not in the allowed-signers file")

"""What the SSH adapter decides before a byte is sent; the rest is tested on a real sshd."""

from __future__ import annotations

import base64
import io
import socket
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from adapters.known_hosts import KnownHosts
from adapters.local import Finished
from adapters.ssh import SshAccess, SshHost, parse_key, read_key
from fleet.errors import ConfigurationError, HostKeyChanged, NodeUnreachable

BLOB = b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"k" * 32
KEY = base64.b64encode(BLOB).decode()


def _check(text: str, host: str = "gpu1", port: int = 22, blob: bytes = BLOB) -> None:
    KnownHosts(text, "known_hosts").check(host, port, "ssh-ed25519", blob, "gpu1")


@pytest.mark.parametrize(
    ("entry", "port"),
    [
        (f"gpu1 ssh-ed25519 {KEY} a comment", 22),
        (f"GPU1,10.0.0.1 ssh-ed25519 {KEY}", 22),
        (f"[gpu1]:2222 ssh-ed25519 {KEY}", 2222),
        (f"gpu* ssh-ed25519 {KEY}", 22),
        (f"# a comment\n\ngpu1 ssh-rsa AAAA\ngpu1 ssh-ed25519 {KEY}", 22),
        (f"{paramiko.HostKeys.hash_host('gpu1')} ssh-ed25519 {KEY}", 22),
    ],
)
def test_a_pinned_key_is_accepted(entry: str, port: int) -> None:
    _check(entry, port=port)


@pytest.mark.parametrize("entry", [f"[gpu1]:2222 ssh-ed25519 {KEY}", f"gpu*,!gpu1 ssh-ed25519 {KEY}", ""])
def test_a_host_without_a_pinned_key_is_unknown_and_the_way_to_pin_it_is_said(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="ssh-keyscan -p 22 gpu1 >> known_hosts") as caught:
        _check(entry)
    assert not isinstance(caught.value, HostKeyChanged)


def test_another_key_than_the_pinned_one_is_a_change() -> None:
    with pytest.raises(HostKeyChanged, match="ssh-keygen -R 'gpu1'") as caught:
        _check(f"gpu1 ssh-ed25519 {KEY}", blob=BLOB[:-1] + b"x")
    assert "pinned: ssh-ed25519 SHA256:" in caught.value.evidence[0]


def test_a_revoked_key_is_refused_though_it_is_pinned() -> None:
    with pytest.raises(HostKeyChanged, match="revoked"):
        _check(f"gpu1 ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY}")


def test_a_broken_known_hosts_file_is_named_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match="known_hosts:2: not a known_hosts entry"):
        KnownHosts(f"gpu1 ssh-ed25519 {KEY}\ngpu2 ssh-ed25519\n", "known_hosts")


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ssh-keyscan"):
        KnownHosts.read(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"check ssh\.key"):
        read_key(tmp_path / "none")


def test_a_key_that_cannot_be_read_does_not_show_its_text() -> None:
    text = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecretsecret\n-----END OPENSSH PRIVATE KEY-----\n"
    with pytest.raises(ConfigurationError) as caught:
        parse_key(text, "id")
    assert "secretsecret" not in f"{caught.value}{caught.value.__cause__}"


def test_a_key_with_a_passphrase_is_refused_with_advice() -> None:
    text = io.StringIO()
    paramiko.ECDSAKey.generate().write_private_key(text, password="pw")
    with pytest.raises(ConfigurationError, match="passphrase"):
        parse_key(text.getvalue(), "id")


def test_a_server_that_never_speaks_is_unreachable_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        access = SshAccess("ops", paramiko.ECDSAKey.generate(), None, connect_timeout_seconds=0.3)
        with pytest.raises(NodeUnreachable, match="gpu1: no SSH session"):
            SshHost("gpu1", address, access).run(("true",))


class BrokenChannel:
    """Has answered; then its connection breaks."""

    def close(self) -> None:
        raise EOFError


def test_a_connection_that_breaks_after_the_answer_does_not_cost_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(_new_key()))
    host = SshHost("gpu1", "127.0.0.1:22", SshAccess("root", key, None, 1.0))
    monkeypatch.setattr(host, "_open_channel", lambda _: BrokenChannel())
    monkeypatch.setattr(host, "_exchange", lambda *_: Finished(0, "well", ""))
    assert host.run(("true",)).stdout == "well"


def _new_key() -> str:
    private = Ed25519PrivateKey.generate()
    return private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()

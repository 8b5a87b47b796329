"""Keys, passwords and certificates of a simulated fleet, each in a file that only its owner reads."""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAYS = 365


def write_private(path: Path, content: bytes) -> None:
    """Mode 600 from the first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def make_password(path: Path) -> str:
    password = secrets.token_urlsafe(18)
    write_private(path, f"{password}\n".encode())
    return password


def make_key(path: Path, comment: str) -> str:
    """An ed25519 key pair at `path` and `path`.pub; the public line without its comment."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    write_private(path, key.export_private_key("openssh"))
    public = key.export_public_key("openssh")
    path.with_name(path.name + ".pub").write_bytes(public)
    return " ".join(public.decode().split()[:2])


def make_tls(folder: Path, addresses: Iterable[str]) -> ssl.SSLContext:
    """One self-signed certificate for all `addresses`; `ca.pem` is what a client trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpufleet simulator")])
    names = [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    write_private(folder / "tls_key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "tls_key.pem")
    return context

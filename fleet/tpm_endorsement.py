"""Is an endorsement key a manufacturer's? Its certificate, followed to one that is pinned.

Revocation is not looked up. Sources: TCG EK Credential Profile for TPM 2.0 (2.5), RFC 5280 (section 6).
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from fleet import tpm_der as der
from fleet.tpm_bytes import Malformed
from fleet.tpm_certificate import (
    BASIC_CONSTRAINTS,
    EXTENDED_KEY_USAGE,
    KEY_USAGE,
    SUBJECT_ALT_NAME,
    Certificate,
    name_text,
    names_in_alternatives,
    same_name,
)
from fleet.tpm_public import LEAST_RSA_BITS, PublicKey, TpmPublic, key_sha256

_ENDORSEMENT_USE = "2.23.133.8.1"  # tcg-kp-EKCertificate
_MANUFACTURER, _MODEL, _VERSION = "2.23.133.2.1", "2.23.133.2.2", "2.23.133.2.3"
_LONGEST_PATH = 255  # a limit above it is none
_SIGN_CERTIFICATES = 0x04  # keyCertSign, in the first byte of the key usage
# Those that are looked at, and those that take nothing away: key identifiers, policies, where to find more.
_UNDERSTOOD = {
    *(BASIC_CONSTRAINTS, KEY_USAGE, EXTENDED_KEY_USAGE, SUBJECT_ALT_NAME),
    *("2.5.29.9", "2.5.29.14", "2.5.29.18", "2.5.29.31", "2.5.29.32", "2.5.29.35", "1.3.6.1.5.5.7.1.1"),
}
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "1.2.840.113549.1.1.11": hashes.SHA256(),
    "1.2.840.113549.1.1.12": hashes.SHA384(),
    "1.2.840.113549.1.1.13": hashes.SHA512(),
    "1.2.840.10045.4.3.2": hashes.SHA256(),
    "1.2.840.10045.4.3.3": hashes.SHA384(),
    "1.2.840.10045.4.3.4": hashes.SHA512(),
}
_PSS = "1.2.840.113549.1.1.10"
_PSS_HASHES: dict[str, hashes.HashAlgorithm] = {
    "2.16.840.1.101.3.4.2.1": hashes.SHA256(),
    "2.16.840.1.101.3.4.2.2": hashes.SHA384(),
    "2.16.840.1.101.3.4.2.3": hashes.SHA512(),
}


@dataclass(frozen=True, slots=True)
class TrustStore:
    """`roots` are pinned; `intermediates` only help to find the way to one, and are trusted for nothing."""

    roots: tuple[Certificate, ...] = ()
    intermediates: tuple[Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Endorsement:
    """What a certificate that leads to a pinned root says. What it does not say is None.

    `serial` is hexadecimal; `chain` are the names from its issuer to the root, and `root_sha256` is its fingerprint.
    """

    manufacturer: str | None
    model: str | None
    version: str | None
    serial: str
    not_after: datetime
    chain: tuple[str, ...]
    root_sha256: str


def check_endorsement(
    certificate: Certificate, endorsement: TpmPublic, store: TrustStore, now: datetime
) -> Endorsement | str:
    """What the certificate proves of the key, or why it proves nothing."""
    if certificate.key is None:
        return "its key is of a kind that cannot be checked"
    if key_sha256(certificate.key) != endorsement.sha256:
        return (
            f"it is for another key (SHA-256 {key_sha256(certificate.key)[:16]}…) than the TPM's endorsement key "
            f"({endorsement.sha256[:16]}…)"
        )
    fault = _leaf_fault(certificate) or _date_fault(certificate, now)
    if fault is not None:
        return fault
    path = _path(certificate, store, now)
    if isinstance(path, str):
        return path
    said = dict(names_in_alternatives(certificate))
    return Endorsement(
        manufacturer=_vendor(said.get(_MANUFACTURER)),
        model=said.get(_MODEL),
        version=said.get(_VERSION),
        serial=f"{certificate.serial:x}",
        not_after=certificate.not_after,
        chain=tuple(name_text(one.subject) for one in path),
        root_sha256=hashlib.sha256(path[-1].whole).hexdigest(),
    )


def _path(leaf: Certificate, store: TrustStore, now: datetime) -> tuple[Certificate, ...] | str:
    """From the leaf's issuer to a root, by the shortest way; else why there is none.

    Each intermediate is tried once: a host that hands over many cannot make this take long.
    """
    why = ""
    tried: set[bytes] = set()
    waiting: deque[tuple[Certificate, ...]] = deque([(leaf,)])
    while waiting:
        path = waiting.popleft()
        issued = path[-1]
        root = _first_right(issued, store.roots, now, None)
        if isinstance(root, Certificate):
            return (*path[1:], root)
        fresh = tuple(one for one in store.intermediates if one.whole not in tried)
        middle = _first_right(issued, fresh, now, len(path) - 1)
        if isinstance(middle, Certificate):
            tried.add(middle.whole)
            waiting.extend((path, (*path, middle)))
        else:
            why = root or middle or f"its issuer {name_text(issued.issuer)} is not known here, and nobody else vouches"
    return why


def _first_right(
    issued: Certificate, issuers: tuple[Certificate, ...], now: datetime, below: int | None
) -> Certificate | str:
    """The first of `issuers` that issued it and may have; else why the last that has its name may not, or "".

    `below` is None for roots: they are pinned, so that only their dates are looked at.
    """
    why = ""
    for one in issuers:
        if not same_name(one.subject, issued.issuer):
            continue
        fault = signature_fault(issued, one.key) or _date_fault(one, now)
        if fault is None and below is not None:
            fault = _issuer_fault(one, below)
        if fault is None:
            return one
        why = fault
    return why


def signature_fault(certificate: Certificate, issuer: PublicKey | None) -> str | None:
    """Why `issuer` did not sign it; None where it did."""
    named = name_text(certificate.issuer)
    weak = isinstance(issuer, rsa.RSAPublicKey) and issuer.key_size < LEAST_RSA_BITS
    chosen = _pss_hash(certificate) if certificate.algorithm == _PSS else _HASHES.get(certificate.algorithm)
    if issuer is None or weak or chosen is None:
        return f"the signature of {named} is of a kind that is not trusted ({certificate.algorithm})"
    try:
        if isinstance(issuer, ec.EllipticCurvePublicKey):
            issuer.verify(certificate.signature, certificate.signed, ec.ECDSA(chosen))
        else:
            scheme: padding.AsymmetricPadding = padding.PKCS1v15()
            if certificate.algorithm == _PSS:
                scheme = padding.PSS(padding.MGF1(chosen), padding.PSS.AUTO)
            issuer.verify(certificate.signature, certificate.signed, scheme, chosen)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return f"its signature is not that of {named}"
    return None


def _pss_hash(certificate: Certificate) -> hashes.HashAlgorithm | None:
    """The hash that the parameters of RSASSA-PSS name; without one they mean SHA-1."""
    try:
        for part in der.inside(der.first(certificate.parameters, "certificate"), der.SEQUENCE, "certificate"):
            if part.tag == 0xA0:
                algorithm = der.first(part.body, "certificate")
                return _PSS_HASHES.get(der.oid(der.inside(algorithm, der.SEQUENCE, "certificate")[0], "certificate"))
    except (Malformed, IndexError):
        return None
    return None


def _date_fault(certificate: Certificate, now: datetime) -> str | None:
    if now < certificate.not_before:
        return f"the certificate of {name_text(certificate.subject)} begins on {certificate.not_before:%Y-%m-%d}"
    if now > certificate.not_after:
        return f"the certificate of {name_text(certificate.subject)} ended on {certificate.not_after:%Y-%m-%d}"
    return None


def _unknown_extension(certificate: Certificate) -> str | None:
    unknown = [oid for oid, one in certificate.extensions.items() if one.critical and oid not in _UNDERSTOOD]
    if unknown:
        named = name_text(certificate.subject)
        return f"the certificate of {named} has a critical extension that is not understood: {', '.join(unknown)}"
    return None


def _leaf_fault(certificate: Certificate) -> str | None:
    is_issuer, _ = _constraints(certificate)
    if is_issuer:
        return "it is an issuer's certificate, not an endorsement key's"
    extension = certificate.extensions.get(EXTENDED_KEY_USAGE)
    if extension is not None and _ENDORSEMENT_USE not in _uses(extension.value):
        return f"it is not for an endorsement key (its extended key usage lacks {_ENDORSEMENT_USE})"
    return _unknown_extension(certificate)


def _issuer_fault(certificate: Certificate, issuers_below: int) -> str | None:
    is_issuer, longest = _constraints(certificate)
    named = name_text(certificate.subject)
    if not is_issuer:
        return f"{named} may not issue certificates"
    if longest is not None and issuers_below > longest:
        return f"{named} may have {longest} issuers below it, and has {issuers_below}"
    usage = certificate.extensions.get(KEY_USAGE)
    if usage is not None and not _may_sign(usage.value):
        return f"the key of {named} may not sign certificates"
    return _unknown_extension(certificate)


def _constraints(certificate: Certificate) -> tuple[bool, int | None]:
    """Is it an issuer, and of how many issuers below it at most?"""
    extension = certificate.extensions.get(BASIC_CONSTRAINTS)
    if extension is None:
        return False, None
    try:
        parts = der.inside(der.first(extension.value, "certificate"), der.SEQUENCE, "certificate")
        is_issuer = bool(parts) and parts[0].tag == der.BOOLEAN and parts[0].body != b"\x00"
        longest = [der.whole_number(part, "certificate") for part in parts if part.tag == der.INTEGER]
    except Malformed:
        return False, None
    return is_issuer, max(0, min(longest[0], _LONGEST_PATH)) if longest else None


def _may_sign(value: bytes) -> bool:
    try:
        usage = der.bits(der.first(value, "certificate"), "certificate")
    except Malformed:
        return False
    return bool(usage) and bool(usage[0] & _SIGN_CERTIFICATES)


def _uses(value: bytes) -> tuple[str, ...]:
    try:
        listed = der.inside(der.first(value, "certificate"), der.SEQUENCE, "certificate")
        return tuple(der.oid(one, "certificate") for one in listed)
    except Malformed:
        return ()


def _vendor(said: str | None) -> str | None:
    """ "id:4E544300" is written as the letters that it stands for, NTC; one that stands for none stays as it is."""
    digits = (said or "").strip().removeprefix("id:")
    try:
        letters = bytes.fromhex(digits).rstrip(b"\x00 ").decode("ascii")
    except ValueError:
        return said
    return letters if letters and letters.isprintable() else said

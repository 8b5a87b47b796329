"""Certificates of endorsement keys and of the manufacturers that issue them (TCG EK Credential Profile, RFC 5280).

They are read here and not by the cryptography package, which refuses DER that is not strictly canonical: endorsement
certificates of a common maker have a name with its parts in another order than DER wants, and some name their key
for OAEP only. Signatures are still checked by that package, over the bytes as they were signed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fleet import tpm_der as der
from fleet.tpm_bytes import Cursor, Malformed, Unreadable
from fleet.tpm_public import PublicKey

NameParts: TypeAlias = tuple[tuple[str, str], ...]

BASIC_CONSTRAINTS, KEY_USAGE, EXTENDED_KEY_USAGE = "2.5.29.19", "2.5.29.15", "2.5.29.37"
SUBJECT_ALT_NAME = "2.5.29.17"
_RSA_KEYS = ("1.2.840.113549.1.1.1", "1.2.840.113549.1.1.7")  # rsaEncryption, id-RSAES-OAEP
_ECC_KEY = "1.2.840.10045.2.1"
_CURVES: dict[str, ec.EllipticCurve] = {
    "1.2.840.10045.3.1.7": ec.SECP256R1(),
    "1.3.132.0.34": ec.SECP384R1(),
    "1.3.132.0.35": ec.SECP521R1(),
}
_WORDS = {"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU"}
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----")
_WHAT = "certificate"
_MOST_BYTES = 16384
_MOST_IN_A_ROW = 32


@dataclass(frozen=True, slots=True)
class Extension:
    critical: bool
    value: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """`whole` are its bytes without what follows it. `key` is None where it is of a kind that cannot be checked."""

    whole: bytes
    signed: bytes
    algorithm: str
    parameters: bytes
    signature: bytes
    serial: int
    issuer: NameParts
    subject: NameParts
    not_before: datetime
    not_after: datetime
    key: PublicKey | None
    extensions: Mapping[str, Extension]


def name_text(name: NameParts) -> str:
    """ "CN=…, O=…", for people."""
    return ", ".join(f"{_WORDS.get(oid, oid)}={value}" for oid, value in name) or "(no name)"


def same_name(one: NameParts, other: NameParts) -> bool:
    """Are both the same but for order, case, blanks and kind of string?"""
    return _folded(one) == _folded(other)


def read_certificates(data: bytes) -> tuple[tuple[Certificate, ...], tuple[Unreadable, ...]]:
    """Every certificate in PEM text, or in DER one behind the other, and what could not be read.

    What follows the last certificate is left alone: the TPM's memory is often larger than what it holds.
    """
    found: list[Certificate] = []
    faults: list[Unreadable] = []
    for blob in _blobs(data, faults):
        try:
            found.append(_parse(blob))
        except Malformed as fault:
            faults.append(fault.unreadable)
    if not found and not faults:
        faults.append(Unreadable(_WHAT, "there is none in it"))
    return tuple(found), tuple(faults)


def names_in_alternatives(certificate: Certificate) -> NameParts:
    """The parts of the directory name in the subjectAltName; empty where there is none or it cannot be read."""
    extension = certificate.extensions.get(SUBJECT_ALT_NAME)
    if extension is None:
        return ()
    try:
        for element in der.elements(extension.value, _WHAT):
            for general in der.inside(element, der.SEQUENCE, _WHAT):
                if general.tag == 0xA4:
                    return _name(der.first(general.body, _WHAT))
    except Malformed:
        return ()
    return ()


def _folded(name: NameParts) -> list[tuple[str, str]]:
    return sorted((oid, " ".join(value.casefold().split())) for oid, value in name)


def _blobs(data: bytes, faults: list[Unreadable]) -> list[bytes]:
    if b"-----BEGIN" not in data:
        return _in_a_row(data, faults)
    found = []
    for text in _PEM.findall(data):
        try:
            found.append(base64.b64decode(b"".join(text.split()), validate=True))
        except binascii.Error as error:
            faults.append(Unreadable(_WHAT, f"no base64: {error}"))
    return found


def _in_a_row(data: bytes, faults: list[Unreadable]) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while data[at : at + 1] == bytes([der.SEQUENCE]) and len(found) < _MOST_IN_A_ROW:
        try:
            element = der.first(data[at : at + _MOST_BYTES], _WHAT)
        except Malformed as fault:
            faults.append(fault.unreadable)
            break
        found.append(element.whole)
        at += len(element.whole)
    return found


def _parse(blob: bytes) -> Certificate:
    cursor = Cursor(blob, _WHAT)
    parts = der.inside(der.next_element(cursor), der.SEQUENCE, _WHAT)
    if len(parts) != 3:
        raise cursor.fault(f"it has {len(parts)} parts, not three")
    inner = der.inside(parts[0], der.SEQUENCE, _WHAT)
    if inner and inner[0].tag == 0xA0:  # the version
        inner = inner[1:]
    if len(inner) < 6:
        raise cursor.fault("what was signed is not complete")
    serial, algorithm, issuer, validity, subject, key = inner[:6]
    if algorithm.whole != parts[1].whole:
        raise cursor.fault("it names two signature algorithms")
    dates = der.inside(validity, der.SEQUENCE, _WHAT)
    if len(dates) != 2:
        raise cursor.fault("it has no two dates")
    oid, parameters = _algorithm(algorithm)
    return Certificate(
        whole=blob,
        signed=parts[0].whole,
        algorithm=oid,
        parameters=parameters,
        signature=der.bits(parts[2], _WHAT),
        serial=der.whole_number(serial, _WHAT),
        issuer=_name(issuer),
        subject=_name(subject),
        not_before=der.moment(dates[0], _WHAT),
        not_after=der.moment(dates[1], _WHAT),
        key=_key(key),
        extensions=_extensions(inner[6:]),
    )


def _algorithm(element: der.Element) -> tuple[str, bytes]:
    """Its identifier, and its parameters as they are written."""
    parts = der.inside(element, der.SEQUENCE, _WHAT)
    if not parts:
        raise Cursor(b"", _WHAT).fault("it names no algorithm")
    return der.oid(parts[0], _WHAT), b"".join(part.whole for part in parts[1:])


def _name(element: der.Element) -> NameParts:
    found = []
    for group in der.inside(element, der.SEQUENCE, _WHAT):
        for pair in der.inside(group, der.SET, _WHAT):
            parts = der.inside(pair, der.SEQUENCE, _WHAT)
            if len(parts) != 2:
                raise Cursor(b"", _WHAT).fault("a part of a name that is none")
            found.append((der.oid(parts[0], _WHAT), der.text(parts[1])))
    return tuple(found)


def _key(element: der.Element) -> PublicKey | None:
    parts = der.inside(element, der.SEQUENCE, _WHAT)
    if len(parts) != 2:
        raise Cursor(b"", _WHAT).fault("its key is not complete")
    oid, parameters = _algorithm(parts[0])
    value = der.bits(parts[1], _WHAT)
    try:
        if oid in _RSA_KEYS:
            numbers = der.inside(der.first(value, _WHAT), der.SEQUENCE, _WHAT)
            modulus, exponent = (der.whole_number(number, _WHAT) for number in numbers)
            return rsa.RSAPublicNumbers(exponent, modulus).public_key()
        if oid == _ECC_KEY:
            curve = _CURVES.get(der.oid(der.first(parameters, _WHAT), _WHAT))
            return None if curve is None else ec.EllipticCurvePublicKey.from_encoded_point(curve, value)
    except (ValueError, OverflowError):
        return None
    return None


def _extensions(elements: list[der.Element]) -> dict[str, Extension]:
    found: dict[str, Extension] = {}
    for element in elements:
        if element.tag != 0xA3:
            continue
        for listed in der.elements(element.body, _WHAT):
            for one in der.inside(listed, der.SEQUENCE, _WHAT):
                parts = der.inside(one, der.SEQUENCE, _WHAT)
                if len(parts) not in (2, 3) or parts[-1].tag != der.OCTET_STRING:
                    raise Cursor(b"", _WHAT).fault("an extension that is none")
                oid = der.oid(parts[0], _WHAT)
                if oid in found:
                    raise Cursor(b"", _WHAT).fault(f"it has the extension {oid} twice")
                critical = len(parts) == 3 and parts[1].tag == der.BOOLEAN and parts[1].body != b"\x00"
                found[oid] = Extension(critical, parts[-1].body)
    return found

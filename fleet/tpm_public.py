"""A TPM's public keys: what a key is, what it may do, and its name (TPM 2.0 Library, Part 2, TPMT_PUBLIC)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntFlag
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fleet import tpm_algorithms as alg
from fleet.tpm_bytes import Cursor, Malformed, Unreadable

PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 4096
_ENDORSEMENT = (0x4000000B).to_bytes(4, "big")  # TPM_RH_ENDORSEMENT
_ONE_HASH = (alg.RSASSA, alg.RSAPSS, alg.OAEP, alg.ECDSA, alg.ECDH, alg.SM2, alg.ECSCHNORR, alg.ECMQV)


class Attribute(IntFlag):
    """What a key may do and where it may be (TPMA_OBJECT)."""

    FIXED_TPM = 1 << 1
    FIXED_PARENT = 1 << 4
    SENSITIVE_DATA_ORIGIN = 1 << 5
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN = 1 << 18


_WORDS = {
    Attribute.FIXED_TPM: "fixedTPM",
    Attribute.FIXED_PARENT: "fixedParent",
    Attribute.SENSITIVE_DATA_ORIGIN: "sensitiveDataOrigin",
    Attribute.RESTRICTED: "restricted",
    Attribute.DECRYPT: "decrypt",
    Attribute.SIGN: "sign",
}
_MADE_HERE = Attribute.FIXED_TPM | Attribute.FIXED_PARENT | Attribute.SENSITIVE_DATA_ORIGIN | Attribute.RESTRICTED


@dataclass(frozen=True, slots=True)
class TpmPublic:
    """A key's public area. `area` are its bytes (TPMT_PUBLIC), which its name is the hash of.

    `scheme` and `scheme_hash` are what the key signs with, None where that is left open; `aes_bits` is the size of
    the AES key (mode CFB) that a key which protects others uses, None where it has none.
    """

    area: bytes
    name_hash: str
    name_number: int
    attributes: int
    scheme: int | None
    scheme_hash: str | None
    aes_bits: int | None
    key: PublicKey

    @property
    def name(self) -> bytes:
        """The hash's number, then the hash of the area."""
        return self.name_number.to_bytes(2, "big") + alg.digest(self.name_hash, self.area)

    @property
    def sha256(self) -> str:
        """SHA-256 of the bare key (SubjectPublicKeyInfo, DER) in hexadecimal: what a ledger knows a TPM by."""
        return key_sha256(self.key)


def key_sha256(key: PublicKey) -> str:
    """SHA-256 of the SubjectPublicKeyInfo in DER, in hexadecimal."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def parse_public(blob: bytes, what: str = "public key") -> TpmPublic | Unreadable:
    """TPM2B_PUBLIC or TPMT_PUBLIC, as tpm2_createak and tpm2_createek write them with `-f tss`."""
    try:
        return _parse(blob, what)
    except Malformed as fault:
        return fault.unreadable


def attestation_faults(public: TpmPublic) -> tuple[str, ...]:
    """Why this is no key whose signature proves a quote; empty where it is one."""
    faults = _attribute_faults(public, _MADE_HERE | Attribute.SIGN, Attribute.DECRYPT)
    if public.scheme not in (alg.RSASSA, alg.RSAPSS, alg.ECDSA):
        shown = "no scheme of its own" if public.scheme is None else alg.scheme_name(public.scheme)
        faults.append(f"signs with {shown}")
    return tuple(faults)


def endorsement_faults(public: TpmPublic) -> tuple[str, ...]:
    """Why this is no key that a credential can be sent to; empty where it is one."""
    faults = _attribute_faults(public, _MADE_HERE | Attribute.DECRYPT, Attribute.SIGN)
    if public.aes_bits not in (128, 192, 256):
        faults.append("protects with no AES key in mode CFB")
    return tuple(faults)


def possible_signers(attestation: TpmPublic, endorsement: TpmPublic) -> tuple[bytes, bytes]:
    """The qualified names under which `attestation` signs: made under `endorsement`, or beside it as a primary key.

    Both are in the endorsement hierarchy. In any other the TPM hides its reset counts and its firmware version
    behind a number of its own (Part 1, "Obfuscation"), so that nothing could be compared.
    """
    parent = _qualified(_ENDORSEMENT, endorsement)
    return _qualified(parent, attestation), _qualified(_ENDORSEMENT, attestation)


def _qualified(parent: bytes, public: TpmPublic) -> bytes:
    return public.name_number.to_bytes(2, "big") + alg.digest(public.name_hash, parent + public.name)


def _attribute_faults(public: TpmPublic, wanted: Attribute, unwanted: Attribute) -> list[str]:
    lacking = [word for bit, word in _WORDS.items() if bit & wanted and not bit & public.attributes]
    having = [word for bit, word in _WORDS.items() if bit & unwanted & public.attributes]
    return [f"is not {word}" for word in lacking] + [f"is {word}" for word in having]


def _parse(blob: bytes, what: str) -> TpmPublic:
    area = _unwrapped(blob, what)
    cursor = Cursor(area, what)
    kind = cursor.number(2, "type")
    if kind not in (alg.RSA, alg.ECC):
        raise cursor.fault(f"a key of type 0x{kind:04x}; RSA and ECC keys can be checked")
    name_number = cursor.number(2, "name algorithm")
    name_hash = alg.hash_name(name_number)
    if alg.trusted_hash(name_hash) is None:
        raise cursor.fault(f"its name is made with {name_hash}, which is not trusted")
    attributes = cursor.number(4, "attributes")
    cursor.sized("policy", 64)
    aes_bits = _symmetric(cursor)
    scheme, scheme_hash = _scheme(cursor)
    key = _rsa_key(cursor) if kind == alg.RSA else _ecc_key(cursor)
    cursor.end()
    return TpmPublic(area, name_hash, name_number, attributes, scheme, scheme_hash, aes_bits, key)


def _unwrapped(blob: bytes, what: str) -> bytes:
    """TPMT_PUBLIC out of TPM2B_PUBLIC; it begins with its type, which no public area has as its size."""
    cursor = Cursor(blob, what)
    first = cursor.number(2, "size")
    if first in (alg.RSA, alg.KEYED_HASH, alg.ECC, alg.SYMMETRIC):
        return blob
    if blob.lstrip().startswith(b"-----BEGIN"):
        raise cursor.fault("PEM has the bare key without name and attributes; write it with -f tss")
    if first != len(blob) - 2:
        raise cursor.fault(f"it says that {first} bytes follow, and {len(blob) - 2} do")
    return blob[2:]


def _symmetric(cursor: Cursor) -> int | None:
    algorithm = cursor.number(2, "symmetric algorithm")
    if algorithm == alg.NULL:
        return None
    bits = cursor.number(2, "symmetric key size")
    mode = cursor.number(2, "symmetric mode")
    return bits if (algorithm, mode) == (alg.AES, alg.CFB) else None


def _scheme(cursor: Cursor) -> tuple[int | None, str | None]:
    scheme = cursor.number(2, "scheme")
    if scheme == alg.NULL:
        return None, None
    if scheme == alg.RSAES:
        return scheme, None
    if scheme not in (*_ONE_HASH, alg.ECDAA):
        raise cursor.fault(f"its scheme 0x{scheme:04x} is not known")
    name = alg.hash_name(cursor.number(2, "scheme's hash"))
    if scheme == alg.ECDAA:
        cursor.number(2, "scheme's count")
    return scheme, name


def _rsa_key(cursor: Cursor) -> rsa.RSAPublicKey:
    bits = cursor.number(2, "key size")
    exponent = cursor.number(4, "exponent") or 65537
    modulus = cursor.sized("modulus", _MOST_RSA_BITS // 8)
    number = int.from_bytes(modulus, "big")
    if bits < LEAST_RSA_BITS:
        raise cursor.fault(f"an RSA key of {bits} bits proves nothing; {LEAST_RSA_BITS} is the least")
    if number.bit_length() != bits:
        raise cursor.fault(f"its modulus has {number.bit_length()} bits, and {bits} are declared")
    try:
        return rsa.RSAPublicNumbers(exponent, number).public_key()
    except ValueError as error:
        raise cursor.fault(f"no RSA key: {error}") from error


def _ecc_key(cursor: Cursor) -> ec.EllipticCurvePublicKey:
    number = cursor.number(2, "curve")
    if cursor.number(2, "key derivation") != alg.NULL:
        cursor.number(2, "key derivation's hash")
    x = cursor.sized("point", 128)
    y = cursor.sized("point", 128)
    curve = alg.CURVES.get(number)
    if curve is None:
        raise cursor.fault(f"its curve 0x{number:04x} cannot be checked; NIST P-256, P-384 and P-521 can")
    try:
        numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), curve)
        return numbers.public_key()
    except ValueError as error:
        raise cursor.fault(f"no point of {curve.name}") from error

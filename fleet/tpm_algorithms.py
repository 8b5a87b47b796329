"""The algorithm numbers of TPM 2.0 that attestation meets, and which of them are trusted.

Source of the numbers: TCG Algorithm Registry, family 2.0 (TPM_ALG_ID, TPM_ECC_CURVE).
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

RSA, KEYED_HASH, ECC, SYMMETRIC = 0x0001, 0x0008, 0x0023, 0x0025
AES, CFB, NULL = 0x0006, 0x0043, 0x0010
RSASSA, RSAES, RSAPSS, OAEP = 0x0014, 0x0015, 0x0016, 0x0017
ECDSA, ECDH, ECDAA, SM2, ECSCHNORR, ECMQV = 0x0018, 0x0019, 0x001A, 0x001B, 0x001C, 0x001D

_HASHES = {
    0x0004: "sha1",
    0x000B: "sha256",
    0x000C: "sha384",
    0x000D: "sha512",
    0x0012: "sm3_256",
    0x0027: "sha3_256",
    0x0028: "sha3_384",
    0x0029: "sha3_512",
}
_SCHEMES = {
    RSASSA: "RSASSA",
    RSAES: "RSAES",
    RSAPSS: "RSAPSS",
    OAEP: "OAEP",
    ECDSA: "ECDSA",
    ECDH: "ECDH",
    ECDAA: "ECDAA",
    SM2: "SM2",
    ECSCHNORR: "ECSchnorr",
    ECMQV: "ECMQV",
}
DIGEST_BYTES = {
    "sha1": 20,
    "sha256": 32,
    "sha384": 48,
    "sha512": 64,
    "sm3_256": 32,
    "sha3_256": 32,
    "sha3_384": 48,
    "sha3_512": 64,
}
"""The PCR banks that there are, by the name that tpm2-tools give them, and the bytes of one value."""

_TRUSTED: dict[str, hashes.HashAlgorithm] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
CURVES: dict[int, ec.EllipticCurve] = {0x0003: ec.SECP256R1(), 0x0004: ec.SECP384R1(), 0x0005: ec.SECP521R1()}


def hash_name(number: int) -> str:
    """ "sha256" for 0x000b; a number that is not known stays one, as "0x0099"."""
    return _HASHES.get(number, f"0x{number:04x}")


def scheme_name(number: int) -> str:
    """ "RSASSA" for 0x0014; a number that is not known stays one."""
    return _SCHEMES.get(number, f"0x{number:04x}")


def trusted_hash(name: str) -> hashes.HashAlgorithm | None:
    """The hash to verify with; None for one that no proof may rest on (SHA-1) or that is not known here."""
    return _TRUSTED.get(name)


def digest(name: str, data: bytes) -> bytes:
    """The digest by a trusted hash. Raises ValueError for any other."""
    if name not in _TRUSTED:
        raise ValueError(f"{name} is no hash that is trusted")
    return hashlib.new(name, data).digest()

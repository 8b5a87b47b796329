"""A TPM's signature (TPM 2.0 Library, Part 2, TPMT_SIGNATURE) and whether it is a key's over given bytes."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from fleet import tpm_algorithms as alg
from fleet.tpm_bytes import Cursor, Malformed, Unreadable
from fleet.tpm_public import TpmPublic

_MOST_RSA, _MOST_ECC = 512, 128


@dataclass(frozen=True, slots=True)
class Signature:
    """`value` is an RSA signature as it is, an ECDSA signature in DER."""

    scheme: int
    hash: str
    value: bytes

    def __str__(self) -> str:
        return f"{alg.scheme_name(self.scheme)} with {self.hash}"


def parse_signature(blob: bytes) -> Signature | Unreadable:
    """TPMT_SIGNATURE with RSASSA, RSAPSS or ECDSA, as `tpm2_quote -s` writes it with `-f tss`."""
    try:
        return _parse(blob)
    except Malformed as fault:
        return fault.unreadable


def signature_fault(signature: Signature, public: TpmPublic, message: bytes) -> str | None:
    """Why `signature` is not that of `public` over `message`; None where it is."""
    if public.scheme is not None and (public.scheme, public.scheme_hash) != (signature.scheme, signature.hash):
        own = f"{alg.scheme_name(public.scheme)} with {public.scheme_hash}"
        return f"it is made by {signature}, and the key signs by {own}"
    trusted = alg.trusted_hash(signature.hash)
    if trusted is None:
        return f"it is made by {signature}, which is not trusted"
    try:
        if isinstance(public.key, rsa.RSAPublicKey):
            if signature.scheme == alg.ECDSA:
                return "it is an ECDSA signature, and the key an RSA key"
            scheme: padding.AsymmetricPadding = padding.PKCS1v15()
            if signature.scheme == alg.RSAPSS:
                scheme = padding.PSS(padding.MGF1(trusted), padding.PSS.AUTO)
            public.key.verify(signature.value, message, scheme, trusted)
        elif signature.scheme != alg.ECDSA:
            return "it is an RSA signature, and the key an ECC key"
        else:
            public.key.verify(signature.value, message, ec.ECDSA(trusted))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return "it is not this key's over these bytes: another key signed, or something was changed since"
    return None


def _parse(blob: bytes) -> Signature:
    cursor = Cursor(blob, "signature")
    scheme = cursor.number(2, "scheme")
    if scheme not in (alg.RSASSA, alg.RSAPSS, alg.ECDSA):
        raise cursor.fault(f"its scheme is {alg.scheme_name(scheme)}; RSASSA, RSAPSS and ECDSA can be checked")
    name = alg.hash_name(cursor.number(2, "hash"))
    if scheme == alg.ECDSA:
        r = int.from_bytes(cursor.sized("number r", _MOST_ECC), "big")
        s = int.from_bytes(cursor.sized("number s", _MOST_ECC), "big")
        value = encode_dss_signature(r, s)
    else:
        value = cursor.sized("value", _MOST_RSA)
    cursor.end()
    return Signature(scheme, name, value)

"""Are an endorsement key and an attestation key what they must be before a quote is worth a look?"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from datetime import datetime

from fleet.tpm_attest import ClockInfo
from fleet.tpm_bytes import Unreadable
from fleet.tpm_certificate import read_certificates
from fleet.tpm_endorsement import Endorsement, TrustStore, check_endorsement
from fleet.tpm_public import TpmPublic, attestation_faults, endorsement_faults, parse_public
from fleet.tpm_refusal import Check, Refusal, failed, unreadable, untold

_MOST_HANDED_OVER = 16


@dataclass(frozen=True, slots=True)
class KeyReading:
    """What a host gave, as it came: two TPM2B_PUBLIC, the endorsement key's certificate (None where the TPM holds
    none) and further certificates that the TPM holds, in DER one behind the other."""

    endorsement: bytes
    attestation: bytes
    certificate: bytes | None
    chain: bytes = b""


@dataclass(frozen=True, slots=True)
class KnownTpm:
    """What the ledger has of a node's TPM from its last good quote; None where there was none.

    `endorsement_sha256` is `TpmPublic.sha256` of its endorsement key, `quote_sha256` is `Attest.sha256`. After a
    TPM2_Clear of our own the ledger forgets `clock`, and after a changed board all three.
    """

    endorsement_sha256: str | None = None
    clock: ClockInfo | None = None
    quote_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Two keys that were read. `endorsed` says what the certificate proves; None where the key is only known."""

    endorsement: TpmPublic
    attestation: TpmPublic
    endorsed: Endorsement | None


@dataclass(frozen=True, slots=True)
class ProvenKeys:
    """Keys of one TPM: `prove_keys` has seen it open a credential for both."""

    endorsement: TpmPublic
    attestation: TpmPublic
    endorsed: Endorsement | None


def check_keys(
    reading: KeyReading, store: TrustStore, known: KnownTpm, now: datetime, require_certificate: bool = True
) -> KnownKeys | tuple[Refusal, ...]:
    """The keys that a credential can be made for, or every reason against them.

    Without `require_certificate` a TPM that holds no certificate is taken where its endorsement key is the one that
    is known. A certificate that is there and proves nothing is refused in any case.
    """
    endorsement = parse_public(reading.endorsement, "endorsement key")
    attestation = parse_public(reading.attestation, "attestation key")
    if isinstance(endorsement, Unreadable) or isinstance(attestation, Unreadable):
        return tuple(unreadable(one) for one in (endorsement, attestation) if isinstance(one, Unreadable))
    refusals = [
        *_known_fault(endorsement, known),
        *(failed(Check.ENDORSEMENT_KEY, f"the endorsement key {fault}") for fault in endorsement_faults(endorsement)),
        *(failed(Check.ATTESTATION_KEY, f"the attestation key {fault}") for fault in attestation_faults(attestation)),
    ]
    endorsed: Endorsement | None = None
    if reading.certificate is None:
        refusals += _no_certificate(known, require_certificate)
    else:
        checked = _endorsed(reading.certificate, reading.chain, endorsement, store, now)
        if isinstance(checked, Refusal):
            refusals.append(checked)
        else:
            endorsed = checked
    return tuple(refusals) or KnownKeys(endorsement, attestation, endorsed)


def prove_keys(keys: KnownKeys, secret: bytes, opened: bytes) -> ProvenKeys | Refusal:
    """`opened` is what the host gave back for a credential made for both keys with `secret`."""
    if not secret or not hmac.compare_digest(secret, opened):
        return failed(
            Check.ACTIVATION,
            "the TPM did not open the credential: the attestation key is not in the TPM of this endorsement key",
            f"{len(opened)} bytes that are not the secret",
        )
    return ProvenKeys(keys.endorsement, keys.attestation, keys.endorsed)


def _known_fault(endorsement: TpmPublic, known: KnownTpm) -> tuple[Refusal, ...]:
    if known.endorsement_sha256 in (None, endorsement.sha256):
        return ()
    text = "another TPM than this node had: another machine answers, or its board was changed"
    return (failed(Check.KNOWN_TPM, text, endorsement.sha256, known.endorsement_sha256 or ""),)


def _no_certificate(known: KnownTpm, required: bool) -> tuple[Refusal, ...]:
    text = "the TPM holds no endorsement certificate"
    if required:
        return (untold(Check.CERTIFICATE, f"{text}, so that nobody says whose it is"),)
    if known.endorsement_sha256 is None:
        return (untold(Check.CERTIFICATE, f"{text}, and its endorsement key is not known from before"),)
    return ()


def _endorsed(
    blob: bytes, chain: bytes, endorsement: TpmPublic, store: TrustStore, now: datetime
) -> Endorsement | Refusal:
    found, faults = read_certificates(blob)
    if not found:
        return untold(Check.CERTIFICATE, f"the endorsement certificate cannot be read: {faults[0].why}")
    handed_over = (*found[1:], *(read_certificates(chain)[0] if chain else ()))[:_MOST_HANDED_OVER]
    wider = replace(store, intermediates=(*store.intermediates, *handed_over))
    checked = check_endorsement(found[0], endorsement, wider, now)
    if isinstance(checked, str):
        return failed(Check.CERTIFICATE, f"the endorsement certificate proves nothing: {checked}")
    return checked

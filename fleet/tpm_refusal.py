"""Why a TPM's word was not taken: which check, what was seen, what was wanted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleet.canary_verdict import Outcome
from fleet.tpm_bytes import Unreadable


class Check(StrEnum):
    """In the order in which they are made."""

    TOOLS = "tools"  # what the host needs to be asked with
    READABLE = "readable"  # every blob is what it should be
    CERTIFICATE = "certificate"  # the endorsement key is a manufacturer's
    KNOWN_TPM = "known_tpm"  # it is the TPM that this node had
    ENDORSEMENT_KEY = "endorsement_key"  # a credential can be sent to it
    ATTESTATION_KEY = "attestation_key"  # it signs only what the TPM made
    ACTIVATION = "activation"  # both keys are in one TPM
    SIGNATURE = "signature"
    ORIGIN = "origin"  # a quote that a TPM made
    SIGNER = "signer"  # the attestation key, in the endorsement hierarchy
    NONCE = "nonce"
    AGE = "age"
    REPLAY = "replay"
    CLOCK = "clock"
    FIRMWARE = "firmware"
    PCR_DIGEST = "pcr_digest"
    PCR_VALUE = "pcr_value"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`outcome` is FAIL where something is wrong, INCONCLUSIVE where nothing can be told; neither passes.

    `seen` and `wanted` are short texts, hexadecimal for bytes; "" where there is nothing to show.
    """

    check: Check
    outcome: Outcome
    text: str
    seen: str = ""
    wanted: str = ""

    def __str__(self) -> str:
        shown = [f"{word} {value}" for word, value in (("seen", self.seen), ("wanted", self.wanted)) if value]
        return f"{self.check.value}: {self.text}" + (f" ({'; '.join(shown)})" if shown else "")


def failed(check: Check, text: str, seen: str = "", wanted: str = "") -> Refusal:
    """Something is wrong."""
    return Refusal(check, Outcome.FAIL, text, seen, wanted)


def untold(check: Check, text: str, seen: str = "", wanted: str = "") -> Refusal:
    """Nothing can be told."""
    return Refusal(check, Outcome.INCONCLUSIVE, text, seen, wanted)


def unreadable(fault: Unreadable) -> Refusal:
    """A blob that is not what it should be says nothing, not even that something is wrong."""
    return untold(Check.READABLE, str(fault))

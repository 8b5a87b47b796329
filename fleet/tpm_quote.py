"""The verdict on a quote: signed by a proven key, about our nonce, now, over PCRs that hold what they must."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.canary_verdict import Outcome
from fleet.tpm_attest import GENERATED, QUOTE, Attest, ClockInfo, parse_attest
from fleet.tpm_baseline import PcrBaseline, PcrFinding, PcrState, compare_pcrs
from fleet.tpm_bytes import Unreadable
from fleet.tpm_keys import KnownTpm, ProvenKeys
from fleet.tpm_pcrs import composite, missing_pcrs, read_pcrs
from fleet.tpm_public import possible_signers
from fleet.tpm_refusal import Check, Refusal, failed, unreadable, untold
from fleet.tpm_signature import Signature, parse_signature, signature_fault

LEAST_NONCE_BYTES = 16
MOST_NONCE_BYTES = 32
CLOCK_MAY_LOSE_MS = 2**22
"""Milliseconds of the clock that a power cut may cost: what lies between two writes of it (Part 2, TPMS_CLOCK_INFO)."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A nonce of ours, for one quote only. Raises ValueError where it could be guessed or a TPM would not take it."""

    nonce: bytes
    issued_at: datetime
    lifetime: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if not LEAST_NONCE_BYTES <= len(self.nonce) <= MOST_NONCE_BYTES:
            raise ValueError(f"a nonce has {LEAST_NONCE_BYTES} to {MOST_NONCE_BYTES} bytes, not {len(self.nonce)}")


@dataclass(frozen=True, slots=True)
class QuoteReading:
    """What a host gave, as it came: TPMS_ATTEST, TPMT_SIGNATURE, and the PCRs as tpm2_pcrread prints them."""

    attest: bytes
    signature: bytes
    pcrs: str


@dataclass(frozen=True, slots=True)
class QuoteVerdict:
    """`outcome` is PASS without refusals only. `known` is what the ledger keeps after a PASS, None before.

    `pcrs` is empty where no value was proven.
    """

    outcome: Outcome
    refusals: tuple[Refusal, ...]
    pcrs: tuple[PcrFinding, ...]
    firmware: str | None
    known: KnownTpm | None


def judge_quote(
    reading: QuoteReading,
    keys: ProvenKeys,
    challenge: Challenge,
    known: KnownTpm,
    baseline: PcrBaseline,
    received_at: datetime,
) -> QuoteVerdict:
    """Every check that can be made; after a signature that is not right none of the rest means anything."""
    attest, signature = parse_attest(reading.attest), parse_signature(reading.signature)
    if isinstance(attest, Unreadable) or isinstance(signature, Unreadable):
        return _refused(*(unreadable(one) for one in (attest, signature) if isinstance(one, Unreadable)))
    fault = signature_fault(signature, keys.attestation, attest.signed)
    if fault is not None:
        return _refused(failed(Check.SIGNATURE, f"the signature is not right: {fault}"))
    origin = _origin(attest, keys)
    if origin:
        return _refused(*origin)
    fresh = (*_nonce(attest, challenge, received_at), *_history(attest, known), *_firmware(attest, baseline))
    findings, pcrs = _pcrs(attest, signature, reading.pcrs, baseline)
    refusals = (*fresh, *pcrs)
    firmware = f"{attest.firmware:016x}"
    if refusals:
        return QuoteVerdict(_worst(refusals), refusals, findings, firmware, None)
    kept = KnownTpm(keys.endorsement.sha256, attest.clock, attest.sha256)
    return QuoteVerdict(Outcome.PASS, (), findings, firmware, kept)


def _refused(*refusals: Refusal) -> QuoteVerdict:
    return QuoteVerdict(_worst(refusals), refusals, (), None, None)


def _worst(refusals: tuple[Refusal, ...]) -> Outcome:
    return Outcome.FAIL if any(one.outcome is Outcome.FAIL for one in refusals) else Outcome.INCONCLUSIVE


def _origin(attest: Attest, keys: ProvenKeys) -> tuple[Refusal, ...]:
    if attest.magic != GENERATED:
        text = "the statement was not made inside a TPM"
        return (failed(Check.ORIGIN, text, f"{attest.magic:08x}", f"{GENERATED:08x}"),)
    if attest.kind != QUOTE:
        return (failed(Check.ORIGIN, "the statement is no quote", f"type {attest.kind:04x}", f"type {QUOTE:04x}"),)
    signers = possible_signers(keys.attestation, keys.endorsement)
    if attest.signer not in signers:
        text = "the key that signed is not in the endorsement hierarchy, under or beside the endorsement key"
        return (failed(Check.SIGNER, text, attest.signer.hex(), signers[0].hex()),)
    return ()


def _nonce(attest: Attest, challenge: Challenge, received_at: datetime) -> tuple[Refusal, ...]:
    if not hmac.compare_digest(attest.nonce, challenge.nonce):
        text = "the quote answers another nonce than ours: an old quote, or one that was made for somebody else"
        return (failed(Check.NONCE, text, attest.nonce.hex() or "no nonce", challenge.nonce.hex()),)
    age = received_at - challenge.issued_at
    if age < timedelta(0):
        text = "the quote came before its nonce was issued: the controllers' clocks differ"
        return (untold(Check.AGE, text, received_at.isoformat(), challenge.issued_at.isoformat()),)
    if age > challenge.lifetime:
        text = "the quote came too long after its nonce"
        return (untold(Check.AGE, text, f"{age.total_seconds():.0f} s", f"{challenge.lifetime.total_seconds():.0f} s"),)
    return ()


def _history(attest: Attest, known: KnownTpm) -> tuple[Refusal, ...]:
    if known.quote_sha256 == attest.sha256:
        text = "this very quote was accepted before: it was kept and sent again"
        return (failed(Check.REPLAY, text, attest.sha256),)
    fault = None if known.clock is None else clock_fault(attest.clock, known.clock)
    return () if fault is None else (failed(Check.CLOCK, fault, str(attest.clock), f"later than {known.clock}"),)


def clock_fault(seen: ClockInfo, known: ClockInfo) -> str | None:
    """Why `seen` cannot be later than `known` in the same TPM; None where it can.

    Only TPM2_Clear sets the counts back. After a power cut the clock goes on from its last write.
    """
    cause = "an old quote, or somebody cleared the TPM (TPM2_Clear)"
    if (seen.resets, seen.restarts) < (known.resets, known.restarts):
        return f"the TPM has been started fewer times than before: {cause}"
    lost = known.clock_ms - seen.clock_ms
    may_lose = CLOCK_MAY_LOSE_MS if seen.resets > known.resets and not seen.safe else 0
    if lost > may_lose:
        return f"the TPM's clock went back by {lost} ms: {cause}"
    return None


def _firmware(attest: Attest, baseline: PcrBaseline) -> tuple[Refusal, ...]:
    version = f"{attest.firmware:016x}"
    if not baseline.firmware or version in baseline.firmware:
        return ()
    text = "the TPM's firmware is none of the baseline's"
    return (failed(Check.FIRMWARE, text, version, ", ".join(sorted(baseline.firmware))),)


def _pcrs(
    attest: Attest, signature: Signature, text: str, baseline: PcrBaseline
) -> tuple[tuple[PcrFinding, ...], tuple[Refusal, ...]]:
    values = read_pcrs(text)
    missing = missing_pcrs(attest.selections, values)
    if missing:
        told = "the values of quoted PCRs were not read, so that the digest says nothing"
        return (), (untold(Check.PCR_DIGEST, told, f"without {', '.join(missing)}"),)
    made = composite(attest.selections, values, signature.hash)
    if not hmac.compare_digest(made, attest.pcr_digest):
        told = "the PCR values are not those that were quoted: the host tells others, or one changed in between"
        return (), (failed(Check.PCR_DIGEST, told, made.hex(), attest.pcr_digest.hex()),)
    findings = compare_pcrs(baseline, attest.pcrs, values)
    refusals = tuple(refusal for one in findings if (refusal := _pcr_refusal(one)) is not None)
    if not refusals and not any(one.state is PcrState.RIGHT for one in findings):
        return findings, (untold(Check.PCR_VALUE, "no PCR was compared with a baseline"),)
    return findings, refusals


def _pcr_refusal(finding: PcrFinding) -> Refusal | None:
    wanted = " or ".join(finding.allowed)
    if finding.state is PcrState.WRONG:
        return failed(Check.PCR_VALUE, f"PCR {finding.name} is not the baseline's", finding.seen or "", wanted)
    if finding.state is PcrState.UNKNOWN:
        return untold(Check.PCR_VALUE, f"PCR {finding.name}: {finding.why}", finding.seen or "", wanted)
    return None

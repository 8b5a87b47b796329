"""No bytes and no text make a reader of TPM answers fail: they say what they are not."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.tpm_tools import ECDSA, NOW, Authority, SoftTpm, pcr_text, rsa_key

from fleet.canary_verdict import Outcome
from fleet.tpm_attest import Attest, parse_attest
from fleet.tpm_baseline import PcrBaseline
from fleet.tpm_bytes import Unreadable
from fleet.tpm_certificate import read_certificates
from fleet.tpm_endorsement import TrustStore
from fleet.tpm_keys import KeyReading, KnownKeys, KnownTpm, ProvenKeys, check_keys
from fleet.tpm_pcrs import read_pcrs
from fleet.tpm_public import TpmPublic, parse_public
from fleet.tpm_quote import Challenge, QuoteReading, judge_quote
from fleet.tpm_signature import Signature, parse_signature

TPM = SoftTpm()
ECC_TPM = SoftTpm(ecc=True, scheme=ECDSA)
ROOT = Authority("Fuzz Root", rsa_key(300))


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    attest = TPM.attest()
    return [
        *(attest, TPM.sign(attest), ECC_TPM.sign(attest), TPM.ek_area, TPM.ak_area, ECC_TPM.ek_area),
        *(ROOT.certificate, ROOT.endorse(TPM.ek), ROOT.certificate + ROOT.certificate),
    ]


edits = st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=6), st.integers(0, 6)), max_size=6)


def edited(blob: bytes, changes: list[tuple[int, bytes, int]]) -> bytes:
    """`blob` with some places overwritten, lengthened or cut."""
    for at, new, cut in changes:
        at %= len(blob) + 1
        blob = blob[:at] + new + blob[at + cut :]
    return blob


def read_all(blob: bytes) -> None:
    """Every reader gives a value of its own or says why not."""
    assert isinstance(parse_attest(blob), Attest | Unreadable)
    assert isinstance(parse_signature(blob), Signature | Unreadable)
    assert isinstance(parse_public(blob), TpmPublic | Unreadable)
    found, faults = read_certificates(blob)
    assert found or faults
    for fault in faults:
        assert fault.why


def test_a_flag_that_is_neither_yes_nor_no_is_not_read() -> None:
    right = TPM.attest()
    at = 4 + 2 + 2 + len(TPM.signer) + 2 + 32 + 8 + 4 + 4
    assert right[at] == 1
    found = parse_attest(right[:at] + b"\x02" + right[at + 1 :])
    assert isinstance(found, Unreadable)
    assert "neither yes nor no" in found.why


@given(blob=st.binary(max_size=600))
def test_any_bytes(blob: bytes) -> None:
    read_all(blob)


@given(which=st.integers(0, 8), changes=edits)
def test_right_blobs_with_wrong_places(blobs: list[bytes], which: int, changes: list[tuple[int, bytes, int]]) -> None:
    read_all(edited(blobs[which], changes))


@given(which=st.integers(0, 8), changes=edits)
def test_pem_with_wrong_places(blobs: list[bytes], which: int, changes: list[tuple[int, bytes, int]]) -> None:
    text = base64.encodebytes(edited(blobs[which], changes))
    read_all(b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n")


@given(text=st.text(max_size=400))
def test_any_text_as_pcrs(text: str) -> None:
    for bank, values in read_pcrs(f"sha256:\n{text}").items():
        assert bank
        assert all(0 <= index <= 99 for index in values)


@given(attest=edits, signature=edits, pcrs=st.text(max_size=80))
def test_no_edited_quote_passes(
    attest: list[tuple[int, bytes, int]], signature: list[tuple[int, bytes, int]], pcrs: str
) -> None:
    endorsement, attestation = parse_public(TPM.ek_area), parse_public(TPM.ak_area)
    assert isinstance(endorsement, TpmPublic)
    assert isinstance(attestation, TpmPublic)
    right = TPM.attest()
    signed = TPM.sign(right)
    given_one = QuoteReading(edited(right, attest), edited(signed, signature), pcr_text(TPM.pcrs) + pcrs)
    baseline = PcrBaseline({("sha256", index): frozenset({value}) for index, value in TPM.pcrs["sha256"].items()})
    keys = ProvenKeys(endorsement, attestation, None)
    verdict = judge_quote(given_one, keys, Challenge(bytes(range(32)), NOW), KnownTpm(), baseline, NOW)
    untouched = given_one.attest in (right, len(right).to_bytes(2, "big") + right) and given_one.signature == signed
    assert untouched or verdict.outcome is not Outcome.PASS
    assert (verdict.outcome is Outcome.PASS) == (verdict.refusals == ())


@given(key=edits, certificate=edits)
def test_no_edited_certificate_endorses_a_key(
    key: list[tuple[int, bytes, int]], certificate: list[tuple[int, bytes, int]]
) -> None:
    right = ROOT.endorse(TPM.ek)
    given_one = KeyReading(edited(TPM.ek_area, key), TPM.ak_area, edited(right, certificate))
    store = TrustStore(read_certificates(ROOT.certificate)[0])
    found = check_keys(given_one, store, KnownTpm(), NOW)
    if isinstance(found, KnownKeys):
        assert found.endorsed is not None
        assert found.endorsement.sha256 == _sha256_of(TPM)
    else:
        assert found


def _sha256_of(tpm: SoftTpm) -> str:
    public = parse_public(tpm.ek_area)
    assert isinstance(public, TpmPublic)
    return public.sha256

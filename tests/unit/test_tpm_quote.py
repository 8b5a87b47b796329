"""The verdict on a quote: the right one passes, and every other is refused for its own reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import pytest
from unit.tpm_tools import (
    AK_ATTRIBUTES,
    CLOCK,
    ECDSA,
    NONCE,
    NOW,
    PCRS,
    RSAPSS,
    SELECTION,
    SoftTpm,
    pcr_text,
    public_area,
)

from fleet.canary_verdict import Outcome
from fleet.tpm_attest import ClockInfo, PcrSelection, parse_attest
from fleet.tpm_baseline import PcrBaseline, PcrState
from fleet.tpm_bytes import Unreadable
from fleet.tpm_keys import KnownTpm, ProvenKeys
from fleet.tpm_public import parse_public
from fleet.tpm_quote import Challenge, QuoteReading, QuoteVerdict, judge_quote
from fleet.tpm_refusal import Check

BASELINE = PcrBaseline({("sha256", index): frozenset({value}) for index, value in PCRS["sha256"].items()})
CHALLENGE = Challenge(NONCE, NOW - timedelta(seconds=2))


def keys_of(tpm: SoftTpm) -> ProvenKeys:
    endorsement, attestation = parse_public(tpm.ek_area), parse_public(tpm.ak_area)
    assert not isinstance(endorsement, Unreadable)
    assert not isinstance(attestation, Unreadable)
    return ProvenKeys(endorsement, attestation, None)


def quote(tpm: SoftTpm, attest: bytes | None = None) -> QuoteReading:
    attest = tpm.attest() if attest is None else attest
    return QuoteReading(attest, tpm.sign(attest), pcr_text(tpm.pcrs))


def judge(
    reading: QuoteReading,
    tpm: SoftTpm,
    known: KnownTpm | None = None,
    baseline: PcrBaseline = BASELINE,
    challenge: Challenge = CHALLENGE,
) -> QuoteVerdict:
    return judge_quote(reading, keys_of(tpm), challenge, known or KnownTpm(), baseline, NOW)


def checks(verdict: QuoteVerdict) -> list[Check]:
    return [one.check for one in verdict.refusals]


TPMS = [
    pytest.param(SoftTpm(), id="RSASSA"),
    pytest.param(SoftTpm(scheme=RSAPSS), id="RSAPSS"),
    pytest.param(SoftTpm(ecc=True, scheme=ECDSA), id="ECDSA P-256"),
    pytest.param(SoftTpm(ecc=True, scheme=ECDSA, curve="secp384r1"), id="ECDSA P-384"),
    pytest.param(SoftTpm(ecc=True, scheme=ECDSA, curve="secp521r1"), id="ECDSA P-521"),
]


@pytest.mark.parametrize("tpm", TPMS)
def test_a_right_quote_passes_and_says_what_to_remember(tpm: SoftTpm) -> None:
    verdict = judge(quote(tpm), tpm)
    assert verdict.outcome is Outcome.PASS, [str(one) for one in verdict.refusals]
    attest = parse_attest(tpm.attest())
    assert not isinstance(attest, Unreadable)
    assert verdict.known == KnownTpm(keys_of(tpm).endorsement.sha256, CLOCK, attest.sha256)
    assert verdict.firmware == "0007000200030001"
    assert {one.state for one in verdict.pcrs} == {PcrState.RIGHT}


@pytest.mark.parametrize("tpm", TPMS)
def test_a_single_changed_bit_anywhere_in_what_was_signed_is_seen(tpm: SoftTpm) -> None:
    reading = quote(tpm)
    for at in range(0, 8 * len(reading.attest), 7):
        changed = bytearray(reading.attest)
        changed[at // 8] ^= 1 << at % 8
        verdict = judge(replace(reading, attest=bytes(changed)), tpm)
        assert verdict.outcome is not Outcome.PASS
        assert checks(verdict) in ([Check.SIGNATURE], [Check.READABLE])
        assert verdict.known is None


@pytest.mark.parametrize("tpm", TPMS)
def test_a_single_changed_bit_in_the_signature_is_seen(tpm: SoftTpm) -> None:
    reading = quote(tpm)
    for at in range(0, 8 * len(reading.signature), 5):
        changed = bytearray(reading.signature)
        changed[at // 8] ^= 1 << at % 8
        verdict = judge(replace(reading, signature=bytes(changed)), tpm)
        assert checks(verdict) in ([Check.SIGNATURE], [Check.READABLE])


def test_a_truncated_quote_or_signature_is_unreadable_and_says_where_it_ends() -> None:
    tpm = SoftTpm()
    reading = quote(tpm)
    for size in range(len(reading.attest)):
        verdict = judge(replace(reading, attest=reading.attest[:size]), tpm)
        assert checks(verdict) == [Check.READABLE]
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert f"it ends after {size} bytes" in verdict.refusals[0].text
    for size in range(len(reading.signature)):
        assert checks(judge(replace(reading, signature=reading.signature[:size]), tpm)) == [Check.READABLE]


def test_bytes_behind_a_quote_are_not_overlooked() -> None:
    tpm = SoftTpm()
    reading = quote(tpm)
    assert "1 bytes too many" in judge(replace(reading, attest=reading.attest + b"\0"), tpm).refusals[0].text
    assert "1 bytes too many" in judge(replace(reading, signature=reading.signature + b"\0"), tpm).refusals[0].text


def test_another_keys_quote_is_refused_by_its_signature() -> None:
    verdict = judge(quote(SoftTpm(number=1)), SoftTpm())
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.SIGNATURE])
    assert "another key signed" in verdict.refusals[0].text


def test_an_ecdsa_signature_does_not_fit_an_rsa_key() -> None:
    ecc = SoftTpm(ecc=True, scheme=ECDSA)
    verdict = judge(quote(ecc), SoftTpm())
    assert "made by ECDSA with sha256, and the key signs by RSASSA with sha256" in verdict.refusals[0].text


def test_a_signature_with_sha1_is_not_trusted() -> None:
    tpm = SoftTpm()
    reading = quote(tpm)
    verdict = judge(replace(reading, signature=reading.signature[:2] + b"\x00\x04" + reading.signature[4:]), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.SIGNATURE])


def test_a_wrong_nonce_shows_both() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(nonce=b"x" * 32)), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.NONCE])
    assert (verdict.refusals[0].seen, verdict.refusals[0].wanted) == ((b"x" * 32).hex(), NONCE.hex())


def test_a_quote_without_a_nonce_says_so() -> None:
    tpm = SoftTpm()
    assert judge(quote(tpm, tpm.attest(nonce=b"")), tpm).refusals[0].seen == "no nonce"


def test_a_replayed_quote_is_refused_by_nonce_and_by_the_clock_that_went_back() -> None:
    old = SoftTpm(clock=replace(CLOCK, resets=5))
    verdict = judge(quote(old, old.attest(nonce=b"y" * 32)), SoftTpm(), KnownTpm(clock=CLOCK))
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.NONCE, Check.CLOCK])
    assert "5 resets" in verdict.refusals[1].seen
    assert "7 resets" in verdict.refusals[1].wanted


def test_the_same_quote_is_not_accepted_twice() -> None:
    tpm = SoftTpm()
    first = judge(quote(tpm), tpm)
    assert first.known is not None
    second = judge(quote(tpm), tpm, first.known)
    assert (second.outcome, checks(second)) == (Outcome.FAIL, [Check.REPLAY])


@pytest.mark.parametrize(
    ("seen", "passes"),
    [
        (CLOCK, True),
        (replace(CLOCK, clock_ms=CLOCK.clock_ms + 1), True),
        (replace(CLOCK, clock_ms=CLOCK.clock_ms - 1), False),
        (replace(CLOCK, restarts=2), True),
        (replace(CLOCK, restarts=0), False),
        (ClockInfo(CLOCK.clock_ms, 8, 0, safe=True), True),
        (ClockInfo(CLOCK.clock_ms - 1, 8, 0, safe=True), False),
        (ClockInfo(CLOCK.clock_ms - 2**22, 8, 0, safe=False), True),
        (ClockInfo(CLOCK.clock_ms - 2**22 - 1, 8, 0, safe=False), False),
        (ClockInfo(CLOCK.clock_ms - 1, 7, 1, safe=False), False),
        (ClockInfo(0, 0, 0, safe=True), False),
    ],
)
def test_the_clock_only_goes_on_but_for_what_a_power_cut_costs(seen: ClockInfo, passes: bool) -> None:
    tpm = SoftTpm(clock=seen)
    verdict = judge(quote(tpm), tpm, KnownTpm(clock=CLOCK))
    assert checks(verdict) == ([] if passes else [Check.CLOCK])


@pytest.mark.parametrize(
    ("seconds", "outcome", "found"),
    [
        (300, Outcome.PASS, []),
        (301, Outcome.INCONCLUSIVE, [Check.AGE]),
        (-1, Outcome.INCONCLUSIVE, [Check.AGE]),
    ],
)
def test_a_quote_that_comes_too_late_is_asked_for_again(seconds: int, outcome: Outcome, found: list[Check]) -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm), tpm, challenge=Challenge(NONCE, NOW - timedelta(seconds=seconds)))
    assert (verdict.outcome, checks(verdict)) == (outcome, found)


@pytest.mark.parametrize("size", [0, 15, 33])
def test_a_nonce_that_could_be_guessed_or_not_be_taken_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="a nonce has 16 to 32 bytes"):
        Challenge(bytes(size), NOW)


def test_what_a_key_signed_that_no_tpm_made_is_no_quote() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(magic=0x41414141)), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.ORIGIN])


def test_another_statement_of_the_tpm_is_no_quote() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(kind=0x8017)), tpm)
    assert checks(verdict) == [Check.ORIGIN]
    assert verdict.refusals[0].seen == "type 8017"


def test_a_key_outside_the_endorsement_hierarchy_is_refused_as_its_counts_are_hidden() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(signer=b"\x00\x0b" + bytes(32))), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.SIGNER])


def test_a_wrong_pcr_shows_what_it_holds_and_what_it_should() -> None:
    tpm = SoftTpm()
    tpm.pcrs["sha256"][7] = bytes([0xAB]) * 32
    verdict = judge(quote(tpm), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.PCR_VALUE])
    refusal = verdict.refusals[0]
    assert "PCR sha256:7" in refusal.text
    assert (refusal.seen, refusal.wanted) == ("ab" * 32, PCRS["sha256"][7].hex())
    assert [one.state for one in verdict.pcrs] == [PcrState.RIGHT, PcrState.RIGHT, PcrState.WRONG]


def test_a_pcr_may_hold_any_value_of_its_set() -> None:
    tpm = SoftTpm()
    tpm.pcrs["sha256"][7] = bytes([0xAB]) * 32
    both = {**BASELINE.allowed, ("sha256", 7): frozenset({PCRS["sha256"][7], bytes([0xAB]) * 32})}
    assert judge(quote(tpm), tpm, baseline=PcrBaseline(both)).outcome is Outcome.PASS


def test_values_that_are_not_those_that_were_quoted_are_refused_and_not_compared() -> None:
    tpm = SoftTpm()
    tpm.pcrs["sha256"][7] = bytes([0xAB]) * 32
    reading = replace(quote(tpm), pcrs=pcr_text(PCRS))
    verdict = judge(reading, tpm)
    assert (verdict.outcome, checks(verdict), verdict.pcrs) == (Outcome.FAIL, [Check.PCR_DIGEST], ())


@pytest.mark.parametrize("text", ["", "sha256:\n  0 : 0x00\n", pcr_text({"sha256": {0: PCRS["sha256"][0]}})])
def test_values_that_were_not_read_prove_nothing(text: str) -> None:
    tpm = SoftTpm()
    verdict = judge(replace(quote(tpm), pcrs=text), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.INCONCLUSIVE, [Check.PCR_DIGEST])
    assert "sha256:7" in verdict.refusals[0].seen


def test_a_pcr_that_the_quote_leaves_out_is_unknown_and_not_right() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(selections=(PcrSelection("sha256", (0, 2)),))), tpm)
    assert (verdict.outcome, checks(verdict)) == (Outcome.INCONCLUSIVE, [Check.PCR_VALUE])
    assert "sha256:7" in verdict.refusals[0].text
    assert [one.state for one in verdict.pcrs] == [PcrState.RIGHT, PcrState.RIGHT, PcrState.UNKNOWN]


def test_a_quote_over_no_pcr_at_all_does_not_pass() -> None:
    tpm = SoftTpm()
    verdict = judge(quote(tpm, tpm.attest(selections=())), tpm)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert judge(quote(tpm, tpm.attest(selections=())), tpm, baseline=PcrBaseline({})).outcome is Outcome.INCONCLUSIVE


def test_a_pcr_without_a_baseline_is_unknown_unless_the_baseline_says_why_not() -> None:
    tpm = SoftTpm()
    less = {pcr: values for pcr, values in BASELINE.allowed.items() if pcr[1] != 2}
    unknown = judge(quote(tpm), tpm, baseline=PcrBaseline(less))
    assert (unknown.outcome, checks(unknown)) == (Outcome.INCONCLUSIVE, [Check.PCR_VALUE])
    ignored = judge(quote(tpm), tpm, baseline=PcrBaseline(less, {2: "an option ROM that differs by slot"}))
    assert ignored.outcome is Outcome.PASS
    assert [one.why for one in ignored.pcrs if one.state is PcrState.IGNORED] == ["an option ROM that differs by slot"]


def test_nothing_but_ignored_pcrs_is_no_pass() -> None:
    tpm = SoftTpm()
    baseline = PcrBaseline({}, dict.fromkeys((0, 2, 7), "not looked at"))
    assert judge(quote(tpm), tpm, baseline=baseline).outcome is Outcome.INCONCLUSIVE


def test_firmware_that_the_baseline_does_not_name_is_refused() -> None:
    tpm = SoftTpm()
    right = replace(BASELINE, firmware=frozenset({"0007000200030001"}))
    wrong = replace(BASELINE, firmware=frozenset({"0007000200040000"}))
    assert judge(quote(tpm), tpm, baseline=right).outcome is Outcome.PASS
    assert checks(judge(quote(tpm), tpm, baseline=wrong)) == [Check.FIRMWARE]


def test_everything_that_is_wrong_is_named_at_once() -> None:
    tpm = SoftTpm(clock=replace(CLOCK, resets=1))
    tpm.pcrs["sha256"][0] = bytes(32)
    verdict = judge(quote(tpm, tpm.attest(nonce=b"z" * 32)), tpm, KnownTpm(clock=CLOCK))
    assert checks(verdict) == [Check.NONCE, Check.CLOCK, Check.PCR_VALUE]


def test_a_quote_that_says_its_size_first_is_read_alike() -> None:
    tpm = SoftTpm()
    reading = quote(tpm)
    wrapped = replace(reading, attest=len(reading.attest).to_bytes(2, "big") + reading.attest)
    assert judge(wrapped, tpm).outcome is Outcome.PASS


def test_a_primary_attestation_key_beside_the_endorsement_key_signs_too() -> None:
    tpm = SoftTpm()
    name = b"\x00\x0b" + sha256(public_area(tpm.ak, AK_ATTRIBUTES, (tpm.scheme, 0x000B))).digest()
    signer = b"\x00\x0b" + sha256((0x4000000B).to_bytes(4, "big") + name).digest()
    assert judge(quote(tpm, tpm.attest(signer=signer)), tpm).outcome is Outcome.PASS


def test_a_refusal_reads_as_one_sentence_with_what_was_seen() -> None:
    tpm = SoftTpm()
    text = str(judge(quote(tpm, tpm.attest(nonce=b"x" * 16)), tpm).refusals[0])
    assert text.startswith("nonce: the quote answers another nonce than ours")
    assert f"(seen {'78' * 16}; wanted {NONCE.hex()})" in text


def test_the_selection_of_a_baseline_is_what_has_values() -> None:
    assert BASELINE.selection() == SELECTION

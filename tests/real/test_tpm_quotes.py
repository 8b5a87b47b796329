"""Quotes of a real TPM in software (swtpm), asked with tpm2-tools: the right one passes, each other is refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from real.software_tpm import SoftwareTpm, missing_parts
from unit.tpm_tools import Authority, rsa_key

from adapters.local import LocalHost
from adapters.tpm_host import KeyKind, TpmHost
from fleet.canary_verdict import Outcome
from fleet.tpm_attest import PcrSelection, parse_attest
from fleet.tpm_baseline import PcrBaseline
from fleet.tpm_bytes import Unreadable
from fleet.tpm_certificate import read_certificates
from fleet.tpm_credential import make_credential
from fleet.tpm_endorsement import TrustStore
from fleet.tpm_keys import KeyReading, KnownKeys, KnownTpm, ProvenKeys, check_keys, prove_keys
from fleet.tpm_pcrs import read_pcrs
from fleet.tpm_public import TpmPublic, parse_public
from fleet.tpm_quote import Challenge, QuoteReading, QuoteVerdict, judge_quote
from fleet.tpm_refusal import Check, Refusal

SELECTION = (PcrSelection("sha256", (0, 7, 16)),)
CERTIFICATES = {"rsa": "0x01C00002", "ecc": "0x01C0000A"}
MAKER = Authority("Software TPM Root", rsa_key(500))
STORE = TrustStore(roots=read_certificates(MAKER.certificate)[0])


pytestmark = [pytest.mark.tpm, pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or "")]


@dataclass
class Visit:
    """One attestation of a TPM, step by step."""

    tpm: SoftwareTpm
    host: TpmHost
    reading: KeyReading
    keys: KnownKeys
    proven: ProvenKeys

    def quote(self, nonce: bytes, selections: tuple[PcrSelection, ...] = SELECTION) -> QuoteReading:
        found = self.host.quote(nonce, selections)
        assert isinstance(found, QuoteReading), str(found)
        return found

    def judge(
        self, reading: QuoteReading, challenge: Challenge, baseline: PcrBaseline, known: KnownTpm | None = None
    ) -> QuoteVerdict:
        now = datetime.now(UTC)
        return judge_quote(reading, self.proven, challenge, known or KnownTpm(), baseline, now)

    def baseline(self) -> PcrBaseline:
        """What the PCRs hold now."""
        values = read_pcrs(self.tpm.run("tpm2_pcrread", "sha256:0,7,16"))
        return PcrBaseline({("sha256", index): frozenset({value}) for index, value in values["sha256"].items()})


def challenge() -> Challenge:
    return Challenge(secrets.token_bytes(32), datetime.now(UTC))


def checks(verdict: QuoteVerdict) -> list[Check]:
    return [one.check for one in verdict.refusals]


def provision(tpm: SoftwareTpm, kind: KeyKind, folder: Path) -> None:
    """What the factory does: an endorsement certificate into the TPM's memory; and a boot that measures."""
    host = TpmHost(LocalHost(), tpm.tcti, kind)
    reading = host.read_keys()
    host.close()
    assert isinstance(reading, KeyReading), str(reading)
    key = parse_public(reading.endorsement)
    assert isinstance(key, TpmPublic), str(key)
    certificate = folder / f"{kind}.crt"
    certificate.write_bytes(MAKER.endorse(key.key) + b"\xff" * 64)
    attributes = "ppwrite|ppread|ownerread|authread|platformcreate|no_da"
    index, size = CERTIFICATES[kind], str(certificate.stat().st_size)
    tpm.run("tpm2_nvdefine", index, "-C", "p", "-s", size, "-a", attributes)
    tpm.run("tpm2_nvwrite", index, "-C", "p", "-i", str(certificate))
    tpm.extend(0, "a")
    tpm.extend(7, "b")


def visit(tpm: SoftwareTpm, kind: KeyKind | None = None) -> Visit:
    host = TpmHost(LocalHost(), tpm.tcti, kind)
    reading = host.read_keys()
    assert isinstance(reading, KeyReading), str(reading)
    keys = check_keys(reading, STORE, KnownTpm(), datetime.now(UTC))
    assert isinstance(keys, KnownKeys), [str(one) for one in keys]
    secret = secrets.token_bytes(32)
    made = make_credential(keys.endorsement, keys.attestation.name, secret, secrets.token_bytes)
    opened = host.activate(made)
    assert isinstance(opened, bytes), str(opened)
    proven = prove_keys(keys, secret, opened)
    assert isinstance(proven, ProvenKeys), str(proven)
    return Visit(tpm, host, reading, keys, proven)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpm")


@pytest.fixture(scope="module", params=["rsa", "ecc"])
def node(request: pytest.FixtureRequest, folder: Path) -> Iterator[Visit]:
    """A TPM whose keys are proven."""
    kind: KeyKind = request.param
    with SoftwareTpm(folder / kind) as tpm:
        provision(tpm, kind, folder)
        done = visit(tpm)
        yield done
        done.host.close()


@pytest.fixture(scope="module")
def other(folder: Path) -> Iterator[Visit]:
    """Another machine's TPM, of the same maker."""
    with SoftwareTpm(folder / "other") as tpm:
        provision(tpm, "rsa", folder)
        done = visit(tpm)
        yield done
        done.host.close()


def test_a_right_quote_passes(node: Visit) -> None:
    ours = challenge()
    verdict = node.judge(node.quote(ours.nonce), ours, node.baseline())
    assert verdict.outcome is Outcome.PASS, [str(one) for one in verdict.refusals]
    assert verdict.known is not None
    assert verdict.known.clock is not None
    assert node.proven.endorsed is not None
    assert node.proven.endorsed.chain == ("CN=Software TPM Root, C=DE",)


def test_the_key_is_of_the_kind_that_the_certificate_is_for(node: Visit) -> None:
    assert isinstance(node.keys.endorsement.key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey)
    assert type(node.keys.endorsement.key) is type(node.keys.attestation.key)


def test_two_quotes_in_a_row_pass_and_the_second_not_in_the_firsts_place(node: Visit) -> None:
    first, second = challenge(), challenge()
    earlier, later = node.quote(first.nonce), node.quote(second.nonce)
    after_first = node.judge(earlier, first, node.baseline())
    assert after_first.known is not None
    after_second = node.judge(later, second, node.baseline(), after_first.known)
    assert after_second.outcome is Outcome.PASS, [str(one) for one in after_second.refusals]
    assert after_second.known is not None
    replayed = node.judge(earlier, second, node.baseline(), after_second.known)
    assert replayed.outcome is Outcome.FAIL
    assert checks(replayed)[0] is Check.NONCE
    assert Check.REPLAY in checks(node.judge(earlier, first, node.baseline(), after_first.known))


def test_a_wrong_nonce_is_refused(node: Visit) -> None:
    verdict = node.judge(node.quote(secrets.token_bytes(32)), challenge(), node.baseline())
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.NONCE])


def test_a_pcr_that_holds_something_else_is_refused_by_its_name(node: Visit) -> None:
    before = node.baseline()
    node.tpm.extend(16, "c")
    ours = challenge()
    verdict = node.judge(node.quote(ours.nonce), ours, before)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.PCR_VALUE])
    assert "PCR sha256:16" in verdict.refusals[0].text


def test_a_host_that_tells_the_values_from_before_is_refused(node: Visit) -> None:
    before, told = node.baseline(), node.tpm.run("tpm2_pcrread", "sha256:0,7,16")
    node.tpm.extend(16, "d")
    ours = challenge()
    verdict = node.judge(replace(node.quote(ours.nonce), pcrs=told), ours, before)
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.PCR_DIGEST])


def test_a_pcr_that_is_left_out_of_the_quote_is_unknown(node: Visit) -> None:
    ours = challenge()
    verdict = node.judge(node.quote(ours.nonce, (PcrSelection("sha256", (0, 16)),)), ours, node.baseline())
    assert (verdict.outcome, checks(verdict)) == (Outcome.INCONCLUSIVE, [Check.PCR_VALUE])
    assert "PCR sha256:7" in verdict.refusals[0].text


def test_another_machines_quote_is_refused_by_its_signature(node: Visit, other: Visit) -> None:
    ours = challenge()
    verdict = node.judge(other.quote(ours.nonce), ours, node.baseline())
    assert (verdict.outcome, checks(verdict)) == (Outcome.FAIL, [Check.SIGNATURE])


def test_another_machines_attestation_key_does_not_open_a_credential(node: Visit, other: Visit) -> None:
    mixed = check_keys(
        replace(node.reading, attestation=other.reading.attestation), STORE, KnownTpm(), datetime.now(UTC)
    )
    assert isinstance(mixed, KnownKeys)
    made = make_credential(mixed.endorsement, mixed.attestation.name, b"s" * 32, secrets.token_bytes)
    found = node.host.activate(made)
    assert isinstance(found, Refusal)
    assert (found.check, found.outcome) == (Check.ACTIVATION, Outcome.FAIL), found.text


def test_a_credential_for_this_tpm_is_not_opened_by_another(node: Visit, folder: Path) -> None:
    """The other one is for this test alone: libtpms 0.9 takes no further command after an RSA seed that is not its."""
    kind: KeyKind = "rsa" if isinstance(node.keys.endorsement.key, rsa.RSAPublicKey) else "ecc"
    with SoftwareTpm(folder / f"stranger-{kind}") as tpm:
        host = TpmHost(LocalHost(), tpm.tcti, kind)
        theirs = host.read_keys()
        assert isinstance(theirs, KeyReading), str(theirs)
        attestation = parse_public(theirs.attestation)
        assert isinstance(attestation, TpmPublic), str(attestation)
        made = make_credential(node.keys.endorsement, attestation.name, b"s" * 32, secrets.token_bytes)
        found = host.activate(made)
        assert isinstance(found, Refusal)
        assert found.check is Check.ACTIVATION
        assert found.outcome is Outcome.FAIL or "TPM failure" in found.text, found.text
        host.close()


def test_another_tpm_than_the_node_had_is_refused(node: Visit, other: Visit) -> None:
    known = KnownTpm(endorsement_sha256=node.keys.endorsement.sha256)
    found = check_keys(other.reading, STORE, known, datetime.now(UTC))
    assert not isinstance(found, KnownKeys)
    assert [one.check for one in found] == [Check.KNOWN_TPM]


def test_a_maker_that_is_not_pinned_is_refused(node: Visit) -> None:
    found = check_keys(node.reading, TrustStore(), KnownTpm(), datetime.now(UTC))
    assert not isinstance(found, KnownKeys)
    assert [(one.check, one.outcome) for one in found] == [(Check.CERTIFICATE, Outcome.FAIL)]


def test_truncated_blobs_are_unreadable(node: Visit) -> None:
    ours = challenge()
    reading, baseline = node.quote(ours.nonce), node.baseline()
    for size in range(0, len(reading.attest), 9):
        assert checks(node.judge(replace(reading, attest=reading.attest[:size]), ours, baseline)) == [Check.READABLE]
    for size in range(0, len(reading.signature), 9):
        cut = replace(reading, signature=reading.signature[:size])
        assert checks(node.judge(cut, ours, baseline)) == [Check.READABLE]


def test_a_flipped_bit_is_seen_wherever_it_is(node: Visit) -> None:
    ours = challenge()
    reading, baseline = node.quote(ours.nonce), node.baseline()
    for at in range(0, 8 * len(reading.attest), 5):
        changed = bytearray(reading.attest)
        changed[at // 8] ^= 1 << at % 8
        verdict = node.judge(replace(reading, attest=bytes(changed)), ours, baseline)
        assert checks(verdict) in ([Check.SIGNATURE], [Check.READABLE])
    for at in range(0, 8 * len(reading.signature), 5):
        changed = bytearray(reading.signature)
        changed[at // 8] ^= 1 << at % 8
        verdict = node.judge(replace(reading, signature=bytes(changed)), ours, baseline)
        assert checks(verdict) in ([Check.SIGNATURE], [Check.READABLE])


def test_a_reboot_counts_on_and_a_quote_from_before_it_goes_back(folder: Path) -> None:
    with SoftwareTpm(folder / "reboot") as tpm:
        provision(tpm, "rsa", folder)
        before = visit(tpm)
        first = challenge()
        old = before.quote(first.nonce)
        known = before.judge(old, first, before.baseline()).known
        assert known is not None
        before.host.close()
        tpm.stop()
        tpm.start()
        tpm.extend(0, "a")
        tpm.extend(7, "b")
        after = visit(tpm)
        assert after.keys.endorsement.sha256 == known.endorsement_sha256
        second = challenge()
        verdict = after.judge(after.quote(second.nonce), second, after.baseline(), known)
        assert verdict.outcome is Outcome.PASS, [str(one) for one in verdict.refusals]
        assert verdict.known is not None
        assert verdict.known.clock is not None
        assert known.clock is not None
        assert verdict.known.clock.resets == known.clock.resets + 1
        replayed = before.judge(old, challenge(), before.baseline(), verdict.known)
        assert {Check.NONCE, Check.CLOCK} <= set(checks(replayed))
        after.host.close()


def test_a_cleared_tpm_is_seen_by_its_counts(folder: Path) -> None:
    with SoftwareTpm(folder / "cleared") as tpm:
        tpm.stop()
        tpm.start()
        provision(tpm, "rsa", folder)
        before = visit(tpm)
        first = challenge()
        known = before.judge(before.quote(first.nonce), first, before.baseline()).known
        assert known is not None
        before.host.close()
        tpm.run("tpm2_clear", "-c", "p")
        after = visit(tpm)
        second = challenge()
        verdict = after.judge(after.quote(second.nonce), second, after.baseline(), known)
        assert checks(verdict) == [Check.CLOCK]
        assert "TPM2_Clear" in verdict.refusals[0].text
        after.host.close()


def test_what_was_quoted_is_read_field_by_field(node: Visit) -> None:
    ours = challenge()
    attest = parse_attest(node.quote(ours.nonce).attest)
    assert not isinstance(attest, Unreadable)
    assert attest.nonce == ours.nonce
    assert attest.selections == SELECTION
    assert attest.firmware > 0
    assert len(attest.pcr_digest) == 32


def test_nothing_stays_on_the_host(node: Visit) -> None:
    host = TpmHost(LocalHost(), node.tpm.tcti)
    assert isinstance(host.read_keys(), KeyReading)
    left = host._folder
    assert left is not None
    assert Path(left).is_dir()
    host.close()
    assert not Path(left).exists()
    assert node.tpm.run("tpm2_getcap", "handles-transient").strip() == ""

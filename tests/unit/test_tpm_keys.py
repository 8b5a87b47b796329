"""Endorsement and attestation keys: what a host may hand over, and the proof that both are in one TPM."""

from __future__ import annotations

import secrets

import pytest
from unit.tpm_tools import (
    AK_ATTRIBUTES,
    ECDSA,
    EK_ATTRIBUTES,
    NOW,
    RSASSA,
    Authority,
    SoftTpm,
    ecc_key,
    pem,
    public_area,
    rsa_key,
    tpm2b,
)

from fleet.canary_verdict import Outcome
from fleet.tpm_bytes import Unreadable
from fleet.tpm_certificate import read_certificates
from fleet.tpm_credential import Credential, make_credential
from fleet.tpm_endorsement import TrustStore
from fleet.tpm_keys import KeyReading, KnownKeys, KnownTpm, ProvenKeys, check_keys, prove_keys
from fleet.tpm_public import TpmPublic, parse_public
from fleet.tpm_refusal import Check, Refusal

ROOT = Authority("TPM Root", rsa_key(100))
STORE = TrustStore(roots=read_certificates(ROOT.certificate)[0])
P384 = SoftTpm(ecc=True, scheme=ECDSA, curve="secp384r1", name_number=0x000C, aes_bits=256)


def public(area: bytes) -> TpmPublic:
    parsed = parse_public(area)
    assert not isinstance(parsed, Unreadable)
    return parsed


def reading(tpm: SoftTpm, certificate: bytes | None = None) -> KeyReading:
    return KeyReading(tpm2b(tpm.ek_area), tpm2b(tpm.ak_area), certificate or ROOT.endorse(tpm.ek))


def checked(tpm: SoftTpm) -> KnownKeys:
    keys = check_keys(reading(tpm), STORE, KnownTpm(), NOW)
    assert isinstance(keys, KnownKeys), [str(one) for one in keys]
    return keys


def refused(
    given: KeyReading, known: KnownTpm | None = None, require_certificate: bool = True
) -> tuple[list[Check], str, Outcome]:
    found = check_keys(given, STORE, known or KnownTpm(), NOW, require_certificate)
    assert not isinstance(found, KnownKeys)
    return [one.check for one in found], " / ".join(one.text for one in found), found[0].outcome


def credential(keys: KnownKeys, secret: bytes) -> Credential:
    return make_credential(keys.endorsement, keys.attestation.name, secret, secrets.token_bytes)


TPMS = [
    pytest.param(SoftTpm(), id="RSA 2048, AES 128"),
    pytest.param(SoftTpm(aes_bits=256, name_number=0x000C), id="RSA 2048, SHA-384, AES 256"),
    pytest.param(SoftTpm(ecc=True, scheme=ECDSA), id="P-256"),
    pytest.param(P384, id="P-384"),
    pytest.param(SoftTpm(ecc=True, scheme=ECDSA, curve="secp521r1"), id="P-521"),
]


@pytest.mark.parametrize("tpm", TPMS)
@pytest.mark.parametrize("size", [1, 14, 15, 16, 32])
def test_a_credential_is_opened_by_the_tpm_that_has_both_keys(tpm: SoftTpm, size: int) -> None:
    keys, secret = checked(tpm), secrets.token_bytes(size)
    made = credential(keys, secret)
    opened = tpm.activate(made.blob, made.encrypted_seed)
    assert opened == secret
    proven = prove_keys(keys, secret, opened)
    assert isinstance(proven, ProvenKeys)
    assert proven.endorsed is not None
    assert proven.endorsed.manufacturer == "NTC"


@pytest.mark.parametrize("tpm", TPMS)
def test_a_credential_is_not_opened_for_another_attestation_key(tpm: SoftTpm) -> None:
    made = credential(checked(tpm), b"s" * 32)
    other = SoftTpm(number=5).ak_name
    assert tpm.activate(made.blob, made.encrypted_seed, name=other) is None


def test_a_credential_is_not_opened_by_another_tpm() -> None:
    made = credential(checked(SoftTpm()), b"s" * 32)
    assert SoftTpm(number=1).activate(made.blob, made.encrypted_seed) is None


def test_a_changed_credential_is_not_opened() -> None:
    made = credential(checked(SoftTpm()), b"s" * 32)
    for at in range(2, len(made.blob), 3):
        changed = bytearray(made.blob)
        changed[at] ^= 1
        assert SoftTpm().activate(bytes(changed), made.encrypted_seed) != b"s" * 32


def test_the_credential_file_is_that_of_tpm2_tools() -> None:
    made = credential(checked(SoftTpm()), b"s" * 32)
    assert made.file == bytes.fromhex("badcc0de00000001") + made.blob + made.encrypted_seed
    assert int.from_bytes(made.blob[:2], "big") == len(made.blob) - 2 == 2 + 32 + 2 + 32
    assert int.from_bytes(made.encrypted_seed[:2], "big") == 256


@pytest.mark.parametrize("size", [0, 33])
def test_a_secret_that_no_tpm_could_open_is_not_sent(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 32 can be sent"):
        credential(checked(SoftTpm()), bytes(size))


def test_no_credential_is_made_for_a_key_that_signs() -> None:
    with pytest.raises(ValueError, match="is not decrypt"):
        make_credential(public(SoftTpm().ak_area), b"name", b"s", secrets.token_bytes)


@pytest.mark.parametrize("opened", [b"", b"s" * 31, b"t" * 32])
def test_a_wrong_secret_proves_nothing_and_names_the_check(opened: bytes) -> None:
    refusal = prove_keys(checked(SoftTpm()), b"s" * 32, opened)
    assert isinstance(refusal, Refusal)
    assert (refusal.check, refusal.outcome) == (Check.ACTIVATION, Outcome.FAIL)


def test_an_empty_secret_proves_nothing_though_it_is_given_back() -> None:
    assert isinstance(prove_keys(checked(SoftTpm()), b"", b""), Refusal)


def test_another_tpm_than_the_node_had_is_refused_though_a_manufacturer_endorses_it() -> None:
    known = KnownTpm(endorsement_sha256=public(SoftTpm(number=1).ek_area).sha256)
    found, text, outcome = refused(reading(SoftTpm()), known)
    assert (found, outcome) == ([Check.KNOWN_TPM], Outcome.FAIL)
    assert "its board was changed" in text


def test_the_tpm_that_the_node_had_is_taken() -> None:
    known = KnownTpm(endorsement_sha256=public(SoftTpm().ek_area).sha256)
    assert isinstance(check_keys(reading(SoftTpm()), STORE, known, NOW), KnownKeys)


def test_the_certificate_of_another_tpm_is_refused() -> None:
    found, text, outcome = refused(reading(SoftTpm(), ROOT.endorse(SoftTpm(number=1).ek)))
    assert (found, outcome) == ([Check.CERTIFICATE], Outcome.FAIL)
    assert "it is for another key" in text


def test_a_tpm_without_a_certificate_is_inconclusive_unless_it_is_known_and_that_is_enough() -> None:
    bare = KeyReading(SoftTpm().ek_area, SoftTpm().ak_area, None)
    known = KnownTpm(endorsement_sha256=public(SoftTpm().ek_area).sha256)
    assert refused(bare)[::2] == ([Check.CERTIFICATE], Outcome.INCONCLUSIVE)
    assert refused(bare, known)[::2] == ([Check.CERTIFICATE], Outcome.INCONCLUSIVE)
    assert refused(bare, require_certificate=False)[::2] == ([Check.CERTIFICATE], Outcome.INCONCLUSIVE)
    assert isinstance(check_keys(bare, STORE, known, NOW, require_certificate=False), KnownKeys)


def test_a_certificate_that_cannot_be_read_is_inconclusive() -> None:
    found, text, outcome = refused(reading(SoftTpm(), ROOT.endorse(SoftTpm().ek)[:300]))
    assert (found, outcome) == ([Check.CERTIFICATE], Outcome.INCONCLUSIVE)
    assert "cannot be read" in text


def test_issuers_that_the_tpm_holds_help_to_find_the_way_to_a_root() -> None:
    middle = Authority("Middle", rsa_key(101), above=ROOT)
    tpm = SoftTpm()
    lone = reading(tpm, middle.endorse(tpm.ek))
    assert refused(lone)[0] == [Check.CERTIFICATE]
    keys = check_keys(
        KeyReading(lone.endorsement, lone.attestation, lone.certificate, middle.certificate), STORE, KnownTpm(), NOW
    )
    assert isinstance(keys, KnownKeys)
    assert keys.endorsed is not None
    assert keys.endorsed.chain == ("CN=Middle, C=DE", "CN=TPM Root, C=DE")


def test_a_root_that_the_tpm_brings_along_is_not_trusted() -> None:
    own = Authority("Own Root", rsa_key(102))
    tpm = SoftTpm()
    given = KeyReading(tpm.ek_area, tpm.ak_area, own.endorse(tpm.ek), own.certificate)
    assert refused(given)[::2] == ([Check.CERTIFICATE], Outcome.FAIL)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (AK_ATTRIBUTES & ~(1 << 16), "is not restricted"),
        (AK_ATTRIBUTES & ~(1 << 1), "is not fixedTPM"),
        (AK_ATTRIBUTES & ~(1 << 4), "is not fixedParent"),
        (AK_ATTRIBUTES & ~(1 << 5), "is not sensitiveDataOrigin"),
        (AK_ATTRIBUTES & ~(1 << 18), "is not sign"),
        (AK_ATTRIBUTES | 1 << 17, "is decrypt"),
    ],
)
def test_a_key_that_could_sign_what_no_tpm_made_is_no_attestation_key(attributes: int, text: str) -> None:
    tpm = SoftTpm()
    given = KeyReading(tpm.ek_area, public_area(tpm.ak, attributes, (RSASSA, 0x000B)), ROOT.endorse(tpm.ek))
    found, said, outcome = refused(given)
    assert (found, outcome) == ([Check.ATTESTATION_KEY], Outcome.FAIL)
    assert text in said


def test_an_attestation_key_without_a_scheme_of_its_own_is_refused() -> None:
    tpm = SoftTpm()
    given = KeyReading(tpm.ek_area, public_area(tpm.ak, AK_ATTRIBUTES), ROOT.endorse(tpm.ek))
    assert "signs with no scheme of its own" in refused(given)[1]


def test_keys_that_were_exchanged_for_each_other_are_both_refused() -> None:
    tpm = SoftTpm()
    found, _, outcome = refused(KeyReading(tpm.ak_area, tpm.ek_area, ROOT.endorse(tpm.ak)))
    assert outcome is Outcome.FAIL
    assert {Check.ENDORSEMENT_KEY, Check.ATTESTATION_KEY} == set(found)


def test_a_key_is_read_with_and_without_its_size() -> None:
    area = SoftTpm().ek_area
    assert parse_public(area) == parse_public(tpm2b(area))


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "it ends after 0 bytes"),
        (b"-----BEGIN PUBLIC KEY-----\n", "PEM has the bare key without name and attributes"),
        (tpm2b(SoftTpm().ek_area)[:-9], "bytes follow, and"),
        (SoftTpm().ek_area[:-9], "in its modulus"),
        (SoftTpm().ek_area + b"\0", "1 bytes too many"),
        (b"\x00\x08" + SoftTpm().ek_area[2:], "a key of type 0x0008"),
        (public_area(rsa_key(0), EK_ATTRIBUTES, name_number=0x0004), "its name is made with sha1"),
        (public_area(rsa_key(0), EK_ATTRIBUTES, name_number=0x0099), "its name is made with 0x0099"),
        (public_area(rsa_key(0), EK_ATTRIBUTES, declared_bits=1024), "an RSA key of 1024 bits proves nothing"),
        (public_area(rsa_key(0), EK_ATTRIBUTES, declared_bits=3072), "has 2048 bits, and 3072 are declared"),
        (public_area(rsa_key(0), EK_ATTRIBUTES, scheme=(0x0077, 0x000B)), "its scheme 0x0077 is not known"),
    ],
)
def test_what_is_no_key_says_why(blob: bytes, why: str) -> None:
    parsed = parse_public(blob)
    assert isinstance(parsed, Unreadable)
    assert why in parsed.why


def test_a_point_that_is_not_on_its_curve_is_no_key() -> None:
    area = bytearray(public_area(ecc_key(0), AK_ATTRIBUTES, (ECDSA, 0x000B)))
    area[-1] ^= 1
    parsed = parse_public(bytes(area))
    assert isinstance(parsed, Unreadable)
    assert "no point of secp256r1" in parsed.why


def test_a_root_may_be_pinned_as_pem() -> None:
    store = TrustStore(roots=read_certificates(pem(ROOT.certificate))[0])
    assert isinstance(check_keys(reading(SoftTpm()), store, KnownTpm(), NOW), KnownKeys)

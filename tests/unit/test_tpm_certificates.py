"""Endorsement certificates: the way to a pinned root, and everything that is not one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from unit.tpm_tools import NOW, Authority, Key, SoftTpm, ecc_key, named, pem, rsa_key

from fleet import tpm_der as der
from fleet.tpm_bytes import Malformed, Unreadable
from fleet.tpm_certificate import Certificate, name_text, read_certificates, same_name
from fleet.tpm_endorsement import Endorsement, TrustStore, check_endorsement
from fleet.tpm_public import parse_public

TPM = SoftTpm()
ROOT = Authority("Root", rsa_key(200))
MIDDLE = Authority("Middle", ecc_key(201), above=ROOT)


def one(blob: bytes) -> Certificate:
    found, faults = read_certificates(blob)
    assert faults == ()
    return found[0]


def check(
    certificate: bytes, *intermediates: Authority, root: bytes | None = None, now: datetime = NOW, tpm: SoftTpm = TPM
) -> Endorsement | str:
    public = parse_public(tpm.ek_area)
    assert not isinstance(public, Unreadable)
    store = TrustStore((one(root or ROOT.certificate),), tuple(one(each.certificate) for each in intermediates))
    return check_endorsement(one(certificate), public, store, now)


def tlv(tag: int, body: bytes) -> bytes:
    """One DER element."""
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def resigned(signed: bytes, algorithm: bytes, key: rsa.RSAPrivateKey) -> bytes:
    """A certificate around what is to be signed, by SHA-256 with RSA."""
    signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return tlv(0x30, signed + algorithm + tlv(0x03, b"\0" + signature))


SHA256_WITH_RSA = bytes.fromhex("300d06092a864886f70d01010b0500")


def test_a_certificate_of_a_pinned_root_says_what_tpm_it_is() -> None:
    found = check(ROOT.endorse(TPM.ek))
    assert isinstance(found, Endorsement), found
    assert (found.manufacturer, found.model, found.version) == ("NTC", "NPCT75x", "id:00070002")
    assert found.chain == ("CN=Root, C=DE",)
    assert len(found.root_sha256) == 64


@pytest.mark.parametrize(
    ("written", "shown"), [("id:494E5443", "INTC"), ("id:00001014", "id:00001014"), ("Maker", "Maker"), ("id:", "id:")]
)
def test_a_makers_letters_are_shown_where_its_number_stands_for_some(written: str, shown: str) -> None:
    found = check(ROOT.endorse(TPM.ek, maker=written))
    assert isinstance(found, Endorsement), found
    assert found.manufacturer == shown


def test_a_certificate_of_an_issuer_below_the_root_is_followed_to_it() -> None:
    deeper = Authority("Deeper", rsa_key(202), above=MIDDLE)
    found = check(deeper.endorse(TPM.ek), deeper, MIDDLE)
    assert isinstance(found, Endorsement), found
    assert found.chain == ("CN=Deeper, C=DE", "CN=Middle, C=DE", "CN=Root, C=DE")


def test_an_ecc_endorsement_key_is_endorsed_alike() -> None:
    tpm = SoftTpm(ecc=True)
    assert isinstance(check(ROOT.endorse(tpm.ek), tpm=tpm), Endorsement)


def test_an_issuer_that_is_not_known_is_named() -> None:
    assert "its issuer CN=Middle, C=DE is not known here" in str(check(MIDDLE.endorse(TPM.ek)))


def test_the_issuer_that_is_missing_highest_up_is_the_one_that_is_named() -> None:
    deeper = Authority("Deeper", rsa_key(202), above=MIDDLE)
    assert "its issuer CN=Middle, C=DE is not known here" in str(check(deeper.endorse(TPM.ek), deeper))


def test_an_issuer_with_the_right_name_and_another_key_is_refused() -> None:
    forged = Authority("Root", rsa_key(203))
    assert check(forged.endorse(TPM.ek)) == "its signature is not that of CN=Root, C=DE"


def test_a_certificate_for_another_key_is_refused_before_anything_else() -> None:
    assert "it is for another key" in str(check(ROOT.endorse(rsa_key(204))))


@pytest.mark.parametrize("at", range(0, 2000, 31))
def test_a_changed_bit_anywhere_in_the_certificate_never_passes(at: int) -> None:
    blob = bytearray(ROOT.endorse(TPM.ek))
    blob[at % len(blob)] ^= 1 << at % 8
    found, _ = read_certificates(bytes(blob))
    if found:
        public = parse_public(TPM.ek_area)
        assert not isinstance(public, Unreadable)
        assert isinstance(check_endorsement(found[0], public, TrustStore((one(ROOT.certificate),)), NOW), str)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (datetime(2019, 12, 31, tzinfo=UTC), "begins on 2020-01-01"),
        (NOW + timedelta(days=3651), "ended on 2036-11-27"),
    ],
)
def test_a_certificate_outside_its_dates_is_refused(now: datetime, said: str) -> None:
    assert said in str(check(ROOT.endorse(TPM.ek), now=now))


def test_a_certificate_that_never_ends_is_read() -> None:
    forever = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    found = check(ROOT.endorse(TPM.ek, ends=forever))
    assert isinstance(found, Endorsement), found
    assert found.not_after == forever


def test_a_root_that_has_ended_is_refused() -> None:
    ended = Authority("Root", rsa_key(200), ends=NOW - timedelta(days=1))
    assert "ended on 2026-11-29" in str(check(ended.endorse(TPM.ek), root=ended.certificate))


def test_a_key_that_may_not_issue_issues_nothing() -> None:
    plain = Authority("Plain", rsa_key(205), above=ROOT, issuer=False)
    assert "CN=Plain, C=DE may not issue certificates" in str(check(plain.endorse(TPM.ek), plain))


def test_an_issuer_may_have_as_many_below_it_as_it_says() -> None:
    narrow = Authority("Narrow", rsa_key(206), above=ROOT, path_length=0)
    below = Authority("Below", rsa_key(207), above=narrow)
    assert isinstance(check(narrow.endorse(TPM.ek), narrow), Endorsement)
    assert "may have 0 issuers below it, and has 1" in str(check(below.endorse(TPM.ek), below, narrow))


@pytest.mark.parametrize(
    ("use", "passes"), [("2.23.133.8.1", True), (None, True), ("1.3.6.1.5.5.7.3.1", False), ("2.23.133.8.3", False)]
)
def test_a_certificate_for_another_use_is_refused(use: str | None, passes: bool) -> None:
    found = check(ROOT.endorse(TPM.ek, use=use))
    assert isinstance(found, Endorsement) is passes
    if not passes:
        assert "is not for an endorsement key" in str(found)


def test_a_critical_extension_that_is_not_understood_is_named() -> None:
    assert "critical extension that is not understood: 1.2.3.4" in str(check(ROOT.endorse(TPM.ek, critical="1.2.3.4")))


def test_an_issuers_own_certificate_is_no_endorsement() -> None:
    itself = Authority("Itself", TPM.ek, above=ROOT)
    assert "it is an issuer's certificate" in str(check(itself.certificate))


def test_what_follows_a_certificate_in_the_tpms_memory_is_left_alone() -> None:
    blob = ROOT.endorse(TPM.ek)
    for padding_byte in (b"\xff", b"\0"):
        assert one(blob + padding_byte * 900).whole == blob


def test_certificates_are_read_one_behind_the_other_and_from_pem() -> None:
    both = ROOT.certificate + MIDDLE.certificate
    assert [name_text(each.subject) for each in read_certificates(both)[0]] == ["CN=Root, C=DE", "CN=Middle, C=DE"]
    text = b"# our roots\r\n" + pem(ROOT.certificate).replace(b"\n", b"\r\n") + b"\n" + pem(MIDDLE.certificate)
    assert read_certificates(text) == read_certificates(both)


@pytest.mark.parametrize("blob", [b"", b"\xff" * 100, b"no certificate", b"0", b"0\x80", b"0\x85\0\0\0\0\0"])
def test_what_is_no_certificate_says_so(blob: bytes) -> None:
    found, faults = read_certificates(blob)
    assert found == ()
    assert faults


def test_a_broken_certificate_in_a_bundle_does_not_hide_the_others() -> None:
    broken = pem(MIDDLE.certificate).replace(b"MII", b"MIJ", 1)
    found, faults = read_certificates(broken + pem(ROOT.certificate))
    assert [name_text(each.subject) for each in found] == ["CN=Root, C=DE"]
    assert len(faults) == 1


MAKER = [
    x509.NameAttribute(NameOID.COMMON_NAME, "TPM Root CA"),
    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Maker"),
    x509.NameAttribute(NameOID.COUNTRY_NAME, "TW"),
]


def reordered(certificate: bytes, signer: rsa.RSAPrivateKey) -> bytes:
    """The same certificate with the parts of MAKER's one group in the order that DER forbids, signed anew."""
    parts = sorted(x509.Name([attribute]).public_bytes()[4:] for attribute in MAKER)
    signed = x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    assert b"".join(parts) in signed
    return resigned(signed.replace(b"".join(parts), b"".join(reversed(parts))), SHA256_WITH_RSA, signer)


def grouped(subject: x509.Name, key: Key, signer: rsa.RSAPrivateKey) -> bytes:
    """A certificate whose issuer is MAKER in one group, as some makers write it."""
    issuer = x509.Name([x509.RelativeDistinguishedName(MAKER)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
    builder = builder.not_valid_after(datetime(2043, 1, 1, tzinfo=UTC))
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.DER)


def test_a_name_in_an_order_that_der_does_not_want_is_read_and_found() -> None:
    """As endorsement certificates of a common maker have it; strict readers refuse them."""
    root_key = rsa_key(208)
    root = grouped(x509.Name([x509.RelativeDistinguishedName(MAKER)]), root_key, root_key)
    leaf = grouped(x509.Name([]), TPM.ek, root_key)
    for pinned in (root, reordered(root, root_key)):
        found = check(reordered(leaf, root_key), root=pinned)
        assert isinstance(found, Endorsement), found
        assert found.manufacturer is None


def test_names_are_the_same_but_for_order_case_and_blanks() -> None:
    assert same_name((("2.5.4.3", "TPM  Root"), ("2.5.4.6", "DE")), (("2.5.4.6", "de"), ("2.5.4.3", "TPM root ")))
    assert not same_name((("2.5.4.3", "TPM Root"),), (("2.5.4.10", "TPM Root"),))


def test_a_key_that_is_named_for_oaep_only_is_read_like_any_other() -> None:
    root_key = rsa_key(200)
    signed = x509.load_der_x509_certificate(ROOT.endorse(TPM.ek)).tbs_certificate_bytes
    plain, oaep = bytes.fromhex("2a864886f70d010101"), bytes.fromhex("2a864886f70d010107")
    assert signed.count(plain) == 1
    found = check(resigned(signed.replace(plain, oaep), SHA256_WITH_RSA, root_key))
    assert isinstance(found, Endorsement), found


def test_a_signature_with_sha1_is_not_trusted() -> None:
    sha1_with_rsa = bytes.fromhex("300d06092a864886f70d0101050500")
    signed = x509.load_der_x509_certificate(ROOT.endorse(TPM.ek)).tbs_certificate_bytes
    weak = signed.replace(SHA256_WITH_RSA, sha1_with_rsa)
    signature = rsa_key(200).sign(weak, padding.PKCS1v15(), hashes.SHA1())
    blob = tlv(0x30, weak + sha1_with_rsa + tlv(0x03, b"\0" + signature))
    assert "is of a kind that is not trusted (1.2.840.113549.1.1.5)" in str(check(blob))


def test_two_signature_algorithms_in_one_certificate_are_refused() -> None:
    signed = x509.load_der_x509_certificate(ROOT.endorse(TPM.ek)).tbs_certificate_bytes
    other = bytes.fromhex("300d06092a864886f70d01010c0500")
    found, faults = read_certificates(resigned(signed, other, rsa_key(200)))
    assert found == ()
    assert "two signature algorithms" in faults[0].why


def test_a_pss_signature_is_checked_by_the_hash_that_it_names() -> None:
    root_key = rsa_key(200)
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(named("Root"))
    builder = builder.public_key(TPM.ek.public_key()).serial_number(1).not_valid_before(NOW).not_valid_after(NOW)
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), hashes.SHA384().digest_size)
    blob = builder.sign(root_key, hashes.SHA384(), rsa_padding=scheme).public_bytes(Encoding.DER)
    assert isinstance(check(blob), Endorsement)
    changed = blob[:-1] + bytes([blob[-1] ^ 1])
    assert check(changed) == "its signature is not that of CN=Root, C=DE"


def test_many_issuers_that_vouch_for_each_other_are_soon_done_with() -> None:
    key = rsa_key(209)
    ring = [Authority(f"Ring {number}", key, above=Authority(f"Ring {(number + 1) % 12}", key)) for number in range(12)]
    assert isinstance(check(ring[0].endorse(TPM.ek), *ring), str)


def test_an_ecc_signature_is_not_taken_for_an_rsa_issuers() -> None:
    forged = Authority("Root", ecc_key(210))
    assert isinstance(forged.key, ec.EllipticCurvePrivateKey)
    assert check(forged.endorse(TPM.ek)) == "its signature is not that of CN=Root, C=DE"


@pytest.mark.parametrize(
    ("tag", "text", "year"),
    [(0x17, "491231235959Z", 2049), (0x17, "500101000000Z", 1950), (0x18, "20500101000000Z", 2050)],
)
def test_a_year_of_two_digits_is_one_from_1950_to_2049(tag: int, text: str, year: int) -> None:
    assert der.moment(der.first(tlv(tag, text.encode()), "date"), "date").year == year


@pytest.mark.parametrize(("tag", "text"), [(0x17, ""), (0x18, "20261399000000Z"), (0x18, "now"), (0x0C, "")])
def test_a_date_that_is_none_is_malformed(tag: int, text: str) -> None:
    with pytest.raises(Malformed, match="a date that is none"):
        der.moment(der.first(tlv(tag, text.encode()), "date"), "date")

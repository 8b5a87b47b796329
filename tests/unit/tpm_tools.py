"""A TPM in memory, and manufacturers that endorse it: every blob of the tests is made here, field by field."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from hashlib import sha256
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fleet.tpm_attest import ClockInfo, PcrSelection
from fleet.tpm_public import PublicKey

Key: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CLOCK = ClockInfo(5_000_000, 7, 1, safe=True)
FIRMWARE = 0x0007_0002_0003_0001
NONCE = bytes(range(32))
SELECTION = (PcrSelection("sha256", (0, 2, 7)),)
PCRS = {"sha256": {index: sha256(f"pcr {index}".encode()).digest() for index in (0, 2, 7)}}

BANKS = {"sha1": 0x0004, "sha256": 0x000B, "sha384": 0x000C}
RSASSA, RSAPSS, ECDSA, AES, CFB_MODE, NULL = 0x0014, 0x0016, 0x0018, 0x0006, 0x0043, 0x0010
EK_ATTRIBUTES = 0x000300B2  # fixedTPM fixedParent sensitiveDataOrigin adminWithPolicy restricted decrypt
AK_ATTRIBUTES = 0x00050072  # fixedTPM fixedParent sensitiveDataOrigin userWithAuth restricted sign
_CURVES = {"secp256r1": 0x0003, "secp384r1": 0x0004, "secp521r1": 0x0005}
_HASHES: dict[int, hashes.HashAlgorithm] = {0x000B: hashes.SHA256(), 0x000C: hashes.SHA384()}


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    """One of a few keys; the same number is the same key."""
    return rsa.generate_private_key(65537, 2048)


@cache
def ecc_key(number: int, curve: str = "secp256r1") -> ec.EllipticCurvePrivateKey:
    curves = {"secp256r1": ec.SECP256R1(), "secp384r1": ec.SECP384R1(), "secp521r1": ec.SECP521R1()}
    return ec.generate_private_key(curves[curve])


def u(size: int, number: int) -> bytes:
    return number.to_bytes(size, "big")


def tpm2b(data: bytes) -> bytes:
    return u(2, len(data)) + data


def public_area(
    key: Key,
    attributes: int,
    scheme: tuple[int, int] | None = None,
    aes_bits: int | None = None,
    name_number: int = 0x000B,
    declared_bits: int | None = None,
) -> bytes:
    """TPMT_PUBLIC."""
    symmetric = u(2, NULL) if aes_bits is None else u(2, AES) + u(2, aes_bits) + u(2, CFB_MODE)
    signs = u(2, NULL) if scheme is None else u(2, scheme[0]) + u(2, scheme[1])
    common = u(2, name_number) + u(4, attributes) + tpm2b(bytes(32)) + symmetric + signs
    if isinstance(key, rsa.RSAPrivateKey):
        modulus = key.public_key().public_numbers().n
        body = u(2, declared_bits or key.key_size) + u(4, 0) + tpm2b(u((key.key_size + 7) // 8, modulus))
        return u(2, 0x0001) + common + body
    numbers = key.public_key().public_numbers()
    width = (key.curve.key_size + 7) // 8
    point = tpm2b(u(width, numbers.x)) + tpm2b(u(width, numbers.y))
    return u(2, 0x0023) + common + u(2, _CURVES[key.curve.name]) + u(2, NULL) + point


def selection_bytes(selections: tuple[PcrSelection, ...]) -> bytes:
    """TPML_PCR_SELECTION."""
    made = u(4, len(selections))
    for one in selections:
        made += u(2, BANKS[one.bank]) + b"\x03" + sum(1 << index for index in one.indices).to_bytes(3, "little")
    return made


def pcr_text(values: Mapping[str, Mapping[int, bytes]]) -> str:
    """As tpm2_pcrread 5.x prints them."""
    lines = []
    for bank, pcrs in values.items():
        lines += [f"  {bank}:", *(f"    {index:<2}: 0x{value.hex().upper()}" for index, value in pcrs.items())]
    return "\n".join(lines) + "\n"


@dataclass
class SoftTpm:
    """Keys, PCRs and a clock; `quote` and `activate` do what a TPM does."""

    number: int = 0
    ecc: bool = False
    scheme: int = RSASSA
    curve: str = "secp256r1"
    name_number: int = 0x000B
    aes_bits: int = 128
    pcrs: dict[str, dict[int, bytes]] = field(default_factory=lambda: {bank: dict(v) for bank, v in PCRS.items()})
    clock: ClockInfo = CLOCK
    firmware: int = FIRMWARE

    @property
    def ek(self) -> Key:
        return ecc_key(2 * self.number, self.curve) if self.ecc else rsa_key(2 * self.number)

    @property
    def ak(self) -> Key:
        return ecc_key(2 * self.number + 1, self.curve) if self.ecc else rsa_key(2 * self.number + 1)

    @property
    def ek_area(self) -> bytes:
        return public_area(self.ek, EK_ATTRIBUTES, aes_bits=self.aes_bits, name_number=self.name_number)

    @property
    def ak_area(self) -> bytes:
        return public_area(self.ak, AK_ATTRIBUTES, (self.scheme, 0x000B))

    @property
    def ek_name(self) -> bytes:
        return u(2, self.name_number) + self._hash(self.name_number, self.ek_area)

    @property
    def ak_name(self) -> bytes:
        return u(2, 0x000B) + sha256(self.ak_area).digest()

    @property
    def signer(self) -> bytes:
        """The attestation key's qualified name: under the endorsement key, in its hierarchy."""
        parent = u(2, self.name_number) + self._hash(self.name_number, u(4, 0x4000000B) + self.ek_name)
        return u(2, 0x000B) + sha256(parent + self.ak_name).digest()

    def attest(
        self,
        nonce: bytes = NONCE,
        selections: tuple[PcrSelection, ...] = SELECTION,
        magic: int = 0xFF544347,
        kind: int = 0x8018,
        signer: bytes | None = None,
    ) -> bytes:
        """TPMS_ATTEST."""
        values = b"".join(self.pcrs[one.bank][index] for one in selections for index in one.indices)
        clock = u(8, self.clock.clock_ms) + u(4, self.clock.resets) + u(4, self.clock.restarts) + u(1, self.clock.safe)
        head = u(4, magic) + u(2, kind) + tpm2b(self.signer if signer is None else signer) + tpm2b(nonce)
        return head + clock + u(8, self.firmware) + selection_bytes(selections) + tpm2b(sha256(values).digest())

    def sign(self, message: bytes) -> bytes:
        """TPMT_SIGNATURE."""
        head = u(2, self.scheme) + u(2, 0x000B)
        if isinstance(self.ak, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self.ak.sign(message, ec.ECDSA(hashes.SHA256())))
            width = (self.ak.curve.key_size + 7) // 8
            return head + tpm2b(u(width, r)) + tpm2b(u(width, s))
        scheme: padding.AsymmetricPadding = padding.PKCS1v15()
        if self.scheme == RSAPSS:
            scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
        return head + tpm2b(self.ak.sign(message, scheme, hashes.SHA256()))

    def activate(self, blob: bytes, encrypted_seed: bytes, name: bytes | None = None) -> bytes | None:
        """What TPM2_ActivateCredential gives for the loaded attestation key; None where the TPM refuses."""
        chosen = _HASHES[self.name_number]
        seed = self._seed(encrypted_seed[2:], chosen)
        if seed is None:
            return None
        name = self.ak_name if name is None else name
        mac_size = int.from_bytes(blob[2:4], "big")
        mac, identity = blob[4 : 4 + mac_size], blob[4 + mac_size :]
        mac_key = _kdf(chosen, seed, b"INTEGRITY", b"", chosen.digest_size)
        if not hmac.compare_digest(mac, hmac.digest(mac_key, identity + name, chosen.name)):
            return None
        key = _kdf(chosen, seed, b"STORAGE", name, self.aes_bits // 8)
        plain = Cipher(algorithms.AES(key), CFB(bytes(16))).decryptor().update(identity)
        return plain[2 : 2 + int.from_bytes(plain[:2], "big")]

    def _seed(self, encrypted: bytes, chosen: hashes.HashAlgorithm) -> bytes | None:
        if isinstance(self.ek, rsa.RSAPrivateKey):
            try:
                return self.ek.decrypt(encrypted, padding.OAEP(padding.MGF1(chosen), chosen, b"IDENTITY\x00"))
            except ValueError:
                return None
        width = (self.ek.curve.key_size + 7) // 8
        x, y = encrypted[2 : 2 + width], encrypted[4 + width : 4 + 2 * width]
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(self.ek.curve, b"\x04" + x + y)
        mine = u(width, self.ek.public_key().public_numbers().x)
        info = b"IDENTITY\x00" + x + mine
        return ConcatKDFHash(chosen, chosen.digest_size, info).derive(self.ek.exchange(ec.ECDH(), theirs))

    @staticmethod
    def _hash(number: int, data: bytes) -> bytes:
        made = hashes.Hash(_HASHES[number])
        made.update(data)
        return made.finalize()


def _kdf(chosen: hashes.HashAlgorithm, key: bytes, label: bytes, context: bytes, size: int) -> bytes:
    kdf = KBKDFHMAC(chosen, Mode.CounterMode, size, 4, 4, CounterLocation.BeforeFixed, label, context, None)
    return kdf.derive(key)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.COUNTRY_NAME, "DE")])


@dataclass
class Authority:
    """A manufacturer's issuer: a root, or one below `above`."""

    name: str
    key: Key
    above: Authority | None = None
    ends: datetime = NOW + timedelta(days=3650)
    issuer: bool = True
    path_length: int | None = None

    @cached_property
    def certificate(self) -> bytes:
        """In DER."""
        above = self.above or self
        builder = _builder(named(self.name), named(above.name), self.key, self.ends)
        constraints = x509.BasicConstraints(self.issuer, self.path_length if self.issuer else None)
        return _signed(builder.add_extension(constraints, critical=True), above.key)

    def endorse(
        self,
        key: Key | PublicKey,
        use: str | None = "2.23.133.8.1",
        ends: datetime = NOW + timedelta(days=3650),
        critical: str | None = None,
        maker: str = "id:4E544300",
    ) -> bytes:
        """An endorsement certificate in DER: an empty subject, the maker in the alternative name."""
        parts = {"2.23.133.2.1": maker, "2.23.133.2.2": "NPCT75x", "2.23.133.2.3": "id:00070002"}
        name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier(oid), text) for oid, text in parts.items()])
        builder = _builder(x509.Name([]), named(self.name), key, ends)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DirectoryName(name)]), critical=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if use is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ObjectIdentifier(use)]), critical=False)
        if critical is not None:
            unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier(critical), b"\x05\x00")
            builder = builder.add_extension(unknown, critical=True)
        return _signed(builder, self.key)


def pem(certificate: bytes) -> bytes:
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)


def _builder(subject: x509.Name, issuer: x509.Name, key: Key | PublicKey, ends: datetime) -> x509.CertificateBuilder:
    begins = datetime(2020, 1, 1, tzinfo=UTC)
    public = key.public_key() if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) else key
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begins).not_valid_after(ends)


def _signed(builder: x509.CertificateBuilder, key: Key) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)

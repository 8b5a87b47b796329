"""TPM2_MakeCredential: a secret that only one TPM can open, and only while it holds one key.

Sources: TPM 2.0 Library, Part 1, "Credential Protection" and annexes B.10.3 (RSA), C.6.3 (ECC); Part 1, 11.4.10
(KDFa, KDFe). A TPM opens it with TPM2_ActivateCredential where the endorsement key is its own and a key of exactly
that name is loaded beside it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fleet import tpm_algorithms as alg
from fleet.tpm_bytes import sized
from fleet.tpm_public import TpmPublic, endorsement_faults

_IDENTITY, _STORAGE, _INTEGRITY = b"IDENTITY\x00", b"STORAGE\x00", b"INTEGRITY\x00"
_FILE_HEAD = bytes.fromhex("badcc0de00000001")  # tpm2-tools: magic and version
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Credential:
    """`blob` is a TPM2B_ID_OBJECT and `encrypted_seed` a TPM2B_ENCRYPTED_SECRET, both with their sizes."""

    blob: bytes
    encrypted_seed: bytes

    @property
    def file(self) -> bytes:
        """As `tpm2_activatecredential -i` reads it."""
        return _FILE_HEAD + self.blob + self.encrypted_seed


def make_credential(endorsement: TpmPublic, name: bytes, secret: bytes, random: Callable[[int], bytes]) -> Credential:
    """`secret` for the TPM that has `endorsement`, bound to the key of that `name`.

    `random` gives that many unpredictable bytes; the cryptography package draws its own for OAEP and for the ECC
    key that is used once. Raises ValueError where `endorsement` is no key to send a credential to (its
    `endorsement_faults`), or where the secret is empty or longer than a digest of its name's hash.
    """
    faults = endorsement_faults(endorsement)
    size = alg.DIGEST_BYTES[endorsement.name_hash]
    if faults or endorsement.aes_bits is None:
        raise ValueError(f"no credential can be sent to this key: it {', '.join(faults)}")
    if not 0 < len(secret) <= size:
        raise ValueError(f"a secret of {len(secret)} bytes; 1 to {size} can be sent to this key")
    if isinstance(endorsement.key, rsa.RSAPublicKey):
        seed = random(size)
        encrypted = _to_rsa(endorsement.key, endorsement.name_hash, seed)
    else:
        seed, encrypted = _to_ecc(endorsement.key, endorsement.name_hash)
    cipher_key = kdfa(endorsement.name_hash, seed, _STORAGE, name, endorsement.aes_bits)
    identity = _aes_cfb(cipher_key, sized(secret))
    mac_key = kdfa(endorsement.name_hash, seed, _INTEGRITY, b"", 8 * size)
    mac = hmac.digest(mac_key, identity + name, endorsement.name_hash)
    return Credential(sized(sized(mac) + identity), sized(encrypted))


def kdfa(hash_name: str, key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """KDFa of `bits` bits, a multiple of 8; `label` ends with its zero byte."""
    made = b""
    counter = 1
    while len(made) < bits // 8:
        data = counter.to_bytes(4, "big") + label + context + bits.to_bytes(4, "big")
        made += hmac.digest(key, data, hash_name)
        counter += 1
    return made[: bits // 8]


def _to_rsa(key: rsa.RSAPublicKey, hash_name: str, seed: bytes) -> bytes:
    chosen = alg.trusted_hash(hash_name)
    if chosen is None:
        raise ValueError(f"{hash_name} is no hash that is trusted")
    return key.encrypt(seed, padding.OAEP(padding.MGF1(chosen), chosen, _IDENTITY))


def _to_ecc(key: ec.EllipticCurvePublicKey, hash_name: str) -> tuple[bytes, bytes]:
    """The seed, and the point from which only the TPM makes the same seed (KDFe over one-pass ECDH)."""
    once = ec.generate_private_key(key.curve)
    width = (key.curve.key_size + 7) // 8
    numbers, theirs = once.public_key().public_numbers(), key.public_numbers()
    x, y, their_x = (number.to_bytes(width, "big") for number in (numbers.x, numbers.y, theirs.x))
    shared = once.exchange(ec.ECDH(), key)
    seed = alg.digest(hash_name, (1).to_bytes(4, "big") + shared + _IDENTITY + x + their_x)
    return seed, sized(x) + sized(y)


def _aes_cfb(key: bytes, data: bytes) -> bytes:
    """AES in mode CFB with a zero IV: every block is masked by the enciphered block before it.

    Counter mode over a single block does just that, and has stayed in one place in the cryptography package.
    """
    last, made = bytes(_BLOCK), b""
    for at in range(0, len(data), _BLOCK):
        block = Cipher(algorithms.AES(key), modes.CTR(last)).encryptor().update(data[at : at + _BLOCK])
        made, last = made + block, block
    return made

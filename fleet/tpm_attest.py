"""What a TPM attests in a quote (TPM 2.0 Library, Part 2, TPMS_ATTEST with TPMS_QUOTE_INFO)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fleet.tpm_algorithms import hash_name
from fleet.tpm_bytes import Cursor, Malformed, Unreadable

GENERATED = 0xFF544347  # TPM_GENERATED_VALUE: a restricted key signs nothing from outside that begins so
QUOTE = 0x8018  # TPM_ST_ATTEST_QUOTE

_WHAT = "quote"
_MOST_NAME, _MOST_EXTRA, _MOST_DIGEST, _MOST_BANKS = 66, 66, 64, 16


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """A TPM's clock. It counts milliseconds of power, from the last TPM2_Clear on; no wall clock.

    `resets` counts boots and `restarts` resumes since the last boot; TPM2_Clear sets all three to zero. `safe` is
    False after a power cut until the clock has passed what it may have shown before.
    """

    clock_ms: int
    resets: int
    restarts: int
    safe: bool

    def __str__(self) -> str:
        unsafe = "" if self.safe else ", not safe"
        return f"{self.resets} resets, {self.restarts} restarts, clock {self.clock_ms} ms{unsafe}"


@dataclass(frozen=True, slots=True)
class PcrSelection:
    """PCRs of one bank, in ascending order; `bank` is "sha256", or "0x0099" where the number is not known."""

    bank: str
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attest:
    """`signed` are the bytes that the signature is over. Nothing of it is proven before the signature is.

    `signer` is the qualified name of the key that signed, `nonce` what the verifier gave (extraData). In a statement
    that is no quote `selections` and `pcr_digest` are empty.
    """

    signed: bytes
    magic: int
    kind: int
    signer: bytes
    nonce: bytes
    clock: ClockInfo
    firmware: int
    selections: tuple[PcrSelection, ...]
    pcr_digest: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of the signed bytes in hexadecimal: the quote's own name."""
        return hashlib.sha256(self.signed).hexdigest()

    @property
    def pcrs(self) -> frozenset[tuple[str, int]]:
        """Every quoted PCR as bank and index."""
        return frozenset((one.bank, index) for one in self.selections for index in one.indices)


def parse_attest(blob: bytes) -> Attest | Unreadable:
    """TPMS_ATTEST, as `tpm2_quote -m` writes it, or TPM2B_ATTEST."""
    try:
        return _parse(blob)
    except Malformed as fault:
        return fault.unreadable


def _parse(blob: bytes) -> Attest:
    signed = _unwrapped(blob)
    cursor = Cursor(signed, _WHAT)
    magic = cursor.number(4, "magic")
    kind = cursor.number(2, "type")
    signer = cursor.sized("signer", _MOST_NAME)
    nonce = cursor.sized("nonce", _MOST_EXTRA)
    clock = _clock(cursor)
    firmware = cursor.number(8, "firmware version")
    if kind != QUOTE:
        cursor.rest()
        return Attest(signed, magic, kind, signer, nonce, clock, firmware, (), b"")
    selections = _selections(cursor)
    digest = cursor.sized("PCR digest", _MOST_DIGEST)
    cursor.end()
    return Attest(signed, magic, kind, signer, nonce, clock, firmware, selections, digest)


def _unwrapped(blob: bytes) -> bytes:
    if blob[2:6] != GENERATED.to_bytes(4, "big"):
        return blob
    size = int.from_bytes(blob[:2], "big")
    if size != len(blob) - 2:
        raise Malformed(Unreadable(_WHAT, f"it says that {size} bytes follow, and {len(blob) - 2} do"))
    return blob[2:]


def _clock(cursor: Cursor) -> ClockInfo:
    clock = cursor.number(8, "clock")
    resets = cursor.number(4, "reset count")
    restarts = cursor.number(4, "restart count")
    safe = cursor.number(1, "clock's safe flag")
    if safe > 1:
        raise cursor.fault(f"its clock's safe flag is {safe}, neither yes nor no")
    return ClockInfo(clock, resets, restarts, bool(safe))


def _selections(cursor: Cursor) -> tuple[PcrSelection, ...]:
    count = cursor.number(4, "number of banks")
    if count > _MOST_BANKS:
        raise cursor.fault(f"it would have {count} PCR banks; {_MOST_BANKS} is the most")
    found = []
    for _ in range(count):
        bank = hash_name(cursor.number(2, "bank"))
        bits = cursor.take(cursor.number(1, "selection's size"), "selection")
        indices = tuple(8 * place + bit for place, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1)
        found.append(PcrSelection(bank, indices))
    return tuple(found)

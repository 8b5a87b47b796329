"""PCR values as tpm2-tools print them, and the digest that a quote has of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from fleet.tpm_algorithms import DIGEST_BYTES, digest
from fleet.tpm_attest import PcrSelection

PcrValues: TypeAlias = Mapping[str, Mapping[int, bytes]]
"""Values by bank ("sha256") and index; what could not be read is not in it."""

_BANK = re.compile(r"\s*([a-z0-9_]+)\s*:\s*", re.ASCII)
_VALUE = re.compile(r"\s*([0-9]{1,2})\s*:\s*(?:0[xX])?([0-9A-Fa-f]*)\s*", re.ASCII)


def read_pcrs(text: str) -> dict[str, dict[int, bytes]]:
    """The values in the text of `tpm2_pcrread`, `tpm2_pcrlist` (3.x) or `tpm2_quote`.

    A value of another length than its bank's, and one that is given twice and not alike, counts as not read.
    """
    found: dict[str, dict[int, set[str]]] = {}
    bank: str | None = None
    for line in text.splitlines():
        value = _VALUE.fullmatch(line)
        if value is not None and bank is not None:
            found.setdefault(bank, {}).setdefault(int(value[1]), set()).add(value[2].lower())
        elif line.strip():
            heading = _BANK.fullmatch(line)
            bank = heading[1] if heading is not None and heading[1] in DIGEST_BYTES else None
    return {bank: _certain(values, DIGEST_BYTES[bank]) for bank, values in found.items()}


def _certain(values: Mapping[int, set[str]], size: int) -> dict[int, bytes]:
    one = {index: next(iter(digits)) for index, digits in values.items() if len(digits) == 1}
    return {index: bytes.fromhex(digits) for index, digits in one.items() if len(digits) == 2 * size}


def missing_pcrs(selections: Iterable[PcrSelection], values: PcrValues) -> tuple[str, ...]:
    """The selected PCRs that `values` do not have, as "sha256:7"."""
    return tuple(
        f"{one.bank}:{index}" for one in selections for index in one.indices if index not in values.get(one.bank, {})
    )


def composite(selections: Iterable[PcrSelection], values: PcrValues, hash_name: str) -> bytes:
    """The digest that a quote of `selections` has: the values one after the other, in the order of the selection.

    `hash_name` is that of the signature. Raises KeyError for a value that is missing, ValueError for a hash that is
    not trusted.
    """
    return digest(hash_name, b"".join(values[one.bank][index] for one in selections for index in one.indices))

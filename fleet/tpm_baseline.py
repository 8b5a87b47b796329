"""What a model's PCRs must hold, and what those of one node hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.tpm_attest import PcrSelection
from fleet.tpm_pcrs import PcrValues


class PcrState(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"  # not quoted, or without a baseline: neither right nor wrong
    IGNORED = "ignored"  # the baseline says why nobody compares it


@dataclass(frozen=True, slots=True)
class PcrBaseline:
    """`allowed` are the values that each PCR may have, by bank and index; one value is an exact baseline.

    `ignored` are PCRs that differ from node to node, with the reason. `firmware` are the TPM's firmware versions as
    16 hexadecimal digits, empty where any will do.
    """

    allowed: Mapping[tuple[str, int], frozenset[bytes]]
    ignored: Mapping[int, str] = field(default_factory=dict)
    firmware: frozenset[str] = frozenset()

    def selection(self) -> tuple[PcrSelection, ...]:
        """What to have quoted: every PCR that there is a value for."""
        banks = sorted({bank for bank, _ in self.allowed})
        return tuple(
            PcrSelection(bank, tuple(sorted(index for other, index in self.allowed if other == bank))) for bank in banks
        )


@dataclass(frozen=True, slots=True)
class PcrFinding:
    """One PCR. `seen` and `allowed` are hexadecimal; `seen` is None where no value was proven."""

    bank: str
    index: int
    state: PcrState
    seen: str | None
    allowed: tuple[str, ...]
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.bank}:{self.index}"


def compare_pcrs(
    baseline: PcrBaseline, quoted: frozenset[tuple[str, int]], values: PcrValues
) -> tuple[PcrFinding, ...]:
    """Every PCR that is in the baseline or in the quote. `values` are those that the quote's digest proves."""
    return tuple(_compare(baseline, pcr, pcr in quoted, values) for pcr in sorted(quoted | set(baseline.allowed)))


def selection_text(selections: tuple[PcrSelection, ...]) -> str:
    """As tpm2-tools take it: "sha256:0,2,7+sha384:0"."""
    return "+".join(f"{one.bank}:{','.join(map(str, one.indices))}" for one in selections)


def _compare(baseline: PcrBaseline, pcr: tuple[str, int], quoted: bool, values: PcrValues) -> PcrFinding:
    bank, index = pcr
    value = values.get(bank, {}).get(index) if quoted else None
    allowed = baseline.allowed.get(pcr, frozenset())
    state, why = PcrState.UNKNOWN, ""
    if not allowed and index in baseline.ignored:
        state, why = PcrState.IGNORED, baseline.ignored[index]
    elif not allowed:
        why = "the baseline has no value for it"
    elif not quoted:
        why = "it is not in the quote: the bank may be switched off"
    elif value is None:
        why = "its value was not read"
    else:
        state = PcrState.RIGHT if value in allowed else PcrState.WRONG
    shown = None if value is None else value.hex()
    return PcrFinding(bank, index, state, shown, tuple(sorted(one.hex() for one in allowed)), why)

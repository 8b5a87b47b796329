"""What NVIDIA's catalogues say of Xids, SXids and NVLink 5 faults, read from the data files beside it.

Each row of `fleet/catalog/xid.csv`, `sxid.csv` and `nvlink5.csv` carries its source. The catalogue's own words for
what to do stand in it unchanged (`immediate_action`, `resolution`); `severity` and `action` are ours.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from fleet.findings import Action, Severity


@dataclass(frozen=True, slots=True)
class XidRule:
    """One Xid of the catalogue; `immediate_action` is empty where none is published."""

    code: int
    mnemonic: str
    description: str
    immediate_action: str
    investigatory_action: str
    severity: Severity
    action: Action
    source: str


@dataclass(frozen=True, slots=True)
class SxidRule:
    """One SXid. `fatal` is "always", "possible", "never" or "" (not published)."""

    code: int
    name: str
    fatal: str
    severity: Severity
    action: Action
    source: str


@dataclass(frozen=True, slots=True)
class NvlinkRule:
    """One kind of NVLink 5 fault: the masks are 32 bits from the highest down, `-` matching both values."""

    code: int
    unit: str
    masks: tuple[str, str]
    error_status: int
    resolution: str
    investigatory: str
    severity: str
    owner: str
    source: str


@lru_cache(maxsize=1)
def xid_rules() -> Mapping[int, XidRule]:
    """Every Xid of the catalogue by its number."""
    return {
        int(row["xid"]): XidRule(
            int(row["xid"]),
            row["mnemonic"],
            row["description"],
            row["immediate_action"],
            row["investigatory_action"],
            Severity(row["severity"]),
            Action(row["action"]),
            row["source"],
        )
        for row in _rows("xid.csv")
    }


@lru_cache(maxsize=1)
def sxid_rules() -> Mapping[int, SxidRule]:
    """Every SXid of the catalogue by its number."""
    return {
        int(row["sxid"]): SxidRule(
            int(row["sxid"]),
            row["name"],
            row["fatal"],
            Severity(row["severity"]),
            Action(row["action"]),
            row["source"],
        )
        for row in _rows("sxid.csv")
    }


@lru_cache(maxsize=1)
def nvlink_rules() -> tuple[NvlinkRule, ...]:
    """Every published kind of NVLink 5 fault (Xid 144 to 150)."""
    return tuple(
        NvlinkRule(
            int(row["xid"]),
            row["unit"],
            (row["intr_info_v1"], row["intr_info_v2"]),
            int(row["error_status"], 16),
            row["resolution"],
            row["investigatory"],
            row["severity"],
            row["owner"],
            row["source"],
        )
        for row in _rows("nvlink5.csv")
    )


def xid_rule(code: int) -> XidRule | None:
    """The catalogue's row of an Xid; None for a number that it does not have."""
    return xid_rules().get(code)


def sxid_rule(code: int) -> SxidRule | None:
    """The catalogue's row of an SXid; None for a number that it does not have."""
    return sxid_rules().get(code)


def nvlink_rule(code: int, unit: str, intr_info: int, error_status: int) -> NvlinkRule | None:
    """The rule for an NVLink 5 fault by its first two registers; None where none is published.

    The interrupt register has two layouts. A rule of the very error status goes first, then one whose bit is
    among several that are set (the gravest of them). The unit that the line names narrows the choice if it can.
    """
    rules = [r for r in nvlink_rules() if r.code == code and any(_fits(mask, intr_info) for mask in r.masks)]
    named = [r for r in rules if unit and (unit == r.unit or unit in r.unit.split("/"))] or rules
    exact = [r for r in named if r.error_status == error_status]
    bits = [r for r in named if r.error_status and r.error_status & error_status == r.error_status]
    found = exact or bits
    return max(found, key=lambda r: (r.resolution == "RESET_GPU", r.resolution != "IGNORE"), default=None)


def _fits(mask: str, value: int) -> bool:
    bits = f"{value & 0xFFFFFFFF:032b}"
    return len(mask) == len(bits) and all(want in ("-", got) for want, got in zip(mask, bits, strict=True))


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = files("fleet.catalog").joinpath(name).read_text(encoding="utf-8")
    return iter(csv.DictReader(text.splitlines()))

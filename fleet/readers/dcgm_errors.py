"""DCGM's error codes (DCGM_FR_…): what each weighs, what it is about, and what to do.

Source of the facts: NVIDIA/DCGM v4.6.0 dcgm_errors.{h,c} and NVSentinel's mapping, in fleet/catalog/dcgm_errors.csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from fleet.findings import Action, Finding, Severity
from fleet.readers.plain_text import evidence, whole


class Weight(StrEnum):
    """DCGM's own severity of an error."""

    NONE = "NONE"
    MONITOR = "MONITOR"
    ISOLATE = "ISOLATE"
    UNKNOWN = "UNKNOWN"
    TRIAGE = "TRIAGE"
    CONFIG = "CONFIG"
    RESET = "RESET"


_WEIGHTS = tuple(Weight)  # DCGM numbers them 0 to 6 in this order


@dataclass(frozen=True, slots=True)
class DcgmError:
    """One code. `advice` is NVSentinel's word for it, None where it has none."""

    id: int
    name: str
    weight: Weight
    category: str
    advice: str | None


@cache
def errors() -> Mapping[int, DcgmError]:
    """All known codes by number."""
    rows = csv.DictReader((files("fleet.catalog") / "dcgm_errors.csv").read_text("utf-8").splitlines())
    known = (
        DcgmError(
            id=int(row["error_id"]),
            name=row["name"],
            weight=Weight(row["severity"]),
            category=row["category"],
            advice=row["nvsentinel_action"] or None,
        )
        for row in rows
    )
    return {error.id: error for error in known}


@cache
def error_named(name: str) -> DcgmError | None:
    """The code of that name, None for one that is not known."""
    return next((error for error in errors().values() if error.name == name), None)


def weight_of(word: str | None) -> Weight | None:
    """DCGM's severity by its number or name in a document; None for what has no meaning."""
    at = whole(word)
    if at is not None:
        return _WEIGHTS[at] if 0 <= at < len(_WEIGHTS) else None
    return Weight.__members__.get((word or "").strip().upper())


# What a message is about, by the words that DCGM of all versions uses in it. The first that fits counts.
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"fallen off the bus", "DCGM_FR_FALLEN_OFF_BUS"),
    (r"\bIMEX\b", "DCGM_FR_IMEX_UNHEALTHY"),
    (r"persistence mode", "DCGM_FR_PERSISTENCE_MODE"),
    (r"(?:could ?n[o']t|could not|cannot|unable to|failed to) allocate\b", "DCGM_FR_MEMORY_ALLOC"),
    (r"clocks? (?:event|throttl)\w*.{0,40}thermal|thermal slowdown", "DCGM_FR_CLOCKS_EVENT_THERMAL"),
    (r"thermal violation", "DCGM_FR_THERMAL_VIOLATIONS"),
    (r"temperature .{0,80}(?:exceed|above|too high)", "DCGM_FR_TEMP_VIOLATION"),
    (r"pending row remap|row remap\w* (?:is )?pending", "DCGM_FR_PENDING_ROW_REMAP"),
    (r"row remap\w*.{0,40}fail|failed .{0,30}row remap", "DCGM_FR_ROW_REMAP_FAILURE"),
    (r"uncorrectable .{0,20}remap", "DCGM_FR_UNCORRECTABLE_ROW_REMAP"),
    (r"uncontained", "DCGM_FR_UNCONTAINED_ERROR"),
    (r"uncorrectable ecc|double[- ]bit|\bDBEs?\b", "DCGM_FR_VOLATILE_DBE_DETECTED"),
    (r"pending (?:page )?retire|retire\w* pages? .{0,20}pending", "DCGM_FR_PENDING_PAGE_RETIREMENTS"),
    (r"single[- ]bit|\bSBEs?\b", "DCGM_FR_VOLATILE_SBE_DETECTED"),
    (r"pcie? replay", "DCGM_FR_PCI_REPLAY_RATE"),
    (r"nv ?link .{0,30}\bdown\b", "DCGM_FR_NVLINK_DOWN"),
    (r"nv ?link.{0,60}\berrors?\b", "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
    (r"fabric ?manager", "DCGM_FR_CUDA_FM_NOT_INITIALIZED"),
    (r"corrupt\w* inforom|inforom .{0,30}corrupt", "DCGM_FR_CORRUPT_INFOROM"),
    (r"graphics process", "DCGM_FR_GRAPHICS_PROCESSES"),
    (r"bandwidth .{0,80}(?:below|less than|too low|minimum|did not)", "DCGM_FR_LOW_BANDWIDTH"),
    (r"\bSXid\b", "DCGM_FR_SXID_ERROR"),
    (r"\bXid\b", "DCGM_FR_XID_ERROR"),
)


def error_in_text(text: str) -> DcgmError | None:
    """The error that a message names or plainly describes; None where its words fit none."""
    named = re.search(r"DCGM_FR_[A-Z0-9_]+", text)
    if named:
        return error_named(named[0])
    cause = next((name for words, name in _CAUSES if re.search(words, text, re.IGNORECASE | re.DOTALL)), None)
    return error_named(cause) if cause else None


def identify(error_id: int | None, text: str) -> DcgmError | None:
    """The error of a document's number and message.

    The numbers have moved between versions: where number and message are about different things, the message is right.
    """
    by_id = errors().get(error_id) if error_id else None
    by_text = error_in_text(text)
    if by_id is None or by_text is None or by_id.category == by_text.category:
        return by_id or by_text
    return by_text


_BY_CATEGORY = {
    "HARDWARE_THERMAL": Action.CHECK_COOLING,
    "HARDWARE_POWER": Action.CHECK_POWER,
    "HARDWARE_NVLINK": Action.CHECK_LINK,
    "HARDWARE_PCIE": Action.CHECK_LINK,
}
_BY_ADVICE = {
    "COMPONENT_RESET": Action.RESET_GPU,
    "RESTART_VM": Action.REBOOT_NODE,
    "RESTART_BM": Action.REBOOT_NODE,
    "CONTACT_SUPPORT": Action.CONTACT_VENDOR,
}


def action_for(error: DcgmError | None, weight: Weight | None) -> Action:
    """The least that can help. An error of no known weight is taken for a hardware fault until a longer test ran."""
    category = error.category if error else ""
    if weight is Weight.CONFIG:
        return Action.FIX_CONFIGURATION
    if category in ("HARDWARE_THERMAL", "HARDWARE_POWER"):
        return _BY_CATEGORY[category]
    if weight is Weight.MONITOR:
        return Action.WATCH
    if weight is Weight.RESET:
        return Action.RESET_GPU
    if weight is Weight.ISOLATE and error is not None:
        return _BY_ADVICE.get(error.advice or "", Action.RUN_DIAGNOSTICS)
    if weight is Weight.TRIAGE and category.startswith(("SOFTWARE", "INTERNAL")):
        return Action.INVESTIGATE
    return _BY_CATEGORY.get(category, Action.RUN_DIAGNOSTICS)


def severity_for(error: DcgmError | None, weight: Weight | None, failed: bool) -> Severity:
    """`failed` says whether the test or watch that told of it failed; a configuration error never is more than a
    warning, and an error of no known weight is an error where something failed."""
    if error is not None and error.name == "DCGM_FR_FALLEN_OFF_BUS":
        return Severity.FATAL
    if weight is Weight.CONFIG:
        return Severity.WARNING
    if weight in (Weight.ISOLATE, Weight.RESET):
        return Severity.ERROR
    return Severity.ERROR if failed else Severity.WARNING


def finding(
    subject: str, message: str, *, error_id: int | None = None, weight: Weight | None = None, failed: bool = True
) -> Finding:
    """What a DCGM message says of a part. `weight` is the document's own, which goes before the catalogue's."""
    error = identify(error_id, message)
    stated = weight if weight not in (None, Weight.NONE, Weight.UNKNOWN) else None
    weighed = stated or (error.weight if error else None)
    code = f"dcgm.{error.name.removeprefix('DCGM_FR_').lower()}" if error else "dcgm.test_failed"
    return Finding(
        subject=subject,
        code=code if error or failed else "dcgm.warning",
        severity=severity_for(error, weighed, failed),
        action=action_for(error, weighed),
        evidence=evidence(message),
        text=_sentence(error, weighed),
    )


def _sentence(error: DcgmError | None, weight: Weight | None) -> str:
    if error is None:
        return "DCGM tells of an error without a known code or weight: taken for a hardware fault until it is known."
    about = error.category.lower().replace("_", " ")
    kind = "a setting, not a fault of the hardware" if weight is Weight.CONFIG else f"DCGM weighs it {weight}"
    return f"{error.name} ({about}): {kind}."

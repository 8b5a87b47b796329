"""From the words and numbers of NVML and nvidia-smi to the typed attributes of a `GpuReading`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fleet.gpu import GpuProcess, GpuReading, MigInstance, RecoveryAction, RetiredPage
from fleet.health_limits import read_clock_events
from fleet.readers.pci_address import pci_address

RawValue = str | int | float | bool | None

_SHOWN = 120
_NUMBER = re.compile(r"^([-+]?\d{1,20}(?:[.,]\d{1,9})?)\s*(\S.{0,15})?$")
_HEX = re.compile(r"^0x[0-9a-f]{1,16}$", re.IGNORECASE)

_UNKNOWN = frozenset(
    {
        "", "-", "n/a", "na", "none", "not available", "not applicable", "not supported", "not found", "unknown",
        "unspecified", "undefined", "requested functionality has been deprecated", "deprecated",
        "insufficient permissions", "no permission", "function not found", "field is not valid",
    }
)  # fmt: skip
_LOST = frozenset({"gpu is lost", "gpu lost", "lost"})
_NEEDS_RESET = frozenset({"gpu requires reset", "requires reset", "gpu reset required", "reset required"})
_ERRORS = frozenset({"err!", "err", "error", "unknown error", "timeout", "gpu not found", "???"})
_YES = frozenset({"valid", "yes", "true", "enabled", "on", "active", "1", "supported", "0x0000000000000001"})
_NO = frozenset({"invalid", "no", "false", "disabled", "off", "not active", "inactive", "0", "0x0000000000000000"})
_NONE_IS_A_VALUE = frozenset({"recovery_action", "addressing_mode", "virtualization_mode"})
_ERROR_IS_A_VALUE = frozenset({"fabric_status"})

_UNITS: Mapping[str, Mapping[str, float]] = {
    "_mib": {"": 1, "mib": 1, "mb": 1, "gib": 1024, "gb": 1024, "kib": 1 / 1024},
    "_watts": {"": 1, "w": 1, "mw": 0.001, "kw": 1000},
    "_mhz": {"": 1, "mhz": 1, "ghz": 1000},
    "_celsius": {"": 1, "c": 1, "°c": 1},
    "_percent": {"": 1, "%": 1},
    "_us": {"": 1, "us": 1, "ms": 1000, "s": 1_000_000},
    "_kb_s": {"": 1, "kb/s": 1, "mb/s": 1000, "gb/s": 1_000_000},
}
_COUNTS: Mapping[str, float] = {"": 1, "x": 1, "bank(s)": 1, "banks": 1, "fps": 1, "ms": 1}

_RECOVERY: Mapping[str, RecoveryAction] = {
    "none": RecoveryAction.NONE,
    "reset": RecoveryAction.GPU_RESET,
    "reboot": RecoveryAction.NODE_REBOOT,
    "drain reset": RecoveryAction.DRAIN_AND_RESET,
    **{action.value.replace("_", " "): action for action in RecoveryAction if action is not RecoveryAction.OTHER},
    **{str(number): action for number, action in enumerate(list(RecoveryAction)[:8])},
}

_TYPES: Mapping[str, str] = {
    f.name: str(f.type).split(" |")[0]
    for f in fields(GpuReading)
    if f.name not in ("mig_instances", "processes", "retired_pages", "unreadable", "unparsed")
}
ATTRIBUTES: frozenset[str] = frozenset(_TYPES)
"""The attributes that hold one value each."""

_EVENTS: Mapping[str, str] = {
    "gpu_idle": "event_gpu_idle",
    "applications_clocks_setting": "event_applications_clocks",
    "sw_power_cap": "event_sw_power_cap",
    "hw_slowdown": "event_hw_slowdown",
    "sync_boost": "event_sync_boost",
    "sw_thermal": "event_sw_thermal_slowdown",
    "hw_thermal": "event_hw_thermal_slowdown",
    "hw_power_brake": "event_hw_power_brake",
    "display_clock_setting": "event_display_clocks",
}


def recovery_action(text: str) -> RecoveryAction | None:
    """The action in any spelling ("Reset", "GPU Reset Required", "0x1", "Drain P2P"), or None for no action's name."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).replace(" required", "").replace(" and ", " ").strip()
    if _HEX.match(text.strip()):
        words = str(int(text.strip(), 16))
    return _RECOVERY.get(words) or _RECOVERY.get(words.replace("drain reset", "drain and reset"))


def clock_events(mask: int) -> dict[str, bool]:
    """The nine event attributes of NVML's clocks event reasons mask, by the names of `fleet.health_limits`."""
    reasons = read_clock_events(mask).reasons
    return {attribute: reason in reasons for reason, attribute in _EVENTS.items()}


def is_unknown(text: str) -> bool:
    """Whether a text stands for "no value": N/A, [Not Supported], None, an error."""
    word = plain(text)
    return word in _UNKNOWN or word in _LOST or word in _NEEDS_RESET or word in _ERRORS


def plain(text: str) -> str:
    """The text for comparing: no outer brackets, one blank between words, lower case."""
    return " ".join(text.strip().strip("[]<>").lower().rstrip(".").split())


def number(text: str) -> int | None:
    """The count that a text begins with ("16x", "593MiB", "0"), whatever its unit, or None."""
    match = _NUMBER.match(text.strip())
    return None if match is None else round(float(match[1].replace(",", ".")))


def _number(attribute: str, text: str) -> float | None:
    if _HEX.match(text):
        return int(text, 16)
    match = _NUMBER.match(text.removeprefix("x"))
    if match is None:
        return None
    unit = (match[2] or "").strip().lower()
    units = next((units for suffix, units in _UNITS.items() if attribute.endswith(suffix)), _COUNTS)
    return float(match[1].replace(",", ".")) * units[unit] if unit in units else None


def _typed(attribute: str, text: str) -> bool | int | float | str | RecoveryAction | None:
    """The value of the attribute's type; None for a text that has not its shape."""
    kind = _TYPES[attribute]
    if attribute == "pci_address":
        return pci_address(text)
    if kind == "RecoveryAction":
        return recovery_action(text) or RecoveryAction.OTHER
    if kind == "bool":
        word = plain(text)
        return True if word in _YES else False if word in _NO else None
    if kind in ("int", "float"):
        value = _number(attribute, text)
        return value if value is None or kind == "float" else round(value)
    return text.strip()


def read_gpu(
    values: Mapping[str, RawValue],
    *,
    mig_instances: tuple[MigInstance, ...] | None = None,
    processes: tuple[GpuProcess, ...] | None = None,
    retired_pages: tuple[RetiredPage, ...] | None = None,
) -> GpuReading:
    """A reading from attribute names (`ATTRIBUTES`) and values as printed, or as NVML gives them.

    Numbers must be in the attribute's unit; texts may carry their own ("12 GiB"). Names that are no attribute are
    passed over. Never raises: what has no known shape stands in `unparsed`.
    """
    known: dict[str, Any] = {}
    unreadable: list[str] = []
    unparsed: list[str] = []
    for attribute, raw in values.items():
        if attribute not in _TYPES or raw is None:
            continue
        text = str(raw)
        word = plain(text)
        if word in _LOST:
            known["lost"] = True
            unreadable.append(attribute)
        elif word in _NEEDS_RESET:
            known["reset_required"] = True
            unreadable.append(attribute)
        elif word in _ERRORS and attribute not in _ERROR_IS_A_VALUE:
            unreadable.append(attribute)
        elif word not in _UNKNOWN or (word == "none" and attribute in _NONE_IS_A_VALUE):
            value = _typed(attribute, text)
            if value is not None:
                known.setdefault(attribute, value)
            if value is None or value is RecoveryAction.OTHER:
                unparsed.append(f"{attribute}={text.strip()[:_SHOWN]}")
    _fill(known)
    return GpuReading(
        **known,
        mig_instances=mig_instances,
        processes=processes,
        retired_pages=retired_pages,
        unreadable=tuple(unreadable),
        unparsed=tuple(unparsed),
    )


def _fill(known: dict[str, Any]) -> None:
    """What follows from other values: the draw, and the sum of SRAM errors that newer drivers print in two parts."""
    for source in ("power_draw_average_watts", "power_draw_instant_watts"):
        if known.get("power_draw_watts") is None and known.get(source) is not None:
            known["power_draw_watts"] = known[source]
    for scope in ("volatile", "aggregate"):
        total = f"ecc_{scope}_sram_uncorrectable"
        parts = [known.get(f"{total}_parity"), known.get(f"{total}_secded")]
        if total not in known and None not in parts:
            known[total] = sum(parts)

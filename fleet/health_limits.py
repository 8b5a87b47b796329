"""The published limits of GPU health: remapped rows, retired pages, PCIe replays, clock events, recovery actions.

The figures and their sources stand in `fleet/catalog/health_limits.json`. What was not read is None, and a verdict
that would need it is UNKNOWN: never well, never zero.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

from fleet.findings import Action
from fleet.json_values import JsonObject


class RemapVerdict(StrEnum):
    """What the row remapper's state asks for (GPUs since Ampere)."""

    OK = "ok"
    RESET_TO_APPLY = "reset_to_apply"  # a row waits to be remapped
    FAILURE_FLAG = "failure_flag"  # the next remap cannot succeed: the failure flag is or will be set
    RMA_AFTER_FIELD_DIAG = "rma_after_field_diag"  # failed; returned once the vendor's diagnostic confirms it
    UNKNOWN = "unknown"


class RetirementVerdict(StrEnum):
    """What the count of retired pages says (GPUs before Ampere)."""

    OK = "ok"
    FAIL = "FAIL"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClockEvents:
    """What holds the clocks: `slowing` are the reasons that speak of a fault, `unknown_bits` those without a name.

    A mask below zero names nothing: it stands in `unknown_bits` as it is.
    """

    reasons: tuple[str, ...]
    slowing: tuple[str, ...]
    unknown_bits: int

    @property
    def verdict(self) -> str:
        """ "ok", or the slowing reasons joined by "+"; "unknown" if only bits without a name are set."""
        if self.slowing:
            return "+".join(self.slowing)
        return "unknown" if self.unknown_bits else "ok"


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """What the driver itself asks for (NVML's GPU recovery action, the values of Xid 154)."""

    value: int
    name: str
    action: Action


def row_remap_verdict(
    *,
    pending: bool | None = None,
    failure: bool | None = None,
    uncorrectable_remaps: int | None = None,
    new_uncorrectable: int = 0,
    remaps_in_bank: int | None = None,
) -> RemapVerdict:
    """The verdict on remapped rows; `new_uncorrectable` are errors since that still want a row."""
    limits = _limits("row_remap")
    if failure:
        return RemapVerdict.RMA_AFTER_FIELD_DIAG
    full_gpu = (uncorrectable_remaps or 0) >= _number(limits, "uncorrectable_remaps_before_failure")
    full_bank = (remaps_in_bank or 0) >= _number(limits, "remaps_per_bank_before_failure")
    if new_uncorrectable > 0 and (full_gpu or full_bank):
        return RemapVerdict.FAILURE_FLAG
    if pending or new_uncorrectable > 0:
        return RemapVerdict.RESET_TO_APPLY
    return RemapVerdict.UNKNOWN if failure is None or pending is None else RemapVerdict.OK


def page_retirement_verdict(
    *, total: int | None = None, double_bit: int | None = None, new_last_week: int | None = None
) -> RetirementVerdict:
    """DCGM's verdict on retired pages: `double_bit` are those of double-bit errors, `new_last_week` the new ones."""
    limits = _limits("page_retirement")
    if total is not None and total >= _number(limits, "fail_total_from"):
        return RetirementVerdict.FAIL
    many = double_bit is not None and double_bit > _number(limits, "fail_double_bit_above")
    if many and new_last_week is None:
        return RetirementVerdict.UNKNOWN
    if many and (new_last_week or 0) > _number(limits, "fail_double_bit_new_per_week_above"):
        return RetirementVerdict.FAIL
    return RetirementVerdict.UNKNOWN if total is None and double_bit is None else RetirementVerdict.OK


def pcie_replays_per_minute_limit(generation: int, lanes: int = 16) -> int | None:
    """The most replays a minute that a PCIe link may show; None for a generation that is not known.

    `generation` is that of the link as it runs (1 to 6) and `lanes` its present width.
    """
    per_lane = _limits("pcie_replay_per_minute").get("gigatransfers_per_second_per_lane")
    speed = per_lane.get(str(generation)) if isinstance(per_lane, dict) else None
    if not isinstance(speed, int | float) or lanes <= 0:
        return None
    return math.ceil(speed * 60 * lanes / 1000)


def read_clock_events(mask: int) -> ClockEvents:
    """The clock event reasons (once "throttle reasons") of NVML's bit mask."""
    bits = _limits("clock_event_bits").get("bits")
    known = bits if isinstance(bits, dict) else {}
    named = {int(bit, 16): (str(row[0]), bool(row[1])) for bit, row in known.items() if isinstance(row, list)}
    if mask < 0:
        return ClockEvents((), (), mask)
    reasons = [(name, slowing) for bit, (name, slowing) in named.items() if mask & bit]
    rest = mask & ~sum(named)
    return ClockEvents(tuple(n for n, _ in reasons), tuple(n for n, slowing in reasons if slowing), rest)


def recovery_action(value: int) -> RecoveryAction | None:
    """What NVML's recovery action `value` means; None for one that is not known."""
    actions = _limits("gpu_recovery_action").get("actions")
    row = actions.get(str(value)) if isinstance(actions, dict) else None
    return RecoveryAction(value, str(row[0]), Action(str(row[1]))) if isinstance(row, list) else None


def sram_threshold_exceeded(*, parity: int | None = None, secded: int | None = None) -> bool | None:
    """Whether one address bank has too many unique uncorrectable SRAM errors; None if neither count is known."""
    limits = _limits("sram")
    if parity is None and secded is None:
        return None
    over_parity = (parity or 0) > _number(limits, "parity_unique_uncorrectable_above")
    return over_parity or (secded or 0) > _number(limits, "secded_unique_uncorrectable_above")


def source_of(limit: str) -> str:
    """Where a limit's figures come from ("row_remap", "page_retirement", …); empty if there is no such limit."""
    return str(_limits(limit).get("source", ""))


@lru_cache(maxsize=1)
def _all_limits() -> JsonObject:
    parsed: JsonObject = json.loads(files("fleet.catalog").joinpath("health_limits.json").read_text(encoding="utf-8"))
    return parsed


def _limits(name: str) -> JsonObject:
    found = _all_limits().get(name)
    return found if isinstance(found, dict) else {}


def _number(limits: JsonObject, name: str) -> int:
    value = limits[name]
    if not isinstance(value, int):
        raise TypeError(f"health_limits.json: {name} is no whole number")
    return value

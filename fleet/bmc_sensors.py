"""Sensors of a BMC: a missing part is not an alarm, and no reading is not a good one.

Source: DMTF Sensor (Reading, Thresholds, Status).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleet.json_values import JsonObject, number_at, object_at, text_at


class SensorVerdict(StrEnum):
    """What a sensor says. ABSENT raises no alarm whatever its health says; UNKNOWN is not good."""

    OK = "ok"
    WARNING = "warning"
    ALARM = "alarm"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One sensor; `value` is in `unit` (Redfish ReadingUnits, UCUM), None where there is no reading."""

    id: str
    value: float | None
    unit: str | None
    state: str
    health: str | None
    verdict: SensorVerdict


def read_sensor(body: JsonObject) -> SensorReading:
    """One Sensor resource, judged by its own thresholds and health."""
    value = number_at(body, "Reading")
    state = text_at(body, "Status", "State") or "Unknown"
    health = text_at(body, "Status", "Health")
    return SensorReading(
        id=text_at(body, "Id") or "",
        value=value,
        unit=text_at(body, "ReadingUnits"),
        state=state,
        health=health,
        verdict=_verdict(body, value, state, health),
    )


def _verdict(body: JsonObject, value: float | None, state: str, health: str | None) -> SensorVerdict:
    if state.casefold() in {"absent", "disabled", "unavailableoffline"}:
        return SensorVerdict.ABSENT
    if value is None:
        return SensorVerdict.UNKNOWN
    limits = object_at(body, "Thresholds")

    def beyond(name: str) -> bool:
        high, low = number_at(limits, f"Upper{name}", "Reading"), number_at(limits, f"Lower{name}", "Reading")
        return (high is not None and value >= high) or (low is not None and value <= low)

    if beyond("Critical") or beyond("Fatal") or health == "Critical":
        return SensorVerdict.ALARM
    if beyond("Caution") or health == "Warning":
        return SensorVerdict.WARNING
    return SensorVerdict.OK

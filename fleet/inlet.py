"""The temperature of the air that a node takes in, from what its BMC shows of itself.

Source: DMTF Sensor (PhysicalContext Intake), ThermalMetrics (TemperatureSummaryCelsius) and, of older BMCs, Thermal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleet.bmc_sensors import SensorVerdict, read_sensor
from fleet.json_values import JsonObject, number_at, objects_at, text_at

_NAMES = re.compile(r"inlet|intake|ambient", re.IGNORECASE)
_LIQUID = re.compile(r"coolant|liquid|water|facility|\bcdu\b|_cdu_", re.IGNORECASE)
_POSSIBLE = (-20.0, 80.0)  # °C; a sensor outside of it is broken, or of something else


def names_inlet(uri: str) -> bool:
    """Whether a sensor's address says that it is of the air at the inlet."""
    name = uri.rstrip("/").rpartition("/")[2]
    return _NAMES.search(name) is not None and _LIQUID.search(name) is None


def inlet_celsius(sensors: Iterable[JsonObject]) -> float | None:
    """The coolest of the air inlets among these Sensor resources: a baseboard behind others takes in warmed air."""
    return min((value for body in sensors if (value := _reading(body)) is not None), default=None)


def inlet_of_thermal(body: JsonObject) -> float | None:
    """The inlet in a ThermalMetrics resource, or in a chassis' older Thermal resource; None where it names none."""
    summary = _possible(number_at(body, "TemperatureSummaryCelsius", "Intake", "Reading"))
    if summary is not None:
        return summary
    found = [
        _possible(number_at(one, "ReadingCelsius"))
        for one in objects_at(body, "Temperatures")
        if text_at(one, "Status", "State") in (None, "Enabled") and _is_inlet(one, text_at(one, "Name") or "")
    ]
    return min((value for value in found if value is not None), default=None)


def _reading(body: JsonObject) -> float | None:
    sensor = read_sensor(body)
    if sensor.verdict in (SensorVerdict.ABSENT, SensorVerdict.UNKNOWN) or sensor.unit not in ("Cel", None):
        return None
    if text_at(body, "ReadingType") not in ("Temperature", None):
        return None
    return _possible(sensor.value) if _is_inlet(body, sensor.id) else None


def _is_inlet(body: JsonObject, name: str) -> bool:
    context = text_at(body, "PhysicalContext")
    if _LIQUID.search(name) or context in ("LiquidInlet", "CoolingSubsystem"):
        return False
    return context == "Intake" or _NAMES.search(name) is not None


def _possible(celsius: float | None) -> float | None:
    return celsius if celsius is not None and _POSSIBLE[0] <= celsius <= _POSSIBLE[1] else None

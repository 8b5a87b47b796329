"""Samples and measurements as JSON for the ledger's journal, and back. What has its default value is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pydantic import TypeAdapter

from fleet.json_values import JsonObject
from fleet.measure_record import Measurements
from fleet.measures import Measure, Sample

_SAMPLES = TypeAdapter(tuple[Sample, ...])
_MEASUREMENTS = TypeAdapter(Measurements)
_MEASURES = TypeAdapter(tuple[Measure, ...])


def samples_to_json(samples: Iterable[Sample]) -> list[JsonObject]:
    """One object a sample; times are ISO 8601 with their offset."""
    dumped = _SAMPLES.dump_python(tuple(samples), mode="json", exclude_defaults=True)
    return [cast(JsonObject, sample) for sample in dumped]


def samples_from_json(value: object) -> tuple[Sample, ...]:
    """The inverse of `samples_to_json`. Raises ValueError for anything else."""
    return _SAMPLES.validate_python(value)


def measurements_to_json(measurements: Measurements) -> dict[str, object]:
    """Samples, kept outputs, tools and slots as one object."""
    return cast(dict[str, object], _MEASUREMENTS.dump_python(measurements, mode="json", exclude_defaults=True))


def measurements_from_json(value: object) -> Measurements:
    """The inverse of `measurements_to_json`. Raises ValueError for anything else."""
    return _MEASUREMENTS.validate_python(value)


def measures_to_json(measures: Iterable[Measure]) -> list[JsonObject]:
    """One object a measure, for a plan."""
    return [cast(JsonObject, one) for one in _MEASURES.dump_python(tuple(measures), mode="json")]


def measures_from_json(value: object) -> tuple[Measure, ...]:
    """The inverse of `measures_to_json`. Raises ValueError for anything else."""
    return _MEASURES.validate_python(value)

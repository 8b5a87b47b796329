"""Which series of dcgm-exporter are read, under all their names, and how: fleet/catalog/series.csv with its sources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from fleet.catalog_data import Row, read_table, read_text
from fleet.errors import ConfigurationError
from fleet.measures import Better, Measure, MeasureKind

UTILISATION = "utilisation"
CLOCK_EVENTS = "clock_events"
GPU_TEMPERATURE = "gpu_temperature"
POWER_LIMIT = "power_limit"
CONDITIONS = (UTILISATION, CLOCK_EVENTS, GPU_TEMPERATURE, POWER_LIMIT)
"""Measures that are read beside the others, to say under which conditions these were taken."""

_FILE = "series.csv"
_COLUMNS = (
    *("measure", "unit", "better", "how", "busy_only", "judged", "margin", "most", "names", "field_id"),
    *("default_counter", "note", "source"),
)
_NAME = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\*(percent|[0-9.]+(?:e-?[0-9]+)?))?")
_YES_OR_NO = {"yes": True, "no": False}


class How(StrEnum):
    """How a window's points become one value."""

    LEVEL = "level"  # their median
    COUNTER = "counter"  # its increase; it begins again at 0 when the driver is loaded
    LASTING_COUNTER = "lasting_counter"  # its increase; the part itself keeps it, so that it never falls
    LAST_CODE = "last_code"  # how often the code of the last event became another one
    FLAG = "flag"  # how often it was raised
    MASK = "mask"  # no value: the reasons that its bits name


@dataclass(frozen=True, slots=True)
class MetricName:
    """One of a measure's names. `scale` makes its unit the measure's.

    `percent`: a share, which some releases write as a percentage under the same name.
    """

    name: str
    scale: float = 1.0
    percent: bool = False


@dataclass(frozen=True, slots=True)
class SeriesRule:
    """How one measure is read. `most` is the greatest value that can be real; `names` are in order of preference.

    `busy_only`: points of a GPU at rest are left out. `default_counter`: exported without being asked for.
    """

    measure: str
    unit: str
    better: Better
    how: How
    busy_only: bool
    judged: bool
    margin: float
    most: float
    names: tuple[MetricName, ...]
    default_counter: bool
    note: str
    source: str

    @property
    def kind(self) -> MeasureKind:
        return MeasureKind.SERIES if self.how in (How.LEVEL, How.MASK) else MeasureKind.COUNT

    def as_measure(self) -> Measure:
        return Measure(self.measure, self.unit, self.better, self.kind, self.margin)


@lru_cache(maxsize=1)
def load_series_rules() -> tuple[SeriesRule, ...]:
    """Every measure that can be read from a metrics server. Raises ConfigurationError where the file is damaged."""
    return read_table(f"fleet/catalog/{_FILE}", read_text(_FILE), _COLUMNS, _rule)


def judged_rules() -> tuple[SeriesRule, ...]:
    """Those that say something about a driver under any work."""
    return tuple(rule for rule in load_series_rules() if rule.judged)


def rules_for(measures: Iterable[str]) -> tuple[SeriesRule, ...]:
    """The rules of these measures, in the file's order. Raises ConfigurationError that names an unknown one."""
    wanted = set(measures)
    unknown = sorted(wanted - {rule.measure for rule in load_series_rules()})
    if unknown:
        known = ", ".join(rule.measure for rule in load_series_rules())
        raise ConfigurationError(f"no series measure {', '.join(unknown)}; known: {known}")
    return tuple(rule for rule in load_series_rules() if rule.measure in wanted)


def with_conditions(rules: Iterable[SeriesRule]) -> tuple[SeriesRule, ...]:
    """The rules, and those that the conditions need, each once."""
    found = {rule.measure: rule for rule in rules}
    return tuple({**found, **{rule.measure: rule for rule in rules_for(CONDITIONS)}}.values())


def _rule(row: Row) -> SeriesRule:
    if not row["source"]:
        raise ValueError("every fact has a source")
    return SeriesRule(
        measure=row["measure"],
        unit=row["unit"],
        better=Better(row["better"]),
        how=How(row["how"]),
        busy_only=_YES_OR_NO[row["busy_only"]],
        judged=_YES_OR_NO[row["judged"]],
        margin=float(row["margin"]),
        most=float(row["most"]),
        names=tuple(_name(text) for text in row["names"].split(";")),
        default_counter=_YES_OR_NO[row["default_counter"]],
        note=row["note"],
        source=row["source"],
    )


def _name(text: str) -> MetricName:
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no metric's name")
    if found[2] == "percent":
        return MetricName(found[1], percent=True)
    return MetricName(found[1], float(found[2] or 1))

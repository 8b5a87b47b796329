"""BIOS attributes as a BMC shows them: what is in force, and what only waits for the next start of the host.

Source of the shape: DMTF's Bios schema; `Attributes` of the resource itself is in force, that of its settings object
(`@Redfish.Settings`) is what was asked for. Some BMCs list there only what waits, some every attribute again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from fleet.inventory_rows import nearest
from fleet.json_values import JsonObject, object_at


@dataclass(frozen=True, slots=True)
class BiosReading:
    """The attributes that were asked for, by the name they were asked for under.

    `waiting` are values that differ from those in force and come with the next start; `unknown` says why a name has
    no value. A name stands in `attributes` or in `unknown`. `waiting_unknown` says why nothing can be told of what
    waits; empty where it can.
    """

    attributes: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    waiting_unknown: str = ""


@runtime_checkable
class BiosReader(Protocol):
    """A BMC's client that can tell BIOS attributes. Raises what `fleet.ports.Bmc` raises."""

    def read_bios(self, names: Iterable[str]) -> BiosReading: ...


def read_attributes(names: Iterable[str], active: JsonObject, settings: JsonObject | str) -> BiosReading:
    """The named attributes out of the BIOS resource and its settings object (a text: why that was not read)."""
    shown, asked = object_at(active, "Attributes"), object_at(settings, "Attributes")
    attributes: dict[str, str] = {}
    waiting: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for name in names:
        key = _key(name, shown)
        value = None if key is None else _text(shown[key])
        if value is None:
            unknown[name] = _why(name, key, shown)
        else:
            attributes[name] = value
        later_key = _key(name, asked)
        later = None if later_key is None else _text(asked[later_key])
        if later is not None and later != value:
            waiting[name] = later
    return BiosReading(attributes, waiting, unknown, settings if isinstance(settings, str) else "")


def not_read(names: Iterable[str], why: str) -> BiosReading:
    """Nothing is known, for one reason."""
    return BiosReading(unknown=dict.fromkeys(names, why), waiting_unknown=why)


def _key(name: str, shown: Mapping[str, object]) -> str | None:
    """The attribute's own spelling; another case counts only where it can mean one attribute alone."""
    if name in shown:
        return name
    alike = [key for key in shown if key.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def _text(value: object) -> str | None:
    """Texts, numbers and switches (true, false) as text; None for null, an empty text or anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return None


def _why(name: str, key: str | None, shown: Mapping[str, object]) -> str:
    if not shown:
        return "the BMC shows no BIOS attributes; some do so only after the host's first start"
    if key is not None:
        return f"the BMC gives no value for {key}"
    return f"the BMC shows no such attribute; {nearest(name, shown)}"

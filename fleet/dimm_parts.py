"""Memory modules out of the probe's section `memory`: `modules` are the sockets as the firmware's SMBIOS tells them.

Source of the fields: DMTF's SMBIOS reference (DSP0134), structure 17, Memory Device. A module's serial is 32 bits
that each maker counts for itself, so a module is named by part number and serial together.
"""

from __future__ import annotations

from collections import Counter

from fleet.facts import PartFacts
from fleet.inventory_rows import serial_of
from fleet.json_values import JsonObject, number_at, objects_at, text_at

_FACTS = ("manufacturer", "part_number", "bank", "type")
_NUMBERS = ("size_mib", "speed_mts", "configured_mts", "rank")
_NO_TEXT = frozenset({"unknown", "not specified", "no dimm", "none", "n/a", "undefined", "empty"})


def dimm_parts(memory: JsonObject) -> tuple[PartFacts, ...] | None:
    """The modules by socket; None where the firmware's table was not read."""
    if not isinstance(memory.get("modules"), list):
        return None
    errors = _errors(memory)
    return tuple(
        _part(entry, socket, errors) for socket, entry in _sockets(memory) if number_at(entry, "size_mib") != 0
    )


def empty_sockets(memory: JsonObject) -> tuple[str, ...]:
    """Sockets that the firmware saw empty: a size of 0. One whose size it does not know is not empty."""
    return tuple(socket for socket, entry in _sockets(memory) if number_at(entry, "size_mib") == 0)


def _sockets(memory: JsonObject) -> list[tuple[str, JsonObject]]:
    """Each socket under its name on the board; where several share it (`DIMM 0` of each bank), with the bank's."""
    if not isinstance(memory.get("modules"), list):
        return []
    listed = objects_at(memory, "modules")
    locators = Counter(text_at(entry, "locator") for entry in listed)
    named = []
    for number, entry in enumerate(listed):
        locator, bank = text_at(entry, "locator"), text_at(entry, "bank")
        words = [bank, locator] if locator is None or locators[locator] > 1 else [locator]
        named.append((" ".join(word for word in words if word) or f"socket {number}", entry))
    return named


def _part(entry: JsonObject, socket: str, errors: dict[str, float]) -> PartFacts:
    told = {name: _word(text_at(entry, name)) for name in _FACTS}
    told |= {name: None if (n := number_at(entry, name)) is None else f"{n:g}" for name in _NUMBERS}
    serial = serial_of(_word(text_at(entry, "serial")))
    told["serial"] = serial
    name = told["part_number"] or told["manufacturer"]
    return PartFacts(
        kind="dimm",
        slot=socket,
        serial=f"{name} {serial}" if serial and name else serial,
        uuid=None,
        facts={key: value for key, value in told.items() if value is not None},
        unknown={key: "the firmware does not tell it" for key in ("size_mib", "serial") if told[key] is None},
        numbers={"corrected_errors": errors[socket]} if socket in errors else {},
    )


def _word(text: str | None) -> str | None:
    return None if text is None or text.casefold() in _NO_TEXT else text


def _errors(memory: JsonObject) -> dict[str, float]:
    """Corrected errors by the socket's name, of those that have some: the kernel may name sockets otherwise."""
    found: dict[str, float] = {}
    for controller in objects_at(memory, "controllers"):
        for module in objects_at(controller, "dimms_with_errors"):
            label, count = text_at(module, "label"), number_at(module, "corrected")
            if label is not None and count is not None:
                found[label] = found.get(label, 0.0) + count
    return found

"""What an inventory from elsewhere says of one node: a row of texts that knows where it came from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

WRITTEN = ("name", "rack", "pool", "model", "bmc", "ssh", "unit", "nvlink_domain", "serial")
"""The fields that go into the fleet file, in the order in which they are written."""

CHECKED = ("height",)
"""Fields that are checked, and that the fleet file does not hold; height is in rack units."""

NOTED = ("site", "role", "tags", "note")
"""Fields that are for people; nothing is decided on them."""

FIELDS = (*WRITTEN, *CHECKED, *NOTED)

# What firmware and inventories say where nobody entered a serial: such a text names no machine.
_NO_SERIAL = frozenset(
    {"", "n/a", "na", "none", "null", "unknown", "not specified", "not available", "default string", "empty"}
    | {"system serial number", "chassis serial number", "serial number", "to be filled by o.e.m.", "not applicable"}
    | {"to be filled by oem", "tbd", "default", "undefined", "oem", "123456789", "0123456789", "1234567890", "nil"}
)


@dataclass(frozen=True, slots=True)
class Row:
    """One node. `origin` is `FILE:LINE` or a device's URL; `values` has only fields that say something."""

    origin: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where. `text` never shows what may be a secret."""

    origin: str
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Everything that one source says, and every fault of the reading itself."""

    rows: tuple[Row, ...] = ()
    faults: tuple[Fault, ...] = ()


def serial_of(text: str | None) -> str | None:
    """A serial number without blanks around it; None for what stands where there is none (`N/A`, zeros, dots)."""
    serial = (text or "").strip()
    bare = serial.casefold()
    if bare in _NO_SERIAL or not re.search(r"\w", serial) or len(set(re.sub(r"[\W_]", "", bare))) < 2:
        return None
    return serial


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a word that is not known: the nearest right one, else what there is."""
    return _nearest(word, tuple(known))


@lru_cache(maxsize=4096)
def _nearest(word: str, known: tuple[str, ...]) -> str:
    folded, given = _folded_names(known), _folded(word)
    near = [given] if given in folded else difflib.get_close_matches(given, list(folded), n=1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    return f"known: {', '.join(sorted(known)[:8]) or 'none'}{more}"


@lru_cache(maxsize=16)
def _folded_names(known: tuple[str, ...]) -> Mapping[str, str]:
    return {_folded(name): name for name in known}


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())

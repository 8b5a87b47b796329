"""Typed looks into JSON that others wrote: a value of the wrong kind counts as missing, never as an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

JsonObject: TypeAlias = Mapping[str, object]

# What a terminal would obey or be turned round by: C0 and C1 controls, bidirectional overrides and isolates. And lone
# surrogates, which no output can be written in.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(value: object) -> object:
    """The same JSON with U+FFFD for every character that would act on a terminal; blanks and newlines stay."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {printable(key): printable(inner) for key, inner in value.items()}
    return [printable(inner) for inner in value] if isinstance(value, list) else value


def value_at(tree: object, *path: str) -> object:
    """The value at `path`, None where a step is missing."""
    for step in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(step)
    return tree


def text_at(tree: object, *path: str) -> str | None:
    """A text without blanks around it; None where it is missing, empty or no text."""
    value = value_at(tree, *path)
    return (value.strip() or None) if isinstance(value, str) else None


def object_at(tree: object, *path: str) -> JsonObject:
    """A JSON object; empty where it is missing or something else."""
    value = value_at(tree, *path)
    return value if isinstance(value, Mapping) else {}


def objects_at(tree: object, *path: str) -> tuple[JsonObject, ...]:
    """The JSON objects of a list; a single object counts as a list of one."""
    value = value_at(tree, *path)
    if isinstance(value, Mapping):
        return (value,)
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()


def texts_at(tree: object, *path: str) -> tuple[str, ...]:
    """The texts of a list; a single text counts as a list of one."""
    value = value_at(tree, *path)
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def number_at(tree: object, *path: str) -> float | None:
    """A finite number; None where it is missing, a boolean or something else."""
    value = value_at(tree, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e308 else None  # also a whole number that no float can hold


def flag_at(tree: object, *path: str) -> bool | None:
    """A boolean; None where it is missing or something else."""
    value = value_at(tree, *path)
    return value if isinstance(value, bool) else None

"""Typed looks into JSON that others wrote: a value of the wrong kind counts as missing, never as an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

JsonObject: TypeAlias = Mapping[str, object]


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
    return float(value) if abs(value) < float("inf") else None


def flag_at(tree: object, *path: str) -> bool | None:
    """A boolean; None where it is missing or something else."""
    value = value_at(tree, *path)
    return value if isinstance(value, bool) else None

"""One number, or one a GPU, out of the JSON that an operator's own measuring command prints."""

from __future__ import annotations

import re

from fleet.measure_readers.values import Measured, ToolReading, completed, measured
from fleet.readers.json_in_text import FoundJson, find_json
from fleet.readers.plain_text import number

_STEP = re.compile(r"[^.\[\]]+|\[\d{1,6}\]")
_MISSING = object()


def path_steps(path: str) -> tuple[str, ...]:
    """The steps of "results[0].bandwidth" or "results.0.bandwidth". Raises ValueError for what is no path."""
    steps = tuple(step.strip("[]") for step in _STEP.findall(path))
    if not steps or not re.fullmatch(r"[^.\[\]]*(?:\.[^.\[\]]+|\[\d{1,6}\])*", path):
        raise ValueError(f"{path!r} is no path in JSON; write it like results[0].bandwidth")
    return steps


def json_values(text: str, path: str, gpus: int | None, per_gpu: bool, tool: str) -> ToolReading:
    """The number at `path`, or with `per_gpu` the list of numbers there, in the order of the GPUs.

    A text that is a number counts as one. Raises ValueError for what is no path.
    """
    steps = path_steps(path)
    found = find_json(text, lambda value: isinstance(value, dict | list))
    value = _MISSING if found is None else _at(found, steps)
    if value is _MISSING:
        why = "no JSON" if found is None else f"no {path}"
        missing = f"{tool} printed {why}" + ("" if found is None or found.complete else "; its output is cut")
        return ToolReading(completed((), gpus if per_gpu else None, missing), tool, {})
    missing = f"{tool}: {path} is no number"
    if not per_gpu:
        return ToolReading((measured(None, _number(value), missing),), tool, {})
    if not isinstance(value, list):
        return ToolReading(completed((), gpus, f"{tool}: {path} is no list with a value for each GPU"), tool, {})
    values: list[Measured] = [measured(index, _number(one), missing) for index, one in enumerate(value)]
    return ToolReading(completed(values, gpus, f"{tool} printed no value for it"), tool, {})


def _at(found: FoundJson, steps: tuple[str, ...]) -> object:
    value = found.value
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or value is None or isinstance(value, list | dict):
        return None
    return number(str(value))

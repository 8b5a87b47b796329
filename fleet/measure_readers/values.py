"""What a reader makes of a benchmark's output: one value for each GPU or for the node, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.readers.plain_text import plain_lines

_LINE_CHARACTERS = 1000  # no line that has a value is as long; a bound on what an expression walks over


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of a tool. `gpu` is the tool's own index, None for the whole node.

    `value` None with `missing` saying why: nothing here is ever 0 because it was not measured.
    """

    gpu: int | None
    value: float | None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class ToolReading:
    """All values of one run. `tool` names the tool and, where it tells it, its version.

    `addresses` are the PCI addresses (fleet.readers.pci_address.gpu_address) of the tool's GPUs by the tool's index,
    as far as it prints them.
    """

    values: tuple[Measured, ...]
    tool: str
    addresses: Mapping[int, str]


def short_lines(text: str) -> tuple[str, ...]:
    """The text's plain lines, each cut to what a line with a value may have."""
    return tuple(line[:_LINE_CHARACTERS] for line in plain_lines(text))


def measured(gpu: int | None, value: float | None, missing: str) -> Measured:
    """The value where it is a finite number above 0; else none, for the reason `missing` or the number itself."""
    if value is None:
        return Measured(gpu, None, missing)
    if not math.isfinite(value) or value <= 0:
        return Measured(gpu, None, f"the tool printed {value:g}, which is no measurement")
    return Measured(gpu, value)


def completed(values: Iterable[Measured], gpus: int | None, missing: str) -> tuple[Measured, ...]:
    """The values in the order of their GPUs, with one that is missing for every GPU of `gpus` that the tool left out.

    `gpus` None: how many there must be is not known, and then only an empty answer is a gap.
    """
    found = {value.gpu: value for value in values}
    for index in range(gpus or 0):
        found.setdefault(index, Measured(index, None, missing))
    ordered = sorted(found.values(), key=lambda value: -1 if value.gpu is None else value.gpu)
    return tuple(ordered) or (Measured(None, None, missing),)

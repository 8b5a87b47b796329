"""What the measuring of one node left: samples, where their raw output is kept, and what they were measured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.measures import Sample


@dataclass(frozen=True, slots=True)
class RawOutput:
    """The kept output of one run of a tool: `digest` is the SHA-256 (hexadecimal) of the kept text.

    `tool` is the tool with the version that it prints; `code` its exit status, which nothing is judged by.
    """

    measure: str
    run: int
    command: tuple[str, ...]
    tool: str
    code: int
    digest: str


@dataclass(frozen=True, slots=True)
class MeasuredWith:
    """What must be the same before and after a change, or the two cannot be compared.

    `tools` has for each measure the command's words that measured it, and `versions` the tool's name with the version
    that it printed: other versions copy other sizes. `slots` has the slot of each GPU by its UUID: a GPU that is lost
    moves the indices of those behind it.
    """

    tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurements:
    """One node's measuring in one phase."""

    samples: tuple[Sample, ...]
    raw: tuple[RawOutput, ...] = ()
    measured_with: MeasuredWith = MeasuredWith()

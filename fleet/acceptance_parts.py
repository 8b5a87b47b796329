"""What a verdict of acceptance is on: a part of a node, by what its history follows; and the stages of a burn-in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from fleet.findings import Finding
from fleet.readers.pci_address import gpu_address


class Stage(IntEnum):
    """When a test's turn is: what fails cheaply comes first, what heats most comes last."""

    SANITY = 1  # is it what was ordered, and set up as it must be?
    VALIDATION = 2  # does every part work, and work rightly?
    PERFORMANCE = 3  # is it as fast as its like?
    STRESS = 4  # does it stay so, hot and under full load?

    @property
    def word(self) -> str:
        return self.name.lower()


class PartKind(StrEnum):
    NODE = "node"
    GPU = "gpu"
    NVSWITCH = "nvswitch"
    LINK = "link"
    NIC = "nic"
    DIMM = "dimm"
    DISK = "disk"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a node. `slot` is its place there ("3", "0000:1b:00.0", "DIMM_A1", "mlx5_0/1"), "" of a node.

    `serial` is what its history follows, None where it tells none.
    """

    node: str
    kind: PartKind = PartKind.NODE
    slot: str = ""
    serial: str | None = None

    @property
    def key(self) -> str:
        """As in `fleet.facts.PartFacts`: by serial, else by slot; of a node by its name."""
        if self.kind is PartKind.NODE:
            return f"node:{self.node}"
        return f"{self.kind.value}:{self.serial or 'slot ' + self.slot}"

    @property
    def place(self) -> tuple[str, PartKind, str]:
        """Where it sits: what evidence and the node's list of parts are matched by."""
        return self.node, self.kind, self.slot

    def __str__(self) -> str:
        if self.kind is PartKind.NODE:
            return self.node
        serial = f" (serial {self.serial})" if self.serial else ""
        return f"{self.node} {self.kind.value} {self.slot}{serial}"


@dataclass(frozen=True, slots=True)
class PartFinding:
    """A finding with the part that it is about; the node itself where no part of it can be told."""

    part: Part
    finding: Finding


def node_part(node: str) -> Part:
    """The node as a part of its own."""
    return Part(node)


def placed(node: str, findings: Iterable[Finding], parts: Iterable[Part]) -> tuple[PartFinding, ...]:
    """Each finding with the part that its subject names ("gpu 0000:3b:00", "gpu 3", "link mlx5_0/1").

    A subject that fits no part of the list, or several of them, stays the node's: nothing is put on a guess.
    """
    listed = tuple(parts)
    return tuple(PartFinding(_named(node, finding.subject, listed), finding) for finding in findings)


def _named(node: str, subject: str, parts: tuple[Part, ...]) -> Part:
    words = subject.split(None, 1)
    kind = next((kind for kind in PartKind if words and kind.value == words[0].casefold()), None)
    if kind is None or len(words) < 2 or kind is PartKind.NODE:
        return node_part(node)
    name = words[1].strip()
    if kind is PartKind.GPU and " link " in f" {name} ":  # "gpu 0000:3b:00 link 4": of the GPU where links have no part
        name = re.split(r"\s+link\s+", name)[0]
    address = gpu_address(name)
    fitting = [
        part
        for part in parts
        if part.kind is kind
        and (name in (part.slot, part.serial) or (address is not None and gpu_address(part.slot) == address))
    ]
    return fitting[0] if len(fitting) == 1 else node_part(node)

"""Slots that should hold a GPU and showed none when their node was last read.

How many a node should have is told by the baseline, by its own PCI bus, and by what most nodes of its model have. Which
slot is empty is told by what sat there before, else by where the other nodes of the model have theirs. A node whose
GPUs could not be read misses none: what it has is not known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_ENOUGH_NODES = 3  # of a model, to call something usual


@dataclass(frozen=True, slots=True)
class GpuSlots:
    """What is known of a node's GPUs: `seen` are slots that show one now, `lost` those that showed one before.

    `model` is the node's in the fleet file, None for a node that is not in it. `wanted` is the baseline's number,
    `on_bus` the PCI bus's; None where nothing is said. `read` is False where the newest reading could not tell.
    """

    node: str
    model: str | None
    read: bool
    seen: frozenset[str]
    lost: frozenset[str]
    wanted: int | None = None
    on_bus: int | None = None

    @property
    def had(self) -> frozenset[str]:
        return self.seen | self.lost


@dataclass(frozen=True, slots=True)
class MissingGpu:
    """One GPU too few; `slot` is None where nothing tells which."""

    node: str
    slot: str | None
    why: str


@dataclass(frozen=True, slots=True)
class MissingGpus:
    """`not_read` are nodes whose GPUs could not be read, `not_known` those of which nothing says how many they need."""

    gpus: tuple[MissingGpu, ...]
    not_read: tuple[str, ...]
    not_known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Usual:
    """What more than half of the nodes of a model have: so many GPUs, and in these slots, with how many have one."""

    nodes: int
    count: int
    slots: Mapping[str, int]


def missing_gpus(nodes: Iterable[GpuSlots]) -> MissingGpus:
    """What is missing, by node and slot. Give every node of the fleet: they are compared with each other."""
    listed = sorted(nodes, key=lambda node: node.node)
    read = [node for node in listed if node.read]
    by_model: defaultdict[str, list[GpuSlots]] = defaultdict(list)
    for node in read:
        if node.model is not None:
            by_model[node.model].append(node)
    usual = {model: _usual(group) for model, group in by_model.items()}
    found: list[MissingGpu] = []
    not_known: list[str] = []
    for node in read:
        of_model = usual.get(node.model or "")
        found += _missing(node, of_model)
        if of_model is None and node.wanted is None:
            not_known.append(node.node)
    return MissingGpus(tuple(found), tuple(node.node for node in listed if not node.read), tuple(not_known))


def _usual(group: list[GpuSlots]) -> _Usual | None:
    if len(group) < _ENOUGH_NODES:
        return None
    (count, nodes), *_ = Counter(len(node.had) for node in group).most_common(1)
    if 2 * nodes <= len(group):
        return None
    slots = Counter(slot for node in group for slot in node.had)
    return _Usual(len(group), count, {slot: n for slot, n in slots.items() if 2 * n > len(group)})


def _missing(node: GpuSlots, usual: _Usual | None) -> Iterator[MissingGpu]:
    for slot in sorted(node.lost):
        yield MissingGpu(node.node, slot, "seen there before")
    said = [(node.wanted, "the baseline wants {}"), (node.on_bus, "the PCI bus shows {}")]
    if usual is not None:
        said.append((usual.count, f"most of the {usual.nodes} nodes of this model have {{}}"))
    count, why = max(((number, text.format(number)) for number, text in said if number is not None), default=(0, ""))
    too_few = count - len(node.had)
    slots = sorted(usual.slots.keys() - node.had)[: max(0, too_few)] if usual is not None else []
    for slot in slots:
        assert usual is not None
        yield MissingGpu(node.node, slot, f"{usual.slots[slot]} of {usual.nodes} nodes of this model have one there")
    for _ in range(too_few - len(slots)):
        yield MissingGpu(node.node, None, f"{why}, {len(node.had)} {'is' if len(node.had) == 1 else 'are'} known")

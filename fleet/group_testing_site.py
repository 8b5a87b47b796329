"""Nodes and the leaf switches that they hang on, numbered, and what a run over some of them would show as slow.

Items of a site are numbered in one row: its n nodes, then the uplinks of its leaves, then the leaves' switches. A node
that is faulty slows every run with it; a switch every run with one of its members; uplinks every run that holds both a
member and a node of elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.errors import ConfigurationError

FEWEST_NODES = 2
NO_LEAF = -1


@dataclass(frozen=True, slots=True)
class Site:
    """`nodes` leaf by leaf; `leaf_of` has each node's leaf, NO_LEAF where it is unknown or has no other member."""

    nodes: tuple[str, ...]
    leaf_of: tuple[int, ...]
    leaves: tuple[str, ...]
    members: tuple[frozenset[int], ...]
    numbers: Mapping[str, int]

    @property
    def everything(self) -> frozenset[int]:
        return frozenset(range(len(self.nodes)))

    @property
    def items(self) -> int:
        """Nodes, uplinks and switches together."""
        return len(self.nodes) + 2 * len(self.leaves)

    def uplinks(self, leaf: int) -> int:
        return len(self.nodes) + leaf

    def switch(self, leaf: int) -> int:
        return len(self.nodes) + len(self.leaves) + leaf

    def group(self, names: Iterable[str]) -> frozenset[int]:
        """Raises ConfigurationError for a node that is not of this site."""
        unknown = sorted(name for name in names if name not in self.numbers)
        if unknown:
            raise ConfigurationError(f"{unknown[0]} is no node of this search")
        return frozenset(self.numbers[name] for name in names)

    def names(self, group: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.nodes[number] for number in sorted(group))

    def touched(self, group: Iterable[int]) -> frozenset[int]:
        """The leaves that have a member in the group."""
        return frozenset(leaf for number in group if (leaf := self.leaf_of[number]) != NO_LEAF)

    def crossing(self, group: Iterable[int]) -> bool:
        """Whether the group is of more than one place, so that its leaves' uplinks are used."""
        return len({self.leaf_of[number] for number in group}) > 1

    def active(self, group: frozenset[int]) -> tuple[int, ...]:
        """The items of which one faulty would be enough to slow a run over `group`."""
        touched = sorted(self.touched(group))
        crossed = touched if self.crossing(group) else []
        return (*sorted(group), *map(self.uplinks, crossed), *map(self.switch, touched))


def site_of(leaves: Mapping[str, str | None]) -> Site:
    """`leaves` has each node's leaf switch, None where it is not known.

    Raises ConfigurationError for fewer than two nodes: a collective over one node shows nothing of the fabric.
    """
    if len(leaves) < FEWEST_NODES:
        raise ConfigurationError(f"group testing needs at least {FEWEST_NODES} nodes, not {len(leaves)}")
    gathered: dict[str, list[str]] = {}
    for node, leaf in leaves.items():
        if leaf is not None:
            gathered.setdefault(leaf, []).append(node)
    shared = {leaf: nodes for leaf, nodes in gathered.items() if len(nodes) >= FEWEST_NODES}
    placed = [node for nodes in shared.values() for node in nodes]
    nodes = (*placed, *(node for node, leaf in leaves.items() if leaf not in shared))
    numbers = {node: number for number, node in enumerate(nodes)}
    row = {node: place for place, of in enumerate(shared.values()) for node in of}
    return Site(
        nodes=nodes,
        leaf_of=tuple(row.get(node, NO_LEAF) for node in nodes),
        leaves=tuple(shared),
        members=tuple(frozenset(numbers[node] for node in of) for of in shared.values()),
        numbers=numbers,
    )

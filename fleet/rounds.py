"""A round: units that are out of service together, under the limits of rack, domain and capacity floor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node to be visited. `vintage` names its present firmware; `unit` what it is taken out with."""

    node: str
    pool: str
    rack: str
    model: str
    vintage: str
    unit: str
    busy: bool
    device_seconds: float
    nvlink_domain: str | None = None
    power_domain: str | None = None


Unit = tuple[Candidate, ...]
Place = tuple[str, str]  # kind of domain, rack


@dataclass(frozen=True, slots=True)
class Limits:
    """`out`: nodes of the pool that may be out together; `racks`: the same by rack.

    `domains`: NVLink domains, and power domains, that may be disturbed together in one rack.
    """

    out: int
    racks: Mapping[str, int]
    domains: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a unit takes while it is out: nodes in all, nodes by rack, nodes by domain and place."""

    nodes: int
    racks: tuple[tuple[str, int], ...]
    domains: tuple[tuple[Place, tuple[tuple[str, int], ...]], ...]


def load_of(unit: Unit) -> Load:
    """The load of one unit."""
    places: dict[Place, Counter[str]] = {}
    for node in unit:
        for kind, domain in (("nvlink", node.nvlink_domain), ("power", node.power_domain)):
            if domain is not None:
                places.setdefault((kind, node.rack), Counter())[domain] += 1
    racks = Counter(node.rack for node in unit)
    return Load(len(unit), tuple(racks.items()), tuple((place, tuple(d.items())) for place, d in places.items()))


class Round:
    """One round as it is filled. `members` are numbers of units, `nodes` is how many nodes they have.

    A unit that is over a limit by itself fits only where nothing else spends that limit.
    """

    __slots__ = ("_domains", "_limits", "_racks", "members", "nodes")

    def __init__(self, limits: Limits) -> None:
        self.members: dict[int, None] = {}
        self.nodes = 0
        self._limits = limits
        self._racks: dict[str, int] = {}
        self._domains: dict[Place, dict[str, int]] = {}

    def fits(self, load: Load) -> bool:
        """Whether a unit may be out together with the members."""
        if self.nodes and self.nodes + load.nodes > self._limits.out:
            return False
        for rack, count in load.racks:
            taken = self._racks.get(rack, 0)
            if taken and taken + count > self._limits.racks[rack]:
                return False
        for place, domains in load.domains:
            disturbed = self._domains.get(place)
            if disturbed:
                more = sum(domain not in disturbed for domain, _ in domains)
                if more and len(disturbed) + more > self._limits.domains:
                    return False
        return True

    def add(self, number: int, load: Load) -> None:
        """Take the unit in; whether it fits is asked before."""
        self.members[number] = None
        self.nodes += load.nodes
        for rack, count in load.racks:
            self._racks[rack] = self._racks.get(rack, 0) + count
        for place, domains in load.domains:
            disturbed = self._domains.setdefault(place, {})
            for domain, count in domains:
                disturbed[domain] = disturbed.get(domain, 0) + count

    def remove(self, number: int, load: Load) -> None:
        """Give back what `add` took."""
        del self.members[number]
        self.nodes -= load.nodes
        for rack, count in load.racks:
            self._racks[rack] -= count
        for place, domains in load.domains:
            disturbed = self._domains[place]
            for domain, count in domains:
                disturbed[domain] -= count
                if not disturbed[domain]:
                    del disturbed[domain]


def fewest_rounds(loads: Iterable[Load], limits: Limits) -> int:
    """What floor, racks and domains make the least number of rounds for these units; 0 for none.

    It is exact as a lower bound where no unit is over a limit by itself.
    """
    nodes = 0
    racks: dict[str, int] = {}
    places: dict[Place, dict[str, int]] = {}
    for load in loads:
        nodes += min(load.nodes, limits.out)
        for rack, count in load.racks:
            racks[rack] = racks.get(rack, 0) + min(count, max(1, limits.racks[rack]))
        for place, domains in load.domains:
            by_domain = places.setdefault(place, {})
            for domain, count in domains:
                by_domain[domain] = by_domain.get(domain, 0) + min(count, max(1, limits.racks[place[1]]))
    least = math.ceil(nodes / max(1, limits.out))
    for rack, count in racks.items():
        least = max(least, math.ceil(count / max(1, limits.racks[rack])))
    for (_, rack), by_domain in places.items():
        visits = sum(math.ceil(count / max(1, limits.racks[rack])) for count in by_domain.values())
        least = max(least, math.ceil(visits / limits.domains))
    return least


def most_at_once(loads: Iterable[Load], limits: Limits) -> int:
    """No round holds more nodes of these units, where no unit is over a limit by itself; at least 1."""
    racks: Counter[str] = Counter()
    places: dict[Place, Counter[str]] = {}
    for load in loads:
        racks.update(dict(load.racks))
        for place, domains in load.domains:
            places.setdefault(place, Counter()).update(dict(domains))
    room = {rack: min(count, max(1, limits.racks[rack])) for rack, count in racks.items()}
    for (_, rack), by_domain in places.items():
        outside = racks[rack] - by_domain.total()
        disturbed = sum(count for _, count in by_domain.most_common(limits.domains))
        room[rack] = min(room[rack], outside + disturbed)
    return max(1, min(limits.out, sum(room.values())))

"""Whole racks under full load, within their limits: who is loaded, in which order, and which racks at the same time.

A rack whose full load is not known, or has no known limit, is not loaded: unknown is never zero. A rack that may not be
loaded whole is loaded as far as it may be, and says that this is no whole-rack test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RAMP_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class LoadedNode:
    """`watts` is what the node draws under full load (nameplate or measured), None where nobody knows."""

    node: str
    watts: float | None


@dataclass(frozen=True, slots=True)
class RackPower:
    """`watts` is what the rack's feeds and cooling carry, the lesser of both; `nodes` how many of its nodes may be out
    of service together; `base_watts` what draws power there anyway (switches, nodes that are not tested)."""

    rack: str
    watts: float | None
    nodes: int | None
    power_domain: str | None = None
    base_watts: float = 0.0


@dataclass(frozen=True, slots=True)
class RackTest:
    """`ramp` has the nodes that are added at each stage, so that load does not come all at once. `whole` says that all
    nodes of the rack take part; where they do not, `why` says what forbids it."""

    rack: str
    ramp: tuple[tuple[str, ...], ...]
    watts: float
    whole: bool
    left_out: tuple[str, ...]
    why: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for stage in self.ramp for node in stage)


def plan_rack_test(power: RackPower, nodes: Sequence[LoadedNode], ramp_share: float = _RAMP_SHARE) -> RackTest:
    """The largest test that the rack's limits allow; `ramp_share` is the part of its load that may come at once.

    Raises ValueError for a share that is not above 0.
    """
    if ramp_share <= 0:
        raise ValueError("a ramp adds some load at each stage")
    unknown = [one.node for one in nodes if one.watts is None]
    if power.watts is None:
        return _none(power, nodes, "what the rack's power and cooling carry is not known")
    if unknown:
        return _none(power, nodes, f"what {unknown[0]} draws under full load is not known")
    taken: list[LoadedNode] = []
    drawn, why = power.base_watts, ""
    for one in nodes:
        watts = one.watts or 0.0
        if power.nodes is not None and len(taken) >= power.nodes:
            why = why or f"at most {power.nodes} of the rack's nodes may be out of service together"
        elif drawn + watts > power.watts:
            why = why or f"{one.node} would take the rack to {drawn + watts:,.0f} W of {power.watts:,.0f} W"
        else:
            taken.append(one)
            drawn += watts
    if not taken:
        return _none(power, nodes, why or "the rack has no node to be tested")
    names = {one.node for one in taken}
    return RackTest(
        rack=power.rack,
        ramp=_ramp(taken, ramp_share),
        watts=drawn,
        whole=len(taken) == len(nodes),
        left_out=tuple(one.node for one in nodes if one.node not in names),
        why=why,
    )


@dataclass(frozen=True, slots=True)
class RackRounds:
    """`rounds` of tests that run at one time, and the racks that are in none of them, each with the reason."""

    rounds: tuple[tuple[RackTest, ...], ...]
    refused: tuple[tuple[str, str], ...]


def racks_at_once(
    tests: Sequence[RackTest], racks: Mapping[str, RackPower], domain_watts: Mapping[str, float]
) -> RackRounds:
    """Racks of one power domain run together up to the domain's watts; one after the other where its watts are not
    known, and so do racks whose domain is not known, since they may share one."""
    rounds: list[list[RackTest]] = []
    loads: list[dict[str | None, float]] = []
    refused: list[tuple[str, str]] = []
    for test in tests:
        domain = racks[test.rack].power_domain
        limit = domain_watts.get(domain) if domain is not None else None
        if not test.ramp:
            refused.append((test.rack, test.why))
            continue
        if limit is not None and test.watts > limit:
            why = f"its {test.watts:,.0f} W alone are more than power domain {domain} carries ({limit:,.0f} W)"
            refused.append((test.rack, why))
            continue
        place = 0
        while place < len(rounds) and not _fits(loads[place].get(domain), test.watts, limit):
            place += 1
        if place == len(rounds):
            rounds.append([])
            loads.append({})
        rounds[place].append(test)
        loads[place][domain] = loads[place].get(domain, 0.0) + test.watts
    return RackRounds(tuple(tuple(one) for one in rounds), tuple(refused))


def _fits(load: float | None, watts: float, limit: float | None) -> bool:
    """Whether a rack may join a round in which its domain carries `load` already, None for nothing."""
    return load is None or (limit is not None and load + watts <= limit)


def _none(power: RackPower, nodes: Sequence[LoadedNode], why: str) -> RackTest:
    return RackTest(power.rack, (), power.base_watts, False, tuple(one.node for one in nodes), why)


def _ramp(nodes: Sequence[LoadedNode], share: float) -> tuple[tuple[str, ...], ...]:
    """Stages of at most `share` of the nodes' load each, or of one node."""
    most = share * sum(one.watts or 0.0 for one in nodes)
    stages: list[list[str]] = [[]]
    added = 0.0
    for one in nodes:
        watts = one.watts or 0.0
        if stages[-1] and added + watts > most * 1.0001:
            stages.append([])
            added = 0.0
        stages[-1].append(one.node)
        added += watts
    return tuple(tuple(stage) for stage in stages)

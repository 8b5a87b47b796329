"""One measure's node changes, compared: with all nodes, and without those that changed unlike the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fleet.canary_compare import Comparison, compare, share
from fleet.canary_table import NodeChange
from fleet.canary_uneven import Group, far_nodes, lone_gpus, name_far, scale_of, uneven_groups
from fleet.canary_words import change, hosts
from fleet.measures import Cohort, NodeTraits


@dataclass(frozen=True, slots=True)
class Reading:
    """`whole` compares all canary nodes, `main` those that changed alike; None with too few nodes. `plain` is `main`
    with the inlet temperatures left aside.

    `odd` are canary nodes that lost more than the others, `gained` some that gained far more, `stray` controls that
    are far from the other controls and left out. `lone` are GPUs that lost apart from their node. `inlet` is how much
    more the canary's inlets warmed, in °C, of the nodes where it is known. `beside` says what controls in the racks of
    the odd nodes did.
    """

    whole: Comparison | None
    main: Comparison | None
    plain: Comparison | None
    odd: Group | None
    gained: tuple[str, ...]
    stray: tuple[str, ...]
    lone: tuple[tuple[str, int, float], ...]
    inlet: float | None
    beside: str


def read_changes(rows: Sequence[NodeChange], traits: Sequence[NodeTraits], margin: float) -> Reading:
    """`margin` on the log scale: nodes are only called far or uneven from there on."""
    canary = [row for row in rows if row.cohort is Cohort.CANARY and row.gain is not None]
    control = [row for row in rows if row.cohort is Cohort.CONTROL and row.gain is not None]
    scale = scale_of(_gains(canary), _gains(control))
    stray = far_nodes(control, scale, margin)
    steady = _without(control, stray)
    far = far_nodes(canary, scale, margin)
    middle = median(_gains(canary)) if canary else 0.0
    losers = tuple(row.node for row in canary if row.node in far and row.gain is not None and row.gain < middle)
    groups = uneven_groups(canary, traits, scale, margin)
    odd = name_far(losers, canary, traits) if losers else groups[0] if groups else None
    apart = {*far, *(odd.nodes if odd else ())}
    alike = _without(canary, apart)
    whole = _compare(canary, steady)
    main = _compare(alike, steady) if apart else whole
    return Reading(
        whole=whole,
        main=main or whole,
        plain=compare(_gains(alike if main else canary), _gains(steady)),
        odd=odd,
        gained=tuple(node for node in far if node not in losers),
        stray=stray,
        lone=lone_gpus(canary, margin),
        inlet=_inlet_difference(canary, steady),
        beside=_beside(odd, control, traits),
    )


def _gains(rows: Sequence[NodeChange]) -> list[float]:
    return [row.gain for row in rows if row.gain is not None]


def _without(rows: Sequence[NodeChange], nodes: Collection[str]) -> list[NodeChange]:
    return [row for row in rows if row.node not in nodes]


def _compare(canary: Sequence[NodeChange], control: Sequence[NodeChange]) -> Comparison | None:
    return compare(_gains(canary), _gains(control), [row.inlet for row in canary], [row.inlet for row in control])


def _inlet_difference(canary: Sequence[NodeChange], control: Sequence[NodeChange]) -> float | None:
    one = [row.inlet for row in canary if row.inlet is not None]
    other = [row.inlet for row in control if row.inlet is not None]
    return fmean(one) - fmean(other) if one and other else None


def _beside(odd: Group | None, control: Sequence[NodeChange], traits: Sequence[NodeTraits]) -> str:
    if odd is None:
        return ""
    racks = {one.node: one.rack for one in traits}
    own = {racks[node] for node in odd.nodes if racks.get(node)}
    near = [row for row in control if racks.get(row.node) in own]
    gains, rest = _gains(near), _gains([row for row in control if row not in near])
    if not gains or not rest:
        return "no control stands beside them"
    distance = fmean(gains) - fmean(rest)
    if distance < odd.distance / 2:
        return f"controls in the same rack fell too ({change(share(distance))}): look at the rack"
    return f"controls in the same rack did not ({hosts(row.node for row in near)})"

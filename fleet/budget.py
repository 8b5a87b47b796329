"""The disruption budget: may these nodes leave service now, together?

One budget covers all operations. It counts every node that gives no capacity, whatever the cause, so
that failed and quarantined nodes shrink what operations may take. A node counts once, however many
causes it has; a unit that takes no further node out of service (a repair) needs no room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fleet.config import Pool
from fleet.reasons import ReasonKind

_NAMED = 8


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How far a pool may be disturbed; shares are of the pool's nodes."""

    capacity_floor: float = 0.85
    domain_limit: int = 1
    breaker_share: float = 0.10
    breaker_window_seconds: float = 600.0
    breaker_floor_nodes: int = 2

    @classmethod
    def of(cls, pool: Pool) -> PoolLimits:
        return cls(
            pool.capacity_floor,
            pool.domain_limit,
            pool.breaker.share,
            pool.breaker.window_seconds,
            pool.breaker.floor_nodes,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """One node as the budget sees it.

    `member`: it has given capacity and is still part of the fleet. `out`: why it gives none now, None
    while it is in service. `leased_by`: the operation that owns it. `absent`: the fleet file does not name it.
    """

    name: str
    pool: str
    rack: str
    member: bool = True
    out: str | None = None
    leased_by: str | None = None
    nvlink_domain: str | None = None
    power_domain: str | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class PoolView:
    """`total` counts members; `recent` left service within the breaker's window and are still out."""

    limits: PoolLimits
    total: int
    recent: tuple[str, ...] = ()
    tripped: str | None = None


@dataclass(frozen=True, slots=True)
class BudgetView:
    """Everything one decision needs.

    `out` holds all members out of service in the racks and pools of `nodes`.
    """

    operation: str
    nodes: Mapping[str, Standing]
    out: tuple[Standing, ...]
    rack_limits: Mapping[str, int]
    pools: Mapping[str, PoolView]


@dataclass(frozen=True, slots=True)
class Granted:
    """All nodes of the unit are leased. `fresh` were not leased by the operation before."""

    nodes: tuple[str, ...]
    fresh: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """No node of the unit is leased. `blocked_by` names the nodes that hold what is missing.

    `passes`: time alone ends it, nobody has to do anything.
    """

    reason_kind: ReasonKind
    text: str
    blocked_by: tuple[str, ...] = ()
    passes: bool = False


@dataclass(frozen=True, slots=True)
class _Case:
    """`fresh` would be newly leased; of these, `leaving` would newly leave service."""

    view: BudgetView
    fresh: list[Standing]
    leaving: list[Standing]


_Check = Callable[[_Case], Refused | None]


def decide(view: BudgetView, unit: Sequence[str]) -> Granted | Refused:
    """Decide on one unit, all or none. Raises KeyError for a node that the view lacks."""
    names = tuple(dict.fromkeys(unit))
    nodes = [view.nodes[name] for name in names]
    fresh = [node for node in nodes if node.leased_by != view.operation]
    leaving = [node for node in fresh if node.member and node.out is None]
    checks: tuple[_Check, ...] = (
        _owned,
        _tripped,
        _closed,
        _rack_full,
        _domains_full,
        _below_floor,
        _too_fast,
    )
    for check in checks if fresh else ():
        refused = check(_Case(view, fresh, leaving))
        if refused is not None:
            return refused
    return Granted(names, tuple(node.name for node in fresh))


def in_service_least(limits: PoolLimits, total: int) -> int:
    """Nodes of the pool that must stay in service; exact, 0.07 of 100 is 7."""
    return math.ceil(Fraction(str(limits.capacity_floor)) * total)


def over_breaker(limits: PoolLimits, total: int, lost: int) -> bool:
    """Has the pool lost more nodes within the window than its breaker allows?"""
    return lost > limits.breaker_floor_nodes and lost > Fraction(str(limits.breaker_share)) * total


def spent_on(nodes: Iterable[Standing]) -> str:
    """What a budget is spent on: "gpu-0010 (fw-…, draining), gpu-0012 (quarantined: …)"."""
    listed = sorted(nodes, key=lambda node: node.name)
    text = ", ".join(f"{node.name} ({node.out})" for node in listed[:_NAMED])
    return text + (f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else "")


def breaker_text(pool: str, view: PoolView) -> str:
    """What tripped a breaker, with the way on."""
    named = ", ".join(view.recent[:_NAMED]) + (" …" if len(view.recent) > _NAMED else "")
    return (
        f"pool {pool}: {len(view.recent)} of {view.total} nodes left service within "
        f"{view.limits.breaker_window_seconds:g} s ({named}); find the cause, then reset the breaker"
    )


def _names(nodes: Iterable[Standing]) -> tuple[str, ...]:
    return tuple(sorted(node.name for node in nodes))


def _owned(case: _Case) -> Refused | None:
    owned = [node for node in case.fresh if node.leased_by is not None]
    if not owned:
        return None
    owners = ", ".join(f"{node.name} is held by {node.leased_by}" for node in owned[:_NAMED])
    return Refused(ReasonKind.CONFLICT, owners, _names(owned))


def _tripped(case: _Case) -> Refused | None:
    for pool in sorted({node.pool for node in case.fresh}):
        text = case.view.pools[pool].tripped
        if text is not None:
            return Refused(ReasonKind.BREAKER, f"breaker tripped: {text}", case.view.pools[pool].recent)
    return None


def _closed(case: _Case) -> Refused | None:
    closed = sorted({node.rack for node in case.fresh if case.view.rack_limits[node.rack] == 0})
    if not closed:
        return None
    return Refused(ReasonKind.BUDGET, f"rack {closed[0]} is closed (limit 0 in the fleet file)")


def _rack_full(case: _Case) -> Refused | None:
    for rack in sorted({node.rack for node in case.leaving}):
        limit = case.view.rack_limits[rack]
        wanted = sum(node.rack == rack for node in case.leaving)
        if wanted > limit:
            text = f"rack {rack}: this unit takes {wanted} nodes, the limit is {limit}; raise the rack's limit"
            return Refused(ReasonKind.BUDGET, text)
        out = [node for node in case.view.out if node.rack == rack]
        if len(out) + wanted > limit:
            text = f"rack {rack}: {len(out)} of {limit} out: {spent_on(out)}"
            return Refused(ReasonKind.BUDGET, text, _names(out))
    return None


def _domains_full(case: _Case) -> Refused | None:
    for word, domain_of in (("NVLink", _nvlink), ("power", _power)):
        for rack in sorted({node.rack for node in case.leaving}):
            here = [node for node in case.leaving if node.rack == rack and domain_of(node) is not None]
            out = [node for node in case.view.out if node.rack == rack and domain_of(node) is not None]
            disturbed = {domain_of(node) for node in out}
            wanted = {domain_of(node) for node in here} - disturbed
            limit = min((case.view.pools[node.pool].limits.domain_limit for node in here), default=0)
            if wanted and len(disturbed | wanted) > limit:
                spent = spent_on(out) or "none; this unit alone spans more"
                text = f"rack {rack}: {len(disturbed)} of {limit} {word} domains disturbed: {spent}"
                return Refused(ReasonKind.BUDGET, text, _names(out))
    return None


def _nvlink(node: Standing) -> str | None:
    return node.nvlink_domain


def _power(node: Standing) -> str | None:
    return node.power_domain


def _below_floor(case: _Case) -> Refused | None:
    for pool in sorted({node.pool for node in case.leaving}):
        seen = case.view.pools[pool]
        out = [node for node in case.view.out if node.pool == pool]
        wanted = sum(node.pool == pool for node in case.leaving)
        least = in_service_least(seen.limits, seen.total)
        if seen.total - len(out) - wanted < least:
            text = (
                f"pool {pool}: {seen.total - len(out)} of {seen.total} in service, {least} must stay, "
                f"this unit takes {wanted}; out: {spent_on(out) or 'none; lower capacity_floor to allow it'}"
            )
            return Refused(ReasonKind.BUDGET, text, _names(out))
    return None


def _too_fast(case: _Case) -> Refused | None:
    """An operation waits rather than trip the breaker by itself; faults on top of it do trip it."""
    for pool in sorted({node.pool for node in case.leaving}):
        seen = case.view.pools[pool]
        lost = len(seen.recent) + sum(node.pool == pool for node in case.leaving)
        if over_breaker(seen.limits, seen.total, lost):
            text = (
                f"pool {pool}: would be {lost} of {seen.total} nodes out within "
                f"{seen.limits.breaker_window_seconds:g} s; the breaker allows "
                f"{seen.limits.breaker_share:.0%}, at least {seen.limits.breaker_floor_nodes}"
            )
            return Refused(ReasonKind.BUDGET, text, seen.recent, passes=bool(seen.recent))
    return None

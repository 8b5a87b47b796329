"""The plan of the way back: each node that a driver rollout changed gets its former driver and settings again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from fleet.canary_settings import CanarySettings
from fleet.config import FleetSpec, GatePolicy
from fleet.driver_rollout import DRIVER, DriverPlan
from fleet.driver_settings import DriverSettings
from fleet.driver_target import FormerDriver
from fleet.model import Node
from fleet.plan import Change, NodePlan, OperationPlan, Policy, Wave, policy_of
from fleet.waves import max_out

_NO_BUDGET = 10**6  # one node that cannot go back is no reason to leave the others as they are


class RollbackPlan(OperationPlan):
    """Back from `released` to what each node had, `former`. `parent` is the rollout that is undone.

    `measured` are measured once more, which shows whether the loss goes away with the driver. Nobody is asked: whoever
    approved the rollout approved the way back, and a pool of two kinds is the worse state.
    """

    version: Literal[1] = 1
    kind: Literal["driver_rollback"] = "driver_rollback"
    parent: str
    reason: str
    released: str
    former: dict[str, FormerDriver]
    measured: tuple[str, ...] = ()
    canary: CanarySettings
    drivers: DriverSettings


def plan_rollback(
    spec: FleetSpec,
    parent: str,
    rollout: DriverPlan,
    former: Mapping[str, FormerDriver],
    left_out: Mapping[str, str],
    measured: Sequence[str],
    now: datetime,
    reason: str,
) -> RollbackPlan:
    """A wave for each pool, non-production last: its nodes went first, and serve nobody who waits.

    Windows do not hold the way back. Nodes without a way back are left out with their reason.
    """
    lost = {node: one.why_not for node, one in former.items() if one.driver is None}
    nodes = [node for node in spec.inventory() if node.name in former and node.name not in lost]
    pools = sorted({node.pool for node in nodes}, key=lambda name: (not spec.pools[name].production, name))
    policy = _unguarded(policy_of(spec, tuple(pools)))
    return RollbackPlan(
        fleet=spec.fleet,
        made_at=now,
        policy=policy,
        nodes={node.name: _plan(node, rollout.to, former[node.name]) for node in nodes},
        left_out=dict(left_out) | lost,
        waves=tuple(
            _wave(number, [node for node in nodes if node.pool == pool], spec, policy)
            for number, pool in enumerate(pools, start=1)
        ),
        parent=parent,
        reason=reason,
        released=rollout.to,
        former={node.name: former[node.name] for node in nodes},
        measured=tuple(sorted(set(measured) & {node.name for node in nodes})),
        canary=rollout.measuring(),
        drivers=spec.drivers,
    )


def describe_rollback(plan: RollbackPlan) -> list[str]:
    """What is put back where, one line each."""
    kinds = Counter(change.desired for node in plan.nodes.values() for change in node.changes)
    return [
        f"fleet {plan.fleet}; plan digest {plan.digest[:16]}; undoes {plan.parent}",
        f"{len(plan.nodes)} nodes go back from {plan.released} to "
        + (", ".join(f"{version} × {count}" for version, count in sorted(kinds.items())) or "nothing"),
        f"{len(plan.left_out)} left out; {len(plan.measured)} are measured once more",
        f"why: {plan.reason or 'not said'}",
    ]


def _plan(node: Node, released: str, former: FormerDriver) -> NodePlan:
    change = Change(component=DRIVER, current=released, desired=former.version or "unknown", entry=DRIVER)
    return NodePlan(pool=node.pool, rack=node.rack, model=node.model, changes=(change,))


def _unguarded(policy: Policy) -> Policy:
    free = {"windows": (), "failure_budget": _NO_BUDGET}
    pools = {
        name: pool.model_copy(update={"waves": pool.waves.model_copy(update=free)})
        for name, pool in policy.pools.items()
    }
    return policy.model_copy(update={"pools": pools, "gates": {name: GatePolicy(required=0) for name in pools}})


def _wave(number: int, nodes: list[Node], spec: FleetSpec, policy: Policy) -> Wave:
    pool = nodes[0].pool
    racks = Counter(node.rack for node in nodes)
    size = sum(node.pool == pool for node in spec.inventory())
    allowed = sum(min(count, policy.rack_limits[rack]) for rack, count in racks.items())
    return Wave(
        number=number,
        name=f"{pool} back",
        pool=pool,
        units=tuple((node.name,) for node in nodes),
        racks=dict(sorted(racks.items())),
        out_at_most=min(allowed, max_out(policy.pools[pool], size)),
        rounds=1,
        expected_seconds=0.0,
        bake_seconds=0.0,
    )

"""Bring a quarantined node back into service, after a validation that passes now."""

from __future__ import annotations

from blocks.fleet import Fleet
from fleet.clearing import (
    ClearPlan,
    ClearVerdict,
    Observed,
    Wanted,
    check_clearable,
    is_our_cordon,
    judge_clearing,
    not_cleared_reason,
    quarantine_reason,
)
from fleet.errors import FleetError, PreconditionError, TransientError
from fleet.model import Node, NodeState, SchedulerNode
from tasks.planning import KIND, read_plan
from tasks.reading import read_patiently

_HOST_SECONDS = 60.0


def read_clear_plan(fleet: Fleet, name: str, accept_firmware: bool) -> ClearPlan:
    """What clearing this node would do; nothing is changed.

    Raises PreconditionError for a node that is not quarantined or that an operation holds, and
    SchedulerUnreachable.
    """
    _entry(fleet, name)
    record = fleet.ledger().inventory.node(name)
    check_clearable(name, record.state, record.operation)
    return ClearPlan(name, quarantine_reason(record.reason), _seen(fleet, name), _wanted(fleet, name), accept_firmware)


def clear_node(fleet: Fleet, plan: ClearPlan, reason: str, actor: str) -> ClearVerdict:
    """Validate the node and return it, or leave it in quarantine with what was found.

    A cordon is lifted only where it is ours. Raises PreconditionError where the node was taken meanwhile,
    and SchedulerUnreachable; the node is then in quarantine as before.
    """
    inventory = fleet.ledger().inventory
    inventory.move(plan.node, NodeState.VALIDATING, plan.why)
    try:
        verdict = _validate(fleet, plan)
        if verdict.passed and is_our_cordon(_seen(fleet, plan.node)):
            fleet.scheduler().uncordon((plan.node,))
    except FleetError as error:
        inventory.move(plan.node, NodeState.QUARANTINED, not_cleared_reason(plan.why, (error.message,)))
        raise
    if verdict.passed:
        accepted = f" (accepted: {'; '.join(verdict.accepted)})" if verdict.accepted else ""
        inventory.move(plan.node, NodeState.IN_SERVICE, f"cleared by {actor}: {reason}{accepted}")
    else:
        inventory.move(plan.node, NodeState.QUARANTINED, not_cleared_reason(plan.why, verdict.findings))
    return verdict


def _validate(fleet: Fleet, plan: ClearPlan) -> ClearVerdict:
    node = _entry(fleet, plan.node)
    bmc = fleet.clients().bmc(node)
    try:
        system = read_patiently(fleet, bmc.read_system)
        firmware = read_patiently(fleet, bmc.read_firmware)
    except FleetError as error:
        return ClearVerdict((f"its BMC could not be read: {error.message}",))
    finally:
        bmc.close()
    return judge_clearing(plan, Observed(system, firmware, _listed(fleet, node), _seen(fleet, plan.node)))


def _listed(fleet: Fleet, node: Node) -> str | None:
    host = fleet.host(node)
    try:
        answer = host.run(("nvidia-smi", "-L"), timeout_seconds=_HOST_SECONDS)
    except TransientError:
        return None
    finally:
        host.close()
    return answer.stdout if answer.code == 0 else None


def _seen(fleet: Fleet, name: str) -> SchedulerNode | None:
    return fleet.scheduler().look(newer_than=fleet.clock.monotonic()).nodes.get(name)


def _wanted(fleet: Fleet, name: str) -> Wanted | None:
    """What the last firmware operation that began to change the node was to bring there."""
    for ident in fleet.ledger().operations.that_touched(name):
        operation = fleet.ledger().operations.get(ident)
        if operation.kind == KIND:
            changes = read_plan(operation).nodes[name].changes
            return Wanted(ident, {change.component: change.desired for change in changes}) if changes else None
    return None


def _entry(fleet: Fleet, name: str) -> Node:
    """The node with the addresses that the fleet file gives now: a repair may have changed them."""
    entry = next((node for node in fleet.spec().inventory() if node.name == name), None)
    if entry is None:
        raise PreconditionError("not in the fleet file; add it, or see `gpufleet nodes`", node=name)
    return entry

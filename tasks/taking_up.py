"""Opening operations, and taking them up by the process that carries them out."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from prefect.runtime import flow_run
from pydantic import ConfigDict, ValidationError

from blocks.fleet import Fleet
from fleet.errors import ConfigurationError, PreconditionError
from fleet.plan import OperationPlan
from fleet.reasons import ReasonKind
from ledger import ControlVerb, Operation, OperationState
from tasks.operations import OperationRun, is_alive, this_runner

P = TypeVar("P", bound=OperationPlan)


def keep_plan(fleet: Fleet, kind: str, plan: OperationPlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    fleet.sync_inventory()
    operation = fleet.ledger().operations.create(kind, plan.to_json(), plan.digest, actor)
    places = [(node, wave.number, at) for wave in plan.waves for at, node in enumerate(wave.nodes)]
    fleet.ledger().operations.add_nodes(operation.id, places)
    return operation


def operation_of_this_run(fleet: Fleet, kind: str, operation: str | None, plan: Callable[[], OperationPlan]) -> str:
    """The operation that a flow run was given, or that it began before it was suspended; else a new one."""
    run_id = str(flow_run.id or "") or None
    known = operation or (fleet.ledger().operations.of_flow_run(run_id) if run_id else None)
    if known is None:
        known = keep_plan(fleet, kind, plan(), f"{getpass.getuser()} (Prefect)").id
        if run_id:
            fleet.ledger().operations.bind_flow_run(known, run_id)
    return known


def take_up(fleet: Fleet, kind: str, operation: str, read: Callable[[Operation], P]) -> OperationRun[P]:
    """Become the operation's runner; an earlier one that is dead is replaced.

    Raises LeaseLost where another live process runs it, PreconditionError where it is of another kind.
    """
    ledger = fleet.ledger()
    kept = ledger.operations.get(operation)
    if kept.kind != kind:
        raise PreconditionError(f"{operation} is a {kept.kind}, not a {kind}", operation=operation)
    dead = kept.runner is None or not is_alive(
        kept.runner, (fleet.clock.now() - (kept.heartbeat or kept.since)).total_seconds()
    )
    runner = this_runner()
    token = ledger.operations.claim(operation, runner, takeover=dead)
    if runner.flow_run_id is not None:  # whoever started this run may have died before it said so
        ledger.operations.bind_flow_run(operation, runner.flow_run_id)
    try:
        plan = read(kept)
    except ConfigurationError as error:
        asked = ledger.operations.control(operation)
        over = asked is not None and asked.verb is ControlVerb.ABORT and not ledger.leases.held_by(operation)
        state = OperationState.ABORTED if over else OperationState.HALTED
        ledger.operations.set_state(operation, state, ReasonKind.CONFLICT, error.message, token)
        ledger.operations.leave(operation, token)
        raise
    run = OperationRun(fleet, operation, token, plan)
    if kept.state in (OperationState.PLANNED, OperationState.HALTED):
        run.set_state(OperationState.RUNNING)
    return run


class PlanOutline(OperationPlan):
    """What every kind of plan says; for whoever does not mind which kind it is."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def read_outline(operation: Operation) -> PlanOutline:
    """As `read_kept`, for an operation of any kind. Its digest is the operation's, not the outline's."""
    return read_kept(operation, PlanOutline)


def read_kept(operation: Operation, model: type[P]) -> P:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest, or cannot be read."""
    if sha256(operation.plan_json.encode()).hexdigest() != operation.digest:
        raise ConfigurationError(f"{operation.id}: the kept plan is not the one its digest names; plan again")
    try:
        return model.model_validate_json(operation.plan_json)
    except ValidationError as error:
        raise ConfigurationError(f"{operation.id}: this version cannot read its plan; plan again") from error

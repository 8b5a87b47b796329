"""Reading what a plan is made of, and opening or taking up an operation."""

from __future__ import annotations

import getpass
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from prefect.runtime import flow_run
from pydantic import ValidationError

from blocks.fleet import Fleet
from fleet.errors import ConfigurationError, PreconditionError
from fleet.plan import FirmwarePlan, check_unchanged, policy_of
from fleet.reasons import ReasonKind
from fleet.rollout import BundleSource, plan_rollout
from ledger import ControlVerb, Operation, OperationState
from tasks.bundles import read_bundle
from tasks.operations import OperationRun, is_alive, this_runner
from tasks.reading import read_nodes

KIND = "firmware_rollout"


def make_plan(
    fleet: Fleet,
    bundle: Path,
    pools: tuple[str, ...],
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> FirmwarePlan:
    """Read every node of `pools` (all where empty) and plan; nothing is changed.

    `progress` is called with the number of nodes read so far. Raises BundleRejected, ConfigurationError,
    SchedulerUnreachable.
    """
    spec = fleet.spec()
    source = read_bundle(fleet, bundle)
    chosen = pools or tuple(spec.pools)
    nodes = tuple(node for node in spec.inventory() if node.pool in chosen)
    readings = read_nodes(fleet, nodes, progress)
    drawn = random.SystemRandom().randrange(2**31) if seed is None else seed
    return plan_rollout(spec, chosen, source, readings, fleet.clock.now(), drawn)


def open_operation(fleet: Fleet, plan: FirmwarePlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    fleet.sync_inventory()
    operation = fleet.ledger().operations.create(KIND, plan.to_json(), plan.digest, actor)
    places = [(node, wave.number, at) for wave in plan.waves for at, node in enumerate(wave.nodes)]
    fleet.ledger().operations.add_nodes(operation.id, places)
    return operation


def open_or_take_up(fleet: Fleet, operation: str | None, bundle: str | None, pools: list[str] | None) -> OperationRun:
    """The operation that this flow run carries out, claimed for this process.

    Raises LeaseLost where another live process runs it, ConfigurationError where neither an operation nor
    a bundle is given, PlanChanged where the kept plan is not what its digest says.
    """
    run_id = str(flow_run.id or "") or None
    known = operation or (fleet.ledger().operations.of_flow_run(run_id) if run_id else None)
    if known is None:
        if bundle is None:
            raise ConfigurationError("give an operation to take up, or a bundle to plan for")
        plan = make_plan(fleet, Path(bundle), tuple(pools or ()))
        known = open_operation(fleet, plan, f"{getpass.getuser()} (Prefect)").id
        if run_id:
            fleet.ledger().operations.bind_flow_run(known, run_id)
    return take_up(fleet, known)


def take_up(fleet: Fleet, operation: str) -> OperationRun:
    """Become the operation's runner; an earlier one that is dead is replaced."""
    ledger = fleet.ledger()
    kept = ledger.operations.get(operation)
    if kept.kind != KIND:
        raise PreconditionError(f"{operation} is a {kept.kind}, not a firmware rollout", operation=operation)
    dead = kept.runner is None or not is_alive(
        kept.runner, (fleet.clock.now() - (kept.heartbeat or kept.since)).total_seconds()
    )
    runner = this_runner()
    token = ledger.operations.claim(operation, runner, takeover=dead)
    if runner.flow_run_id is not None:  # whoever started this run may have died before it said so
        ledger.operations.bind_flow_run(operation, runner.flow_run_id)
    try:
        plan = read_plan(kept)
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


def read_plan(operation: Operation) -> FirmwarePlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    if sha256(operation.plan_json.encode()).hexdigest() != operation.digest:
        raise ConfigurationError(f"{operation.id}: the kept plan is not the one its digest names; plan again")
    try:
        return FirmwarePlan.model_validate_json(operation.plan_json)
    except ValidationError as error:
        raise ConfigurationError(f"{operation.id}: this version cannot read its plan; plan again") from error


def check_plan(run: OperationRun) -> BundleSource:
    """Raise PlanChanged where bundle or policy are not what was planned and approved."""
    source = read_bundle(run.fleet, Path(run.plan.bundle_path))
    pools = tuple(run.plan.policy.pools)
    check_unchanged(run.plan, policy_of(run.fleet.spec(), pools), source.digest)
    return source

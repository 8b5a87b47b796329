"""Reading what a driver plan is made of, and opening or taking up a driver rollout or its way back."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

from adapters.driver_host import DriverHost
from blocks.fleet import Fleet
from blocks.metrics import open_metrics, read_present_rules
from blocks.scheduler import SchedulerLook
from fleet.canonical import digest
from fleet.driver_facts import platform_of
from fleet.driver_names import installed_version
from fleet.driver_nodes import NodeDriverReading
from fleet.driver_rollback import RollbackPlan, plan_rollback
from fleet.driver_rollout import DriverPlan, plan_driver_rollout
from fleet.driver_target import FormerDriver, same_release
from fleet.drivers import parse_driver
from fleet.errors import ConfigurationError, FleetError, PreconditionError
from fleet.lifecycle import why_not_visited
from fleet.measures import NodeTraits, Phase
from fleet.model import Node, NodeState, SchedulerState
from fleet.series import PhaseWindow
from fleet.series_catalog import judged_rules, load_series_rules
from ledger import Ledger, NodeRecord, NodeStatus, Operation, Outcome
from tasks.driver import read_driver_target
from tasks.driver_former import SECTIONS
from tasks.operations import OperationRun
from tasks.running_jobs import read_running_jobs
from tasks.taking_up import keep_plan, operation_of_this_run, read_kept, take_up

KIND = "driver_canary"
BACK = "driver_rollback"
_READERS = 32


def make_driver_plan(
    fleet: Fleet,
    to: str,
    pools: tuple[str, ...],
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> DriverPlan:
    """Read every node of `pools` (all where empty) and plan; nothing is changed.

    `to` is a release in full ("580.95.05"). Raises SchedulerUnreachable, and ConfigurationError, also where the driver
    of every node is somebody else's.
    """
    found = parse_driver(to)
    if found is None or found.text != to or len(found.parts) < 2:
        raise ConfigurationError(f"{to[:40]!r} is no driver release; give one in full, as 580.95.05")
    spec = fleet.spec()
    unknown = spec.canary.unknown_measures(tuple(rule.measure for rule in load_series_rules()))
    if unknown:
        raise ConfigurationError(f"canary.measures: no measure {', '.join(unknown)}; docs/measures.md lists them")
    chosen = pools or tuple(spec.pools)
    nodes = tuple(node for node in spec.inventory() if node.pool in chosen)
    readings = _read_all(fleet, nodes, to, progress)
    drawn = random.SystemRandom().randrange(2**31) if seed is None else seed
    jobs = read_running_jobs(fleet, {node.name for node in nodes})
    series = read_series_kept(fleet, [node.name for node in nodes])
    return plan_driver_rollout(spec, chosen, to, readings, fleet.clock.now(), drawn, jobs, series)


def read_series_kept(fleet: Fleet, nodes: Sequence[str]) -> tuple[str, ...]:
    """The judged measures that the metrics server had of these nodes within the last hour.

    Raises TransientError where it cannot be asked, ConfigurationError where it refuses us.
    """
    settings = fleet.spec().metrics
    if settings is None:
        return ()
    now = fleet.clock.now()
    window = PhaseWindow(Phase.BEFORE, now - timedelta(hours=1), now)
    with open_metrics(settings, fleet.folder(), fleet.clock) as metrics:
        found = read_present_rules(metrics, settings, judged_rules(), nodes, window)
    return tuple(rule.measure for rule in found if fleet.spec().canary.margined(rule.as_measure()) is not None)


def keep_driver_plan(fleet: Fleet, plan: DriverPlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    return keep_plan(fleet, KIND, plan, actor)


def open_or_take_up_canary(
    fleet: Fleet, operation: str | None, to: str | None, pools: list[str] | None
) -> OperationRun[DriverPlan]:
    """The rollout that this flow run carries out, claimed for this process.

    Raises LeaseLost where another live process runs it, ConfigurationError where neither an operation nor a release
    is given.
    """

    def plan() -> DriverPlan:
        if to is None:
            raise ConfigurationError("give an operation to take up, or a driver release to plan for")
        return make_driver_plan(fleet, to, tuple(pools or ()))

    return take_up(fleet, KIND, operation_of_this_run(fleet, KIND, operation, plan), read_driver_plan)


def read_driver_plan(operation: Operation) -> DriverPlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    return read_kept(operation, DriverPlan)


def check_may_go_back(fleet: Fleet, operation: str) -> None:
    """Raise PreconditionError where the rollout might still change nodes, or another way back is under way."""
    ledger = fleet.ledger()
    kept = ledger.operations.get(operation)
    if kept.kind == KIND and kept.open:
        raise PreconditionError(f"{operation} is {kept.state.value}; `gpufleet abort {operation}` first")
    for other in ledger.operations.list(open_only=True):
        if other.kind == BACK and read_rollback_plan(other).parent == operation:
            raise PreconditionError(f"{other.id} puts {operation} back already; `gpufleet status {other.id}`")


def make_rollback_plan(fleet: Fleet, operation: str, reason: str) -> RollbackPlan:
    """The way back from what `operation` did to its nodes; nothing is changed.

    Raises PreconditionError where it is no driver rollout, still has nodes in hand, or changed nothing that can go
    back.
    """
    ledger = fleet.ledger()
    kept = ledger.operations.get(operation)
    if kept.kind != KIND:
        raise PreconditionError(f"{operation} is a {kept.kind}; only a driver rollout can be rolled back")
    if ledger.leases.held_by(operation):
        raise PreconditionError(f"{operation} has nodes in hand; `gpufleet halt {operation}` first")
    rollout = read_driver_plan(kept)
    former, left_out = _former(fleet, operation)
    if not former:
        why = "; ".join(f"{node}: {text}" for node, text in sorted(left_out.items())[:8]) or "it has changed no driver"
        raise PreconditionError(f"{operation}: no node can go back: {why}")
    measured = [node for kept_wave in rollout.cohorts.values() for node in kept_wave.measured]
    return plan_rollback(fleet.spec(), operation, rollout, former, left_out, measured, fleet.clock.now(), reason)


def keep_rollback(fleet: Fleet, plan: RollbackPlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    return keep_plan(fleet, BACK, plan, actor)


def take_up_rollback(fleet: Fleet, operation: str) -> OperationRun[RollbackPlan]:
    """Become the runner of a rollback that was opened by `gpufleet rollback` or by its rollout."""
    return take_up(fleet, BACK, operation, read_rollback_plan)


def read_rollback_plan(operation: Operation) -> RollbackPlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    return read_kept(operation, RollbackPlan)


def _former(fleet: Fleet, operation: str) -> tuple[dict[str, FormerDriver], dict[str, str]]:
    """What was on each node that the operation changed and left changed, and nodes that cannot be visited."""
    ledger = fleet.ledger()
    records = {record.name: record for record in ledger.inventory.nodes()}
    former: dict[str, FormerDriver] = {}
    left_out: dict[str, str] = {}
    for row in ledger.operations.node_rows(operation):
        entry = ledger.journal.last(operation, row.node, "driver:former")
        if row.status is not NodeStatus.UPDATED or entry is None or entry.outcome is not Outcome.DONE:
            continue
        later = _changed_later(ledger, operation, row.node)
        if later is not None:
            left_out[row.node] = f"{later} has changed its driver since"
            continue
        record = records.get(row.node)
        if record is not None and record.state is not NodeState.IN_SERVICE:
            left_out[row.node] = why_not_visited(record.state, record.reason, record.operation)
            continue
        former[row.node] = FormerDriver.model_validate(entry.result["former"])
    return former, left_out


def _changed_later(ledger: Ledger, operation: str, node: str) -> str | None:
    """The newest operation that changed this node's driver after `operation` did."""
    for other in ledger.operations.that_touched(node):
        if other == operation:
            return None
        rows = {row.node: row.status for row in ledger.operations.node_rows(other)}
        if ledger.operations.get(other).kind in (KIND, BACK) and rows.get(node) is NodeStatus.UPDATED:
            return other
    return None


def _read_all(
    fleet: Fleet, nodes: tuple[Node, ...], to: str, progress: Callable[[int], None]
) -> dict[str, NodeDriverReading]:
    look = fleet.scheduler().look()
    records = {record.name: record for record in fleet.ledger().inventory.nodes()}

    def read(node: Node) -> tuple[str, NodeDriverReading]:
        return node.name, _read(fleet, node, records, look, to)

    readings: dict[str, NodeDriverReading] = {}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="read") as executor:
        for name, reading in executor.map(read, nodes):
            readings[name] = reading
            progress(len(readings))
    return readings


def _read(
    fleet: Fleet, node: Node, records: Mapping[str, NodeRecord], look: SchedulerLook, to: str
) -> NodeDriverReading:
    record, seen = records.get(node.name), look.nodes.get(node.name)
    traits = _traits(fleet, node, record)
    why = _why_left_out(fleet, node, record, look)
    if why is not None:
        return NodeDriverReading(traits, fault=why)
    if seen is not None and seen.driver_refusal is not None:
        return NodeDriverReading(traits, driver_refusal=seen.driver_refusal)
    busy = bool(look.jobs.get(node.name))
    settings = fleet.spec().drivers
    try:
        with closing(fleet.file_host(node)) as raw:
            host = DriverHost(raw, node.name, settings.sudo, settings.probe_seconds)
            reading = host.read(SECTIONS)
            current = installed_version(reading)
            gpus = reading.gpu_count or (None if seen is None else seen.gpus)
            there = same_release(current, to) is True
            target = None if there else read_driver_target(host, node.name, to)
            return NodeDriverReading(traits, current, target, busy, platform=platform_of(reading), gpus=gpus)
    except FleetError as error:
        return NodeDriverReading(traits, fault=error.message)


def _why_left_out(fleet: Fleet, node: Node, record: NodeRecord | None, look: SchedulerLook) -> str | None:
    seen = look.nodes.get(node.name)
    if record is not None and record.state is not NodeState.IN_SERVICE:
        return why_not_visited(record.state, record.reason, record.operation)
    if seen is None and fleet.spec().scheduler.kind != "none":
        return "the scheduler does not know it"
    if seen is not None and seen.state is SchedulerState.DOWN:
        return f"down in the scheduler: {seen.reason or 'no reason given'}"
    return None


def _traits(fleet: Fleet, node: Node, record: NodeRecord | None) -> NodeTraits:
    since = None if record is None else record.in_service_since
    age = None if since is None else (fleet.clock.now() - since).total_seconds() / 86400
    versions = () if record is None else fleet.ledger().inventory.firmware(node.name)
    firmware = digest({one.id: one.version for one in versions})[:12] if versions else "unknown"
    return NodeTraits(node.name, node.model, node.rack, firmware, age)

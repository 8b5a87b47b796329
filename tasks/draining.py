"""Draining nodes for a person: the plan, a node's visit, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

from blocks.fleet import Fleet
from blocks.scheduler import SchedulerLook
from fleet.checkpoints import decide
from fleet.clearing import is_our_cordon
from fleet.drain_plan import DrainPlan, JobFound, plan_drain
from fleet.errors import ConfigurationError, FleetError, LeaseLost, NotDrained, PreconditionError, Released
from fleet.lifecycle import why_not_visited
from fleet.model import Job, Node, NodeState
from ledger import NodeRecord, NodeStatus, Operation
from tasks.jobs import job_policy
from tasks.node import VisitResult
from tasks.operations import OperationRun
from tasks.presets import DISRUPTS, step
from tasks.scheduler import drain_node, return_node, wait_until_empty
from tasks.taking_up import keep_plan, operation_of_this_run, read_kept, take_up
from tasks.visit import Visit

KIND = "drain"
_READERS = 16


def make_drain_plan(
    fleet: Fleet, names: Sequence[str], deadline_seconds: float, reason: str, forced: bool
) -> DrainPlan:
    """Look at the nodes and the jobs on them, and plan; nothing is changed.

    Raises PreconditionError for a node that is not in the fleet file or where no node can be drained, and
    SchedulerUnreachable.
    """
    entries = {node.name: node for node in fleet.spec().inventory()}
    unknown = sorted(set(names) - entries.keys())
    if unknown:
        raise PreconditionError(f"not in the fleet file: {', '.join(unknown[:5])}; see `gpufleet nodes`")
    look = fleet.scheduler().look(newer_than=fleet.clock.monotonic())
    records = {record.name: record for record in fleet.ledger().inventory.nodes()}
    nodes = [entries[name] for name in dict.fromkeys(names)]
    left_out = {
        node.name: why
        for node in nodes
        if (why := _why_left_out(fleet, node, records.get(node.name), look)) is not None
    }
    chosen = [node for node in nodes if node.name not in left_out]
    if not chosen:
        raise PreconditionError("nothing to drain: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    jobs = {job.id: job for node in chosen for job in look.jobs.get(node.name, ())}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="jobs") as executor:
        found = list(executor.map(lambda job: _found(fleet, job, deadline_seconds), jobs.values()))
    return plan_drain(fleet.spec(), chosen, left_out, found, fleet.clock.now(), deadline_seconds, reason, forced)


def _why_left_out(fleet: Fleet, node: Node, record: NodeRecord | None, look: SchedulerLook) -> str | None:
    if record is not None and record.state is not NodeState.IN_SERVICE:
        return why_not_visited(record.state, record.reason, record.operation)
    if node.name not in look.nodes and fleet.spec().scheduler.kind != "none":
        return "the scheduler does not know it"
    return None


def _found(fleet: Fleet, job: Job, deadline_seconds: float) -> JobFound:
    """What would be done about the job now, at the first look; nothing is said to it."""
    jobs, now = fleet.jobs(), fleet.clock.now()
    said = jobs.said(job)
    policy, protected = job_policy(fleet, job, said, now)
    deadline = now + timedelta(seconds=deadline_seconds)
    decision = decide(job, jobs.newest(job, said), now, deadline, policy, None)
    return JobFound(job, replace(decision, text=f"{decision.text}; {protected}") if protected else decision)


def keep_drain(fleet: Fleet, plan: DrainPlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    return keep_plan(fleet, KIND, plan, actor)


def open_or_take_up_drain(
    fleet: Fleet, operation: str | None, nodes: list[str] | None, deadline_seconds: float, reason: str
) -> OperationRun[DrainPlan]:
    """The drain that this flow run carries out, claimed for this process. A run never begins a forced one.

    Raises LeaseLost where another live process runs it, ConfigurationError where neither operation nor nodes are
    given.
    """

    def plan() -> DrainPlan:
        if not nodes:
            raise ConfigurationError("give an operation to take up, or nodes to drain")
        return make_drain_plan(fleet, nodes, deadline_seconds, reason, forced=False)

    return take_up(fleet, KIND, operation_of_this_run(fleet, KIND, operation, plan), read_drain_plan)


def read_drain_plan(operation: Operation) -> DrainPlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    return read_kept(operation, DrainPlan)


@step("drain and keep {visit.name}", DISRUPTS)
def drain_and_keep(visit: Visit) -> VisitResult:
    """As `drain_visit`, with its waiting seen in the Prefect UI."""
    return drain_visit(visit, wait_until_empty)


def drain_visit(visit: Visit, wait: Callable[[Visit, float], str]) -> VisitResult:
    """Cordon the node, wait until it is empty, and leave it so; one that cannot be drained goes back."""
    try:
        visit.wait_for_its_turn()
        returning = visit.last("return")
        if returning is not None:
            status, reason = NodeStatus(str(returning.intent["status"])), str(returning.intent["reason"])
            return _back(visit, status, reason)
        drain_node(visit, wait)
        return VisitResult(visit.name, NodeStatus.DRAINED, "")
    except NotDrained as error:
        return _back(visit, NodeStatus.SKIPPED, error.message)
    except Released:
        return _back(visit, NodeStatus.PENDING, "")
    except LeaseLost as error:
        visit.ledger.operations.check(visit.operation, visit.token)
        visit.ledger.leases.take_back(visit.name, "a person, at the scheduler", error.message)
        return VisitResult(visit.name, NodeStatus.SKIPPED, error.message)
    except FleetError as error:
        return _back(visit, NodeStatus.SKIPPED, error.message)
    finally:
        visit.close()


def _back(visit: Visit, status: NodeStatus, reason: str) -> VisitResult:
    return_node(visit, status, reason)
    return VisitResult(visit.name, status, reason)


@dataclass(frozen=True, slots=True)
class Undrain:
    """What `undrain` does with one node; `why_not` says why it leaves it alone."""

    node: str
    why_not: str | None
    keeps_cordon: str | None = None


def plan_undrain(fleet: Fleet, names: Sequence[str]) -> list[Undrain]:
    """Which of the nodes go back into service, and which not; nothing is changed.

    A cordon that is not ours stays, and so does its reason. Raises PreconditionError, SchedulerUnreachable.
    """
    known = {record.name: record for record in fleet.ledger().inventory.nodes()}
    look = fleet.scheduler().look(newer_than=fleet.clock.monotonic())
    found = []
    for name in dict.fromkeys(names):
        record = known.get(name)
        if record is None:
            raise PreconditionError(f"no node {name}; see `gpufleet nodes`")
        seen = look.nodes.get(name)
        theirs = seen is not None and seen.cordoned and not is_our_cordon(seen)
        found.append(
            Undrain(name, _why_not_undrained(record), (seen.reason or "no reason") if theirs and seen else None)
        )
    return found


def undrain_nodes(fleet: Fleet, plans: Sequence[Undrain], actor: str, reason: str) -> None:
    """Give drained nodes back, by one look and one command.

    Raises PreconditionError, before anything is done, where one was taken meanwhile; SchedulerUnreachable.
    """
    inventory = fleet.ledger().inventory
    look = fleet.scheduler().look(newer_than=fleet.clock.monotonic())
    records = {record.name: record for record in inventory.nodes()}
    for plan in plans:
        why_not = _why_not_undrained(records[plan.node])
        if why_not is not None:
            raise PreconditionError(why_not, node=plan.node)
    ours = tuple(plan.node for plan in plans if is_our_cordon(look.nodes.get(plan.node)))
    if ours:
        fleet.scheduler().uncordon(ours)
    for plan in plans:
        inventory.move(plan.node, NodeState.IN_SERVICE, f"undrained by {actor}" + (f": {reason}" if reason else ""))


def _why_not_undrained(record: NodeRecord) -> str | None:
    if record.operation is not None:
        return f"{record.operation} holds it; `gpufleet abort {record.operation}` ends that"
    if record.state is NodeState.DRAINED:
        return None
    if record.state is NodeState.IN_SERVICE:
        return "is in service"
    return f"is {record.state.value}, not drained"

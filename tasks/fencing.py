"""Keeping new jobs from running on updated and other nodes of a pool at once, while a rollout is under way."""

from __future__ import annotations

import threading
from contextlib import suppress

from prefect.logging import get_run_logger

from blocks.fleet import Fleet
from fleet.errors import FleetError, LeaseLost, PreconditionError, SchedulerUnreachable
from fleet.fences import fence_name, nodes_to_fence, operation_of
from fleet.model import NodeState
from fleet.plan import Wave
from ledger import NodeStatus, Operation, OperationState
from tasks.operations import AnyRun
from tasks.visit import Visit

_TRIES = 20
_SAME = frozenset({NodeStatus.UPDATED, NodeStatus.UNCHANGED})


class PoolFence:
    """The fence of one wave's pool; used by the visits' threads. Nodes that come together go in together."""

    def __init__(self, run: AnyRun, wave: Wave) -> None:
        self._fences = run.fleet.fences() if _is_wanted(run, wave) else None
        self._name = fence_name(wave.pool, run.operation)
        self._pool = wave.pool
        self._guard, self._turn = threading.Lock(), threading.Lock()
        self._fenced: frozenset[str] = frozenset()
        rows = run.ledger.operations.node_rows(run.operation) if self._fences is not None else ()
        pool = {node.name for node in run.fleet.spec().inventory() if node.pool == wave.pool}
        self._new = pool & ({row.node for row in rows if row.status in _SAME} | set(run.plan.current))
        self._working = pool & {
            record.name
            for record in run.ledger.inventory.nodes()
            if record.state is NodeState.IN_SERVICE or record.operation == run.operation
        }

    def take_in(self, visit: Visit) -> None:
        """Before an updated node takes work again. A scheduler that is away is waited for.

        A scheduler that cannot keep nodes apart does not hold the rollout up; the run's log says so.
        """
        if self._fences is None:
            return
        with self._guard:
            self._new.add(visit.name)
        with self._turn:
            if visit.name in self._fenced or self._fences is None:
                return
            with self._guard:
                nodes = frozenset(self._new)
            try:
                self._ensure(visit, nodes_to_fence(nodes, self._working))
                self._fenced = nodes
            except LeaseLost:
                raise
            except FleetError as error:
                if not isinstance(error, SchedulerUnreachable):
                    self._fences = None
                text = "pool %s is not fenced: %s; new jobs may span updated and other nodes until it is all updated"
                get_run_logger().warning(text, self._pool, error.message)

    def _ensure(self, visit: Visit, wanted: tuple[str, ...]) -> None:
        """Raises what the scheduler raises; one that is away is waited for a little, as the return waits for it too."""
        assert self._fences is not None
        for _ in range(_TRIES - 1):
            with suppress(SchedulerUnreachable):
                self._fences.ensure_fence(self._name, wanted)
                return
            visit.ledger.operations.check(visit.operation, visit.token)
            visit.say("waits for the scheduler, to fence the node")
            visit.fleet.clock.sleep(visit.fleet.spec().scheduler.poll_seconds)
        self._fences.ensure_fence(self._name, wanted)


def lift_fences(fleet: Fleet) -> list[str]:
    """Take away the fences of operations that are over; what was done, a line each.

    That of an operation that is done, but left nodes behind that take work, stays until those are updated too: the
    pool is still of two kinds. That of an aborted operation goes at once.
    """
    fences = fleet.fences()
    if fences is None:
        return []
    said = []
    try:
        for name in fences.read_fences():
            operation = _operation(fleet, operation_of(name))
            if operation is not None and _is_over(fleet, operation) and fences.ensure_fence(name, ()):
                said.append(f"fence {name} is gone: {operation.id} is {operation.state.value}")
    except FleetError as error:
        said.append(f"fences cannot be looked at: {error.message}")
    return said


def _is_wanted(run: AnyRun, wave: Wave) -> bool:
    """What the pool says; where it says nothing, with Slurm only: a taint would keep most new pods out."""
    said = run.plan.policy.pools[wave.pool].fence
    return run.fleet.spec().scheduler.kind == "slurm" if said is None else said


def _operation(fleet: Fleet, name: str) -> Operation | None:
    """None for a fence that somebody else has set."""
    try:
        return fleet.ledger().operations.get(name)
    except PreconditionError:
        return None


def _is_over(fleet: Fleet, operation: Operation) -> bool:
    if operation.open:
        return False
    return operation.state is not OperationState.DONE or not _left_behind(fleet, operation)


def _left_behind(fleet: Fleet, operation: Operation) -> bool:
    """Whether nodes take work that are not as the operation wanted them, and that no later one changed."""
    ledger = fleet.ledger()
    for row in ledger.operations.node_rows(operation.id):
        if row.status not in _SAME and ledger.inventory.node(row.node).state is NodeState.IN_SERVICE:
            touched = ledger.operations.that_touched(row.node)
            if not touched or ledger.operations.get(touched[0]).created <= operation.created:
                return True
    return False

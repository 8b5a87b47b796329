"""Nodes that are taken out together: none is changed before all are empty, none goes back before all are done."""

from __future__ import annotations

from fleet.errors import NotDrained
from ledger import NodeStatus, Outcome
from tasks.visit import Visit

_GONE = frozenset({NodeStatus.SKIPPED, NodeStatus.FAILED})


def wait_for_unit(visit: Visit, step_name: str) -> None:
    """Wait until every other node of the unit has finished `step_name` in this operation.

    Raises NotDrained where one of them was skipped or failed before the unit was empty.
    """
    others = [node for node in visit.unit if node != visit.name]
    clock = visit.fleet.clock
    while others:
        rows = {row.node: row.status for row in visit.ledger.operations.node_rows(visit.operation)}
        gone = [node for node in others if rows.get(node) in _GONE]
        if gone and step_name == "drain":
            raise NotDrained(f"its domain's node {gone[0]} was not drained", node=visit.name)
        others = [node for node in others if node not in gone and not _passed(visit, node, step_name, rows)]
        if others:
            visit.say(f"waits for {others[0]} of its domain ({step_name})")
            clock.sleep(visit.fleet.spec().scheduler.poll_seconds)


def meet_unit(visit: Visit, step_name: str) -> None:
    """Write down that this node has finished `step_name`, and wait for the others of its unit."""
    if len(visit.unit) > 1:
        if not visit.done(step_name):
            with visit.step(step_name, {}):
                pass
        wait_for_unit(visit, step_name)


def _passed(visit: Visit, node: str, step_name: str, rows: dict[str, NodeStatus]) -> bool:
    last = visit.ledger.journal.last(visit.operation, node, step_name)
    return rows.get(node) is NodeStatus.UPDATED or (last is not None and last.outcome is Outcome.DONE)

"""Reading nodes for a plan. A BMC that asks for patience gets some, while the other nodes are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from blocks.fleet import Fleet
from blocks.scheduler import SchedulerLook
from fleet.errors import BmcBusy, FleetError, TransientError
from fleet.lifecycle import why_not_visited
from fleet.model import Node, NodeState, SchedulerState
from fleet.ports import Bmc
from fleet.rollout import NodeReading
from ledger import NodeRecord

T = TypeVar("T")

_READERS = 32
_PATIENCE_SECONDS = 60.0
_SHORTEST_WAIT_SECONDS = 0.1


@dataclass
class _Asked:
    """A node whose BMC is still to be read. One client is kept: a new login each time may lock the account."""

    node: Node
    busy: bool
    next_at: float
    bmc: Bmc | None = None
    first_refusal: float | None = None


def read_nodes(fleet: Fleet, nodes: tuple[Node, ...], progress: Callable[[int], None]) -> dict[str, NodeReading]:
    """Every node's firmware and whether it has work; what could not be read says why.

    A BMC that is busy or away is asked again for at most a minute (or the fleet's ready time, if shorter).
    Nodes that are not in service are not visited. `progress` gets the number of nodes done so far.
    """
    look = fleet.scheduler().look()
    records = {record.name: record for record in fleet.ledger().inventory.nodes()}
    checked = {node.name: _left_out(fleet, node, records.get(node.name), look) for node in nodes}
    readings = {name: reading for name, reading in checked.items() if reading is not None}
    clock = fleet.clock
    waiting = [
        _Asked(node, bool(look.jobs.get(node.name)), clock.monotonic()) for node in nodes if node.name not in readings
    ]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="read") as executor:
        try:
            while waiting:
                now = clock.monotonic()
                due = [asked for asked in waiting if asked.next_at <= now]
                if not due:
                    clock.sleep(min(asked.next_at for asked in waiting) - now)
                for asked, reading in zip(due, executor.map(lambda one: _ask(fleet, one), due), strict=True):
                    if reading is not None:
                        readings[asked.node.name] = reading
                        progress(len(readings))
                waiting = [asked for asked in waiting if asked.node.name not in readings]
        finally:
            _close(waiting)
    return readings


def patience_seconds(fleet: Fleet) -> float:
    """How long a person who waits for an answer lets a BMC be busy or away."""
    return min(_PATIENCE_SECONDS, fleet.spec().bmc.ready_timeout_seconds)


def _left_out(fleet: Fleet, node: Node, record: NodeRecord | None, look: SchedulerLook) -> NodeReading | None:
    """Why a node is not even asked, None where it is; one that the ledger has not seen yet counts as in service."""
    seen = look.nodes.get(node.name)
    if record is not None and record.state is not NodeState.IN_SERVICE:
        idle = seen is not None and seen.cordoned and not look.jobs.get(node.name)
        aside = record.state is NodeState.QUARANTINED and idle
        return NodeReading(fault=why_not_visited(record.state, record.reason, record.operation), set_aside=aside)
    if seen is None and fleet.spec().scheduler.kind != "none":
        return NodeReading(fault="the scheduler does not know it")
    if seen is not None and seen.state is SchedulerState.DOWN:
        return NodeReading(fault=f"down in the scheduler: {seen.reason or 'no reason given'}")
    return None


def _ask(fleet: Fleet, asked: _Asked) -> NodeReading | None:
    """One try; None where the node is to be asked again at `next_at`."""
    try:
        if asked.bmc is None:
            asked.bmc = fleet.clients().bmc(asked.node)
        firmware = asked.bmc.read_firmware()
    except TransientError as error:
        if _later(fleet, asked, error):
            return None
        reading = _unreadable(error)
    except FleetError as error:
        reading = _unreadable(error)
    else:
        reading = NodeReading(firmware, asked.busy)
    _close((asked,))
    return reading


def _later(fleet: Fleet, asked: _Asked, error: TransientError) -> bool:
    """Set the time of the next try; False where there is no time left for one."""
    now = fleet.clock.monotonic()
    if asked.first_refusal is None:
        asked.first_refusal = now
    asked.next_at = now + wait_seconds(fleet, error)
    return asked.next_at <= asked.first_refusal + patience_seconds(fleet)


def _unreadable(error: FleetError) -> NodeReading:
    return NodeReading(fault=f"its firmware could not be read: {error.message}")


def _close(many: Iterable[_Asked]) -> None:
    for asked in many:
        if asked.bmc is not None:
            with suppress(FleetError):
                asked.bmc.close()


def read_patiently(fleet: Fleet, read: Callable[[], T]) -> T:
    """One read, repeated while the BMC is busy or away, for as long as a plan would.

    Raises what the last try raised.
    """
    clock = fleet.clock
    deadline = clock.monotonic() + patience_seconds(fleet)
    while True:
        try:
            return read()
        except TransientError as error:
            wait = wait_seconds(fleet, error)
            if clock.monotonic() + wait > deadline:
                raise
            clock.sleep(wait)


def wait_seconds(fleet: Fleet, error: TransientError) -> float:
    """How long to wait before asking again: what the BMC asked for, else the fleet's poll time."""
    wished = error.retry_after_seconds if isinstance(error, BmcBusy) else None
    return max(fleet.spec().bmc.poll_seconds if wished is None else wished, _SHORTEST_WAIT_SECONDS)

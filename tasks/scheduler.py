"""Cordon, drain and return of one node at its scheduler. A scheduler that is away is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blocks.scheduler import SchedulerLook
from fleet.drain import DrainStatus, judge_drain
from fleet.errors import LeaseLost, NotDrained, SchedulerUnreachable
from fleet.model import NodeState, SchedulerNode
from tasks.presets import DISRUPTS, step
from tasks.visit import Visit

T = TypeVar("T")


@step("drain {visit.name}", DISRUPTS)
def drain_node(visit: Visit) -> None:
    """Cordon the node and wait until its work has left.

    Raises NotDrained after the policy's time, LeaseLost where a person took the node back. A scheduler
    that does not answer is waited for: it never counts as empty.
    """
    if visit.done("drain"):
        visit.check_ours()
        return
    ensure_cordoned(visit)
    with visit.step("drain", {}) as evidence:
        evidence["empty"] = _wait_until_empty(visit)
    visit.ledger.inventory.move(visit.name, NodeState.DRAINED, "no work left", visit.operation)


def ensure_cordoned(visit: Visit) -> bool:
    """Cordon the node unless somebody already has; True where this call changed something."""
    visit.ledger.inventory.move(visit.name, NodeState.DRAINING, "waits for its work", visit.operation)
    seen = _seen_now(visit)
    if seen is not None and seen.cordoned:
        return False
    if visit.done("cordon"):
        raise LeaseLost("was undrained by hand while the operation held it", node=visit.name)
    with visit.step("cordon", {"reason": visit.cordon_reason}):
        _patiently(visit, lambda: visit.fleet.scheduler().cordon((visit.name,), visit.cordon_reason))
    return True


def _patiently(visit: Visit, ask: Callable[[], T]) -> T:
    """Ask until the scheduler answers; cordoning and uncordoning twice does no harm."""
    while True:
        try:
            return ask()
        except SchedulerUnreachable as error:
            visit.ledger.operations.check(visit.operation, visit.token)
            visit.say(f"scheduler does not answer: {error.message}")
            visit.fleet.clock.sleep(visit.fleet.spec().scheduler.poll_seconds)


def _look_now(visit: Visit) -> SchedulerLook:
    asked = visit.fleet.clock.monotonic()
    return _patiently(visit, lambda: visit.fleet.scheduler().look(newer_than=asked))


def _seen_now(visit: Visit) -> SchedulerNode | None:
    return _look_now(visit).nodes.get(visit.name)


def _wait_until_empty(visit: Visit) -> str:
    clock, settings = visit.fleet.clock, visit.fleet.spec().pools[visit.node.pool].waves
    asked = clock.monotonic()
    deadline = asked + settings.drain_timeout_seconds
    while True:
        status = _judge(visit, asked)
        if status.empty:
            return status.text
        if status.taken_back:
            raise LeaseLost(status.text, node=visit.name)
        if clock.monotonic() >= deadline:
            raise NotDrained(f"not empty after {settings.drain_timeout_seconds:.0f} s: {status.text}", node=visit.name)
        visit.say(status.text)
        clock.sleep(visit.fleet.spec().scheduler.poll_seconds)


def _judge(visit: Visit, asked: float) -> DrainStatus:
    """From a look that was taken after the cordon."""
    look = _patiently(visit, lambda: visit.fleet.scheduler().look(newer_than=asked))
    return judge_drain(visit.name, look.nodes.get(visit.name), look.jobs.get(visit.name, ()))


def return_node(visit: Visit) -> None:
    """Give the node back as it was found: uncordoned only where the cordon is ours."""
    if not visit.before.cordoned:
        seen = _seen_now(visit)
        if seen is not None and seen.cordoned and seen.reason == visit.cordon_reason:
            with visit.step("return", {}):
                _patiently(visit, lambda: visit.fleet.scheduler().uncordon((visit.name,)))
    visit.ledger.inventory.move(visit.name, visit.before.state, "returned", visit.operation)


def keep_cordoned(visit: Visit, why: str) -> None:
    """Leave the node out of service, with the true reason where the cordon is ours."""
    seen = _seen_now(visit)
    if seen is None or not seen.cordoned or seen.reason == visit.cordon_reason:
        reason = f"{visit.cordon_reason} quarantined: {why}"
        _patiently(visit, lambda: visit.fleet.scheduler().cordon((visit.name,), reason))

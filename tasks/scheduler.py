"""Cordon, drain and return of one node at its scheduler. A scheduler that is away is waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

from blocks.fleet import Fleet
from blocks.scheduler import SchedulerLook
from fleet.checkpoints import Choice
from fleet.drain import DrainStatus, is_down_for_a_reboot, judge_drain
from fleet.errors import LeaseLost, NodeUnreachable, NotDrained, Released
from fleet.model import NodeState, SchedulerNode
from ledger import NodeStatus, Outcome
from tasks.jobs import settle_job
from tasks.presets import DISRUPTS, step
from tasks.visit import REGISTERED, Visit

_REASON_LENGTH = 1000  # a reason is one line of `scontrol show node -o`


def drain_node(visit: Visit, wait: Callable[[Visit, float], str]) -> None:
    """Cordon the node and wait until its work has left; `wait` is called only where there is some.

    Raises NotDrained after the policy's time, LeaseLost where a person took the node back, Released where
    the operation is to stop meanwhile. A scheduler that does not answer is waited for: it never counts as empty.
    """
    if visit.done("drain"):
        visit.check_ours()
        if visit.ledger.inventory.node(visit.name).state is NodeState.DRAINING:  # whoever drained it died just then
            visit.ledger.inventory.move(visit.name, NodeState.DRAINED, "no work left", visit.operation)
        return
    ensure_cordoned(visit)
    with visit.step("drain", {}) as evidence:
        asked = visit.fleet.clock.monotonic()
        evidence["empty"] = _why_empty(visit, asked) or wait(visit, asked)
    visit.ledger.inventory.move(visit.name, NodeState.DRAINED, "no work left", visit.operation)


@step("drain {visit.name}", DISRUPTS)
def wait_until_empty(visit: Visit, asked: float) -> str:
    """Wait for the node's work, decide about its jobs meanwhile; what shows that it is empty.

    `asked` is the monotonic time of the cordon. Raises as `drain_node`.
    """
    clock, deadline = visit.fleet.clock, drain_deadline(visit)
    while True:
        empty = _why_empty(visit, asked)
        if empty is not None:
            return empty
        if visit.may_let_go():
            raise Released("the operation stops before the node was empty", node=visit.name)
        jobs = visit.look(newer_than=asked).jobs.get(visit.name, ())
        decisions = [visit.ask_scheduler(partial(settle_job, visit, job, deadline)) for job in jobs]
        text = "; ".join(decision.text for decision in decisions) or _judge(visit, asked).text
        # a job that may still end does not stop the deadline of another one on the node
        stuck = not decisions or any(decision.choice is Choice.ASK_PERSON for decision in decisions)
        if stuck and clock.now() >= deadline:
            raise NotDrained(f"not empty by {deadline:%F %H:%M} UTC: {text}", node=visit.name)
        visit.say(text)
        clock.sleep(visit.fleet.spec().scheduler.poll_seconds)


def _why_empty(visit: Visit, asked: float) -> str | None:
    """What shows that the node is empty, None where it is not. Raises LeaseLost where a person took it back."""
    look = visit.look(newer_than=asked)
    if visit.ensure_still_cordoned(look.nodes.get(visit.name)):
        return None
    status = _judge(visit, asked)
    return status.text if status.empty and not status.taken_back else None


def _judge(visit: Visit, asked: float) -> DrainStatus:
    """From a look that was taken after the cordon."""
    look = visit.look(newer_than=asked)
    return judge_drain(visit.name, look.nodes.get(visit.name), look.jobs.get(visit.name, ()))


def ensure_cordoned(visit: Visit) -> bool:
    """Cordon the node unless somebody already has; True where this call changed something."""
    visit.ledger.inventory.move(visit.name, NodeState.DRAINING, "waits for its work", visit.operation)
    seen = _seen_now(visit)
    if seen is not None and seen.cordoned:
        return False
    if visit.done("cordon") and visit.taken_back(seen):
        raise LeaseLost("was undrained by hand while the operation held it", node=visit.name)
    with visit.step("cordon", {"reason": visit.cordon_reason}):
        visit.ask_scheduler(lambda: visit.fleet.scheduler().cordon((visit.name,), visit.cordon_reason))
    return True


def _seen_now(visit: Visit) -> SchedulerNode | None:
    return visit.look(newer_than=visit.fleet.clock.monotonic()).nodes.get(visit.name)


def drain_deadline(visit: Visit) -> datetime:
    """Counted from the lease, so that a runner that dies gives nobody more time."""
    lease = visit.ledger.leases.lease(visit.name)
    begun = lease.since if lease is not None else visit.fleet.clock.now()
    return begun + timedelta(seconds=visit.drain_seconds)


def return_node(visit: Visit, status: NodeStatus, reason: str = "") -> None:
    """Give the node back as it was found: a cordon is lifted only where its reason says that it is ours.

    What became of the node is written down first, so that a runner that finds the return begun says the same. A node
    that was booted goes back when its scheduler has heard of it: before, Slurm may close it again, and nobody knows
    that it is out. Raises NodeUnreachable where that takes longer than the fleet's boot time.
    """
    seen = _wait_until_registered(visit)
    with visit.step("return", {"status": status.value, "reason": reason}):
        if seen is not None and seen.cordoned and seen.reason == visit.cordon_reason:
            visit.ask_scheduler(lambda: visit.fleet.scheduler().uncordon((visit.name,)))
    inventory = visit.ledger.inventory
    if inventory.node(visit.name).state is NodeState.MAINTENANCE:  # given up before anything became active
        inventory.move(visit.name, NodeState.DRAINED, "given up before validation", visit.operation)
    inventory.move(visit.name, visit.before.state, "returned", visit.operation)


def _wait_until_registered(visit: Visit) -> SchedulerNode | None:
    """The node as its scheduler shows it now, after every boot that this operation made."""
    entries = visit.ledger.journal.entries(visit.operation, visit.name)
    marks = [e.intent[REGISTERED] for e in entries if REGISTERED in e.intent and e.outcome is Outcome.DONE]
    clock, spec = visit.fleet.clock, visit.fleet.spec()
    deadline = clock.monotonic() + spec.bmc.boot_timeout_seconds
    while True:
        seen = _seen_now(visit)
        if seen is None or not marks or seen.registered not in (None, marks[-1]):
            return seen
        if clock.monotonic() >= deadline:
            text = f"up, but not registered with its scheduler within {spec.bmc.boot_timeout_seconds:.0f} s of that"
            raise NodeUnreachable(text, node=visit.name, evidence=(f"state {'+'.join(sorted(seen.flags))}",))
        visit.say("waits for the scheduler to hear of its boot")
        clock.sleep(spec.scheduler.poll_seconds)


def reopen(fleet: Fleet, returned: Collection[str], look: SchedulerLook) -> None:
    """Open nodes again that the scheduler closed for the reboot that an operation made. Raises SchedulerUnreachable."""
    closed = tuple(sorted(name for name in returned if is_down_for_a_reboot(look.nodes.get(name))))
    if closed:
        fleet.scheduler().uncordon(closed)


def keep_cordoned(visit: Visit, why: str) -> None:
    """Leave the node out of service, with the true reason where the cordon is ours."""
    seen = _seen_now(visit)
    if seen is not None and (not seen.cordoned or seen.reason == visit.cordon_reason):
        reason = " ".join(f"{visit.cordon_reason} quarantined: {why}".split())[:_REASON_LENGTH]
        visit.ask_scheduler(lambda: visit.fleet.scheduler().cordon((visit.name,), reason))

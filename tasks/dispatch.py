"""Hands out one wave's nodes as the budget allows. A node that waits costs no thread and no task run."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from prefect.futures import PrefectFuture

from fleet.budget import Refused
from fleet.errors import SchedulerUnreachable
from fleet.ownership import Before
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from fleet.windows import next_open
from ledger import NodeStatus, OperationState
from tasks.health import findings_in
from tasks.node import VisitResult
from tasks.operations import AnyRun
from tasks.pace import Spread
from tasks.scheduler import reopen
from tasks.slots import RackSlots
from tasks.standing import before_now
from tasks.visit import Visit

_Granted = tuple[tuple[str, ...], dict[str, Before]]
Submit = Callable[[Visit], PrefectFuture[VisitResult]]

_PASS_SECONDS = 2.0
_REFUSED_SECONDS = 10.0  # another operation's node may have come back
_SETTLES_SECONDS = 300.0  # a returned node may be down, and count as out, until its scheduler has heard from it
_TOGETHER = 16  # units whose slots are asked for in one request
_SLOT_SECONDS = 15.0  # a rack without a free slot is asked again after this: each try is four audit records


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why no further node is handed out."""

    kind: ReasonKind
    text: str


class Dispatcher:
    """One wave of one operation; used by one thread, the nodes' visits run in others."""

    def __init__(self, run: AnyRun, wave: Wave, submit: Submit, slots: RackSlots) -> None:
        self._run = run
        self._wave = wave
        self._submit = submit
        self._slots = slots
        self._inventory = {node.name: node for node in run.fleet.spec().inventory()}
        self._returned: dict[str, float] = {}  # updated by this wave, in this process, and when
        self._limits = {rack: max(1, limit) for rack, limit in run.fleet.spec().rack_limits().items()}
        self._running: dict[str, PrefectFuture[VisitResult]] = {}
        self._held: dict[str, str] = {}  # node → rack of which it has a slot
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._refused: dict[str, Refused] = {}
        self._full: dict[str, tuple[Refused, float]] = {}  # rack → its refusal, and until when it is taken for valid
        self._granted: list[_Granted] = []  # leased, not begun
        self._asked: list[tuple[list[_Granted], list[str], Future[list[bool]]]] = []  # and their slots asked for
        self._noted = float("-inf")  # the look at the scheduler whose cordons are in the ledger
        self._slotless: dict[str, float] = {}  # rack → when its limit in Prefect is asked for again
        self._waits = False  # for a scheduler, a window or a slot: nothing that a person must mend
        self._waiting = False  # and the operation's state says so
        self._spread = Spread(run.fleet.clock, wave.rounds)

    def work(self, only_in_hand: bool = False) -> Stopped | None:
        """Visit every node of the wave; returns why it stopped before the last one, or None.

        Nodes in hand are always finished; with `only_in_hand` no other is visited, whatever was asked for
        meanwhile. Raises LeaseLost where another runner has taken over.
        """
        self._take_up_nodes_in_hand()
        while only_in_hand and self._running:
            self._run.beat()
            self._collect()
        if only_in_hand:
            return None
        while True:
            stopped = self._why_stop()
            if stopped is None:
                self._hand_out()
                stopped = self._why_stuck()
            if not self._running and (stopped is not None or not self._pending()):
                return stopped
            self._collect()

    def _pending(self) -> list[tuple[str, ...]]:
        open_nodes = self._run.ledger.operations.pending(self._run.operation, self._wave.number)
        return [unit for unit in self._wave.units if open_nodes.intersection(unit)]

    def _why_stop(self) -> Stopped | None:
        asked = self._run.beat()
        if asked is not None:
            return Stopped(ReasonKind.PERSON, self._run.what_was_asked())
        settings = self._run.plan.policy.pools[self._wave.pool].waves
        failed = self._run.ledger.operations.counts(self._run.operation).get(NodeStatus.FAILED, 0)
        if failed > settings.failure_budget:
            return Stopped(
                ReasonKind.FAILURE_BUDGET,
                f"{failed} nodes failed, the policy survives {settings.failure_budget}; see `gpufleet status "
                f"{self._run.operation}`",
            )
        return None

    def _why_stuck(self) -> Stopped | None:
        """Nothing runs, nothing may go, and no operation's end would change that: a person must."""
        if self._running or not self._refused or self._waits:
            return None
        refused = next(iter(self._refused.values()))
        ledger = self._run.ledger
        if any(ledger.leases.lease(node) is not None for one in self._refused.values() for node in one.blocked_by):
            return None
        if any(one.passes for one in self._refused.values()):
            return None
        since = self._run.fleet.clock.monotonic() - _SETTLES_SECONDS
        if any(self._returned.get(node, since) > since for one in self._refused.values() for node in one.blocked_by):
            return None
        return Stopped(refused.reason_kind, refused.text)

    def _hand_out(self) -> None:
        """Lease and submit every unit that fits now; each rack is asked until it refuses once."""
        self._refused = {}
        self._waits = False
        now = self._run.fleet.clock.now()
        # a wave may take longer than its window is open: the nodes in hand are finished, no further one goes
        opens = next_open(self._run.plan.policy.pools[self._wave.pool].waves.windows, now)
        if opens > now:
            self._wait_for(ReasonKind.WINDOW, f"opens {opens:%a %F %H:%M} UTC")
            return
        try:
            self._note_cordons()
            try:
                self._try_all()
            finally:
                self._ask_for_slots()
                self._begin_asked(wait=True)
        except SchedulerUnreachable as error:  # never to be read as "nobody is cordoned, nothing runs"
            self._wait_for(ReasonKind.HEALTH, f"scheduler does not answer: {error.message}")
        else:
            if self._waiting:
                self._waiting = False
                self._run.set_state(OperationState.RUNNING)

    def _note_cordons(self) -> None:
        """Take in who else took nodes out, once for each look at the scheduler."""
        look = self._run.fleet.scheduler().look()  # a node that has returned was looked at for that
        if look.taken_at != self._noted:
            self._run.ledger.inventory.record_cordons(findings_in(look.nodes))
            self._noted = look.taken_at
            since = look.taken_at - _SETTLES_SECONDS  # a later reboot is none of ours
            reopen(self._run.fleet, [node for node, at in self._returned.items() if at > since], look)

    def _wait_for(self, kind: ReasonKind, text: str) -> None:
        self._waits = self._waiting = True
        self._run.set_state(OperationState.WAITING, kind, f"wave {self._wave.number}: {text}")

    def _try_all(self) -> None:
        """Ask the budget for the units that may fit, some together: each turn to write to the ledger is waited for."""
        asked: Counter[str] = Counter()
        together: list[tuple[str, ...]] = []
        for unit in self._offered():
            if self._leave_out_unknown(unit):
                continue
            racks = {self._inventory[node].rack for node in unit}
            if racks & self._refused.keys() or any(asked[rack] >= self._limits.get(rack, 1) for rack in racks):
                continue  # no more of a rack can be granted in one pass than it has room for
            refused = self._no_slot_yet(racks) or self._still_full(racks)
            if refused is not None:
                self._refused |= dict.fromkeys(racks, refused)
                if _holds_all(refused):
                    break
                continue
            asked.update(racks)
            together.append(unit)
            if len(together) == _TOGETHER:
                if not self._try(together):
                    return
                together = []
        self._try(together)

    def _offered(self) -> list[tuple[str, ...]]:
        """The pending units of the first round that has any, and of later rounds those without work.

        A unit with work that came early would disturb its jobs once more than the plan does. A round of which only
        units are left that another operation keeps back does not hold up the later ones.
        """
        jobs = self._run.fleet.scheduler().look().jobs
        pending = set(self._pending())
        offered: list[tuple[str, ...]] = []
        later = False
        for units in self._wave.units_by_round:
            here = [unit for unit in units if unit in pending]
            offered += [unit for unit in here if not later or not any(jobs.get(node) for node in unit)]
            later = later or not all(self._is_kept_back(unit) for unit in here)
        return offered

    def _is_kept_back(self, unit: tuple[str, ...]) -> bool:
        """Whether the unit was refused a moment ago, and not for a node of ours that will end."""
        refused = self._still_full({self._inventory[node].rack for node in unit if node in self._inventory})
        return refused is not None and not any(node in self._running for node in refused.blocked_by)

    def _still_full(self, racks: set[str]) -> Refused | None:
        """The last refusal, while no node of ours has ended since: asking the budget is a write to the ledger."""
        now = self._run.fleet.clock.monotonic()
        known = (self._full[rack] for rack in sorted(racks) if rack in self._full)
        return next((refused for refused, until in known if now < until), None)

    def _leave_out_unknown(self, unit: tuple[str, ...]) -> bool:
        """Skip a unit one of whose nodes was taken out of the fleet file since the plan was made."""
        gone = [node for node in unit if node not in self._inventory]
        for node in unit if gone else ():
            run = self._run
            why = f"{gone[0]} is no longer in the fleet file"
            run.ledger.operations.finish_node(run.operation, node, NodeStatus.SKIPPED, why, run.token)
        return bool(gone)

    def _no_slot_yet(self, racks: set[str]) -> Refused | None:
        now = self._run.fleet.clock.monotonic()
        rack = next((rack for rack in sorted(racks) if self._slotless.get(rack, now) > now), None)
        if rack is None:
            return None
        self._waits = True
        return Refused(ReasonKind.BUDGET, f"rack {rack}: its limit in the Prefect UI is used up")

    def _try(self, units: Sequence[tuple[str, ...]]) -> bool:
        """Lease the units that the budget has room for; False where it has none for any other either."""
        if not units:
            return True
        run = self._run
        before = before_now(run, [node for unit in units for node in unit])
        wanted = [(unit, {node: before[node] for node in unit}) for unit in units]
        goes_on = True
        for (unit, was), answer in zip(
            wanted, run.ledger.leases.acquire_each(run.operation, run.token, wanted), strict=True
        ):
            if isinstance(answer, Refused):
                racks = {self._inventory[node].rack for node in unit}
                self._refused |= dict.fromkeys(racks, answer)
                self._full |= dict.fromkeys(racks, (answer, run.fleet.clock.monotonic() + _REFUSED_SECONDS))
                goes_on = goes_on and not _holds_all(answer)
            else:
                self._granted.append((unit, was))
        self._ask_for_slots()
        self._begin_asked(wait=False)
        return goes_on

    def _ask_for_slots(self) -> None:
        """Ask for the slots of the units that were leased; the next few are leased meanwhile.

        The ledger knows of a slot before the server does: what a dead runner held can be told from it.
        """
        granted, self._granted = self._granted, []
        if granted:
            racks = {node: self._inventory[node].rack for unit, _ in granted for node in unit}
            self._held |= racks
            self._run.ledger.leases.set_external_slots(racks)
            self._asked.append((granted, list(racks), self._slots.take(list(racks.values()))))

    def _begin_asked(self, wait: bool) -> None:
        """Begin the visits of the units that have all of their slots; with `wait` also of those asked for just now."""
        while self._asked and (wait or self._asked[0][2].done()):
            granted, nodes, answer = self._asked.pop(0)
            has = dict(zip(nodes, answer.result(), strict=True))
            complete = [(unit, before) for unit, before in granted if all(has[node] for node in unit)]
            self._start([(node, unit, before[node]) for unit, before in complete for node in unit])
            for unit, _ in granted:
                missing = [node for node in unit if not has[node]]
                for node in missing:  # a person lowered it, or nobody answers: it is waited for
                    self._slotless[self._held.pop(node)] = self._run.fleet.clock.monotonic() + _SLOT_SECONDS
                if missing:
                    self._let_go(unit)
                    self._waits = True

    def _let_go(self, unit: tuple[str, ...]) -> None:
        for node in unit:
            slot = self._held.pop(node, None)
            if slot is not None:
                self._slots.give_back(slot)
        self._run.ledger.leases.release(self._run.operation, self._run.token, *unit)

    def _start(self, visits: Sequence[tuple[str, tuple[str, ...], Before]]) -> None:
        """Begin visits: (node, its unit, what was there before)."""
        if not visits:
            return
        run = self._run
        run.ledger.operations.start_nodes(run.operation, [node for node, _, _ in visits], run.token)
        drain_seconds, may_stop = run.plan.drain_seconds(self._wave.pool), run.plan.may_stop()
        for node, unit, before in visits:
            entry = self._inventory.get(node) or run.ledger.inventory.node(node).node
            plan = run.plan.nodes[node]
            visit = Visit(run.fleet, run.operation, run.token, entry, plan, before, unit, drain_seconds, may_stop)
            visit.begins_at = self._spread.next()
            self._running[node] = future = self._submit(visit)
            future.add_done_callback(lambda _, name=node: self._ended.put(name))  # type: ignore[misc]

    def _take_up_nodes_in_hand(self) -> None:
        """Carry on with the nodes that an earlier runner of this operation had leased.

        Where it died between a node's end and the end of its lease, only that is left to do.
        """
        going = (NodeStatus.PENDING, NodeStatus.RUNNING)
        rows = self._run.ledger.operations.node_rows(self._run.operation)
        open_nodes = {row.node: row.wave for row in rows if row.status in going}
        for lease in self._run.ledger.leases.held_by(self._run.operation):
            if lease.external_slot is not None:
                self._held[lease.node] = lease.external_slot
            if lease.node not in open_nodes:
                self._let_go((lease.node,))
                continue
            if open_nodes[lease.node] != self._wave.number:
                continue
            unit = next(unit for unit in self._wave.units if lease.node in unit)
            self._start([(lease.node, unit, lease.before)])

    def _collect(self) -> None:
        """Wait for a visit to end, then take in every one that has; a future's state would ask the server."""
        self._slots.tell()
        ended: list[str] = []
        with suppress(queue.Empty):
            ended.append(self._ended.get(timeout=_PASS_SECONDS))
            while True:
                ended.append(self._ended.get_nowait())
        results = [(node, self._running.pop(node).result(raise_on_failure=True)) for node in ended]
        if results:
            self._take_in(results)

    def _take_in(self, results: Sequence[tuple[str, VisitResult]]) -> None:
        run = self._run
        ends = [(node, result.status, result.reason) for node, result in results]
        run.ledger.operations.finish_nodes(run.operation, ends, run.token)
        nodes = tuple(node for node, _ in results)
        now = run.fleet.clock.monotonic()
        self._returned |= {node: now for node, result in results if result.status is NodeStatus.UPDATED}
        self._let_go(nodes)
        racks = {self._inventory[node].rack for node in nodes if node in self._inventory}
        # these racks have room now; and any domain or pool that spans racks may have
        self._full = {r: full for r, full in self._full.items() if r not in racks and full[0].text.startswith("rack ")}


def _holds_all(refused: Refused) -> bool:
    """Whether no other unit of the pool would be let out either."""
    return refused.text.startswith("pool ") or refused.reason_kind is ReasonKind.BREAKER

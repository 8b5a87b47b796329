"""One visit of an operation to one node: who owns it, what is to be done, and how it is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from blocks.fleet import Fleet
from blocks.scheduler import SchedulerLook
from fleet.errors import FleetError, LeaseLost, NotDrained, OutcomeUnknown, SchedulerUnreachable
from fleet.model import FirmwareComponent, Node, SchedulerNode
from fleet.ownership import Before
from fleet.plan import NodePlan
from fleet.ports import Bmc
from ledger import ControlVerb, Entry, Ledger, NodeStatus, Outcome

T = TypeVar("T")

REGISTERED = "registered"
"""In the intent of a step that boots the host: what its scheduler told of the node's registration before."""

_SAYS_EACH_SECONDS = 3.0
_RECENT_SECONDS = 10.0
_SAME_LETTERS = 9  # "BMC task " and its like begin alike


class Visit:
    """Not a dataclass on purpose: Prefect walks into dataclasses that are passed to tasks."""

    def __init__(
        self,
        fleet: Fleet,
        operation: str,
        token: int,
        node: Node,
        plan: NodePlan,
        before: Before,
        unit: tuple[str, ...],
        drain_seconds: float,
        may_stop: Mapping[str, float | None],
    ) -> None:
        self.fleet = fleet
        self.operation = operation
        self.token = token
        self.node = node
        self.plan = plan
        self.before = before
        self.unit = unit
        self.drain_seconds = drain_seconds  # from its cordon until its work must have left
        self.begins_at = float("-inf")  # monotonic seconds; visits that begin in step want the same at the same moments
        self.may_stop = may_stop  # jobs whose loss of so many GPU-hours was approved
        self._said = ""
        self._said_at = float("-inf")
        self._seen_cordoned = fleet.clock.monotonic()
        self._bmc: Bmc | None = None
        self._firmware: tuple[float, tuple[FirmwareComponent, ...]] | None = None
        self._first: int | None = None  # journal entries before it belong to a visit that was given back

    def wait_for_its_turn(self) -> None:
        """Sleep until `begins_at`."""
        self.fleet.clock.sleep(max(0.0, self.begins_at - self.fleet.clock.monotonic()))

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ledger(self) -> Ledger:
        return self.fleet.ledger()

    @property
    def bmc(self) -> Bmc:
        """The node's BMC; one client for the whole visit, since finding its resources costs several requests."""
        if self._bmc is None:
            self._bmc = self.fleet.clients().bmc(self.node)
        return self._bmc

    def keep_firmware(self, shown: tuple[FirmwareComponent, ...] | None) -> None:
        """Remember an inventory that was just read; None once something was sent to the BMC since."""
        self._firmware = None if shown is None else (self.fleet.clock.monotonic(), shown)

    @property
    def recent_firmware(self) -> tuple[FirmwareComponent, ...] | None:
        """The inventory that this visit read some seconds ago, where it has sent nothing since."""
        if self._firmware is None or self.fleet.clock.monotonic() - self._firmware[0] > _RECENT_SECONDS:
            return None
        return self._firmware[1]

    def close(self) -> None:
        """End what the visit opened: 1,250 kept connections would be 1,250 threads."""
        self.fleet.host(self.node).close()
        if self._bmc is not None:
            self._bmc.close()
            self._bmc = None

    @property
    def cordon_reason(self) -> str:
        """The reason text that marks a cordon as ours."""
        return f"gpufleet[{self.operation}]"

    def say(self, waiting_for: str) -> None:
        """What `gpufleet why` answers for this node now.

        How far the same thing got is written every few seconds only: each time is a write to the ledger.
        """
        now = self.fleet.clock.monotonic()
        progress = waiting_for[:_SAME_LETTERS] == self._said[:_SAME_LETTERS]
        if waiting_for != self._said and (not progress or now - self._said_at >= _SAYS_EACH_SECONDS):
            self._said, self._said_at = waiting_for, now
            self.ledger.operations.say(self.operation, self.name, waiting_for)

    def ask_scheduler(self, ask: Callable[[], T]) -> T:
        """Ask until the scheduler answers; cordoning and uncordoning twice does no harm.

        Raises LeaseLost where another runner takes over meanwhile.
        """
        while True:
            try:
                return ask()
            except SchedulerUnreachable as error:
                self.ledger.operations.check(self.operation, self.token)
                self.say(f"scheduler does not answer: {error.message}")
                self.fleet.clock.sleep(self.fleet.spec().scheduler.poll_seconds)

    def look(self, newer_than: float = float("-inf")) -> SchedulerLook:
        """What the scheduler says, asked for after monotonic `newer_than`; one that is away is waited for."""
        return self.ask_scheduler(lambda: self.fleet.scheduler().look(newer_than=newer_than))

    def registration(self) -> dict[str, object]:
        """For the intent of a step after which the node has to tell its scheduler of itself anew; see `return_node`."""
        seen = self.look().nodes.get(self.name)
        return {} if seen is None or seen.registered is None else {REGISTERED: seen.registered}

    def taken_back(self, seen: SchedulerNode | None) -> bool:
        """Whether a person undrained a node that was cordoned. Without a workload manager nobody can."""
        return seen is not None and not seen.cordoned and self.fleet.spec().scheduler.kind != "none"

    def check_ours(self) -> None:
        """Raise LeaseLost unless this runner is the operation's and a person has not taken the node back."""
        self.ledger.operations.check(self.operation, self.token)
        self.ensure_still_cordoned(self.look().nodes.get(self.name))

    def ensure_still_cordoned(self, seen: SchedulerNode | None) -> bool:
        """Raise LeaseLost where a person undrained the node; True where the cordon had to be set again.

        A controller that is killed forgets a drain of the last seconds (seen on Slurm 22.05). So one that was away
        since the node was last seen cordoned is told once more; a person who undrains it after that is heard.
        """
        scheduler, now = self.fleet.scheduler(), self.fleet.clock.monotonic()
        if not self.taken_back(seen):
            self._seen_cordoned = now
            return False
        if scheduler.away_at < self._seen_cordoned or self.last("cordon") is None:
            raise LeaseLost("was undrained by hand while the operation held it", node=self.name)
        self._seen_cordoned = now
        with self.step("cordon", {"reason": self.cordon_reason, "again": "its scheduler was away and forgot it"}):
            self.ask_scheduler(lambda: scheduler.cordon((self.name,), self.cordon_reason))
        return True

    def check_undisturbed(self) -> None:
        """As check_ours, right before something disruptive; no node of the unit may have work again.

        Raises NotDrained where one has: somebody let work in after the drain.
        """
        self.check_ours()
        look = self.look()
        for name in self.unit:
            if self.taken_back(look.nodes.get(name)):
                raise NotDrained(f"{name} of its domain is back in service", node=self.name)
            for job in look.jobs.get(name, ()):
                raise NotDrained(f"job {job.id} of {job.user} began on {name} after the drain", node=self.name)

    @contextmanager
    def step(self, name: str, detail: Mapping[str, object]) -> Iterator[dict[str, object]]:
        """Write the intent, run the body, write the outcome; the body may add to the yielded evidence."""
        entry = self.ledger.journal.begin(self.operation, self.token, self.name, name, detail)
        evidence: dict[str, object] = {}
        try:
            yield evidence
        except OutcomeUnknown as error:
            self.ledger.journal.finish(entry, Outcome.UNKNOWN, {**evidence, "error": str(error)})
            raise
        except FleetError as error:
            self.ledger.journal.finish(entry, Outcome.FAILED, {**evidence, "error": str(error)})
            raise
        self.ledger.journal.finish(entry, Outcome.DONE, evidence)

    def done(self, name: str) -> bool:
        """Whether this operation has already finished the step on this node."""
        last = self.last(name)
        return last is not None and last.outcome is Outcome.DONE

    def last(self, name: str) -> Entry | None:
        """This operation's newest try of the step on this node, not counting visits that were given back."""
        if self._first is None:
            self._first = _end_of_released(self.ledger.journal.last(self.operation, self.name, "return"))
        last = self.ledger.journal.last(self.operation, self.name, name)
        return last if last is not None and last.id > self._first else None

    def may_let_go(self) -> bool:
        """Whether the operation is to stop and this node, of which nothing was changed yet, can go back at once.

        Nodes that are taken out together stay together: one that is empty may be changed already.
        """
        asked = self.ledger.operations.control(self.operation)
        return len(self.unit) == 1 and asked is not None and asked.verb is not ControlVerb.RESUME


def _end_of_released(returned: Entry | None) -> int:
    """The entry that ended a visit before anything was done, 0 where there is none."""
    if returned is None or returned.outcome is not Outcome.DONE:
        return 0
    return returned.id if returned.intent.get("status") == NodeStatus.PENDING else 0

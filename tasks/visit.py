"""One visit of an operation to one node: who owns it, what is to be done, and how it is written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from blocks.fleet import Fleet
from fleet.errors import FleetError, LeaseLost, OutcomeUnknown
from fleet.model import Node
from fleet.ownership import Before
from fleet.plan import NodePlan
from fleet.ports import Bmc
from ledger import Ledger, Outcome


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
    ) -> None:
        self.fleet = fleet
        self.operation = operation
        self.token = token
        self.node = node
        self.plan = plan
        self.before = before
        self.unit = unit
        self._said = ""
        self._bmc: Bmc | None = None

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
        """What `gpufleet why` answers for this node now."""
        if waiting_for != self._said:
            self._said = waiting_for
            self.ledger.operations.say(self.operation, self.name, waiting_for)

    def check_ours(self) -> None:
        """Raise LeaseLost unless this runner is the operation's and a person has not taken the node back."""
        self.ledger.operations.check(self.operation, self.token)
        seen = self.fleet.scheduler().look().nodes.get(self.name)
        if seen is not None and not seen.cordoned:
            raise LeaseLost("was undrained by hand while the operation held it", node=self.name)

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
        last = self.ledger.journal.last(self.operation, self.name, name)
        return last is not None and last.outcome is Outcome.DONE

    def begun(self, name: str) -> bool:
        """Whether this operation has ever begun the step on this node."""
        return self.ledger.journal.last(self.operation, self.name, name) is not None

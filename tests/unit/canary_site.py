"""A node that a driver rollout visits and brings back, and a fleet whose rollout a ledger keeps; time only jumps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from unit.driver_host_fake import NEW, OLD, PLAIN, DriverSite, target
from unit.ledger_tools import FREE
from unit.measurement_site import ToolHost
from unit.site_fakes import FakeScheduler, SiteClock

from blocks.scheduler import SharedScheduler
from fleet.budget import PoolLimits
from fleet.canary_settings import CanarySettings
from fleet.config import FleetSpec, parse_fleet
from fleet.driver_rollout import DriverPlan, NodeDriverReading, plan_driver_rollout
from fleet.driver_target import FormerDriver
from fleet.measures import NodeTraits, Phase
from fleet.model import Node, NodeState, SchedulerNode
from fleet.reasons import ReasonKind
from ledger import Ledger, NodeStatus, Operation, OperationState, Outcome, Runner
from tasks.canary_planning import keep_driver_plan
from tasks.canary_visit import BackWork, CanarySteps, CanaryWork, visit_back, visit_node
from tasks.driver_former import recorded_former
from tasks.measured import measured_samples
from tasks.node import VisitResult
from tasks.operations import OperationRun
from tasks.scheduler import wait_until_empty
from tasks.visit import Visit

NODE = "gpu-0001"
STEPS = CanarySteps(wait_until_empty.fn, PLAIN)
SETTINGS = CanarySettings(runs=1)
Moment = tuple[int, bool]


class CanarySite(DriverSite):
    """A host that can change its driver and has the measuring tools.

    `moments` are the writes of a visit to the journal (with their step) and of the node's state: `dies_at` one of them,
    before or after it is written, a visit is killed. `begins` and `ends` are what happens in the world as a step of
    that name begins or has ended, once.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self._folder = folder
        self.fake_scheduler.cordoned = False
        self.tool_host = ToolHost()
        self.measured = frozenset({NODE})
        self.begins: dict[str, Callable[[], None]] = {}
        self.ends: dict[str, Callable[[], None]] = {}
        self.fenced: list[tuple[NodeState, bool]] = []
        self.moments: dict[Moment, str] = {}
        self.dies_at: Moment | None = None
        self.parent = ""
        self.former = FormerDriver()
        self._written = 0
        self._names: dict[int, str] = {}
        self._watch(monkeypatch)
        self.operation = self._new_operation("driver_canary")

    def folder(self) -> Path:
        return self._folder

    def host(self, node: Node) -> ToolHost:  # type: ignore[override]
        return self.tool_host

    def change(self) -> VisitResult:
        """One visit of the rollout by a new runner, which takes over from any before it."""
        work = CanaryWork({NODE: target()}, self.measured, SETTINGS, self._fence)
        return self._visited(lambda: visit_node(self.new_visit(), work, STEPS))

    def begin_way_back(self) -> None:
        """The rollout is over, and a rollback of it begins."""
        former = recorded_former(self.new_visit())
        assert former is not None
        self.parent, self.former = self.operation, former
        token = self.ledger().operations.get(self.operation).token
        self.ledger().leases.release(self.operation, token, NODE)
        self.operation = self._new_operation("driver_rollback")

    def back(self) -> VisitResult:
        """One visit on the way back, by a new runner."""
        work = BackWork({NODE: self.former}, self.measured, SETTINGS, self.parent, NEW)
        return self._visited(lambda: visit_back(self.new_visit(), work, STEPS))

    def steps(self) -> list[str]:
        return [entry.step for entry in self.ledger().journal.entries(self.operation, NODE)]

    def values(self) -> dict[Phase, int]:
        """How many values were kept of each phase that was measured."""
        found = [one.phase for one in measured_samples(self.ledger(), self.operation) if one.value is not None]
        return {phase: found.count(phase) for phase in Phase if phase in found}

    def serves(self) -> bool:
        return (self.state(), self.fake_scheduler.cordoned) == (NodeState.IN_SERVICE, False)

    def kept_out(self) -> bool:
        return (self.state(), self.fake_scheduler.cordoned) == (NodeState.QUARANTINED, True)

    def _new_operation(self, kind: str) -> str:
        made = self.ledger().operations.create(kind, "{}", "d" * 64, "tester").id
        self.ledger().operations.add_nodes(made, [(NODE, 1, 0)])
        return made

    def _fence(self, visit: Visit) -> None:
        self.fenced.append((self.state(), self.fake_scheduler.cordoned))

    def _visited(self, visit: Callable[[], VisitResult]) -> VisitResult:
        self._written, self.moments = 0, {}
        return visit()

    def _write(self, name: str, write: Callable[[], int | None], both: bool = False) -> int | None:
        number = self._written
        self._written += 1
        self.moments |= {(number, after): name for after in (False, True)[: 1 + both]}
        if self.dies_at == (number, False):
            self.dies_at = None
            raise KeyboardInterrupt  # as good as kill -9: nothing of ours catches it
        written = write()
        if self.dies_at == (number, True):
            self.dies_at = None
            raise KeyboardInterrupt
        return written

    def _watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        journal, inventory = self.ledger().journal, self.ledger().inventory
        begin, finish, move = journal.begin, journal.finish, inventory.move

        def watched_begin(operation: str, token: int, node: str, step: str, detail: Mapping[str, object]) -> int:
            entry = self._write(step, lambda: begin(operation, token, node, step, detail), both=True)
            assert entry is not None
            self._names[entry] = step
            self.begins.pop(step, lambda: None)()
            return entry

        def watched_finish(entry: int, outcome: Outcome, detail: Mapping[str, object] | None = None) -> None:
            step = self._names.get(entry, "")
            self._write(step, lambda: finish(entry, outcome, detail))
            self.ends.pop(step, lambda: None)()

        def watched_move(node: str, new: NodeState, reason: str, operation: str | None = None) -> None:
            self._write(new.value, lambda: move(node, new, reason, operation))

        monkeypatch.setattr(journal, "begin", watched_begin)
        monkeypatch.setattr(journal, "finish", watched_finish)
        monkeypatch.setattr(inventory, "move", watched_move)


def spec_of(pools: Mapping[str, int], more: str = "", production: bool = True) -> FleetSpec:
    """A fleet with so many nodes in each pool, named pool-00 …, in racks of four. `more`: lines of the fleet file."""
    nodes: list[str] = []
    racks: list[str] = []
    for pool, count in pools.items():
        for number in range(count):
            rack = f"{pool}-r{number // 4}"
            racks.append(rack)
            nodes.append(
                f"  - {{name: {pool}-{number:02}, rack: {rack}, pool: {pool}, model: HGX-H100-8, "
                f'bmc: "https://10.0.{len(nodes)}.1", ssh: 10.1.{len(nodes)}.1}}\n'
            )
    listed = ", ".join(
        f"{pool}: {{capacity_floor: 0.5, rack_limit: 4, production: {str(production or pool != 'dev').lower()}}}"
        for pool in pools
    )
    places = ", ".join(f"{rack}: {{}}" for rack in dict.fromkeys(racks))
    text = (
        "version: 1\nfleet: lab\nbmc: {user: a, password: {env: X}}\nssh: {user: root, key: {file: k}}\n"
        f"gate: {{required: 0}}\npools: {{{listed}}}\nracks: {{{places}}}\n"
        f"{more}nodes:\n{''.join(nodes)}"
    )
    return parse_fleet(text, "fleet.yaml")


def reading_of(node: Node, current: str = OLD, age: float | None = 400.0) -> NodeDriverReading:
    """A node that runs `current` and can have NEW."""
    traits = NodeTraits(node.name, node.model, node.rack, "25.1", age)
    return NodeDriverReading(traits, current, None if current == NEW else target(), busy=False)


@cache
def _kept_plan() -> tuple[FleetSpec, DriverPlan]:
    spec = spec_of({"train": 8})
    readings = {node.name: reading_of(node) for node in spec.inventory()}
    return spec, plan_driver_rollout(spec, ("train",), NEW, readings, SiteClock().now(), 7)


@cache
def _empty_ledger() -> Path:
    """A ledger's tables take longer to make than most tests."""
    file = Path(tempfile.mkdtemp()) / "ledger.db"
    Ledger.open(f"sqlite:///{file}", SiteClock(), "tester").close()
    return file


@dataclass
class IdleScheduler(FakeScheduler):
    """Every node of the fleet, without work."""

    names: tuple[str, ...] = ()

    def read_nodes(self) -> dict[str, SchedulerNode]:
        (one,) = super().read_nodes().values()
        return {name: replace(one, name=name) for name in self.names}


class RolloutSite:
    """A fleet of eight nodes and a rollout over them that a runner has taken up; stands in for blocks.fleet.Fleet.

    `started` are the operations whose flow runs were begun; each does what `acts` says, three seconds later.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = SiteClock()
        self._folder = folder
        self._spec, self.plan = _kept_plan()
        shutil.copy(_empty_ledger(), folder / "ledger.db")
        self._ledger = Ledger.open(f"sqlite:///{folder}/ledger.db", self.clock, "tester")
        self.rollout = keep_driver_plan(self, self.plan, "eva").id  # type: ignore[arg-type]
        self.clock.sleep(1.0)
        self.started: list[str] = []
        self.acts: Callable[[str], None] = self.end
        monkeypatch.setattr("tasks.children.start_run", self._start)

    def ledger(self) -> Ledger:
        return self._ledger

    def spec(self) -> FleetSpec:
        return self._spec

    def folder(self) -> Path:
        return self._folder

    def scheduler(self) -> SharedScheduler:
        return SharedScheduler(IdleScheduler(names=tuple(self.plan.nodes)), self.clock, 0.0)

    def sync_inventory(self) -> None:
        racks = self._spec.rack_limits()
        self._ledger.inventory.sync(self._spec.inventory(), racks, {"train": PoolLimits(capacity_floor=0.0)})

    def run(self) -> OperationRun[DriverPlan]:
        """A new runner of the rollout, which takes over from any before it."""
        token = self._ledger.operations.claim(self.rollout, Runner("lab", 1, self.clock.monotonic(), None), True)
        return OperationRun(self, self.rollout, token, self.plan)  # type: ignore[arg-type]

    def open(self, kind: str, actor: str, nodes: tuple[str, ...] = ()) -> Operation:
        """Another operation, planned and not begun."""
        self.clock.sleep(1.0)
        made = self._ledger.operations.create(kind, "{}", "d" * 64, actor)
        self._ledger.operations.add_nodes(made.id, [(node, 1, at) for at, node in enumerate(nodes)])
        return made

    def end(self, operation: str, state: OperationState = OperationState.DONE) -> None:
        """The operation's runner leaves it so."""
        self._ledger.operations.set_state(operation, state, ReasonKind.NONE, "")

    def write(self, operation: str, node: str, step: str, result: Mapping[str, object]) -> None:
        """A finished step of the operation on the node, in the journal."""
        ledger = self._ledger
        token = ledger.operations.claim(operation, Runner("lab", 1, self.clock.monotonic(), None), True)
        ledger.leases.acquire(operation, token, [node], {node: FREE})
        entry = ledger.journal.begin(operation, token, node, step, {})
        ledger.journal.finish(entry, Outcome.DONE, result)
        ledger.leases.release(operation, token, node)

    def finish(self, operation: str, *nodes: str, status: NodeStatus = NodeStatus.UPDATED, why: str = "") -> None:
        for node in nodes:
            self._ledger.operations.finish_node(operation, node, status, why)

    def updated(self, *nodes: str, former: FormerDriver | None = None) -> None:
        """These nodes got the new driver from the rollout, and had `former` before it."""
        had = former or FormerDriver(version=OLD, driver=target(OLD))
        for node in nodes:
            self.write(self.rollout, node, "driver:former", {"former": had.model_dump(mode="json")})
        self.finish(self.rollout, *nodes)

    def _start(self, fleet: str, operation: Operation) -> str:
        self.started.append(operation.id)
        self.clock.after(3.0, lambda: self.acts(operation.id))
        return f"run-{len(self.started)}"

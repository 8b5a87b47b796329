"""A hand-written site: one node with a BMC, a host and a scheduler, all in memory, and time that only jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from unit.ledger_tools import FakeClock

from blocks.jobs import SharedJobs
from blocks.scheduler import SharedScheduler
from fleet.activation import stages
from fleet.budget import PoolLimits
from fleet.bundle import Bundle, BundleEntry
from fleet.checkpoint_readers.listing import Entry, EntryKind, Listing
from fleet.config import FleetSpec, parse_fleet
from fleet.errors import BmcBusy, NodeUnreachable
from fleet.model import (
    FirmwareComponent,
    FirmwareRole,
    Job,
    Node,
    NodeState,
    PowerState,
    RedfishTask,
    ResetKind,
    ResetMarks,
    SchedulerNode,
    SchedulerState,
    SystemReading,
    TaskOutcome,
)
from fleet.ownership import Before
from fleet.plan import Change, NodePlan
from ledger import Ledger, Runner
from tasks.node import OBSERVED, Firmware, Steps, VisitResult, visit_node
from tasks.visit import Visit

GPU, SWITCH = "HGX_FW_GPU_SXM_1", "HGX_FW_NVSwitch_0"
OLD, NEW = "96.00.74.00.01", "96.00.A5.00.03"
PLAIN = Steps(*(step.fn for step in OBSERVED))  # type: ignore[attr-defined]

SPEC = """\
version: 1
fleet: lab
bmc: {user: a, password: {env: X}, poll_seconds: 10, ready_timeout_seconds: 600, settle_seconds: 120}
ssh: {user: root, key: {file: k}}
gate: {required: 0}
pools: {train: {capacity_floor: 0, rack_limit: 1, waves: {attempts: 2, drain_timeout_seconds: 3600}}}
racks: {r01: {}}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}
"""


class SiteClock(FakeClock):
    """Runs what is due when somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.due.append((self.monotonic() + seconds, act))

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        ready = [item for item in self.due if item[0] <= self.monotonic()]
        self.due = [item for item in self.due if item not in ready]
        for _, act in ready:
            act()


@dataclass
class FakeBmc:
    """Writes an image in 60 s, resets in 120 s. `outcome` is what its next tasks say; `writes` what they do."""

    clock: SiteClock
    versions: dict[str, str] = field(default_factory=lambda: {GPU: OLD, SWITCH: OLD})
    staged: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, RedfishTask] = field(default_factory=dict)
    pushes: list[tuple[str, ...]] = field(default_factory=list)
    resets: list[ResetKind] = field(default_factory=list)
    outcome: TaskOutcome = TaskOutcome.SUCCEEDED
    writes: bool = True
    shows_staged: bool = True
    forgets: bool = False
    ignores_reset: bool = False
    stays_off: bool = False  # after an AC cycle, until it is switched on
    power: PowerState = PowerState.ON
    busy: int = 0
    away_until: float = 0.0
    dies_at: str = ""
    host_reset: int = 0
    bmc_reset: int = 0

    def _answer(self) -> None:
        if self.clock.monotonic() < self.away_until:
            raise NodeUnreachable("connection refused")
        if self.busy:
            self.busy -= 1
            raise BmcBusy("503 Service Unavailable")

    def read_system(self) -> SystemReading:
        self._answer()
        return SystemReading("NVIDIA", "HGX", "S1", "1.0", PowerState.ON, (), ())

    def read_firmware(self) -> tuple[FirmwareComponent, ...]:
        self._answer()
        return tuple(
            FirmwareComponent(
                id_,
                version,
                self.staged.get(id_) if self.shows_staged else None,
                FirmwareRole.ACTIVE,
                "Enabled",
                "OK",
                True,
                f"/fw/{id_}",
                id_,
            )
            for id_, version in self.versions.items()
        )

    def read_tasks(self) -> tuple[RedfishTask, ...]:
        self._answer()
        return tuple(self.tasks.values())

    def read_task(self, uri: str) -> RedfishTask | None:
        self._answer()
        return self.tasks.get(uri)

    def push_image(self, image: Path, targets: tuple[str, ...]) -> RedfishTask:
        self._answer()
        self._die("before push")
        self.pushes.append(targets)
        uri = f"/tasks/{len(self.pushes)}"
        task = RedfishTask(uri, uri, "Running", None, None, TaskOutcome.RUNNING, ())
        self.tasks[uri] = task
        self.clock.after(60, lambda: self._finish(uri, targets))
        self._die("after push")
        return task

    def _finish(self, uri: str, targets: tuple[str, ...]) -> None:
        if self.writes:
            self.staged |= {target.rpartition("/")[2]: NEW for target in targets}
        if self.forgets:
            del self.tasks[uri]
        else:
            self.tasks[uri] = replace(self.tasks[uri], outcome=self.outcome, state="Ended", messages=("said so",))

    def read_reset_marks(self) -> ResetMarks:
        self._answer()
        return ResetMarks(self.power, f"host-{self.host_reset}", f"bmc-{self.bmc_reset}")

    def reset(self, kind: ResetKind) -> None:
        self._answer()
        self._die("before reset")
        self.resets.append(kind)
        if kind is ResetKind.HOST_REBOOT and self.power is PowerState.OFF:
            self.power = PowerState.ON
            return
        if self.stays_off:
            self.power = PowerState.OFF
        if not self.ignores_reset:
            self.away_until = self.clock.monotonic() + 120
            self.host_reset += 1
            self.bmc_reset += 1
            self.versions |= self.staged
            self.staged = {}
            self.tasks = {}
        self._die("after reset")

    def close(self) -> None:
        """Nothing is kept open."""

    def _die(self, moment: str) -> None:
        if self.dies_at == moment:
            self.dies_at = ""
            raise KeyboardInterrupt(moment)  # as good as kill -9: nothing of ours catches it


@dataclass
class FakeScheduler:
    """One node; `jobs` leave when the clock says so."""

    cordoned: bool = False
    reason: str | None = None
    state: SchedulerState = SchedulerState.IDLE
    jobs: tuple[Job, ...] = ()
    cordons: list[str] = field(default_factory=list)
    uncordons: int = 0
    requeued: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    signalled: list[tuple[str, str]] = field(default_factory=list)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    registered: str | None = None

    def read_nodes(self) -> dict[str, SchedulerNode]:
        flags = frozenset({self.state.value.upper(), *(("DRAIN",) if self.cordoned else ())})
        node = SchedulerNode("gpu-0001", self.state, flags, self.cordoned, self.reason, "root", None, 8)
        return {"gpu-0001": replace(node, registered=self.registered)}

    def read_jobs(self) -> tuple[Job, ...]:
        return self.jobs

    def requeue(self, job: str) -> None:
        self.requeued.append(job)
        self.jobs = tuple(one for one in self.jobs if one.id != job)

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)
        self.jobs = tuple(one for one in self.jobs if one.id != job)

    def signal(self, job: str, signal: str) -> None:
        self.signalled.append((job, signal))

    def read_environment(self, job: str) -> dict[str, str] | None:
        return self.environments.get(job)

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        self.cordoned, self.reason = True, reason
        self.cordons.append(reason)

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        self.cordoned, self.reason = False, None
        self.uncordons += 1


@dataclass(frozen=True)
class Answer:
    code: int = 0
    stdout: str = ""
    stderr: str = ""


class FakeHost:
    """Lists eight GPUs."""

    def __init__(self) -> None:
        self.listed = "".join(f"GPU {n}: NVIDIA H100 (UUID: GPU-0000000{n})\n" for n in range(8))

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        return Answer(stdout=self.listed)

    def close(self) -> None:
        """Nothing is kept open."""


class FakeStorage:
    """Beacon files by path: when each was touched. Its clock is ours."""

    def __init__(self, clock: SiteClock) -> None:
        self._clock = clock
        self.touched: dict[str, datetime] = {}
        self.problem: str | None = None

    def touch(self, path: str) -> None:
        self.touched[path] = self._clock.now()

    def read_tree(self, root: str, seconds: float) -> Listing:
        if self.problem is not None or root not in self.touched:
            return Listing(root, problem=self.problem or "does not exist")
        beacon = Entry("", EntryKind.FILE, 0, self.touched[root], "")
        return Listing(root, (beacon,), offset_seconds=0.0)


class Site:
    """What a visit needs of a fleet; stands in for blocks.fleet.Fleet and its clients."""

    def __init__(self, folder: Path, text: str = SPEC) -> None:
        self.clock = SiteClock()
        self.fake_bmc = FakeBmc(self.clock)
        self.fake_scheduler = FakeScheduler()
        self.fake_host = FakeHost()
        self.fake_storage = FakeStorage(self.clock)
        self.shared_jobs: SharedJobs | None = None
        self.may_stop: dict[str, float | None] = {}
        self._spec = parse_fleet(text, "fleet.yaml")
        self._ledger = Ledger.open(f"sqlite:///{folder}/ledger.db", self.clock, "tester")
        self._ledger.inventory.sync(self._spec.inventory(), {"r01": 1}, {"train": PoolLimits(capacity_floor=0.0)})
        self.operation = self._ledger.operations.create("firmware_rollout", "{}", "d" * 64, "tester").id
        self._ledger.operations.add_nodes(self.operation, [("gpu-0001", 1, 0)])

    def clients(self) -> Site:
        return self

    def spec(self) -> FleetSpec:
        return self._spec

    def ledger(self) -> Ledger:
        return self._ledger

    def bmc(self, node: Node) -> FakeBmc:
        return self.fake_bmc

    def host(self, node: Node) -> FakeHost:
        return self.fake_host

    def scheduler(self) -> SharedScheduler:
        return SharedScheduler(self.fake_scheduler, self.clock, 0.0)

    def jobs(self) -> SharedJobs:
        if self.shared_jobs is None:
            storage = self.fake_storage if self._spec.drain.checkpoints else None
            self.shared_jobs = SharedJobs(self._spec.drain, storage, self.fake_scheduler, self.clock, 0.0)
        return self.shared_jobs

    def visit(self) -> VisitResult:
        """One visit by a new runner, which takes over from any before it."""
        return visit_node(self.new_visit(), firmware(), PLAIN)

    def new_visit(self) -> Visit:
        token = self._ledger.operations.claim(self.operation, Runner("lab", 1, self.clock.monotonic(), None), True)
        before = Before(self.fake_scheduler.cordoned, self.fake_scheduler.reason, "root", NodeState.IN_SERVICE)
        held = self._ledger.leases.lease("gpu-0001")
        if held is None:
            self._ledger.leases.acquire(self.operation, token, ["gpu-0001"], {"gpu-0001": before})
        node = self._spec.inventory()[0]
        changes = tuple(
            Change(component=c, current=OLD, desired=NEW, entry=e) for c, e in ((GPU, "gpu"), (SWITCH, "sw"))
        )
        plan = NodePlan(pool="train", rack="r01", model="HGX-H100-8", changes=changes)
        found = held.before if held else before
        return Visit(self, self.operation, token, node, plan, found, ("gpu-0001",), 3600.0, self.may_stop)  # type: ignore[arg-type]

    def state(self) -> NodeState:
        return self._ledger.inventory.node("gpu-0001").state


def firmware() -> Firmware:
    """GPU, then NVSwitch, both activated by an AC cycle."""
    entries = tuple(
        BundleEntry(
            name=name, match=(match,), version=NEW, image=f"{name}.bin", sha256="0" * 64, reset=ResetKind.AC_CYCLE
        )
        for name, match in (("gpu", "HGX_FW_GPU_*"), ("sw", "HGX_FW_NVSwitch_*"))
    )
    bundle = Bundle(version=1, name="hgx", release="1", fits=("HGX-H100-8",), entries=entries)
    return Firmware(bundle, {entry.name: Path(entry.image) for entry in entries}, stages(bundle))

"""Reading hosts and BMCs into the ledger, many at once; one that does not answer costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from prefect.logging import get_run_logger

from adapters.events import emit_arrivals
from adapters.probe import Probe, ProbeRequest
from blocks.fleet import Fleet
from fleet.arrival import Arrival, ArrivalSource
from fleet.errors import (
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    HardwareFault,
    HostKeyChanged,
    TransientError,
)
from fleet.facts import NodeFacts
from fleet.hardware import hardware_of_entry
from fleet.model import Node
from fleet.node_facts import facts_of_bmc, facts_of_failure, facts_of_probe
from fleet.ports import Clock
from fleet.sweep import Rounds
from ledger import FactChange, Recorded, Tiers
from tasks.presets import READS, step

_SAID = 20  # nodes of a round whose failure is logged; the ledger has them all
_SHORTEST_PAUSE_SECONDS = 1.0
_BATCH = 250  # nodes in one transaction: other writers wait for it
_STATES: tuple[tuple[type[FleetError], str], ...] = (
    (HostKeyChanged, "host key changed"),
    (CredentialsRejected, "credentials refused"),
    (ConfigurationError, "cannot be read"),
    (TransientError, "unreachable"),
)


@dataclass(slots=True)
class Swept:
    """What one round found. `failed` says of a node why it could not be read."""

    read: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    changes: list[FactChange] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Sweeper:
    """Reads the nodes of a fleet in turns. Kept connections stay open between its rounds."""

    def __init__(self, fleet: Fleet, nodes: Sequence[Node]) -> None:
        settings, now = fleet.spec().sweep, fleet.clock.monotonic()
        names = [node.name for node in nodes]
        self._fleet = fleet
        self._nodes = {node.name: node for node in nodes}
        self._hosts = Rounds(names, settings.every_seconds, settings.longest_pause_seconds, now)
        self._bmcs = Rounds(names, settings.bmc_every_seconds, settings.longest_pause_seconds, now)
        self._cursors: dict[str, str] = {}

    @property
    def clock(self) -> Clock:
        return self._fleet.clock

    def round(self, progress: Callable[[int], None] = lambda _: None) -> Swept:
        """Read every host and BMC whose turn it is, and keep what they tell; `progress` gets the number read so far."""
        clock = self._fleet.clock
        began = clock.monotonic()
        swept = Swept()
        waiting: list[NodeFacts] = []
        work = [(self._hosts, name, self._read_host) for name in self._hosts.due(began)]
        work += [(self._bmcs, name, self._read_bmc) for name in self._bmcs.due(began)]
        for number, (rounds, name, outcome) in enumerate(self._side_by_side(work), 1):
            facts, why = outcome
            (rounds.read if why is None else rounds.failed)(name, clock.monotonic())
            swept.read += why is None
            if why is not None:
                swept.failed[name] = why
            waiting.append(facts)
            if len(waiting) >= _BATCH:
                self._keep(waiting, swept)
                waiting = []
            progress(number)
        self._keep(waiting, swept)
        swept.seconds = clock.monotonic() - began
        return swept

    def pause_seconds(self) -> float:
        """How long until the next turn, 0 where one is due."""
        due = [at for at in (self._hosts.next_due(), self._bmcs.next_due()) if at is not None]
        return max(0.0, min(due, default=0.0) - self._fleet.clock.monotonic())

    def _side_by_side(self, work: Sequence[_Work]) -> Iterator[_Done]:
        """Nodes that failed the last time have a quarter of the threads to themselves, so that they hold up nobody."""
        at_once = self._fleet.spec().sweep.at_once
        doubtful = [item for item in work if item[0].failing(item[1])]
        sound = [item for item in work if not item[0].failing(item[1])]
        with ExitStack() as stack:
            futures: dict[Future[_Outcome], tuple[Rounds, str]] = {}
            for part, threads in ((sound, at_once), (doubtful, max(1, at_once // 4))):
                if part:
                    pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="sweep"))
                    futures |= {pool.submit(read, self._nodes[name]): (rounds, name) for rounds, name, read in part}
            for future in as_completed(futures):
                yield *futures[future], future.result()

    def _read_host(self, node: Node) -> _Outcome:
        request = ProbeRequest(
            cursor=self._cursors.get(node.name), deadline_seconds=self._fleet.spec().sweep.deadline_seconds
        )
        try:
            reading = Probe(self._fleet.file_host(node), node.name).read(request)
        except FleetError as error:
            return facts_of_failure(node.name, self._fleet.clock.now(), _state(error), error.message), error.message
        if reading.kernel_log is not None and reading.kernel_log.cursor is not None:
            self._cursors[node.name] = reading.kernel_log.cursor
        return facts_of_probe(node.name, self._fleet.clock.now(), reading), None

    def _read_bmc(self, node: Node) -> _Outcome:
        try:
            with self._fleet.bmc(node) as bmc:
                facts = facts_of_bmc(node.name, self._fleet.clock.now(), bmc.read_firmware(), bmc.read_system())
        except (TransientError, ConfigurationError, HardwareFault) as error:
            why = f"BMC: {error.message}"
            return facts_of_failure(node.name, self._fleet.clock.now(), _state(error), why, "bmc"), why
        return facts, None

    def _keep(self, facts: Sequence[NodeFacts], swept: Swept) -> None:
        if not facts:
            return
        kept: Recorded = self._fleet.ledger().facts.record(facts)
        swept.arrived += kept.arrived
        swept.changes += kept.changes
        swept.conflicts += [
            f"{c.part} is told of by {c.node} ({c.slot}) and by {c.holder}; it stays with {c.holder}"
            for c in kept.conflicts
        ]
        swept.failed |= kept.skipped


def _state(error: FleetError) -> str:
    return next((word for kind, word in _STATES if isinstance(error, kind)), "cannot be read")


_Outcome = tuple[NodeFacts, str | None]
_Work = tuple[Rounds, str, Callable[[Node], _Outcome]]
_Done = tuple[Rounds, str, _Outcome]


@step("round {number}", READS)
def read_nodes(sweeper: Sweeper, number: int) -> Swept:  # noqa: ARG001  it names the run
    """Read every node whose turn it is."""
    swept = sweeper.round()
    log = get_run_logger()
    log.info("read %d in %.1f s, %d could not be read", swept.read, swept.seconds, len(swept.failed))
    for name, why in sorted(swept.failed.items())[:_SAID]:
        log.warning("%s: %s", name, why)
    for conflict in swept.conflicts:
        log.warning("%s", conflict)
    return swept


def rounds(sweeper: Sweeper, seconds: float) -> Iterator[int]:
    """Numbers of rounds, each when a turn is due, until `seconds` are over; at least one."""
    clock = sweeper.clock
    ends = clock.monotonic() + seconds
    for number in count(1):
        yield number
        pause = max(sweeper.pause_seconds(), _SHORTEST_PAUSE_SECONDS)
        if clock.monotonic() + pause >= ends:
            return
        clock.sleep(pause)


def announce_arrivals(fleet: Fleet, swept: Swept) -> None:
    """An event for each node that no source told of before; intake is triggered by it."""
    spec, now = fleet.spec(), fleet.clock.now()
    entries = {entry.name: entry for entry in spec.nodes}
    arrived = [hardware_of_entry(entries[name], spec.site) for name in swept.arrived if name in entries]
    emit_arrivals([Arrival(hardware, ArrivalSource.SWEEP, now) for hardware in arrived], spec.fleet)


@step("thin out old numbers", READS)
def thin_numbers(fleet: Fleet) -> None:
    """Roll old numbers up by hours and days, and delete what has outlived its tier."""
    settings = fleet.spec().sweep
    tiers = Tiers(
        raw=timedelta(hours=settings.keep_raw_hours),
        hourly=timedelta(days=settings.keep_hourly_days),
        daily=timedelta(days=settings.keep_daily_days),
    )
    thinned = fleet.ledger().retention.thin(tiers)
    get_run_logger().info("numbers: %s", thinned)

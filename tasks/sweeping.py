"""Reading hosts and BMCs into the ledger, many at once; one that does not answer costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.logging import get_run_logger

from adapters.arrivals import announce_new
from adapters.kept_json import keep, read_kept
from adapters.probe import Probe, ProbeRequest
from blocks.fleet import Fleet
from fleet.arrival import ArrivalSource
from fleet.bios import BiosReader
from fleet.errors import (
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    HardwareFault,
    HostKeyChanged,
    TransientError,
)
from fleet.facts import NodeFacts
from fleet.findings import Finding
from fleet.hardware import hardware_of_entry
from fleet.model import Node
from fleet.node_facts import facts_of_bmc, facts_of_failure, facts_of_probe
from fleet.node_health import OK, log_findings
from fleet.node_reading import NodeReading
from fleet.ports import Clock
from fleet.serial_check import CODE, serial_findings
from fleet.sweep import Rounds
from fleet.xid_counts import XidCounts, count_xids
from ledger import FactChange, Recorded, Tiers
from tasks.presets import READS, step
from tasks.sweeping_counts import Counted, CountedXids
from tasks.sweeping_wishes import BiosWishes, WrittenSerials

UNHEALTHY = "gpufleet.health.found"
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
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    seconds: float = 0.0


class Sweeper:
    """Reads the nodes of a fleet in turns. Kept connections stay open between its rounds.

    `cursors` says how far each node's kernel log was read before; lines of a log that was never read are history,
    not news.
    """

    def __init__(
        self,
        fleet: Fleet,
        nodes: Sequence[Node],
        cursors: Mapping[str, str] | None = None,
        bmc_ages: Mapping[str, float] | None = None,
        counted: CountedXids | None = None,
    ) -> None:
        settings, now = fleet.spec().sweep, fleet.clock.monotonic()
        names = [node.name for node in nodes]
        self._fleet = fleet
        self._nodes = {node.name: node for node in nodes}
        self._hosts = Rounds(names, settings.every_seconds, settings.longest_pause_seconds, now)
        self._bmcs = Rounds(names, settings.bmc_every_seconds, settings.longest_pause_seconds, now, bmc_ages)
        self._cursors = dict(cursors or {})
        self._counted = counted
        self._counts: dict[str, Counted] = {}
        self._bios = BiosWishes(fleet)
        self._serials = WrittenSerials(fleet)
        self._told: set[tuple[str, str]] = set()

    @property
    def cursors(self) -> Mapping[str, str]:
        return self._cursors

    def cursors_kept(self) -> None:
        """How far the logs were read is on disk: no Xid that was counted is read again. Raises OSError."""
        if self._counted is not None:
            self._counted.clear()

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
            facts, why, findings = outcome
            self._tell(name, findings, swept)
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
                rounds, name = futures[future]
                yield rounds, name, self._outcome(name, future)

    def _outcome(self, name: str, future: Future[_Outcome]) -> _Outcome:
        """What is no error of ours is a fault of this program; it must not cost the other nodes their readings."""
        error = future.exception()
        if error is None:
            return future.result()
        why = f"a fault of gpufleet: {type(error).__name__}: {error}"
        if FlowRunContext.get() is not None:  # `gpufleet sweep` has no run to log to, and prints the reason
            get_run_logger().error("%s: %s", name, why, exc_info=error)
        return facts_of_failure(name, self._fleet.clock.now(), "cannot be read", why), why, ()

    def _tell(self, name: str, findings: Sequence[Finding], swept: Swept) -> None:
        """A serial that is not the written one is a conflict in every round, and news in the first."""
        for finding in findings:
            if finding.code == CODE:
                swept.conflicts.append(f"{name}: {finding.text}")
            if finding.code != CODE or (name, finding.evidence) not in self._told:
                swept.findings.append((name, finding))
                self._told.add((name, finding.evidence))

    def _read_host(self, node: Node) -> _Outcome:
        request = ProbeRequest(
            cursor=self._cursors.get(node.name), deadline_seconds=self._fleet.spec().sweep.deadline_seconds
        )
        try:
            reading = Probe(self._fleet.file_host(node), node.name).read(request)
        except FleetError as error:
            facts = facts_of_failure(node.name, self._fleet.clock.now(), _state(error), error.message)
            return facts, error.message, ()
        since = self._cursors.get(node.name)
        news = log_findings(reading) if since is not None else ()
        at = self._fleet.clock.now()
        xids = self._count(node.name, since, at, reading) if since is not None else None
        if reading.kernel_log is not None and reading.kernel_log.cursor is not None:
            self._cursors[node.name] = reading.kernel_log.cursor
        serials = self._serials.now()
        facts = facts_of_probe(node.name, at, reading, xids, serials.by_node.get(node.name))
        return facts, None, (*news, *serial_findings(facts.facts, serials.owners))

    def _count(self, node: str, since: str, at: datetime, reading: NodeReading) -> XidCounts | None:
        xids = count_xids(reading, since)
        if self._counted is None or xids is None or reading.kernel_log is None:
            return xids
        self._counts[node] = Counted(since, at, xids)
        return self._counted.left(node, since, reading.kernel_log.continued, xids)

    def _read_bmc(self, node: Node) -> _Outcome:
        try:
            with self._fleet.bmc(node) as bmc:
                firmware, system = bmc.read_firmware(), bmc.read_system()
                names = self._bios.of(node.pool)
                bios = bmc.read_bios(names) if names and isinstance(bmc, BiosReader) else None
        except (TransientError, ConfigurationError, HardwareFault) as error:
            why = f"BMC: {error.message}"
            return facts_of_failure(node.name, self._fleet.clock.now(), _state(error), why, "bmc"), why, ()
        serials, at = self._serials.now(), self._fleet.clock.now()
        facts = facts_of_bmc(node.name, at, firmware, system, bios, serials.by_node.get(node.name))
        return facts, None, serial_findings(facts.facts, serials.owners)

    def _keep(self, facts: Sequence[NodeFacts], swept: Swept) -> None:
        if not facts:
            return
        if self._counted is not None:
            told = {each.node: self._counts.pop(each.node) for each in facts if each.node in self._counts}
            self._counted.note(told)
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


_Outcome = tuple[NodeFacts, str | None, tuple[Finding, ...]]
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


def begin_sweep(fleet: Fleet) -> Sweeper:
    """A sweeper that goes on where the run before it ended."""
    now = fleet.clock.now()
    seen = {known.node: known.seen for known in fleet.ledger().facts.current(kinds=())}
    ages = {node: (now - told["bmc"]).total_seconds() for node, told in seen.items() if "bmc" in told}
    kept = read_kept(_cursor_file(fleet)) or {}
    cursors = {node: cursor for node, cursor in kept.items() if isinstance(cursor, str)}
    probed = {node: told["probe"] for node, told in seen.items() if "probe" in told}
    counted = CountedXids(fleet.folder() / "run" / "xids_counted.json", cursors, probed)
    return Sweeper(fleet, fleet.spec().inventory(), cursors, ages, counted)


def report_health(fleet: Fleet, sweeper: Sweeper, swept: Swept) -> None:
    """An event for each thing that a kernel said, and for each GPU or node whose health changed to the worse.

    The cursors are kept after that: what a crash cuts off is told again rather than lost, and counted once.
    """
    for node, finding in swept.findings:
        told = {"subject": finding.subject, "severity": finding.severity.value, "action": finding.action.value}
        _emit(fleet, node, finding.code, {**told, "code": finding.code, "evidence": finding.evidence})
    for change in swept.changes:
        if change.name == "health" and change.new not in (None, OK):
            _emit(fleet, change.node, str(change.new), {"subject": change.part or "node", "was": change.old})
    keep(_cursor_file(fleet), dict(sweeper.cursors))
    sweeper.cursors_kept()


def _cursor_file(fleet: Fleet) -> Path:
    return fleet.folder() / "run" / "kernel_log_cursors.json"


def _emit(fleet: Fleet, node: str, what: str, payload: Mapping[str, object]) -> None:
    get_run_logger().warning("%s: %s: %s", node, what, payload.get("evidence") or payload.get("subject"))
    emit_event(
        event=UNHEALTHY,
        resource={"prefect.resource.id": f"gpufleet.node.{node}", "prefect.resource.name": f"{node} {what}"},
        related=[
            {"prefect.resource.id": f"gpufleet.fleet.{fleet.spec().fleet}", "prefect.resource.role": "fleet"},
        ],
        payload={"node": node, **payload},
    )


def announce_arrivals(fleet: Fleet) -> None:
    """An event for each node that was read and never announced; intake is triggered by it.

    What was there when the fleet was first swept has not arrived: it is written down without an event.
    """
    spec, run = fleet.spec(), fleet.folder() / "run"
    known = {now.node: now.known.facts for now in fleet.ledger().facts.current(kinds=())}
    seen = [
        hardware_of_entry(entry, spec.site, known[entry.name].get("system.serial"))
        for entry in spec.nodes
        if "read" in (known.get(entry.name, {}).get(name) for name in ("probe.state", "bmc.state"))
    ]
    record, begun = run / "arrivals.jsonl", run / "first_sweep_done"
    announce_new(record, spec.fleet, seen, (), ArrivalSource.SWEEP, fleet.clock.now(), begun)


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

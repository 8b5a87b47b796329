"""What the truth log says of a rollout: who was flashed, how many nodes were out together, which jobs died.

A pure reader of truth.jsonl. A node is *out* while it is cordoned or its host is down.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import ConfigurationError
from simulator.job_verdict import JobReader, JobVerdict, KilledJob
from simulator.truth import TruthEvent

__all__ = ["Expectations", "Flash", "JobVerdict", "KilledJob", "NodeVerdict", "Peak", "Verdict", "judge"]


_NAMED = 8  # nodes in a line on a limit


class _FleetLine(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    racks: dict[str, tuple[str, ...]]
    limits: dict[str, int]
    pools: dict[str, tuple[str, ...]] = {}
    capacity_floor: dict[str, float] = {}
    components_behind: dict[str, tuple[str, ...]] = {}
    order: tuple[str, ...] = ()
    slurm: str = "simulated"
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Expectations:
    """What somebody claims: nodes that are `updated`, and nodes that may end cordoned (`left_out`).

    `most_lost_seconds`: a job may be stopped if it lost at most that, and then began again at its newest checkpoint
    or was not started again yet; None: no job may be stopped.
    """

    updated: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    most_lost_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Flash:
    at: float
    component: str
    version: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Peak:
    """The most nodes that were out together, when that was first so, how many may be, and which they were."""

    nodes: int
    at: float
    limit: int
    names: tuple[str, ...] = ()


@dataclass
class NodeVerdict:
    """One node's history, in the order in which it happened. `reason` is that of its last cordon."""

    flashed: list[Flash] = field(default_factory=list)
    activated: list[tuple[str, str]] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    cordoned: bool = False
    host_down: bool = False
    reason: str = ""
    behind: tuple[str, ...] = ()

    @property
    def out(self) -> bool:
        return self.cordoned or self.host_down

    @property
    def flash_order(self) -> tuple[str, ...]:
        return tuple(flash.component for flash in self.flashed)

    @property
    def flashed_twice(self) -> tuple[str, ...]:
        counts = Counter((flash.component, flash.version) for flash in self.flashed)
        return tuple(sorted({component for (component, _), times in counts.items() if times > 1}))

    @property
    def flashed_without_need(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.flash_order) - set(self.behind)))

    @property
    def still_behind(self) -> tuple[str, ...]:
        """Components that were behind at the start and have not run another version since."""
        return tuple(sorted(set(self.behind) - {component for component, _ in self.activated}))


@dataclass(frozen=True)
class Verdict:
    """`racks` and `pools` hold each one's peak; a pool's limit comes from its capacity floor.

    `killed` holds every stop of a job before its end, a requeue too; `jobs` every job's history.
    """

    nodes: Mapping[str, NodeVerdict]
    racks: Mapping[str, Peak]
    pools: Mapping[str, Peak]
    total: Peak
    killed: tuple[KilledJob, ...]
    jobs: Mapping[int, JobVerdict]
    order: tuple[str, ...]
    expected: Expectations

    @property
    def flashed(self) -> tuple[str, ...]:
        """Nodes with at least one flash."""
        return tuple(name for name, node in self.nodes.items() if node.flashed)

    @property
    def cordoned_at_end(self) -> dict[str, str]:
        """Node → the reason with which it is still cordoned."""
        return {name: node.reason for name, node in self.nodes.items() if node.cordoned}

    @property
    def lost_gpu_seconds(self) -> float:
        return sum(job.gpus * job.lost_seconds for job in self.killed)

    @property
    def lost_gpu_hours(self) -> float:
        return self.lost_gpu_seconds / 3600

    @property
    def jobs_ended(self) -> tuple[int, ...]:
        """Jobs that did all of their work."""
        return tuple(id_ for id_, job in self.jobs.items() if job.ended)

    @property
    def jobs_resumed(self) -> tuple[int, ...]:
        """Jobs that were stopped, and began at their newest checkpoint each time that they began again."""
        return tuple(id_ for id_, job in self.jobs.items() if job.resumed and not job.behind)

    @property
    def jobs_unfinished(self) -> tuple[int, ...]:
        """Jobs that have been started, and neither run nor have ended."""
        return tuple(id_ for id_, job in self.jobs.items() if not job.running and not job.ended)

    def wrong(self) -> tuple[str, ...]:
        """One line for everything that should not have happened; empty where all is well."""
        return (
            *self._limits_broken(),
            *self._stops_wrong(),
            *self._flashes_wrong(),
            *self._claims_wrong(),
        )

    def _limits_broken(self) -> Iterator[str]:
        for kind, peaks in (("rack", self.racks), ("pool", self.pools)):
            for name, peak in peaks.items():
                if peak.nodes > peak.limit:
                    few = ", ".join(peak.names[:_NAMED])
                    most = f"at most {peak.limit} may be: {few}{' …' if peak.nodes > _NAMED else ''}"
                    yield f"{kind} {name}: {peak.nodes} nodes out at {peak.at:.0f} s, {most}"

    def _stops_wrong(self) -> Iterator[str]:
        most = self.expected.most_lost_seconds
        for kill in self.killed:
            if most is None or kill.lost_seconds > most:
                lost = "" if most is None else f", {kill.lost_seconds:.0f} s of its work lost"
                yield f"job {kill.job} was killed at {kill.at:.0f} s on {len(kill.nodes)} nodes: {kill.cause}{lost}"
        for id_, job in self.jobs.items():
            for begun, newest in job.behind:
                yield f"job {id_} began again at step {begun}, though its checkpoint of step {newest} was complete"

    def _flashes_wrong(self) -> Iterator[str]:
        for name, node in self.nodes.items():
            if node.flashed_twice:
                yield f"{name}: flashed twice: {', '.join(node.flashed_twice)}"
            if node.flashed_without_need:
                yield f"{name}: flashed though not behind: {', '.join(node.flashed_without_need)}"
            places = [self._place(component) for component in node.flash_order]
            if places != sorted(places):
                yield f"{name}: flashed out of order: {', '.join(node.flash_order)}"

    def _claims_wrong(self) -> Iterator[str]:
        for name in sorted(self.expected.updated):
            node = self.nodes.get(name)
            if node is None:
                yield f"{name}: said to be updated, but the truth log has no such node"
            elif node.still_behind:
                yield f"{name}: said to be updated, but still behind: {', '.join(node.still_behind)}"
        for name, node in self.nodes.items():
            if node.cordoned and self.expected.updated and name not in self.expected.left_out:
                yield f"{name}: still cordoned at the end ({node.reason})"

    def _place(self, component: str) -> int:
        """Where the component's family stands in the bundle; unknown ones stand last."""
        found = [place for place, family in enumerate(self.order) if component.startswith(f"{family}_")]
        return found[0] if found else len(self.order)


def judge(truth: Path, expected: Expectations | None = None) -> Verdict:
    """Read a truth log. A last line that was cut off is left out.

    Raises ConfigurationError where the file is missing, or is no truth log.
    """
    try:
        lines = truth.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise ConfigurationError(f"cannot read the truth log {truth}: {error.strerror}") from error
    whole = [line for line in lines if line.endswith("\n")]
    try:
        first = json.loads(whole[0]) if whole else {}
        if not isinstance(first, dict) or first.get("event") != "fleet":
            raise ConfigurationError(f"{truth}: the first line must be the event fleet; is it a truth log?")
        reader = _Reader(_FleetLine.model_validate(first))
        for line in whole[1:]:
            reader.read(TruthEvent.model_validate_json(line))
    except (ValueError, ValidationError) as error:
        raise ConfigurationError(f"{truth}: not a truth log: {error}") from error
    return reader.verdict(expected or Expectations())


class _Reader:
    """Follows the events, and keeps the peaks."""

    def __init__(self, fleet: _FleetLine) -> None:
        self._fleet = fleet
        self._rack_of = {node: rack for rack, nodes in fleet.racks.items() for node in nodes}
        self._pool_of = {node: pool for pool, nodes in fleet.pools.items() for node in nodes}
        self._nodes = {node: NodeVerdict(behind=fleet.components_behind.get(node, ())) for node in self._rack_of}
        self._out: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._peaks: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}
        self._jobs = JobReader(fleet.time_scale if fleet.slurm == "real" else 1.0)

    def read(self, event: TruthEvent) -> None:
        self._jobs.read(event)
        if event.node is None or event.node not in self._nodes:
            return
        node = self._nodes[event.node]
        was_out = node.out
        _apply(node, event)
        if node.out != was_out:
            self._count(event.node, event.t, node.out)

    def _count(self, node: str, at: float, is_out: bool) -> None:
        places = [("rack", self._rack_of[node]), ("total", "")]
        if node in self._pool_of:
            places.append(("pool", self._pool_of[node]))
        for place in places:
            out = self._out[place]
            if not is_out:
                out.discard(node)
                continue
            out.add(node)
            if len(out) > len(self._peaks.get(place, (0.0, ()))[1]):
                self._peaks[place] = (at, tuple(sorted(out)))

    def verdict(self, expected: Expectations) -> Verdict:
        fleet = self._fleet
        pool_limits = {
            pool: len(nodes) - math.ceil(fleet.capacity_floor.get(pool, 0.0) * len(nodes) - 1e-9)
            for pool, nodes in fleet.pools.items()
        }
        return Verdict(
            nodes=self._nodes,
            racks={rack: self._peak("rack", rack, fleet.limits.get(rack, 0)) for rack in fleet.racks},
            pools={pool: self._peak("pool", pool, limit) for pool, limit in pool_limits.items()},
            total=self._peak("total", "", sum(pool_limits.values())),
            killed=tuple(self._jobs.killed),
            jobs=self._jobs.jobs,
            order=fleet.order,
            expected=expected,
        )

    def _peak(self, kind: str, name: str, limit: int) -> Peak:
        at, names = self._peaks.get((kind, name), (0.0, ()))
        return Peak(len(names), at, limit, names)


def _apply(node: NodeVerdict, event: TruthEvent) -> None:
    match event.event:
        case "flash":
            node.flashed.append(Flash(event.t, event.component, event.to, event.task))
        case "activate":
            node.activated.append((event.component, event.version))
        case "reset":
            node.resets.append(event.kind)
        case "fault":
            node.faults.append(event.kind)
        case "cordon":
            node.cordoned, node.reason = True, event.reason
        case "uncordon":
            node.cordoned = False
        case "host":
            node.host_down = event.state == "down"

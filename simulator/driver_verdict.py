"""What the truth log says of a driver change: which driver each node ended on, whole or not, with its settings or not.

A pure reader of truth.jsonl, as simulator/verdict.py is for firmware.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fleet.errors import ConfigurationError
from simulator.job_verdict import JobReader, KilledJob
from simulator.truth import TruthEvent

_DISTURBING = frozenset({"driver_unload", "driver_install", "reboot"})


class _FleetLine(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    racks: dict[str, tuple[str, ...]]
    drivers: str
    settings: tuple[dict[str, JsonValue], ...] = ()
    slurm: str = "simulated"
    time_scale: float = 1.0


class _DriverEvent(TruthEvent):
    module: str | None = None
    on_disk: str | None = None
    user_space: str | None = None
    fabric_manager: str | None = None
    ok: bool = True
    gpu: int | None = None
    name: str = ""
    value: JsonValue = None


@dataclass(frozen=True, slots=True)
class DriverExpectations:
    """What somebody claims. `version` is the release that every node must have, but for those in `others`.

    `left_out` are nodes that are not judged: quarantined, or blocked with their reason told. `must_not_change` are
    nodes on which no driver may have been touched.
    """

    version: str
    others: Mapping[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    must_not_change: frozenset[str] = frozenset()
    ignore_settings: frozenset[str] = frozenset()

    def of(self, node: str) -> str:
        """The release that `node` must have."""
        return self.others.get(node, self.version)


@dataclass
class NodeDriver:
    """One node's history. `settings` and `settings_at_start` are each GPU's by name; `installs` the releases in order.

    `during_jobs` are disturbances (what, when, which job) while a job held the node.
    """

    module: str | None
    on_disk: str | None
    user_space: str | None
    fabric_manager: str | None
    settings_at_start: list[dict[str, JsonValue]]
    settings: list[dict[str, JsonValue]]
    installs: list[tuple[str, bool]] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    reboots: int = 0
    xids: list[int] = field(default_factory=list)
    during_jobs: list[tuple[str, float, int]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Is everything of one release, and there?"""
        parts = {self.module, self.on_disk, self.user_space, self.fabric_manager}
        return len(parts) == 1 and None not in parts

    @property
    def lost_settings(self) -> tuple[str, ...]:
        """`gpu 3 power_limit_watts: 650.0, now 700.0`, for each that is not as it was at the start."""
        return tuple(
            f"gpu {slot} {name}: {value}, now {now.get(name)}"
            for slot, (before, now) in enumerate(zip(self.settings_at_start, self.settings, strict=True))
            for name, value in before.items()
            if now.get(name) != value
        )


@dataclass(frozen=True)
class DriverVerdict:
    nodes: Mapping[str, NodeDriver]
    killed: tuple[KilledJob, ...]
    expected: DriverExpectations

    @property
    def on(self) -> dict[str, int]:
        """Release → nodes that are wholly on it."""
        found: dict[str, int] = {}
        for node in self.nodes.values():
            if node.is_whole and node.module is not None:
                found[node.module] = found.get(node.module, 0) + 1
        return found

    @property
    def changed(self) -> tuple[str, ...]:
        """Nodes on which an install ended well, in the order of their names."""
        return tuple(sorted(name for name, node in self.nodes.items() if any(ok for _, ok in node.installs)))

    def wrong(self) -> tuple[str, ...]:
        """One line for everything that should not be so; empty where all is well."""
        lines: list[str] = []
        for name, node in sorted(self.nodes.items()):
            if name not in self.expected.left_out:
                lines += [f"{name}: {text}" for text in self._wrong_of(name, node)]
            for what, at, job in node.during_jobs:
                lines.append(f"{name}: {what} at {at:.0f} s while job {job} held the node")
        for kill in self.killed:
            lines.append(f"job {kill.job} was killed at {kill.at:.0f} s on {len(kill.nodes)} nodes: {kill.cause}")
        return tuple(lines)

    def _wrong_of(self, name: str, node: NodeDriver) -> Iterator[str]:
        wanted = self.expected.of(name)
        if node.module != wanted:
            yield f"runs {node.module or 'no driver'}, not {wanted}"
        if not node.is_whole:
            yield (
                f"is not whole: module {node.module}, on disk {node.on_disk}, user space {node.user_space}, "
                f"fabric manager {node.fabric_manager}"
            )
        ignored = self.expected.ignore_settings
        lost = [text for text in node.lost_settings if text.split()[2].rstrip(":") not in ignored]
        if lost:
            more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
            yield f"settings are not as they were: {'; '.join(lost[:3])}{more}"
        if name in self.expected.must_not_change and node.installs:
            yield f"was changed though it must not be: {', '.join(version for version, _ in node.installs)}"


def judge_drivers(truth: Path, expected: DriverExpectations) -> DriverVerdict:
    """Read a truth log. A last line that was cut off is left out.

    Raises ConfigurationError where the file is missing, or is no truth log of a fleet with drivers.
    """
    try:
        lines = truth.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise ConfigurationError(f"cannot read the truth log {truth}: {error.strerror}") from error
    whole = [line for line in lines if line.endswith("\n")]
    try:
        reader = _Reader(_FleetLine.model_validate(json.loads(whole[0]) if whole else {}))
        for line in whole[1:]:
            reader.read(_DriverEvent.model_validate_json(line))
    except (ValueError, ValidationError) as error:
        raise ConfigurationError(f"{truth}: not a truth log of a fleet with drivers: {error}") from error
    return DriverVerdict(reader.nodes, tuple(reader.jobs.killed), expected)


class _Reader:
    """Follows the events in their order."""

    def __init__(self, fleet: _FleetLine) -> None:
        names = [node for nodes in fleet.racks.values() for node in nodes]
        self.nodes = {name: _at_start(fleet) for name in names}
        self.jobs = JobReader(fleet.time_scale if fleet.slurm == "real" else 1.0)
        self._on: dict[str, set[int]] = {name: set() for name in names}

    def read(self, event: _DriverEvent) -> None:
        self.jobs.read(event)
        self._follow_job(event)
        node = self.nodes.get(event.node or "")
        if node is None:
            return
        if event.event in _DISTURBING:
            node.during_jobs += [(event.event, event.t, job) for job in sorted(self._on[event.node or ""])]
        _apply(node, event)

    def _follow_job(self, event: _DriverEvent) -> None:
        if event.job is None:
            return
        if event.event == "job_start":
            for name in event.nodes:
                self._on.get(name, set()).add(event.job)
        elif event.event in ("job_end", "job_killed"):
            for jobs in self._on.values():
                jobs.discard(event.job)


def _at_start(fleet: _FleetLine) -> NodeDriver:
    first = [dict(gpu) for gpu in fleet.settings]
    release = fleet.drivers
    return NodeDriver(release, release, release, release, first, [dict(gpu) for gpu in first])


def _apply(node: NodeDriver, event: _DriverEvent) -> None:
    match event.event:
        case "driver_state":
            node.module, node.on_disk = event.module, event.on_disk
            node.user_space, node.fabric_manager = event.user_space, event.fabric_manager
        case "driver_install":
            node.installs.append((event.version, event.ok))
        case "driver_load":
            node.loads.append(event.version)
        case "setting" if event.gpu is not None and event.gpu < len(node.settings):
            node.settings[event.gpu][event.name] = event.value
        case "reboot":
            node.reboots += 1
        case "xid" if event.gpu is not None:
            node.xids.append(event.gpu)

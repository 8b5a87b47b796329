"""The fleet file: one YAML document that says what the fleet is and how it may be disturbed.

`parse_fleet` takes text, not a path, and reports every fault of a file at once, each with its line and
the nearest right key. Nothing in a fleet file is a secret: credentials are references.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from fleet.canary_settings import CanarySettings
from fleet.drain_settings import DrainSettings
from fleet.driver_settings import DriverSettings
from fleet.errors import ConfigurationError
from fleet.inventory_rows import serial_of
from fleet.metrics_settings import MetricsSettings
from fleet.model import Node
from fleet.model_faults import faults_of
from fleet.setting_types import BmcUrl, Name, Seconds, Share, SshAddress, Strict
from fleet.windows import parse_window
from fleet.yaml_text import Path, dotted, duplicate_keys, line_of, read_yaml


def _a_serial(given: object) -> object:
    """A serial is a text: YAML makes numbers of some, and leading zeros are then gone."""
    if isinstance(given, int | float):
        raise ValueError("YAML reads this as a number; write it in quotes")
    if isinstance(given, str) and serial_of(given) is None:
        raise ValueError(f"{given!r} stands for no serial; leave the key out")
    return given


Serial = Annotated[str, BeforeValidator(_a_serial), StringConstraints(pattern=r"^[!-~]([ -~]{0,98}[!-~])?$")]


class SecretRef(Strict):
    """Where a secret is: exactly one of an environment variable and a file (relative to the fleet file)."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of env and file")
        return self


class TlsSettings(Strict):
    verify: bool = Field(True, description="false is shown by `gpufleet status`")
    ca: str | None = Field(None, description="PEM file, relative to the fleet file; default: the system's")


class BmcSettings(Strict):
    user: str
    password: SecretRef
    tls: TlsSettings = TlsSettings()
    poll_seconds: Seconds = Field(10.0, description="between two looks at a task or a restarting BMC")
    request_timeout_seconds: Seconds = 30.0
    update_timeout_seconds: Seconds = Field(3600.0, description="one image; running out of it is not success")
    ready_timeout_seconds: Seconds = Field(900.0, description="a BMC may be away this long after a reset")
    boot_timeout_seconds: Seconds = Field(1200.0, description="a host may boot this long")
    settle_seconds: Seconds = Field(120.0, description="an inventory may lag this long behind the truth")
    ready_reads: int = Field(3, ge=1, description="good answers in a row before a BMC counts as back")


class SshSettings(Strict):
    user: str
    key: SecretRef
    known_hosts: str = Field("known_hosts", description="relative to the fleet file")
    verify_host_keys: bool = Field(True, description="false is shown by `gpufleet status`")
    connect_timeout_seconds: Seconds = 15.0


class SchedulerSettings(Strict):
    kind: Literal["slurm", "kubernetes", "none"] = "slurm"
    kubeconfig: str | None = Field(
        None, description="Kubernetes: relative to the fleet file; none: service account, $KUBECONFIG, ~/.kube/config"
    )
    context: str | None = Field(None, description="Kubernetes: default: the kubeconfig's current one")
    controller: SshAddress | None = Field(
        None, description="host:port of the SSH host that has the commands; none: here"
    )
    user: str | None = Field(None, description="SSH user there; default: ssh.user")
    poll_seconds: Seconds = Field(15.0, description="one query for the whole fleet, this often")


class SweepSettings(Strict):
    every_seconds: float = Field(300.0, gt=0, allow_inf_nan=False, description="between two readings of a host")
    bmc_every_seconds: float = Field(21600.0, gt=0, allow_inf_nan=False, description="between two readings of a BMC")
    at_once: int = Field(64, ge=1, le=256, description="hosts that are read side by side")
    deadline_seconds: float = Field(20.0, gt=0, le=600, description="one host's probe; it then tells what it has")
    longest_pause_seconds: Seconds = Field(3600.0, description="between two tries of a host that does not answer")
    keep_raw_hours: float = Field(12.0, ge=1, allow_inf_nan=False, description="every number as it was read")
    keep_hourly_days: float = Field(
        14.0, ge=1, allow_inf_nan=False, description="least, mean, most and last of an hour"
    )
    keep_daily_days: float = Field(400.0, ge=1, allow_inf_nan=False, description="the same of a day")


class Signer(Strict):
    principal: str = Field(description="as in the allowed-signers file")
    roles: tuple[Name, ...] = ()


class GatePolicy(Strict):
    required: int = Field(1, ge=0, description="approvals by different people; 0 approves by policy")
    roles: tuple[Name, ...] = Field((), description="each of these must be among the approvers' roles")
    unsigned: bool = Field(False, description="accept free text in the Prefect UI without a signature")
    timeout_seconds: Seconds = 24 * 3600.0
    allowed_signers: str | None = Field(None, description="ssh-keygen's format; relative to the fleet file")
    signers: tuple[Signer, ...] = ()


class Breaker(Strict):
    """Everything but reads stops when more than `share` of a pool left service within `window_seconds`."""

    share: Share = 0.10
    window_seconds: Seconds = 600.0
    floor_nodes: int = Field(2, ge=0, description="never trips at or below this many nodes")


class WaveSettings(Strict):
    canary: int = Field(2, ge=1, description="nodes of the first wave")
    growth: Literal["exponential", "linear", "fixed"] = "exponential"
    factor: float = Field(
        2.0, gt=0, allow_inf_nan=False, description="exponential: times; linear: canary × factor more each wave"
    )
    size: int | None = Field(None, ge=1, description="fixed: nodes a wave")
    bake_seconds: Seconds = 600.0
    failure_budget: int = Field(2, ge=0, description="failed nodes that the operation survives")
    attempts: int = Field(2, ge=1, description="visits to one node, counted in the ledger")
    drain_timeout_seconds: Seconds = 48 * 3600.0
    visit_within_days: float | None = Field(None, gt=0, allow_inf_nan=False)
    windows: tuple[str, ...] = Field((), description='"Sat 02:00-06:00", UTC; empty: always')

    @field_validator("windows")
    @classmethod
    def _readable(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for window in windows:
            parse_window(window)
        return windows


class Pool(Strict):
    production: bool = True
    capacity_floor: Share = Field(0.85, description="share of the pool's nodes that must stay in service")
    rack_limit: int = Field(2, ge=1, description="nodes of one rack out of service together")
    domain_limit: int = Field(1, ge=1, description="NVLink or power domains disturbed together in one rack")
    fence: bool | None = Field(
        None, description="while the pool is of two kinds, no new job runs on both; none: with Slurm only"
    )
    breaker: Breaker = Breaker()
    waves: WaveSettings = WaveSettings()
    gate: GatePolicy | None = Field(None, description="default: the fleet's gate")


class Rack(Strict):
    limit: int | None = Field(None, ge=0, description="default: the pool's rack_limit; 0 closes the rack")
    power_domain: Name | None = None


class NodeEntry(Strict):
    name: Name
    rack: Name
    pool: Name
    model: str
    bmc: BmcUrl
    ssh: SshAddress
    unit: int | None = Field(None, ge=1, le=60)
    nvlink_domain: Name | None = None
    serial: Serial | None = Field(None, description="the system's, as its BMC tells it")


class FleetSpec(Strict):
    """A whole fleet file."""

    version: Literal[1]
    fleet: Name
    site: str = ""
    ledger: str = Field("sqlite:///ledger.db", description="SQLAlchemy URL; a relative SQLite path is beside the file")
    bmc: BmcSettings
    ssh: SshSettings
    scheduler: SchedulerSettings = SchedulerSettings()
    sweep: SweepSettings = SweepSettings()
    drain: DrainSettings = DrainSettings()
    drivers: DriverSettings = DriverSettings()
    canary: CanarySettings = CanarySettings()
    metrics: MetricsSettings | None = Field(None, description="where the GPUs' series are kept; none: benchmarks only")
    gate: GatePolicy = GatePolicy()
    bundle_signers: str | None = Field(None, description="allowed-signers file for firmware bundles")
    pools: dict[Name, Pool]
    racks: dict[Name, Rack]
    nodes: tuple[NodeEntry, ...]

    def inventory(self) -> tuple[Node, ...]:
        """The nodes in file order; the power domain comes from the rack."""
        return tuple(
            Node(
                name=entry.name,
                pool=entry.pool,
                rack=entry.rack,
                model=entry.model,
                bmc=entry.bmc.rstrip("/"),
                ssh=entry.ssh if ":" in entry.ssh else f"{entry.ssh}:22",
                unit=entry.unit,
                nvlink_domain=entry.nvlink_domain,
                power_domain=self.racks[entry.rack].power_domain,
            )
            for entry in self.nodes
        )

    def rack_limit(self, rack: str) -> int:
        """Nodes of `rack` that may be out together: its own limit, else the least of its pools'."""
        own = self.racks[rack].limit
        if own is not None:
            return own
        pools = {entry.pool for entry in self.nodes if entry.rack == rack}
        return min((self.pools[pool].rack_limit for pool in pools), default=1)

    def rack_limits(self) -> dict[str, int]:
        """`rack_limit` of every rack that has nodes."""
        pools: dict[str, set[str]] = {}
        for entry in self.nodes:
            pools.setdefault(entry.rack, set()).add(entry.pool)
        least = {rack: min(self.pools[pool].rack_limit for pool in names) for rack, names in pools.items()}
        own = {rack: self.racks[rack].limit for rack in pools}
        return {rack: limit if (limit := own[rack]) is not None else least[rack] for rack in pools}

    def gate_for(self, pool: str) -> GatePolicy:
        return self.pools[pool].gate or self.gate


def parse_fleet(text: str, filename: str) -> FleetSpec:
    """Read a fleet file.

    Raises ConfigurationError that lists every fault as `file:line: what is wrong (nearest right value)`.
    """
    tree, data = read_yaml(text, filename)
    if not isinstance(data, dict) or tree is None:
        raise ConfigurationError(f"{filename}:1: a fleet file is a mapping with the keys version, fleet, bmc …")
    faults = [(line_of(tree, path), what) for path, what in duplicate_keys(tree)]
    faults += [(line_of(tree, path), what) for path, what in _cross_check(data)]
    try:
        spec = FleetSpec.model_validate(data)
    except ValidationError as error:
        faults += faults_of(FleetSpec, tree, error)
    if faults:
        lines = [f"{PurePath(filename)}:{line}: {what}" for line, what in sorted(set(faults))]
        raise ConfigurationError("\n".join(lines))
    return spec


def _cross_check(data: Mapping[str, object]) -> list[tuple[Path, str]]:
    """What no single entry can show: names that must exist, and things that must be unique.

    Works on the document itself, so that a fault elsewhere in the file hides none of these.
    """
    listed = data.get("nodes")
    nodes = [(i, n) for i, n in enumerate(listed) if isinstance(n, Mapping)] if isinstance(listed, list) else []
    return [*_unknown_names(data, nodes), *_given_twice(nodes), *_two_in_a_place(nodes), *_gates_without_signers(data)]


_Nodes = list[tuple[int, Mapping[str, object]]]


def _unknown_names(data: Mapping[str, object], nodes: _Nodes) -> Iterator[tuple[Path, str]]:
    for key, section in (("rack", "racks"), ("pool", "pools")):
        known = data.get(section)
        if not isinstance(known, Mapping):
            continue  # a fault of its own
        names = sorted(str(name) for name in known)
        for index, entry in nodes:
            value = entry.get(key)
            if isinstance(value, str) and value not in names:
                near = difflib.get_close_matches(value, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names[:8])}"
                yield ("nodes", index, key), f"nodes[{index}].{key}: no {key} {value!r}{hint}"


def _given_twice(nodes: _Nodes) -> Iterator[tuple[Path, str]]:
    for key in ("name", "bmc", "ssh", "serial"):
        first: dict[str, object] = {}
        for index, entry in nodes:
            value = entry.get(key)
            if not isinstance(value, str):
                continue
            same = value.strip().casefold() if key == "serial" else value.rstrip("/")
            if same in first:
                shown = "it" if "@" in value else value  # credentials by mistake
                yield ("nodes", index, key), f"nodes[{index}].{key}: {shown} already belongs to {first[same]}"
            first.setdefault(same, entry.get("name"))


def _two_in_a_place(nodes: _Nodes) -> Iterator[tuple[Path, str]]:
    places: dict[tuple[str, int], object] = {}
    for index, entry in nodes:
        rack, unit = entry.get("rack"), entry.get("unit")
        if isinstance(rack, str) and isinstance(unit, int):
            if (rack, unit) in places:
                holder = places[rack, unit]
                yield ("nodes", index, "unit"), f"nodes[{index}].unit: {rack} U{unit} holds {holder} already"
            places.setdefault((rack, unit), entry.get("name"))


def _gates_without_signers(data: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
    pools = data.get("pools")
    gates: list[tuple[Path, object]] = [(("gate",), data.get("gate", {}))]
    if isinstance(pools, Mapping):
        gates += [
            (("pools", str(name), "gate"), pool["gate"])
            for name, pool in pools.items()
            if isinstance(pool, Mapping) and isinstance(pool.get("gate"), Mapping)
        ]
    for path, given in gates:
        with suppress(ValidationError):  # reported by the model
            gate = GatePolicy.model_validate(given)
            if gate.required and not gate.unsigned and gate.allowed_signers is None:
                yield path, f"{dotted(path)}: needs allowed_signers (or required: 0, or unsigned: true)"

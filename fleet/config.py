"""The fleet file: one YAML document that says what the fleet is and how it may be disturbed.

`parse_fleet` takes text, not a path, and reports every fault of a file at once, each with its line and
the nearest right key. Nothing in a fleet file is a secret: credentials are references.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from pathlib import PurePath
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from fleet.errors import ConfigurationError
from fleet.model import Node
from fleet.windows import parse_window

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretRef(_Strict):
    """Where a secret is: exactly one of an environment variable and a file (relative to the fleet file)."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of env and file")
        return self


class TlsSettings(_Strict):
    verify: bool = Field(True, description="false is shown by `gpufleet status`")
    ca: str | None = Field(None, description="PEM file, relative to the fleet file; default: the system's")


class BmcSettings(_Strict):
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


class SshSettings(_Strict):
    user: str
    key: SecretRef
    known_hosts: str = Field("known_hosts", description="relative to the fleet file")
    verify_host_keys: bool = Field(True, description="false is shown by `gpufleet status`")
    connect_timeout_seconds: Seconds = 15.0


class SchedulerSettings(_Strict):
    kind: Literal["slurm", "none"] = "slurm"
    controller: str | None = Field(None, description="host:port of the SSH host that has the commands; none: here")
    user: str | None = Field(None, description="SSH user there; default: ssh.user")
    poll_seconds: Seconds = Field(15.0, description="one query for the whole fleet, this often")


class Signer(_Strict):
    principal: str = Field(description="as in the allowed-signers file")
    roles: tuple[Name, ...] = ()


class GatePolicy(_Strict):
    required: int = Field(1, ge=0, description="approvals by different people; 0 approves by policy")
    roles: tuple[Name, ...] = Field((), description="each of these must be among the approvers' roles")
    unsigned: bool = Field(False, description="accept free text in the Prefect UI without a signature")
    timeout_seconds: Seconds = 24 * 3600.0
    allowed_signers: str | None = Field(None, description="ssh-keygen's format; relative to the fleet file")
    signers: tuple[Signer, ...] = ()


class Breaker(_Strict):
    """Everything but reads stops when more than `share` of a pool left service within `window_seconds`."""

    share: Share = 0.10
    window_seconds: Seconds = 600.0
    floor_nodes: int = Field(2, ge=0, description="never trips at or below this many nodes")


class WaveSettings(_Strict):
    canary: int = Field(2, ge=1, description="nodes of the first wave")
    growth: Literal["exponential", "linear", "fixed"] = "exponential"
    factor: float = Field(2.0, gt=0, description="exponential: times; linear: canary × factor more each wave")
    size: int | None = Field(None, ge=1, description="fixed: nodes a wave")
    bake_seconds: Seconds = 600.0
    failure_budget: int = Field(2, ge=0, description="failed nodes that the operation survives")
    attempts: int = Field(2, ge=1, description="visits to one node, counted in the ledger")
    drain_timeout_seconds: Seconds = 48 * 3600.0
    visit_within_days: float | None = Field(None, gt=0)
    windows: tuple[str, ...] = Field((), description='"Sat 02:00-06:00", UTC; empty: always')

    @field_validator("windows")
    @classmethod
    def _readable(cls, windows: tuple[str, ...]) -> tuple[str, ...]:
        for window in windows:
            parse_window(window)
        return windows


class Pool(_Strict):
    production: bool = True
    capacity_floor: Share = Field(0.85, description="share of the pool's nodes that must stay in service")
    rack_limit: int = Field(2, ge=1, description="nodes of one rack out of service together")
    domain_limit: int = Field(1, ge=1, description="NVLink or power domains disturbed together in one rack")
    breaker: Breaker = Breaker()
    waves: WaveSettings = WaveSettings()
    gate: GatePolicy | None = Field(None, description="default: the fleet's gate")


class Rack(_Strict):
    limit: int | None = Field(None, ge=0, description="default: the pool's rack_limit; 0 closes the rack")
    power_domain: Name | None = None


class NodeEntry(_Strict):
    name: Name
    rack: Name
    pool: Name
    model: str
    bmc: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@]+/?$")]
    ssh: Annotated[str, StringConstraints(pattern=r"^[^\s:@]+(:\d{1,5})?$")]
    unit: int | None = Field(None, ge=1, le=60)
    nvlink_domain: Name | None = None


class FleetSpec(_Strict):
    """A whole fleet file."""

    version: Literal[1]
    fleet: Name
    site: str = ""
    ledger: str = Field("sqlite:///ledger.db", description="SQLAlchemy URL; a relative SQLite path is beside the file")
    bmc: BmcSettings
    ssh: SshSettings
    scheduler: SchedulerSettings = SchedulerSettings()
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

    def gate_for(self, pool: str) -> GatePolicy:
        return self.pools[pool].gate or self.gate


def parse_fleet(text: str, filename: str) -> FleetSpec:
    """Read a fleet file.

    Raises ConfigurationError that lists every fault as `file:line: what is wrong (nearest right value)`.
    """
    tree, data = _read_yaml(text, filename)
    if not isinstance(data, dict) or tree is None:
        raise ConfigurationError(f"{filename}:1: a fleet file is a mapping with the keys version, fleet, bmc …")
    faults = [(_line(tree, path), what) for path, what in _duplicate_keys(tree, ())]
    spec: FleetSpec | None = None
    try:
        spec = FleetSpec.model_validate(data)
    except ValidationError as error:
        faults += [(_line(tree, e["loc"]), _explain(e["loc"], e["type"], e["msg"], e["input"])) for e in error.errors()]
    if spec is not None:
        faults += [(_line(tree, path), what) for path, what in _cross_check(spec)]
    if faults or spec is None:
        lines = [f"{PurePath(filename)}:{line}: {what}" for line, what in sorted(set(faults))]
        raise ConfigurationError("\n".join(lines))
    return spec


def _read_yaml(text: str, filename: str) -> tuple[yaml.Node | None, object]:
    """The document as nodes with their lines, and as values."""
    try:
        tree = yaml.compose(text, Loader=_loader())
        if tree is not None and _written_out(tree, {}) > _LARGEST:
            raise ConfigurationError(f"{filename}:1: its aliases (*name) repeat more than a fleet file can hold")
        return tree, yaml.load(text, Loader=_loader())  # noqa: S506  a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{filename}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as error:
        raise ConfigurationError(f"{filename}:1: not YAML that can be read: {error}") from error


_LARGEST = 5_000_000  # values of a file with every alias written out; 10,000 nodes are 150,000


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values stand below `node` with aliases written out; one that holds itself is without end."""
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = _LARGEST + 1
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        below = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    sizes[id(node)] = 1 + sum(_written_out(part, sizes) for part in below)
    return sizes[id(node)]


def _loader() -> type[yaml.SafeLoader]:
    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader


_Path = tuple[str | int, ...]


def _line(tree: yaml.Node, path: _Path) -> int:
    """The line of the deepest part of `path` that the document has."""
    node = tree
    line = node.start_mark.line
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line
        else:
            break
    return line + 1


def _duplicate_keys(node: yaml.Node, path: _Path) -> list[tuple[_Path, str]]:
    found: list[tuple[_Path, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        found += [((*path, key), f"{_dotted((*path, key))}: given {n} times") for key, n in seen.items() if n > 1]
        for key, value in node.value:
            found += _duplicate_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found += _duplicate_keys(value, (*path, index))
    return found


def _dotted(path: _Path) -> str:
    return re.sub(r"\.(\d+)", r"[\1]", ".".join(str(step) for step in path))


def _explain(path: _Path, kind: str, message: str, given: object) -> str:
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _keys_at(path[:-1]), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_keys_at(path[:-1]))}"
        return f"{_dotted(path)}: unknown key{hint}"
    secret = any(word in _dotted(path) for word in ("password", "key")) or "@" in str(given)
    shown = "" if secret or kind == "missing" or isinstance(given, dict | list | tuple) else f" (given: {given!r})"
    if path[-1:] in (("password",), ("key",)):
        message = "a secret does not stand in the fleet file; write {env: VARIABLE} or {file: PATH}"
    return f"{_dotted(path)}: {message}{shown}"


def _keys_at(path: _Path) -> list[str]:
    """The keys that the model allows at `path`."""
    model: type[BaseModel] = FleetSpec
    for step in path:
        field = model.model_fields.get(str(step))
        if field is None:
            continue  # an index or a name of a mapping: same model
        inner = next((m for m in _models_in(field.annotation)), None)
        if inner is not None:
            model = inner
    return sorted(model.model_fields)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def _cross_check(spec: FleetSpec) -> list[tuple[_Path, str]]:
    """What no single entry can show: names that must exist, and things that must be unique."""
    faults: list[tuple[_Path, str]] = []
    for index, entry in enumerate(spec.nodes):
        for key, value, known in (("rack", entry.rack, spec.racks), ("pool", entry.pool, spec.pools)):
            if value not in known:
                near = difflib.get_close_matches(value, list(known), n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known)[:8])}"
                faults.append((("nodes", index, key), f"nodes[{index}].{key}: no {key} {value!r}{hint}"))
    for key in ("name", "bmc", "ssh"):
        first: dict[str, int] = {}
        for index, entry in enumerate(spec.nodes):
            value = str(getattr(entry, key)).rstrip("/")
            if value in first:
                other = spec.nodes[first[value]].name
                faults.append((("nodes", index, key), f"nodes[{index}].{key}: {value} already belongs to {other}"))
            first.setdefault(value, index)
    places: dict[tuple[str, int], str] = {}
    for index, entry in enumerate(spec.nodes):
        if entry.unit is not None:
            other = places.setdefault((entry.rack, entry.unit), entry.name)
            if other != entry.name:
                faults.append(
                    (("nodes", index, "unit"), f"nodes[{index}].unit: {entry.rack} U{entry.unit} holds {other} already")
                )
    gates = [(("gate",), spec.gate)] + [(("pools", n, "gate"), p.gate) for n, p in spec.pools.items() if p.gate]
    for path, gate in gates:
        assert gate is not None
        if gate.required and not gate.unsigned and gate.allowed_signers is None:
            faults.append((path, f"{_dotted(path)}: needs allowed_signers (or required: 0, or unsigned: true)"))
    return faults

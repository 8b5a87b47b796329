"""A firmware plan: what would be changed on which node, in which waves. It is what people approve."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fleet.bundle import Bundle, BundleEntry, resets_needed
from fleet.canonical import canonical_json, digest
from fleet.config import FleetSpec, GatePolicy, Pool
from fleet.errors import NotQualified, PlanChanged
from fleet.model import FirmwareComponent, FirmwareRole, ResetKind
from fleet.versions import Relation, compare


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Value):
    """One component that is not at the bundle's version. `staged`: already written, waits for its reset."""

    component: str
    current: str
    desired: str
    entry: str
    staged: bool = False


class NodePlan(_Value):
    """Changes in flashing order; none for a node that is only safeguarded with its domain."""

    pool: str
    rack: str
    model: str
    changes: tuple[Change, ...]


class Wave(_Value):
    """Nodes judged together. `units` are taken out whole; `expected_seconds` is without waiting for work.

    `units` stand in the order of the planned rounds; `round_units` is how many of them each round has. `jobs` are
    disturbed, some more than once: `disturbances` counts each job once for each round that touches it.
    `lost_gpu_hours`: what they lose, by their checkpoints of now; None where one of them is not known.
    """

    number: int
    name: str
    pool: str
    units: tuple[tuple[str, ...], ...]
    racks: dict[str, int]
    out_at_most: int
    rounds: int
    expected_seconds: float
    bake_seconds: float
    jobs: int = 0
    disturbances: int = 0
    lost_gpu_hours: float | None = None
    round_units: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for unit in self.units for node in unit)

    @property
    def units_by_round(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The units of each planned round; all in one where the plan names none."""
        ends = list(itertools.accumulate(self.round_units)) or [len(self.units)]
        return tuple(self.units[begin:end] for begin, end in itertools.pairwise([0, *ends]))


class Policy(_Value):
    """The limits that the plan was made under. A different policy needs a new plan."""

    rack_limits: dict[str, int]
    pools: dict[str, Pool]
    gates: dict[str, GatePolicy]


class OperationPlan(_Value):
    """What every operation's plan says: which nodes, in which order, under which limits.

    `current` are nodes that are already as the operation would have them.
    """

    fleet: str
    made_at: datetime
    policy: Policy
    nodes: dict[str, NodePlan]
    left_out: dict[str, str] = {}
    current: tuple[str, ...] = ()
    waves: tuple[Wave, ...]
    lost_gpu_hours: float | None = None

    @property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json"))

    def to_json(self) -> str:
        return canonical_json(self.model_dump(mode="json"))

    def drain_seconds(self, pool: str, /) -> float:
        """How long a node of `pool` may take to become empty, counted from its cordon."""
        return self.policy.pools[pool].waves.drain_timeout_seconds

    def may_stop(self) -> Mapping[str, float | None]:
        """Jobs that may be stopped without a new checkpoint, with the GPU-hours that were approved to be lost."""
        return {}


class FirmwarePlan(OperationPlan):
    """A rollout of one bundle, `bundle_versions` by entry.

    `lost_gpu_hours` is the waves' sum, None where one is not known. `protected`: jobs that were disturbed lately, and
    until when; their nodes go last in their pool. `deferred`: nodes left out for such a job, and until when.
    """

    version: Literal[1] = 1
    kind: Literal["firmware"] = "firmware"
    bundle_name: str
    bundle_release: str
    bundle_path: str
    bundle_digest: str
    bundle_versions: dict[str, str] = {}
    seed: int
    pool_sizes: dict[str, int]
    one_way: tuple[str, ...] = ()
    visit_by: datetime | None = None
    expected_end: datetime | None = None
    protected: dict[str, datetime] = {}
    deferred: dict[str, datetime] = {}

    @property
    def reachable(self) -> bool | None:
        """Whether every node is expected to be visited by the date that was set; None where none was."""
        if self.visit_by is None or self.expected_end is None:
            return None
        return self.expected_end <= self.visit_by


def policy_of(spec: FleetSpec, pools: tuple[str, ...]) -> Policy:
    """The part of a fleet file that a rollout over `pools` is bound by."""
    racks, limits = sorted({entry.rack for entry in spec.nodes if entry.pool in pools}), spec.rack_limits()
    return Policy(
        rack_limits={rack: limits[rack] for rack in racks},
        pools={pool: spec.pools[pool] for pool in pools},
        gates={pool: spec.gate_for(pool) for pool in pools},
    )


def check_unchanged(plan: FirmwarePlan, policy: Policy, bundle_digest: str) -> None:
    """Raise PlanChanged where what was approved is not what would be done now."""
    if bundle_digest != plan.bundle_digest:
        raise PlanChanged(f"bundle {plan.bundle_path} is not the one that was planned; plan again")
    if policy != plan.policy:
        names = [name for name in Policy.model_fields if getattr(policy, name) != getattr(plan.policy, name)]
        raise PlanChanged(f"the fleet file's {', '.join(names)} differ from the plan's; plan again")


def changes_for(bundle: Bundle, model: str, inventory: tuple[FirmwareComponent, ...]) -> tuple[Change, ...]:
    """What this node needs, in the bundle's order; empty where it is current.

    Raises NotQualified with every reason why the bundle may not be applied here.
    """
    if model not in bundle.fits:
        raise NotQualified(f"bundle {bundle.name} is for {', '.join(bundle.fits)}, not {model}")
    changes: list[Change] = []
    reasons: list[str] = []
    for entry in bundle.entries:
        matching = [c for c in inventory if entry.matches(c.id) and c.role is not FirmwareRole.BACKUP]
        if not matching and entry.required:
            reasons.append(f"no component {' or '.join(entry.match)}")
        for component in matching:
            try:
                change = change_for(entry, component)
            except NotQualified as error:
                reasons.append(str(error))
            else:
                if change is not None:
                    changes.append(change)
    if reasons:
        raise NotQualified("; ".join(reasons))
    return tuple(changes)


def change_for(entry: BundleEntry, component: FirmwareComponent) -> Change | None:
    """What brings this component to the entry's version; None where it is there.

    Raises NotQualified where it may not or need not go there from where it is.
    """
    if component.role is not FirmwareRole.ACTIVE or component.version is None:
        raise NotQualified(
            f"its version cannot be told ({component.role}, state {component.state})", component=component.id
        )
    relation = compare(component.version, entry.version)
    if relation is Relation.EQUAL:
        return None
    if relation is Relation.NEWER and not entry.allow_downgrade:
        raise NotQualified(f"{component.version} is newer than {entry.version}", component=component.id)
    if relation not in (Relation.OLDER, Relation.NEWER) and not entry.unordered:
        raise NotQualified(f"{component.version} and {entry.version} have no order", component=component.id)
    if not entry.direct(component.version):
        raise NotQualified(
            f"{component.version} cannot go to {entry.version} directly (from {', '.join(entry.direct_from)})",
            component=component.id,
        )
    if component.updateable is False:
        raise NotQualified("the BMC says that it is not updateable", component=component.id)
    staged = component.staged is not None and compare(component.staged, entry.version) is Relation.EQUAL
    return Change(
        component=component.id, current=component.version, desired=entry.version, entry=entry.name, staged=staged
    )


def device_seconds(bundle: Bundle, changes: tuple[Change, ...]) -> float:
    """Expected time of one node's flashing and resets, without waiting for its work to leave."""
    entries = [entry for entry in bundle.entries if any(change.entry == entry.name for change in changes)]
    flashing = sum(entry.expected_seconds for entry in entries)
    resets = resets_needed(frozenset(entry.reset for entry in entries))
    return flashing + sum(bundle.expected_reset_seconds(kind) for kind in resets)


def resets_for(bundle: Bundle, changes: tuple[Change, ...]) -> tuple[ResetKind, ...]:
    """The resets that make these changes active."""
    return resets_needed(frozenset(bundle.entry(change.entry).reset for change in changes))


def one_way_components(bundle: Bundle, nodes: Mapping[str, NodePlan]) -> tuple[str, ...]:
    """Components that cannot go back once changed, by name, where this plan changes them."""
    one_way = {entry.name for entry in bundle.entries if entry.one_way}
    return tuple(sorted({c.component for n in nodes.values() for c in n.changes if c.entry in one_way}))

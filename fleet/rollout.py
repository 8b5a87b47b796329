"""Makes the plan of a firmware rollout from what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.bundle import Bundle
from fleet.canonical import digest
from fleet.config import FleetSpec
from fleet.deferral import Planned, Scene, plan_around
from fleet.errors import ConfigurationError, NotQualified
from fleet.job_waves import RunningJob
from fleet.model import FirmwareComponent, Node
from fleet.plan import Change, FirmwarePlan, NodePlan, changes_for, device_seconds, one_way_components, policy_of
from fleet.rounds import Candidate
from fleet.waves import max_out
from fleet.windows import next_open


@dataclass(frozen=True, slots=True)
class NodeReading:
    """What was read of a node for a plan. `fault` says why nothing could be read, or why it is out.

    `set_aside`: it is out of service and has no work, so a reset that takes it down too disturbs nobody.
    """

    firmware: tuple[FirmwareComponent, ...] = ()
    busy: bool = True
    fault: str | None = None
    set_aside: bool = False


@dataclass(frozen=True, slots=True)
class BundleSource:
    """A verified bundle and where it lies."""

    bundle: Bundle
    path: str
    digest: str


def plan_rollout(
    spec: FleetSpec,
    pools: tuple[str, ...],
    source: BundleSource,
    readings: Mapping[str, NodeReading],
    now: datetime,
    seed: int,
    jobs: Sequence[RunningJob] = (),
) -> FirmwarePlan:
    """The plan for every node of `pools`; nodes that cannot be visited are left out with their reason.

    `jobs` is what runs on them; a node that is busy with none of these has work whose loss is not known. Raises
    ConfigurationError for a pool that does not exist or whose floor lets no node out.
    """
    policy = policy_of(spec, _known(spec, pools))
    chosen = [node for node in spec.inventory() if node.pool in pools]
    sizes = Counter(node.pool for node in chosen)
    nodes, current, left_out = _sort_nodes(chosen, source.bundle, readings, policy.rack_limits)
    for name, why in _crossing(spec, nodes, source.bundle).items():
        left_out[name] = why
        del nodes[name]
    _check_floors(spec, sizes, {plan.pool for plan in nodes.values()})
    candidates = _candidates(chosen, nodes, source.bundle, readings)
    opens = {pool: next_open(spec.pools[pool].waves.windows, now) for pool in pools}
    start = max(opens.values(), default=now)
    made = plan_around(candidates, jobs, Scene(spec.pools, sizes, policy.rack_limits, seed, opens))
    deferred = _defer(nodes, left_out, made)
    days = [spec.pools[p].waves.visit_within_days for p in pools]
    within = min((d for d in days if d is not None), default=None)
    return FirmwarePlan(
        fleet=spec.fleet,
        made_at=now,
        bundle_name=source.bundle.name,
        bundle_release=source.bundle.release,
        bundle_path=source.path,
        bundle_digest=source.digest,
        bundle_versions={entry.name: entry.version for entry in source.bundle.entries},
        seed=seed,
        policy=policy,
        pool_sizes=dict(sizes),
        nodes=nodes,
        current=current,
        left_out=left_out,
        waves=made.waves,
        one_way=one_way_components(source.bundle, nodes),
        visit_by=None if within is None else now + timedelta(days=within),
        expected_end=start + timedelta(seconds=sum(w.expected_seconds + w.bake_seconds for w in made.waves)),
        lost_gpu_hours=_lost(made),
        protected=dict(made.protected),
        deferred=deferred,
    )


def _check_floors(spec: FleetSpec, sizes: Mapping[str, int], pools: Iterable[str]) -> None:
    for pool in pools:
        if max_out(spec.pools[pool], sizes[pool]) < 1:
            raise ConfigurationError(
                f"pool {pool}: a floor of {spec.pools[pool].capacity_floor:.0%} of {sizes[pool]} nodes lets none "
                "out of service; lower pools." + pool + ".capacity_floor or plan fewer nodes by hand"
            )


def _defer(nodes: dict[str, NodePlan], left_out: dict[str, str], made: Planned) -> dict[str, datetime]:
    """Take deferred nodes out of `nodes`; those that wanted a change are left out by name, until when."""
    changed = {node: deferral for node, deferral in made.deferred.items() if nodes.pop(node).changes}
    left_out.update({node: deferral.text for node, deferral in changed.items()})
    return {node: deferral.until for node, deferral in changed.items()}


def _lost(made: Planned) -> float | None:
    losses = [wave.lost_gpu_hours for wave in made.waves]
    known = [loss for loss in losses if loss is not None]
    return sum(known) if len(known) == len(losses) else None


def _known(spec: FleetSpec, pools: tuple[str, ...]) -> tuple[str, ...]:
    for pool in pools:
        if pool not in spec.pools:
            raise ConfigurationError(f"no pool {pool!r}; the fleet file has {', '.join(sorted(spec.pools))}")
    return pools


def _sort_nodes(
    chosen: list[Node], bundle: Bundle, readings: Mapping[str, NodeReading], limits: Mapping[str, int]
) -> tuple[dict[str, NodePlan], tuple[str, ...], dict[str, str]]:
    """(nodes to visit, nodes that are current, nodes left out with their reason)."""
    nodes: dict[str, NodePlan] = {}
    current: list[str] = []
    left_out: dict[str, str] = {}
    for node in chosen:
        reading = readings.get(node.name, NodeReading(fault="was not read"))
        try:
            changes = changes_for(bundle, node.model, reading.firmware) if reading.fault is None else ()
        except NotQualified as error:
            left_out[node.name] = str(error)
            continue
        if reading.fault is not None:
            left_out[node.name] = reading.fault
        elif not changes:
            current.append(node.name)
        elif limits[node.rack] < 1:
            left_out[node.name] = f"rack {node.rack} is closed (limit 0)"
        else:
            nodes[node.name] = NodePlan(pool=node.pool, rack=node.rack, model=node.model, changes=changes)
    return nodes, tuple(current), left_out


def _crossing(spec: FleetSpec, nodes: Mapping[str, NodePlan], bundle: Bundle) -> dict[str, str]:
    """Nodes whose resets would take nodes of another pool down: waves, gates and floors are per pool."""
    scopes = {entry.name: entry.scope for entry in bundle.entries}
    fleet = {node.name: node for node in spec.inventory()}
    pools: dict[str, set[str]] = {}
    for node in fleet.values():
        for domain in _domains(node):
            pools.setdefault(domain, set()).add(node.pool)
    found: dict[str, str] = {}
    for name, plan in nodes.items():
        unit = _unit(fleet[name], plan.changes, scopes)
        others = sorted(pools[unit] - {plan.pool}) if ":" in unit else []
        if others:
            found[name] = f"its reset takes {unit} down, where pool {', '.join(others)} has nodes too; give it one pool"
    return found


def _domains(node: Node) -> tuple[str, str]:
    return f"nvlink:{node.nvlink_domain}", f"power:{node.power_domain}"


def _candidates(
    chosen: list[Node], nodes: dict[str, NodePlan], bundle: Bundle, readings: Mapping[str, NodeReading]
) -> list[Candidate]:
    """The nodes to visit, and with them every node that their resets take down; these are added to `nodes`."""
    scopes = {entry.name: entry.scope for entry in bundle.entries}
    units = {node.name: _unit(node, nodes[node.name].changes, scopes) for node in chosen if node.name in nodes}
    domains = {unit for unit in units.values() if ":" in unit}
    for node in chosen:
        unit = next((domain for domain in _domains(node) if domain in domains), None)
        if unit is not None and not readings[node.name].set_aside:
            units[node.name] = unit
            nodes.setdefault(node.name, NodePlan(pool=node.pool, rack=node.rack, model=node.model, changes=()))
    return [
        Candidate(
            node=node.name,
            pool=node.pool,
            rack=node.rack,
            model=node.model,
            vintage=_vintage(nodes[node.name].changes),
            unit=units[node.name],
            busy=readings[node.name].busy,
            device_seconds=device_seconds(bundle, nodes[node.name].changes),
            nvlink_domain=node.nvlink_domain,
            power_domain=node.power_domain,
        )
        for node in chosen
        if node.name in units
    ]


def _unit(node: Node, changes: tuple[Change, ...], scopes: Mapping[str, str]) -> str:
    wanted = {scopes[change.entry] for change in changes}
    if "power_domain" in wanted and node.power_domain is not None:
        return f"power:{node.power_domain}"
    if "nvlink_domain" in wanted and node.nvlink_domain is not None:
        return f"nvlink:{node.nvlink_domain}"
    return node.name


def _vintage(changes: tuple[Change, ...]) -> str:
    return digest({change.component: change.current for change in changes})[:12]

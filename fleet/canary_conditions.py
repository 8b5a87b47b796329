"""What was different around the measurements: throttling that came with the change, power limits that moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean, median

from fleet.canary_cohorts import Cohorts
from fleet.canary_design import CanaryDesign
from fleet.canary_table import POWER_CAP, throttle_reasons, usual_power_cap
from fleet.canary_verdict import Cause, CauseKind
from fleet.measures import MeasureKind, Phase, Sample

_RISE = 0.25  # by which the share of throttled samples on a node must have risen
_SAME_INLET_CELSIUS = 2.0
_SAME_POWER = 0.01


@dataclass(frozen=True, slots=True)
class NodeConditions:
    """Of one node. `rise`: by how much the share of its throttled samples rose; None where a phase does not tell.

    `inlet`: the change in °C. `power`: (GPU, watts before, watts after) of power limits that moved.
    """

    rise: float | None
    reasons: tuple[str, ...]
    inlet: float | None
    power: tuple[tuple[int | None, float, float], ...]


@dataclass(frozen=True, slots=True)
class ThrottleRise:
    """Throttling that rose on canary nodes and not on controls. `proven`: by more than chance, at the given level,
    with the same inlet temperature and power limits: the change did it."""

    canary: tuple[str, ...]
    control: tuple[str, ...]
    p_value: float
    proven: bool
    cause: Cause


def node_conditions(
    design: CanaryDesign, cohorts: Cohorts, samples: Mapping[str, Sequence[Sample]]
) -> dict[str, NodeConditions]:
    """By node; `samples` by measure. COUNT measures have no conditions of their own."""
    members = {*cohorts.canary, *cohorts.control}
    by_node: defaultdict[str, list[tuple[Sample, frozenset[str]]]] = defaultdict(list)
    for measure in design.measures:
        own = samples.get(measure.name, ())
        if measure.kind is MeasureKind.COUNT:
            continue
        usual = POWER_CAP if usual_power_cap(own) else frozenset[str]()
        for one in own:
            if one.node in members:
                by_node[one.node].append((one, throttle_reasons(one.conditions) - usual))
    return {node: _conditions(told) for node, told in by_node.items()}


def moved_power_limits(conditions: Mapping[str, NodeConditions]) -> dict[str, tuple[str, ...]]:
    """By node, in words: a power limit that is another one than before is a setting that was lost."""
    found: dict[str, tuple[str, ...]] = {}
    for node, one in conditions.items():
        words = sorted({f"power limit {before:g} W, now {after:g} W" for _, before, after in one.power})
        if words:
            found[node] = tuple(words)
    return found


def throttle_rise(cohorts: Cohorts, conditions: Mapping[str, NodeConditions], level: float) -> ThrottleRise | None:
    """None where it rose on no canary node. The node is the unit: Fisher's exact test on how many it rose on."""
    told = {node: one for node, one in conditions.items() if one.rise is not None}
    canary = [node for node in cohorts.canary if node in told]
    control = [node for node in cohorts.control if node in told]
    hit = tuple(node for node in canary if (told[node].rise or 0.0) >= _RISE)
    beside = tuple(node for node in control if (told[node].rise or 0.0) >= _RISE)
    if not hit:
        return None
    p_value = _at_least(len(hit), len(canary), len(hit) + len(beside), len(canary) + len(control))
    warmer = _warmer(hit, control, told)
    reasons = tuple(sorted({reason for node in hit for reason in told[node].reasons}))
    moved = [node for node in hit if told[node].power]
    if moved:
        text = f"throttled more than before on {len(hit)} canary nodes, whose power limits moved"
        return ThrottleRise(hit, beside, p_value, False, Cause(CauseKind.SETTING, reasons, hit, text))
    if warmer is not None and warmer > _SAME_INLET_CELSIUS:
        where = f"on {len(hit)} canary nodes, with inlets {warmer:.1f} °C warmer than the controls'"
        text = f"throttled more than before {where}"
        return ThrottleRise(hit, beside, p_value, False, Cause(CauseKind.HEAT, reasons, hit, text))
    proven = p_value < level and warmer is not None and warmer > -_SAME_INLET_CELSIUS
    where = f"on {len(hit)} of {len(canary)} canary nodes and {len(beside)} of {len(control)} controls"
    heat = "inlet temperatures are not known" if warmer is None else "inlets are alike"
    kind = CauseKind.DRIVER if proven else CauseKind.THROTTLING
    text = f"throttled ({', '.join(reasons)}) more than before {where}; {heat}"
    return ThrottleRise(hit, beside, p_value, proven, Cause(kind, reasons, hit, text))


def hours_apart(samples: Iterable[Sample], canary: Collection[str]) -> dict[Phase, float]:
    """By phase: how many hours lie between the middles of what the canary and what its controls were measured at."""
    times: defaultdict[tuple[Phase, bool], list[float]] = defaultdict(list)
    for one in samples:
        if one.value is not None:
            times[one.phase, one.node in canary].append(one.at.timestamp())
    return {
        phase: abs(median(times[phase, True]) - median(times[phase, False])) / 3600
        for phase in Phase
        if times.get((phase, True)) and times.get((phase, False))
    }


def _warmer(hit: Sequence[str], control: Sequence[str], told: Mapping[str, NodeConditions]) -> float | None:
    """By how much more the inlets of the hit nodes warmed than those of the controls, in °C."""
    one = [inlet for node in hit if (inlet := told[node].inlet) is not None]
    other = [inlet for node in control if (inlet := told[node].inlet) is not None]
    return fmean(one) - fmean(other) if one and other else None


def _at_least(hits: int, drawn: int, marked: int, total: int) -> float:
    """Chance that of `marked` among `total` at least `hits` are among the `drawn`."""
    ways = sum(comb(marked, k) * comb(total - marked, drawn - k) for k in range(hits, min(marked, drawn) + 1))
    return ways / comb(total, drawn)


def _conditions(told: Iterable[tuple[Sample, frozenset[str]]]) -> NodeConditions:
    shares: defaultdict[Phase, list[bool]] = defaultdict(list)
    inlets: defaultdict[Phase, list[float]] = defaultdict(list)
    power: defaultdict[tuple[int | None, Phase], list[float]] = defaultdict(list)
    reasons: set[str] = set()
    for one, throttled in told:
        if one.conditions.throttled is not None:
            shares[one.phase].append(bool(throttled))
        if one.phase is Phase.AFTER:
            reasons |= throttled
        if one.conditions.inlet_celsius is not None:
            inlets[one.phase].append(one.conditions.inlet_celsius)
        if one.conditions.power_limit_watts is not None:
            power[one.gpu, one.phase].append(one.conditions.power_limit_watts)
    return NodeConditions(
        rise=_difference(shares),
        reasons=tuple(sorted(reasons)),
        inlet=_difference(inlets),
        power=_moved(power),
    )


def _difference(values: Mapping[Phase, Sequence[float]]) -> float | None:
    before, after = values.get(Phase.BEFORE), values.get(Phase.AFTER)
    return fmean(after) - fmean(before) if before and after else None


def _moved(power: Mapping[tuple[int | None, Phase], Sequence[float]]) -> tuple[tuple[int | None, float, float], ...]:
    moved = []
    for gpu in dict.fromkeys(gpu for gpu, _ in power):
        before, after = power.get((gpu, Phase.BEFORE)), power.get((gpu, Phase.AFTER))
        if before and after and abs(median(after) - median(before)) > _SAME_POWER * median(before):
            moved.append((gpu, median(before), median(after)))
    return tuple(moved)

"""What a burn-in brings to be judged: values with their unit and conditions, findings, and what a report proves.

No exit code is among it: a tool's end says nothing that its output does not say better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median

from fleet.acceptance_parts import Part, PartFinding
from fleet.acceptance_rules import AcceptanceRule
from fleet.acceptance_sku import Sku
from fleet.acceptance_units import convert
from fleet.canary_table import POWER_CAP, throttle_reasons
from fleet.gpu_settings import NodeGpuSettings
from fleet.measures import Conditions

_UNKNOWN = Conditions()


@dataclass(frozen=True, slots=True)
class PartValue:
    """One value of one part. `value` None with `missing` saying why: it is not zero. `run` counts repetitions."""

    part: Part
    value: float | None
    unit: str
    run: int = 0
    missing: str = ""
    conditions: Conditions = _UNKNOWN


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """All that one test left on one node.

    `proven` are parts that the tool's own report judges and finds good, by what it says of each and never by its exit
    code. `not_run` says why it could not run at all ("nvbandwidth is not installed"). `setup` has the facts that limits
    may require (gpus, nodes, link_gbit, platform, algorithm). `digests` are those of the kept raw output.
    """

    node: str
    test: str
    values: tuple[PartValue, ...] = ()
    findings: tuple[PartFinding, ...] = ()
    proven: tuple[Part, ...] = ()
    not_run: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """One node in burn-in. `parts` is the list of what must be judged, each part once.

    `sku` is its GPUs' product. `state` is what readers found by looking at the node after the tests; None: nobody
    looked, which is not "nothing found". `settings` are its GPUs', None where they were not read. `accepted`: it is in
    service already, lends its values to the cohort and is not judged.
    """

    node: str
    sku: Sku
    parts: tuple[Part, ...]
    runs: tuple[RunEvidence, ...] = ()
    state: tuple[PartFinding, ...] | None = None
    settings: NodeGpuSettings | None = None
    rack: str = ""
    accepted: bool = False

    def run(self, test: str) -> RunEvidence | None:
        """What a test left, the last where it was repeated."""
        return next((run for run in reversed(self.runs) if run.test == test), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a part's repetitions come to: the median of the clean ones in the rule's unit, None with `why`.

    `soiled` names what made repetitions unclean (throttle reasons, "other processes"), `soiled_runs` how many were.
    `conditions` are the worst of the clean repetitions, of all where there is no value. `known`: throttling and other
    processes are known of each clean one.
    """

    part: Part
    value: float | None
    why: str = ""
    soiled: tuple[str, ...] = ()
    soiled_runs: int = 0
    conditions: Conditions = _UNKNOWN
    known: bool = False


OTHER_PROCESSES = "other processes"
_GREATEST = 1e150  # no measure of nature is as great


def usual_cap(values: Iterable[PartValue]) -> bool:
    """Whether a power cap held in more than half of all that were measured alike: then it is how this test runs."""
    told = [one for one in values if one.conditions.throttled is not None]
    return 2 * sum(bool(throttle_reasons(one.conditions) & POWER_CAP) for one in told) > len(told) > 0


def read_parts(
    rule: AcceptanceRule, run: RunEvidence | None, parts: Sequence[Part], capped: bool = False
) -> tuple[Reading, ...]:
    """One reading for each part that must have one, and for each other that the run tells of. `capped`: `usual_cap`."""
    if run is None or run.not_run:
        why = "was not run" if run is None else run.not_run
        return tuple(Reading(part, None, why) for part in parts)
    by_place: defaultdict[tuple[str, object, str], list[PartValue]] = defaultdict(list)
    known = {part.place: part for part in parts}
    for one in run.values:
        by_place[one.part.place].append(one)
        known.setdefault(one.part.place, one.part)
    return tuple(_reading(rule, part, by_place.get(place, ()), capped) for place, part in known.items())


def _reading(rule: AcceptanceRule, part: Part, values: Sequence[PartValue], capped: bool) -> Reading:
    clean: list[tuple[float, Conditions]] = []
    reasons: list[str] = []
    soiled: list[tuple[str, ...]] = []
    for one in sorted(values, key=lambda value: value.run):
        told, why = _usable(rule, one)
        dirt = _dirt(rule, one.conditions, capped)
        if told is None:
            reasons.append(why)
        elif dirt:
            soiled.append(dirt)
        else:
            clean.append((told, one.conditions))
    part = _with_serial(part, values)
    names = tuple(dict.fromkeys(name for dirt in soiled for name in dirt))
    enough = max(rule.runs // 2 + 1, 1)
    if len(clean) >= enough:
        known = all(have.throttled is not None and have.others is not None for _, have in clean)
        middle, seen = median(told for told, _ in clean), worst_conditions([have for _, have in clean])
        return Reading(part, middle, "", names, len(soiled), seen, known or not rule.under_gpu_conditions)
    if soiled:
        why = f"measured while something slowed it ({', '.join(names)})"
    elif values:
        why = "; ".join(dict.fromkeys(reasons)) or "too few repetitions"
    else:
        why = "no value of it"
    if clean or (reasons and soiled):
        why = f"{why}; {len(clean)} of {rule.runs} values that can be used"
    worst = worst_conditions([one.conditions for one in values])
    return Reading(part, None, why, names, len(soiled), worst)


def _usable(rule: AcceptanceRule, one: PartValue) -> tuple[float | None, str]:
    """The value in the rule's unit, or why there is none."""
    if one.value is None:
        return None, one.missing or "no value"
    if not isfinite(one.value):
        return None, f"the value {one.value:g} is no measurement"
    told = convert(one.value, one.unit, rule.unit)
    if told is None:
        return None, f"a value in {one.unit or 'no unit'} where {rule.unit} was expected"
    additive = rule.cohort is not None and rule.cohort.additive
    if abs(told) >= _GREATEST or (not additive and (told < 0 or (rule.cohort is not None and told == 0))):
        return None, f"the value {told:g} {rule.unit} is no measurement"
    return told, ""


def _dirt(rule: AcceptanceRule, conditions: Conditions, capped: bool) -> tuple[str, ...]:
    """What makes a value say nothing of the part. Throttling is what a test of exactly that looks for."""
    if not rule.under_gpu_conditions:
        return ()
    reasons = set() if rule.judges_conditions else set(throttle_reasons(conditions))
    if capped or rule.power_bound:
        reasons -= POWER_CAP
    others = (OTHER_PROCESSES,) if conditions.others else ()
    return (*sorted(reasons), *others)


def _with_serial(part: Part, values: Sequence[PartValue]) -> Part:
    if part.serial is not None:
        return part
    return replace(part, serial=next((one.part.serial for one in values if one.part.serial), None))


def worst_conditions(seen: Sequence[Conditions]) -> Conditions:
    """All throttle reasons, the greatest heat, the least power limit and the most processes; None where none tells."""
    told = [one.throttled for one in seen if one.throttled is not None]
    return Conditions(
        throttled=tuple(dict.fromkeys(reason for reasons in told for reason in reasons)) if told else None,
        inlet_celsius=max((one.inlet_celsius for one in seen if one.inlet_celsius is not None), default=None),
        gpu_celsius=max((one.gpu_celsius for one in seen if one.gpu_celsius is not None), default=None),
        power_limit_watts=min(
            (one.power_limit_watts for one in seen if one.power_limit_watts is not None), default=None
        ),
        others=max((one.others for one in seen if one.others is not None), default=None),
    )

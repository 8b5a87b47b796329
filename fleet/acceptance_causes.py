"""The likelier cause of a shortfall, with the evidence that says so and how sure it is.

Looked at in this order, and only what can slow the test at all: what else ran, settings, heat, power, links, memory,
the node as a whole, the slot. Where all of that was looked at and nothing was found, it is the part; where something
could not be looked at, the cause is not known, and what was not looked at is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import median

from fleet.acceptance_bearing import Bearing, bearing_of, cause_of
from fleet.acceptance_cohort import Standing
from fleet.acceptance_evidence import Reading
from fleet.acceptance_parts import Part, PartFinding, PartKind
from fleet.acceptance_rules import AcceptanceRule, CauseKind
from fleet.canary_table import POWER_CAP, throttle_reasons
from fleet.findings import Severity
from fleet.measures import Conditions

_WARMER_CELSIUS = 8.0  # a GPU than its like, under the same test
_WARMER_INLET_CELSIUS = 4.0
_LESS_POWER = 0.01
_ENOUGH = 3  # readings, to call something usual
_HEAT = frozenset({"hw_thermal", "sw_thermal", "hw_thermal_slowdown", "sw_thermal_slowdown"})
_BRAKE = frozenset({"hw_power_brake", "hw_power_brake_slowdown"})
HELD_DOWN = _HEAT | _BRAKE | {"hw_slowdown"}
"""Clocks event reasons that speak of a fault of cooling or power under load."""


class Sureness(IntEnum):
    """How sure a cause is, the surest highest."""

    POSSIBLE = 1  # it fits, and so would something else
    LIKELY = 2  # it differs from its like in just what would do this
    SURE = 3  # the part itself says so

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation. `evidence` are the readings that it rests on; `text` is a sentence."""

    kind: CauseKind
    sureness: Sureness
    evidence: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        shown = f" ({'; '.join(self.evidence)})" if self.evidence else ""
        return f"{self.kind.value}, {self.sureness.word}: {self.text}{shown}"


@dataclass(frozen=True, slots=True)
class Usual:
    """The middle of what was read with the same test on parts of the same model; None where too few tell.

    `capped`: most of them ran at their power cap, so that it is how this test runs.
    """

    gpu_celsius: float | None = None
    inlet_celsius: float | None = None
    power_limit_watts: float | None = None
    capped: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known around one part's value. `findings` are those on the part and on its node, from any source.

    `standing` is its place in the cohort, `node_short` by how much its node is off, in words. `settings_read`: whether
    the GPU's settings were read; `state_read`: whether somebody looked at the node after the test.
    """

    usual: Usual = Usual()
    findings: tuple[PartFinding, ...] = ()
    standing: Standing | None = None
    node_short: str = ""
    settings_read: bool = False
    state_read: bool = False


def usual_of(conditions: Iterable[Conditions], capped: bool = False) -> Usual:
    """The medians, each of at least three readings."""
    seen = list(conditions)
    return Usual(
        _middle(one.gpu_celsius for one in seen),
        _middle(one.inlet_celsius for one in seen),
        _middle(one.power_limit_watts for one in seen),
        capped,
    )


def explain_shortfall(rule: AcceptanceRule, reading: Reading, around: Surroundings) -> tuple[Cause, ...]:
    """Every cause that the evidence speaks of, the surest first; at least one, if only that none is known."""
    merged = _merged([cause for cause in _looked_for(rule, reading, around) if cause.kind in _possible(rule)])
    if merged and merged[0].sureness > Sureness.POSSIBLE:
        return merged
    untold = tuple(_not_looked_at(rule, reading, around))
    if untold:
        text = "nothing that was read explains it, and not everything was read"
        return merged or (Cause(CauseKind.UNKNOWN, Sureness.POSSIBLE, untold, text),)
    text = "heat, power, settings, links, memory and other processes were looked at and do not surely explain it"
    kind = CauseKind.NODE if reading.part.kind is PartKind.NODE else CauseKind.PART
    return (Cause(kind, Sureness.LIKELY, (), text), *merged)


def _possible(rule: AcceptanceRule) -> frozenset[CauseKind]:
    always = {CauseKind.CONTAMINATION, CauseKind.CONFIGURATION, CauseKind.NODE, CauseKind.PLACE}
    return rule.slowed_by | always if rule.slowed_by else frozenset(CauseKind)


def _looked_for(rule: AcceptanceRule, reading: Reading, around: Surroundings) -> Iterator[Cause]:
    conditions = reading.conditions
    if conditions.others:
        shown = f"{conditions.others} other processes"
        yield Cause(CauseKind.CONTAMINATION, Sureness.SURE, (shown,), "something else ran on it meanwhile")
    yield from _of_findings(reading.part, around.findings)
    yield from _of_power_limit(conditions, around.usual)
    yield from _of_throttling(conditions, rule.power_bound or around.usual.capped)
    yield from _of_heat(conditions, around.usual)
    if around.standing is Standing.WITH_NODE:
        evidence = (f"its node's middle part is {around.node_short} off",) if around.node_short else ()
        text = "all parts of this node are slow alike: its host, power or cooling, before any of them"
        yield Cause(CauseKind.NODE, Sureness.LIKELY, evidence, text)
    if around.standing is Standing.WITH_PLACE:
        text = "this slot is slow on most nodes of the model: its place in the airflow or its wiring, before the part"
        yield Cause(CauseKind.PLACE, Sureness.LIKELY, (f"slot {reading.part.slot}",), text)


def _of_findings(part: Part, findings: Sequence[PartFinding]) -> Iterator[Cause]:
    """A grave finding on the part itself is sure; what is only worth knowing, as a corrected error, is possible."""
    for one in findings:
        kind, finding = cause_of(one.finding), one.finding
        bearing, own = bearing_of(finding), one.part.place == part.place
        if kind is None or (bearing is Bearing.NOTE and not own):
            continue
        grave = finding.severity in (Severity.ERROR, Severity.FATAL) or bearing is Bearing.CONFIGURATION
        sure = Sureness.SURE if own and grave else Sureness.LIKELY if own or grave else Sureness.POSSIBLE
        sure = Sureness.POSSIBLE if bearing is Bearing.NOTE else sure
        text = finding.text or f"{finding.code} was found"
        yield Cause(kind, sure, (f"{finding.subject} {finding.code}: {finding.evidence}",), text)


def _of_power_limit(conditions: Conditions, usual: Usual) -> Iterator[Cause]:
    limit, most = conditions.power_limit_watts, usual.power_limit_watts
    if limit is not None and most is not None and limit < most * (1 - _LESS_POWER):
        shown = f"power limit {limit:g} W, its like have {most:g} W"
        yield Cause(CauseKind.CONFIGURATION, Sureness.SURE, (shown,), "its power limit is lower than its like have")


def _of_throttling(conditions: Conditions, capped: bool) -> Iterator[Cause]:
    reasons = throttle_reasons(conditions)
    shown = (f"clocks event reasons: {', '.join(sorted(reasons))}",)
    if reasons & _HEAT:
        yield Cause(CauseKind.COOLING, Sureness.SURE, shown, "its clocks were held down because it was too hot")
    if reasons & _BRAKE:
        yield Cause(CauseKind.POWER, Sureness.SURE, shown, "the supply of power held its clocks down")
    if reasons & POWER_CAP and not capped:
        text = "it ran at its power cap in a test that does not reach it on its like"
        yield Cause(CauseKind.POWER, Sureness.LIKELY, shown, text)
    rest = reasons - _HEAT - _BRAKE - POWER_CAP
    if rest and not reasons & (_HEAT | _BRAKE):
        text = "the hardware held its clocks down: heat, the power brake, or a draw that rose too quickly"
        yield Cause(CauseKind.POWER, Sureness.POSSIBLE, shown, text)
        yield Cause(CauseKind.COOLING, Sureness.POSSIBLE, shown, text)


def _of_heat(conditions: Conditions, usual: Usual) -> Iterator[Cause]:
    hot, most = conditions.gpu_celsius, usual.gpu_celsius
    inlet, room = conditions.inlet_celsius, usual.inlet_celsius
    warm_air = inlet is not None and room is not None and inlet >= room + _WARMER_INLET_CELSIUS
    if warm_air:
        shown = f"inlet {inlet:g} C, its like {room:g} C"
        yield Cause(CauseKind.COOLING, Sureness.LIKELY, (shown,), "its node takes in warmer air than its like do")
    if hot is not None and most is not None and hot >= most + _WARMER_CELSIUS:
        shown = f"{hot:g} C, its like {most:g} C"
        where = "" if warm_air else " with air that is no warmer" if inlet is not None and room is not None else ""
        text = f"it ran hotter than its like{where}: heat sink, cold plate, fan or airflow"
        yield Cause(CauseKind.COOLING, Sureness.LIKELY, (shown,), text)


def _not_looked_at(rule: AcceptanceRule, reading: Reading, around: Surroundings) -> Iterator[str]:
    """What would have to be known before the part itself is blamed."""
    conditions = reading.conditions
    if rule.under_gpu_conditions:
        if conditions.throttled is None:
            yield "throttling is not known"
        if conditions.others is None:
            yield "whether other processes ran is not known"
        if conditions.gpu_celsius is None:
            yield "its temperature is not known"
        if conditions.power_limit_watts is None and not around.settings_read:
            yield "its power limit is not known"
    if not around.state_read:
        yield "errors of links and memory were not read after the test"


def _merged(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """One of each kind: the surest, with the evidence of all of it; the surest kind first, else in the given order."""
    best: dict[CauseKind, Cause] = {}
    for cause in causes:
        have = best.get(cause.kind)
        if have is None:
            best[cause.kind] = cause
            continue
        surer = cause if cause.sureness > have.sureness else have
        evidence = tuple(dict.fromkeys((*have.evidence, *cause.evidence)))
        best[cause.kind] = Cause(cause.kind, surer.sureness, evidence, surer.text)
    return tuple(sorted(best.values(), key=lambda cause: -cause.sureness))  # stable


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) >= _ENOUGH else None

"""The verdict on one measure that is a level: a benchmark, a series, a step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p

from fleet.canary_changes import Reading, read_changes
from fleet.canary_cohorts import Cohorts
from fleet.canary_compare import FEWEST_NODES, Comparison, share
from fleet.canary_design import CanaryDesign
from fleet.canary_noise import measure_noise
from fleet.canary_power import more_nodes
from fleet.canary_table import NodeChange
from fleet.canary_verdict import Cause, CauseKind, MeasureVerdict, Outcome, Why
from fleet.canary_words import bounds, change, count, hosts, percent
from fleet.measures import Cohort, Measure

HEAT_PER_CELSIUS = 0.01  # the most that a warmer inlet is given where no slope can be measured; log
_WARMER = 2.0  # °C
_NO_CAUSE = Cause()


@dataclass(frozen=True, slots=True)
class Levels:
    """One-sided nominal levels of this look."""

    fail: float
    passing: float


@dataclass(frozen=True, slots=True)
class _Call:
    outcome: Outcome
    why: Why
    cause: Cause = _NO_CAUSE


def judge_change(
    design: CanaryDesign,
    measure: Measure,
    rows: Sequence[NodeChange],
    cohorts: Cohorts,
    levels: Levels,
    settings_lost: Mapping[str, tuple[str, ...]],
) -> MeasureVerdict:
    """The nodes whose settings were lost are judged apart: the driver is failed by the others only."""
    margin = -log1p(-measure.margin)
    sound = [row for row in rows if row.node not in settings_lost]
    reading = read_changes(sound, cohorts.traits, margin)
    call = _decide(design, sound, reading, levels, margin)
    mislaid = [row for row in rows if row.node in settings_lost and row.cohort is Cohort.CANARY]
    if mislaid and call.outcome is not Outcome.FAIL:
        everything = read_changes([row for row in rows if row in mislaid or row in sound], cohorts.traits, margin)
        whole = everything.whole
        if call.outcome is not Outcome.PASS or whole is None or whole.low(levels.passing) <= -margin:
            reading = replace(everything, main=whole, plain=whole)
            call = _Call(Outcome.INCONCLUSIVE, Why.SETTINGS_LOST, settings_cause(mislaid, settings_lost))
    return _verdict(design, measure, rows, reading, call, levels, margin)


def settings_cause(rows: Sequence[NodeChange], settings_lost: Mapping[str, tuple[str, ...]]) -> Cause:
    """Of the lost settings of these rows' nodes."""
    nodes = tuple(row.node for row in rows)
    names = tuple(sorted({name for node in nodes for name in settings_lost[node]}))
    text = f"settings lost on {hosts(nodes)}: {', '.join(names)}; mend them and measure again"
    return Cause(CauseKind.SETTING, names, nodes, text)


def _decide(design: CanaryDesign, rows: Sequence[NodeChange], reading: Reading, levels: Levels, margin: float) -> _Call:
    main, whole = reading.main, reading.whole
    if main is None or whole is None:
        return _too_few(rows)
    if main.high(levels.fail) < -margin:
        return _failed(reading, main, levels, margin)
    if reading.odd is not None or reading.lone:
        return _Call(Outcome.INCONCLUSIVE, Why.UNEVEN, _uneven(reading))
    if main.low(levels.passing) > -margin:
        return _passed(design, rows, reading, main, levels, margin)
    if reading.plain is not None and main.slope is not None and reading.plain.high(levels.fail) < -margin:
        return _Call(Outcome.INCONCLUSIVE, Why.HEAT, _heat(reading))
    gaps = _gaps_call(design, rows, reading)
    return gaps or _Call(Outcome.INCONCLUSIVE, Why.TOO_FEW_NODES, Cause(CauseKind.UNKNOWN))


def _failed(reading: Reading, main: Comparison, levels: Levels, margin: float) -> _Call:
    warmer = reading.inlet or 0.0
    if main.slope is None and warmer > _WARMER and main.high(levels.fail) + HEAT_PER_CELSIUS * warmer >= -margin:
        return _Call(Outcome.INCONCLUSIVE, Why.HEAT, _heat(reading))
    return _Call(Outcome.FAIL, Why.SLOWER, Cause(CauseKind.DRIVER))


def _passed(
    design: CanaryDesign,
    rows: Sequence[NodeChange],
    reading: Reading,
    main: Comparison,
    levels: Levels,
    margin: float,
) -> _Call:
    cooler = -(reading.inlet or 0.0)
    if main.slope is None and cooler > _WARMER and main.low(levels.passing) - HEAT_PER_CELSIUS * cooler <= -margin:
        return _Call(Outcome.INCONCLUSIVE, Why.HEAT, _heat(reading))
    return _gaps_call(design, rows, reading) or _Call(Outcome.PASS, Why.OK)


def _too_few(rows: Sequence[NodeChange]) -> _Call:
    planned = [sum(row.cohort is cohort for row in rows) for cohort in Cohort]
    if min(planned) < FEWEST_NODES:
        return _Call(Outcome.INCONCLUSIVE, Why.TOO_FEW_NODES, Cause(CauseKind.UNKNOWN))
    return _blame_gaps([row for row in rows if row.gain is None])


def _gaps_call(design: CanaryDesign, rows: Sequence[NodeChange], reading: Reading) -> _Call | None:
    """None if the data are complete: each canary node, and enough of the controls."""
    short = [row for row in rows if row.cohort is Cohort.CANARY and (row.gain is None or not row.whole)]
    controls = [row for row in rows if row.cohort is Cohort.CONTROL]
    gone = [row for row in controls if row.gain is None or row.node in reading.stray]
    if len(controls) - len(gone) < design.least_controls * len(controls):
        short += gone
    return _blame_gaps(short) if short else None


def _blame_gaps(short: Sequence[NodeChange]) -> _Call:
    nodes = tuple(row.node for row in short)
    if short and all(row.throttled for row in short):
        text = f"throttled while they were measured: {hosts(nodes)}"
        return _Call(Outcome.INCONCLUSIVE, Why.THROTTLED, Cause(CauseKind.THROTTLING, (), nodes, text))
    text = f"without complete data: {hosts(nodes)}"
    return _Call(Outcome.INCONCLUSIVE, Why.DATA_MISSING, Cause(CauseKind.UNKNOWN, (), nodes, text))


def _uneven(reading: Reading) -> Cause:
    if reading.odd is None:
        names = tuple(f"{node} GPU {gpu}" for node, gpu, _ in reading.lone)
        worst = min(distance for _, _, distance in reading.lone)
        text = f"lost apart from the other GPUs of the node, {percent(share(worst))} at most: {', '.join(names)}"
        return Cause(CauseKind.NODE, names, tuple(dict.fromkeys(node for node, _, _ in reading.lone)), text)
    odd = reading.odd
    what = hosts(odd.nodes) if odd.kind == "node" else f"{odd.kind} {odd.name} ({hosts(odd.nodes)})"
    text = f"{what} changed unlike the rest of the canary: {change(share(odd.distance))} beside it; {reading.beside}"
    return Cause(CauseKind(odd.kind), (odd.name,), odd.nodes, text)


def _heat(reading: Reading) -> Cause:
    apart = reading.inlet or 0.0
    word = "warmer" if apart > 0 else "cooler"
    return Cause(CauseKind.HEAT, text=f"the canary's inlets became {abs(apart):.1f} °C {word} than the controls'")


def _verdict(
    design: CanaryDesign,
    measure: Measure,
    rows: Sequence[NodeChange],
    reading: Reading,
    call: _Call,
    levels: Levels,
    margin: float,
) -> MeasureVerdict:
    shown = reading.whole if call.why is Why.UNEVEN else reading.main
    noise = measure_noise({row.node: row.before for row in rows if row.before})
    gains = [row.gain is not None for row in rows if row.cohort is Cohort.CANARY]
    verdict = MeasureVerdict(
        name=measure.name,
        unit=measure.unit,
        kind=measure.kind,
        outcome=call.outcome,
        why=call.why,
        text="",
        effect=share(shown.effect) if shown else None,
        low=share(shown.low(levels.passing)) if shown else None,
        high=share(shown.high(levels.fail)) if shown else None,
        margin=measure.margin,
        smallest_detectable=-share(-shown.loss_found(margin, levels.fail, design.power)) if shown else None,
        n_canary=shown.n_canary if shown else sum(gains),
        n_control=shown.n_control if shown else sum(row.gain is not None for row in rows) - sum(gains),
        confidence_low=1 - levels.passing,
        confidence_high=1 - levels.fail,
        cause=call.cause,
        noise=replace(noise, change=shown.scatter if shown else None),
        more_nodes=_more(design, call, shown, levels, margin),
        missing=tuple(gap for row in rows for gap in row.gaps),
        notes=_notes(reading, noise.unlike),
    )
    return replace(verdict, text=_text(verdict))


def _more(design: CanaryDesign, call: _Call, shown: Comparison | None, levels: Levels, margin: float) -> int | None:
    if call.outcome is not Outcome.INCONCLUSIVE:
        return None
    if shown is None:
        return FEWEST_NODES if call.why is Why.TOO_FEW_NODES else None
    if call.why is not Why.TOO_FEW_NODES:
        return None
    return more_nodes(shown, margin, levels.fail, levels.passing, design.power)


def _notes(reading: Reading, unlike: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if reading.stray:
        notes.append(f"controls far from the others, left out: {hosts(reading.stray)}")
    if reading.gained:
        notes.append(f"canary nodes that gained far more than the others, left out: {hosts(reading.gained)}")
    if unlike:
        notes.append(f"repetitions scatter unlike the other nodes': {hosts(unlike)}")
    if reading.main is not None and reading.main.inlet_difference is None:
        notes.append("inlet temperatures are not known of all nodes: heat is not taken out")
    return tuple(notes)


def _text(verdict: MeasureVerdict) -> str:
    if verdict.effect is None:
        why = verdict.cause.text or f"{verdict.n_canary} canary nodes and {verdict.n_control} controls gave it"
        return f"{verdict.name}: {verdict.why.value}; {why}"
    figures = f"{change(verdict.effect)} ({bounds(verdict.low, verdict.high)}), {percent(verdict.margin)} accepted"
    if verdict.outcome is not Outcome.INCONCLUSIVE:
        return f"{verdict.name}: {verdict.why.value}; {figures}"
    more = ""
    if verdict.more_nodes:
        more = f"; {count(verdict.more_nodes, 'more node')} per cohort would decide"
    elif verdict.why is Why.TOO_FEW_NODES:
        more = "; as it looks, it lies too near the margin for any number of nodes to decide"
    cause = f"; {verdict.cause.text}" if verdict.cause.text else ""
    return f"{verdict.name}: {verdict.why.value}; {figures}{cause}{more}"

"""After the way back: did the effect go away with the driver? If it did, the driver was its cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log1p

from fleet.canary_cohorts import Cohorts
from fleet.canary_compare import Comparison, compare, share
from fleet.canary_counts import CountComparison, Tally, compare_counts, ratio, ratio_below
from fleet.canary_design import CanaryDesign, accepted_ratio
from fleet.canary_looks import nominal_levels
from fleet.canary_table import NodeChange, NodeCount, tabulate, tabulate_counts
from fleet.canary_verdict import CanaryVerdict, Gap, MeasureReturn, Outcome, ReturnVerdict
from fleet.canary_words import bounds, change
from fleet.measures import Cohort, Measure, MeasureKind, Phase, Sample


def effect_gone(
    design: CanaryDesign,
    cohorts: Cohorts,
    verdict: CanaryVerdict,
    samples: Iterable[Sample],
    returned: Iterable[Sample],
) -> ReturnVerdict:
    """`samples` are those the verdict was given on, `returned` those taken on the same nodes after the way back.

    Looked at are the measures that failed. PASS in one: surely within its margin of what was before the change, and
    surely better than under it. FAIL: surely still beyond the margin. One look, `alpha` shared between the measures.
    A node that gave nothing after the way back keeps a measure from passing.
    """
    failed = [one.name for one in verdict.measures if one.outcome is Outcome.FAIL]
    old, new = list(samples), list(returned)
    found = []
    for measure in design.measures:
        if measure.name in failed:
            own = [one for one in old if one.measure == measure.name]
            back = [replace(one, phase=Phase.AFTER) for one in new if one.measure == measure.name]
            level = nominal_levels(design.alpha / len(failed), (1.0,))[0]
            judge = _sick if measure.kind is MeasureKind.COUNT else _slow
            found.append(judge(design, measure, cohorts, own, back, level))
    return _whole(tuple(found))


def _whole(measures: tuple[MeasureReturn, ...]) -> ReturnVerdict:
    outcomes = {one.outcome for one in measures}
    if not measures:
        return ReturnVerdict(Outcome.INCONCLUSIVE, "no measure had failed: there is no effect to go away", ())
    if outcomes == {Outcome.PASS}:
        return ReturnVerdict(Outcome.PASS, "the effect went away with the driver: the driver was its cause", measures)
    if Outcome.FAIL in outcomes:
        stayed = ", ".join(one.name for one in measures if one.outcome is Outcome.FAIL)
        text = f"the effect stayed in {stayed} with the former driver back: look for another cause"
        return ReturnVerdict(Outcome.FAIL, text, measures)
    return ReturnVerdict(Outcome.INCONCLUSIVE, "whether the effect went away is not decided", measures)


def _slow(
    design: CanaryDesign,
    measure: Measure,
    cohorts: Cohorts,
    old: Sequence[Sample],
    back: Sequence[Sample],
    level: float,
) -> MeasureReturn:
    margin = -log1p(-measure.margin)
    before = [one for one in old if one.phase is Phase.BEFORE]
    under = [replace(one, phase=Phase.BEFORE) for one in old if one.phase is Phase.AFTER]
    rows = tabulate(design, measure, cohorts, [*before, *back])
    remaining = _compared(rows)
    regained = _compared(tabulate(design, measure, cohorts, [*under, *back]))
    outcome = Outcome.INCONCLUSIVE
    if remaining is not None and remaining.high(level) < -margin:
        outcome = Outcome.FAIL
    elif _whole_canary(rows) and _recovered(remaining, regained, design.miss, margin):
        outcome = Outcome.PASS
    low = share(remaining.low(design.miss)) if remaining else None
    high = share(remaining.high(level)) if remaining else None
    return MeasureReturn(
        name=measure.name,
        outcome=outcome,
        text=_text(measure.name, outcome, share(remaining.effect) if remaining else None, low, high),
        remaining=share(remaining.effect) if remaining else None,
        remaining_low=low,
        remaining_high=high,
        regained=share(regained.effect) if regained else None,
        regained_low=share(regained.low(design.miss)) if regained else None,
        margin=measure.margin,
        missing=_gaps(rows),
    )


def _recovered(remaining: Comparison | None, regained: Comparison | None, miss: float, margin: float) -> bool:
    if remaining is None or regained is None:
        return False
    return remaining.low(miss) > -margin and regained.low(miss) > 0


def _compared(rows: Sequence[NodeChange]) -> Comparison | None:
    sides = [[row for row in rows if row.cohort is cohort and row.gain is not None] for cohort in Cohort]
    gains = [[row.gain for row in side if row.gain is not None] for side in sides]
    inlets = [[row.inlet for row in side] for side in sides]
    return compare(gains[0], gains[1], inlets[0], inlets[1])


def _whole_canary(rows: Sequence[NodeChange]) -> bool:
    return all(row.gain is not None and row.whole for row in rows if row.cohort is Cohort.CANARY)


def _sick(
    design: CanaryDesign,
    measure: Measure,
    cohorts: Cohorts,
    old: Sequence[Sample],
    back: Sequence[Sample],
    level: float,
) -> MeasureReturn:
    accepted = accepted_ratio(measure)
    before = [one for one in old if one.phase is Phase.BEFORE]
    rows = tabulate_counts(measure, cohorts, [*before, *back])
    remaining = _counted(rows)
    under = _counted(tabulate_counts(measure, cohorts, old))
    whole = all(not row.gaps for row in rows if row.cohort is Cohort.CANARY)
    outcome = Outcome.INCONCLUSIVE
    if remaining is not None and remaining.above(level) > accepted:
        outcome = Outcome.FAIL
    elif remaining is not None and under is not None and whole and _fewer(remaining.after, under.after, design.miss):
        outcome = Outcome.PASS
    effect = 1 - remaining.ratio if remaining else None
    high = 1 - remaining.above(level) if remaining else None
    low = 1 - remaining.below(design.miss) if remaining and all(o.events for o in remaining.references) else None
    return MeasureReturn(
        name=measure.name,
        outcome=outcome,
        text=_text(measure.name, outcome, effect, low, high),
        remaining=effect,
        remaining_low=low,
        remaining_high=high,
        regained=1 - ratio(remaining.after, under.after) if remaining and under else None,
        regained_low=None,
        margin=accepted - 1,
        missing=tuple(gap for row in rows for gap in row.gaps),
    )


def _counted(rows: Sequence[NodeCount]) -> CountComparison | None:
    canary = [row for row in rows if row.cohort is Cohort.CANARY]
    control = [row.after for row in rows if row.cohort is Cohort.CONTROL and row.after is not None]
    after = [row.after for row in canary if row.after is not None]
    return compare_counts(after, control, [row.before for row in canary if row.before is not None])


def _fewer(back: Tally, under: Tally, miss: float) -> bool:
    return ratio_below(back, under, miss) < 1


def _gaps(rows: Sequence[NodeChange]) -> tuple[Gap, ...]:
    return tuple(gap for row in rows for gap in row.gaps)


def _text(name: str, outcome: Outcome, effect: float | None, low: float | None, high: float | None) -> str:
    words = {Outcome.PASS: "gone", Outcome.FAIL: "stayed", Outcome.INCONCLUSIVE: "not decided"}
    if effect is None:
        return f"{name}: {words[outcome]}; too few nodes were measured after the way back"
    return f"{name}: {words[outcome]}; {change(effect)} against before the change ({bounds(low, high)})"

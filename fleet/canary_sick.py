"""The verdict on one measure that counts events: Xid, ECC errors, replays, remapped rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median

from fleet.canary_cohorts import Cohorts
from fleet.canary_compare import FEWEST_NODES
from fleet.canary_counts import CountComparison, compare_counts, ratio_found
from fleet.canary_design import CanaryDesign, accepted_ratio
from fleet.canary_hours import more_hours
from fleet.canary_measure import Levels
from fleet.canary_table import NodeCount
from fleet.canary_verdict import Cause, CauseKind, Gap, MeasureVerdict, Outcome, Why
from fleet.canary_words import hosts
from fleet.measures import Cohort, Measure, Phase

_BURST_SHARE = 0.5
_BURST_EVENTS = 3
_BURSTS = 2.0  # times the scatter of single events


@dataclass(frozen=True, slots=True)
class _Case:
    """One count measure at one look."""

    design: CanaryDesign
    measure: Measure
    cohorts: Cohorts
    levels: Levels

    @property
    def accepted(self) -> float:
        return accepted_ratio(self.measure)

    @property
    def tolerated(self) -> float:
        """Events per node-hour."""
        return self.design.tolerated_per_node_day / 24

    def fails(self, found: CountComparison | None) -> bool:
        return found is not None and found.above(self.levels.fail) > self.accepted

    def passes(self, found: CountComparison) -> bool:
        quiet = found.after.rate_below(self.levels.passing) < self.tolerated
        return quiet or found.below(self.levels.passing) < self.accepted


def judge_count(
    design: CanaryDesign,
    measure: Measure,
    rows: Sequence[NodeCount],
    cohorts: Cohorts,
    levels: Levels,
    settings_lost: Mapping[str, tuple[str, ...]],
) -> MeasureVerdict:
    """FAIL: surely more than the accepted ratio above the controls and above its own past, and not by one node alone.

    PASS: surely below the accepted ratio, or surely below the tolerated rate.
    """
    case = _Case(design, measure, cohorts, levels)
    rows = _with_short_watches(rows)
    sound = [row for row in rows if row.node not in settings_lost]
    lost = [row.node for row in rows if row.node in settings_lost and row.cohort is Cohort.CANARY]
    found = _compare(sound)
    outcome, why, cause = _decide(case, sound, found)
    if lost and outcome is not Outcome.FAIL:
        every = _compare([row for row in rows if row in sound or row.node in lost])
        if outcome is not Outcome.PASS or case.fails(every):
            found, outcome, why = every, Outcome.INCONCLUSIVE, Why.SETTINGS_LOST
            names = tuple(sorted({name for node in lost for name in settings_lost[node]}))
            text = f"settings lost on {hosts(lost)}: {', '.join(names)}; mend them and measure again"
            cause = Cause(CauseKind.SETTING, names, tuple(lost), text)
    return _verdict(case, rows, found, outcome, why, cause)


def _after(rows: Sequence[NodeCount], cohort: Cohort) -> list[NodeCount]:
    return [row for row in rows if row.cohort is cohort and row.after is not None]


def _compare(rows: Sequence[NodeCount], without: str = "") -> CountComparison | None:
    canary = [row for row in rows if row.cohort is Cohort.CANARY and row.node != without]
    control = [row.after for row in rows if row.cohort is Cohort.CONTROL and row.after is not None]
    after = [row.after for row in canary if row.after is not None]
    before = [row.before for row in canary if row.before is not None]
    return compare_counts(after, control, before)


def _decide(case: _Case, rows: Sequence[NodeCount], found: CountComparison | None) -> tuple[Outcome, Why, Cause]:
    canary, control = _after(rows, Cohort.CANARY), _after(rows, Cohort.CONTROL)
    unknown = Cause(CauseKind.UNKNOWN)
    if found is None or min(len(canary), len(control)) < FEWEST_NODES:
        few = min(sum(row.cohort is cohort for row in rows) for cohort in Cohort) < FEWEST_NODES
        if few:
            return Outcome.INCONCLUSIVE, Why.TOO_FEW_NODES, unknown
        silent = [row for row in rows if row.after is None or row.before is None]
        return Outcome.INCONCLUSIVE, Why.DATA_MISSING, _gaps_cause(silent)
    worst = max(canary, key=lambda row: row.after[0] if row.after else 0.0)
    if case.fails(found):
        if case.fails(_compare(rows, without=worst.node)):
            return Outcome.FAIL, Why.SICKER, Cause(CauseKind.DRIVER)
        return Outcome.INCONCLUSIVE, Why.UNEVEN, _burst(worst, found)
    if case.passes(found):
        gaps = _short(case, rows)
        if gaps:
            return Outcome.INCONCLUSIVE, Why.DATA_MISSING, _gaps_cause(gaps)
        return Outcome.PASS, Why.OK, Cause()
    most = worst.after[0] if worst.after else 0.0
    if most >= _BURST_EVENTS and most > _BURST_SHARE * found.after.events:
        return Outcome.INCONCLUSIVE, Why.UNEVEN, _burst(worst, found)
    gaps = _short(case, rows)
    if gaps:
        return Outcome.INCONCLUSIVE, Why.DATA_MISSING, _gaps_cause(gaps)
    return Outcome.INCONCLUSIVE, Why.TOO_FEW_HOURS, unknown


def _short(case: _Case, rows: Sequence[NodeCount]) -> list[NodeCount]:
    """Canary nodes with a gap, and all such nodes if too few controls are left."""
    short = [row for row in rows if row.cohort is Cohort.CANARY and row.gaps]
    controls = [row for row in rows if row.cohort is Cohort.CONTROL]
    gone = [row for row in controls if row.after is None]
    if len(controls) - len(gone) < case.design.least_controls * len(controls):
        short += gone
    return short


def _gaps_cause(short: Sequence[NodeCount]) -> Cause:
    nodes = tuple(row.node for row in short)
    return Cause(CauseKind.UNKNOWN, (), nodes, f"without complete counts: {hosts(nodes)}")


def _burst(worst: NodeCount, found: CountComparison) -> Cause:
    events = worst.after[0] if worst.after else 0.0
    text = f"{events:g} of the canary's {found.after.events:g} events are of {worst.node}; the others tell of no change"
    return Cause(CauseKind.NODE, (worst.node,), (worst.node,), text)


def _with_short_watches(rows: Sequence[NodeCount]) -> list[NodeCount]:
    """A node that was counted over less than half of the usual hours has a gap."""
    usual = median([row.after[1] for row in rows if row.after is not None] or [0.0])
    named = []
    for row in rows:
        if row.after is not None and 2 * row.after[1] < usual:
            reason = f"counted over {row.after[1]:.3g} h where others were over {usual:.3g} h"
            row = replace(
                row, gaps=(*row.gaps, Gap(row.node, row.gaps[0].measure if row.gaps else "", Phase.AFTER, reason))
            )
        named.append(row)
    return named


def _verdict(
    case: _Case,
    rows: Sequence[NodeCount],
    found: CountComparison | None,
    outcome: Outcome,
    why: Why,
    cause: Cause,
) -> MeasureVerdict:
    levels, measure = case.levels, case.measure
    seen = ratio_found(found, case.accepted, levels.fail, case.design.power) if found else None
    hours = median([row.after[1] for row in _after(rows, Cohort.CANARY) if row.after] or [0.0])
    more = None
    if found is not None and why is Why.TOO_FEW_HOURS and hours > 0:
        more = more_hours(found, hours, case.accepted, case.tolerated, levels.fail, levels.passing)
    verdict = MeasureVerdict(
        name=measure.name,
        unit=measure.unit,
        kind=measure.kind,
        outcome=outcome,
        why=why,
        text="",
        effect=1 - found.ratio if found else None,
        low=_share(found.below(levels.passing)) if found else None,
        high=_share(found.above(levels.fail)) if found else None,
        margin=case.accepted - 1,
        smallest_detectable=seen - 1 if seen is not None else None,
        n_canary=len(_after(rows, Cohort.CANARY)),
        n_control=len(_after(rows, Cohort.CONTROL)),
        confidence_low=1 - levels.passing,
        confidence_high=1 - levels.fail,
        cause=cause,
        more_nodes=FEWEST_NODES if why is Why.TOO_FEW_NODES else None,
        more_hours=more,
        missing=tuple(replace(gap, measure=measure.name) for row in rows for gap in row.gaps),
        notes=_notes(rows, found),
    )
    return replace(verdict, text=_text(case, verdict, found))


def _share(ratio: float) -> float | None:
    return 1 - ratio if isfinite(ratio) else None


def _notes(rows: Sequence[NodeCount], found: CountComparison | None) -> tuple[str, ...]:
    if found is None or found.after.scatter < _BURSTS:
        return ()
    worst = max(_after(rows, Cohort.CANARY), key=lambda row: row.after[0] if row.after else 0.0)
    events = worst.after[0] if worst.after else 0.0
    each = f"{found.after.scatter:.1f} events count as one incident"
    return (f"events come in bursts, {each}; most are of {worst.node}: {events:g} of {found.after.events:g}",)


def _text(case: _Case, verdict: MeasureVerdict, found: CountComparison | None) -> str:
    head = f"{verdict.name}: {verdict.why.value}"
    cause = f"; {verdict.cause.text}" if verdict.cause.text else ""
    if found is None:
        return head + (cause or f"; {verdict.n_canary} canary nodes and {verdict.n_control} controls gave it")
    after, control, before = found.after, found.control, found.before
    counts = (
        f"; {after.events:g} in {after.hours:.4g} node-hours, controls {control.events:g} in {control.hours:.4g}, "
        f"before {before.events:g} in {before.hours:.4g}"
    )
    rate = f"; surely under {24 * after.rate_below(case.levels.passing):.2g} incidents per node and day"
    more = f"; {verdict.more_hours:.3g} more hours would decide" if verdict.more_hours else ""
    return f"{head}{counts}{rate}{cause}{more}"

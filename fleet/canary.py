"""Did the new driver make the nodes slower or sicker? The verdict on a canary, on complete data or none.

Each measure is judged by the change of canary nodes against that of concurrent controls. A canary fails if one measure
surely lost more than its margin; it passes if every one surely did not. The false-alarm rate is shared equally between
the measures (Bonferroni, "Teoria statistica delle classi", 1936): Holm's step-down (Scand. J. Statist. 6, 1979) fails
a canary in exactly the same cases, as one measure suffices, and has no intervals to show. A pass needs no sharing, as
it needs every measure (Berger, Technometrics 24, 1982). Looks are those of `canary_looks`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fleet.canary_cohorts import Cohorts
from fleet.canary_conditions import (
    ThrottleRise,
    hours_apart,
    moved_power_limits,
    node_conditions,
    throttle_rise,
)
from fleet.canary_design import CanaryDesign
from fleet.canary_measure import Levels, judge_change
from fleet.canary_sick import judge_count
from fleet.canary_table import tabulate, tabulate_counts
from fleet.canary_verdict import CanaryVerdict, Cause, CauseKind, Gap, MeasureVerdict, Outcome, Why
from fleet.canary_words import count, hosts
from fleet.errors import ConfigurationError
from fleet.measures import Measure, MeasureKind, Sample

_APART_HOURS = 12.0
_INCONCLUSIVE_FIRST = (
    Why.SETTINGS_LOST,
    Why.DATA_MISSING,
    Why.THROTTLED,
    Why.HEAT,
    Why.UNEVEN,
    Why.TOO_FEW_NODES,
    Why.TOO_FEW_HOURS,
)


def judge_canary(
    design: CanaryDesign,
    cohorts: Cohorts,
    samples: Iterable[Sample],
    settings_lost: Mapping[str, tuple[str, ...]],
    look: int,
    earlier_looks: Sequence[CanaryVerdict] = (),
) -> CanaryVerdict:
    """Judge all data had so far; `look` counts from 1 and indexes `design.looks`.

    `settings_lost` names, by node, settings that the install took away; a power limit that moved is found here too.
    `earlier_looks` are the verdicts already given on this canary: a FAIL among them stands, since a test that has
    stopped does not start again. Raises ConfigurationError for a look that the design does not have, and for a
    node of both cohorts.
    """
    _check(design, cohorts, look)
    by_measure, strangers = _sorted_out(design, cohorts, samples)
    levels = _levels(design, look, earlier_looks)
    conditions = node_conditions(design, cohorts, by_measure)
    lost = _all_lost(cohorts, settings_lost, moved_power_limits(conditions))
    share = design.looks[look - 1]
    measures = tuple(_judge(design, one, by_measure[one.name], cohorts, levels, lost, share) for one in design.measures)
    rise = throttle_rise(cohorts, conditions, levels.fail)
    outcome, why, cause = _overall(cohorts, measures, rise, lost)
    notes = [*cohorts.notes, *_notes(cohorts, rise, lost, strangers), *_not_concurrent(cohorts, by_measure)]
    verdict = CanaryVerdict(
        outcome=outcome,
        why=why,
        text=_text(outcome, why, cause, measures),
        cause=cause,
        measures=measures,
        look=look,
        looks=len(design.looks),
        information=share,
        alpha=design.alpha,
        canary=cohorts.canary,
        control=cohorts.control,
        missing=_absent(cohorts, by_measure),
        more_nodes=max((one.more_nodes for one in measures if one.more_nodes), default=None),
        more_hours=max((one.more_hours for one in measures if one.more_hours), default=None),
        notes=tuple(notes),
    )
    return _standing(verdict, earlier_looks)


def _check(design: CanaryDesign, cohorts: Cohorts, look: int) -> None:
    if not 1 <= look <= len(design.looks):
        raise ConfigurationError(f"look {look} of {len(design.looks)}")
    both = sorted({*cohorts.canary} & {*cohorts.control})
    if both:
        raise ConfigurationError(f"both canary and control: {', '.join(both)}")


def _standing(verdict: CanaryVerdict, earlier_looks: Sequence[CanaryVerdict]) -> CanaryVerdict:
    """The verdict, or the FAIL of an earlier look with what this look measured."""
    earlier = next((one for one in earlier_looks if one.outcome is Outcome.FAIL), None)
    if earlier is None or verdict.outcome is Outcome.FAIL:
        return verdict
    alone = f"this look alone: {verdict.outcome.value}, {verdict.why.value}"
    return replace(
        verdict,
        outcome=earlier.outcome,
        why=earlier.why,
        text=earlier.text,
        cause=earlier.cause,
        notes=(*verdict.notes, f"{alone}; look {earlier.look} had failed it, which stands"),
    )


def _sorted_out(
    design: CanaryDesign, cohorts: Cohorts, samples: Iterable[Sample]
) -> tuple[dict[str, list[Sample]], int]:
    """By measure, of cohort members only; and how many samples were of something else."""
    found: dict[str, list[Sample]] = {measure.name: [] for measure in design.measures}
    members = {*cohorts.canary, *cohorts.control}
    strangers = 0
    for one in samples:
        if one.node in members and one.measure in found:
            found[one.measure].append(one)
        else:
            strangers += 1
    return found, strangers


def _levels(design: CanaryDesign, look: int, earlier: Sequence[CanaryVerdict]) -> Levels:
    now = design.looks[look - 1]
    fractions = (*sorted({one.information for one in earlier if one.information < now}), now)
    return Levels(design.fail_level(fractions), design.pass_level(fractions))


def _all_lost(cohorts: Cohorts, *sources: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node, names in source.items():
            if node in cohorts.canary or node in cohorts.control:
                found[node] += names
    return {node: tuple(dict.fromkeys(names)) for node, names in found.items() if names}


def _judge(
    design: CanaryDesign,
    measure: Measure,
    samples: Sequence[Sample],
    cohorts: Cohorts,
    levels: Levels,
    lost: Mapping[str, tuple[str, ...]],
    information: float,
) -> MeasureVerdict:
    if measure.kind is MeasureKind.COUNT:
        return judge_count(design, measure, tabulate_counts(measure, cohorts, samples), cohorts, levels, lost)
    rows = tabulate(design, measure, cohorts, samples, information)
    return judge_change(design, measure, rows, cohorts, levels, lost)


def _overall(
    cohorts: Cohorts,
    measures: Sequence[MeasureVerdict],
    rise: ThrottleRise | None,
    lost: Mapping[str, tuple[str, ...]],
) -> tuple[Outcome, Why, Cause]:
    failed = [one for one in measures if one.outcome is Outcome.FAIL]
    if failed:
        worst = max(failed, key=lambda one: (one.why is Why.SLOWER, -(one.effect or 0.0) / one.margin))
        names = tuple(one.name for one in failed)
        return Outcome.FAIL, worst.why, Cause(CauseKind.DRIVER, names, cohorts.canary, f"seen in {', '.join(names)}")
    if rise is not None and rise.proven:
        return Outcome.FAIL, Why.THROTTLED, rise.cause
    mislaid = tuple(node for node in cohorts.canary if node in lost)
    if mislaid:
        names = tuple(sorted({name for node in mislaid for name in lost[node]}))
        text = f"settings lost on {hosts(mislaid)}: {', '.join(names)}; mend them and measure again"
        return Outcome.INCONCLUSIVE, Why.SETTINGS_LOST, Cause(CauseKind.SETTING, names, mislaid, text)
    open_ones = sorted(
        (one for one in measures if one.outcome is Outcome.INCONCLUSIVE),
        key=lambda one: _INCONCLUSIVE_FIRST.index(one.why),
    )
    if open_ones:
        first = open_ones[0]
        why_throttled = first.why is Why.THROTTLED and rise is not None
        return Outcome.INCONCLUSIVE, first.why, rise.cause if why_throttled and rise else first.cause
    if not measures:
        return Outcome.INCONCLUSIVE, Why.DATA_MISSING, Cause(CauseKind.UNKNOWN, text="nothing was measured")
    return Outcome.PASS, Why.OK, Cause()


def _notes(
    cohorts: Cohorts, rise: ThrottleRise | None, lost: Mapping[str, tuple[str, ...]], strangers: int
) -> list[str]:
    notes = []
    if rise is not None:
        notes.append(rise.cause.text)
    controls = [node for node in cohorts.control if node in lost]
    if controls:
        notes.append(f"controls whose settings changed, left out: {hosts(controls)}")
    if strangers:
        notes.append(f"{count(strangers, 'sample')} of no cohort or no measure of the design, left out")
    return notes


def _not_concurrent(cohorts: Cohorts, by_measure: Mapping[str, Sequence[Sample]]) -> list[str]:
    """A control shows what the time did only if it was measured at that time."""
    notes = []
    for name, samples in by_measure.items():
        for phase, hours in hours_apart(samples, frozenset(cohorts.canary)).items():
            if hours > _APART_HOURS:
                notes.append(f"{name}: controls were measured {hours:.3g} h apart from the canary ({phase.value})")
    return notes


def _absent(cohorts: Cohorts, by_measure: Mapping[str, Sequence[Sample]]) -> tuple[Gap, ...]:
    """Nodes that gave not one value, with what is known of the reason."""
    gave: set[str] = set()
    reasons: dict[str, str] = {}
    for samples in by_measure.values():
        for one in samples:
            if one.value is not None:
                gave.add(one.node)
            elif one.missing:
                reasons.setdefault(one.node, one.missing)
    nodes = [node for node in (*cohorts.canary, *cohorts.control) if node not in gave]
    return tuple(Gap(node, "", None, reasons.get(node, "no sample")) for node in nodes)


def _text(outcome: Outcome, why: Why, cause: Cause, measures: Sequence[MeasureVerdict]) -> str:
    if outcome is Outcome.PASS:
        return f"pass: none of {count(len(measures), 'measure')} lost more than its margin"
    if outcome is Outcome.FAIL:
        return f"fail, {why.value}: {cause.text}"
    open_ones = [one.name for one in measures if one.outcome is Outcome.INCONCLUSIVE]
    what = cause.text or f"not decided: {', '.join(open_ones)}"
    return f"inconclusive, {why.value}: {what}"

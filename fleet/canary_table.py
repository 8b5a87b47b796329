"""Samples of a canary by measure and node: the node is the unit, as its GPUs are not independent of each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, isfinite, log
from statistics import fmean, median

from fleet.canary_cohorts import Cohorts
from fleet.canary_design import CanaryDesign
from fleet.canary_verdict import Gap
from fleet.measures import Better, Cohort, Conditions, Measure, MeasureKind, Phase, Sample

_NO_THROTTLE = frozenset({"", "none", "not_active", "gpu_idle", "idle", "sync_boost", "display_clock_setting"})
_SETTING_REASONS = frozenset({"applications_clocks_setting", "app_clocks", "app_clocks_setting"})
POWER_CAP = frozenset({"sw_power_cap", "sw_power_capping"})
THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node's change in one measure. `gain` is the mean over its GPUs of the log ratio after/before, negative for
    a loss; None where a phase gave nothing. `gpus` has each GPU's. `before` are the node's levels in its repetitions,
    as logs. `whole`: nothing that was planned is missing, by the rule of `tabulate`. `throttled`: samples were set
    aside for it. `inlet` is the change in °C of what was used, None if not known.
    """

    node: str
    cohort: Cohort
    gain: float | None
    gpus: tuple[tuple[int | None, float], ...]
    before: tuple[float, ...]
    inlet: float | None
    whole: bool
    throttled: bool
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Events on one node and the node-hours they were counted over, by phase; None where that is not known."""

    node: str
    cohort: Cohort
    before: tuple[float, float] | None
    after: tuple[float, float] | None
    gaps: tuple[Gap, ...]


@dataclass(slots=True)
class _Cell:
    """One measure on one node in one phase."""

    values: defaultdict[int | None, list[float]] = field(default_factory=lambda: defaultdict(list))
    exposures: defaultdict[int | None, list[float]] = field(default_factory=lambda: defaultdict(list))
    inlets: list[float] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)


_Cells = dict[tuple[str, Phase], _Cell]


def throttle_reasons(conditions: Conditions) -> frozenset[str]:
    """What slowed it, normalised; empty where nothing did or nobody knows."""
    return _normal_reasons(conditions.throttled or ())


@lru_cache(maxsize=1024)
def _normal_reasons(told: tuple[str, ...]) -> frozenset[str]:
    names = (name.strip().lower().replace(" ", "_").replace("-", "_") for name in told)
    return frozenset(name.rsplit(".", 1)[-1] for name in names) - _NO_THROTTLE - _SETTING_REASONS


def usual_power_cap(samples: Iterable[Sample]) -> bool:
    """Whether a power cap held in most of one measure's samples before the change: then it is how this measure runs."""
    known = [s for s in samples if s.phase is Phase.BEFORE and s.conditions.throttled is not None]
    return 2 * sum(bool(throttle_reasons(s.conditions) & POWER_CAP) for s in known) > len(known) > 0


def tabulate(
    design: CanaryDesign,
    measure: Measure,
    cohorts: Cohorts,
    samples: Sequence[Sample],
    information: float = 1.0,
) -> tuple[NodeChange, ...]:
    """One row for each node of the cohorts, in their order, whether it gave anything or not; `samples` of this measure.

    Set aside are samples that were throttled (a power cap that is usual for the measure is not), that shared their
    GPU with other processes, or have no value above zero. Repetitions are joined by their median. A phase is whole
    with more than half of the planned repetitions on each GPU that the node has shown; what is short is named anyway.
    After the change, `information` (0 to 1) of the repetitions are due.
    """
    usual = POWER_CAP if usual_power_cap(samples) else frozenset[str]()
    cells: _Cells = defaultdict(_Cell)
    for one in sorted(samples, key=lambda sample: (sample.run, sample.at.timestamp())):
        _put(cells[one.node, one.phase], one, usual)
    planned = _planned(design, measure, cells, information)
    return tuple(_change(measure, node, cohort, cells, planned) for node, cohort in _members(cohorts))


def tabulate_counts(measure: Measure, cohorts: Cohorts, samples: Iterable[Sample]) -> tuple[NodeCount, ...]:
    """One row for each node: zero events in a known exposure are a value, a missing series or exposure is none.

    Counts of a node's GPUs are added; its hours are the mean of theirs.
    """
    cells: _Cells = defaultdict(_Cell)
    for one in samples:
        _put_count(cells[one.node, one.phase], one)
    rows = []
    for node, cohort in _members(cohorts):
        both = cells.get((node, Phase.BEFORE)), cells.get((node, Phase.AFTER))
        gaps = _count_gaps(measure.name, node, both)
        before, after = map(_counted, both)
        rows.append(NodeCount(node, cohort, before, after, tuple(gaps)))
    return tuple(rows)


def _planned(design: CanaryDesign, measure: Measure, cells: _Cells, information: float) -> dict[Phase, tuple[int, int]]:
    """How many values a GPU should have in each phase, and with how many the phase is whole all the same."""
    if measure.kind is MeasureKind.BENCHMARK:
        due = {Phase.BEFORE: design.runs, Phase.AFTER: ceil(design.runs * information - 1e-9)}
        return {phase: (runs, runs // 2 + 1) for phase, runs in due.items()}
    counts: dict[Phase, list[int]] = {phase: [] for phase in Phase}
    for (_, phase), cell in cells.items():
        counts[phase] += map(len, cell.values.values())
    series = measure.kind is MeasureKind.SERIES
    halves = {phase: max(1, int(median(had) + 1) // 2) if series and had else 1 for phase, had in counts.items()}
    return {phase: (half, half) for phase, half in halves.items()}


def _members(cohorts: Cohorts) -> list[tuple[str, Cohort]]:
    return [*((n, Cohort.CANARY) for n in cohorts.canary), *((n, Cohort.CONTROL) for n in cohorts.control)]


def _put(cell: _Cell, one: Sample, usual: frozenset[str]) -> None:
    if one.value is not None or one.gpu is not None:
        cell.values[one.gpu]
    reasons = throttle_reasons(one.conditions) - usual
    if one.value is None:
        cell.aside[one.missing or "no value"] += 1
    elif not isfinite(one.value) or one.value <= 0:
        cell.aside[f"the value {one.value:g} is not above zero"] += 1
    elif reasons:
        cell.aside[f"{THROTTLED} ({', '.join(sorted(reasons))})"] += 1
    elif one.conditions.others:
        cell.aside["other processes on the GPU"] += 1
    else:
        cell.values[one.gpu].append(log(one.value))
        if one.conditions.inlet_celsius is not None and isfinite(one.conditions.inlet_celsius):
            cell.inlets.append(one.conditions.inlet_celsius)


def _put_count(cell: _Cell, one: Sample) -> None:
    hours = one.exposure_hours
    if one.value is None:
        cell.aside[one.missing or "no value"] += 1
    elif not isfinite(one.value) or one.value < 0:
        cell.aside[f"{one.value:g} is not a count"] += 1
    elif hours is None or not isfinite(hours) or hours <= 0:
        cell.aside["not known over how many hours it was counted"] += 1
    else:
        cell.values[one.gpu].append(one.value)
        cell.exposures[one.gpu].append(hours)


def _change(
    measure: Measure, node: str, cohort: Cohort, cells: _Cells, planned: Mapping[Phase, tuple[int, int]]
) -> NodeChange:
    before, after = cells.get((node, Phase.BEFORE)), cells.get((node, Phase.AFTER))
    gaps, whole = _gaps(measure.name, node, (before, after), planned)
    sign = 1 if measure.better is Better.HIGHER else -1
    gpus: list[tuple[int | None, float]] = []
    if before is not None and after is not None:
        common = [gpu for gpu in before.values if before.values[gpu] and after.values.get(gpu)]
        gpus = [(gpu, sign * (median(after.values[gpu]) - median(before.values[gpu]))) for gpu in common]
    inlet = None
    if before is not None and after is not None and before.inlets and after.inlets:
        inlet = fmean(after.inlets) - fmean(before.inlets)
    return NodeChange(
        node=node,
        cohort=cohort,
        gain=fmean(gain for _, gain in gpus) if gpus else None,
        gpus=tuple(gpus),
        before=_levels(before),
        inlet=inlet,
        whole=whole,
        throttled=any(reason.startswith(THROTTLED) for cell in (before, after) if cell for reason in cell.aside),
        gaps=tuple(gaps),
    )


def _levels(cell: _Cell | None) -> tuple[float, ...]:
    """The node's level in each repetition: its GPUs' distances from their own medians, averaged."""
    if cell is None:
        return ()
    series = [values for values in cell.values.values() if values]
    if not series:
        return ()
    middles = [median(values) for values in series]
    level = fmean(middles)
    depth = min(map(len, series))
    return tuple(
        level + fmean(v[run] - middle for v, middle in zip(series, middles, strict=True)) for run in range(depth)
    )


def _gaps(
    measure: str, node: str, cells: tuple[_Cell | None, _Cell | None], planned: Mapping[Phase, tuple[int, int]]
) -> tuple[list[Gap], bool]:
    gaps: list[Gap] = []
    shown = {gpu for cell in cells if cell is not None for gpu in cell.values}
    whole = bool(shown)
    for phase, cell in zip((Phase.BEFORE, Phase.AFTER), cells, strict=True):
        if cell is None:
            gaps.append(Gap(node, measure, phase, "no sample"))
            whole = False
            continue
        for reason, count in cell.aside.items():
            gaps.append(Gap(node, measure, phase, reason if count == 1 else f"{reason}, {count} samples"))
        wanted, enough = planned[phase]
        have = {gpu: len(cell.values.get(gpu, ())) for gpu in shown}
        short = sorted((gpu for gpu, count in have.items() if count < wanted), key=_slot)
        if short:
            where = "" if short == [None] else f" on GPU {', '.join(map(_name, short))}"
            least = min(have[gpu] for gpu in short)
            gaps.append(Gap(node, measure, phase, f"{least} of {wanted} values that were due{where}"))
        whole = whole and all(count >= enough for count in have.values())
    return gaps, whole


def _slot(gpu: int | None) -> int:
    return -1 if gpu is None else gpu


def _name(gpu: int | None) -> str:
    return "(whole node)" if gpu is None else str(gpu)


def _counted(cell: _Cell | None) -> tuple[float, float] | None:
    if cell is None or not cell.exposures:
        return None
    events = sum(sum(values) for values in cell.values.values())
    return events, fmean(sum(hours) for hours in cell.exposures.values())


def _count_gaps(measure: str, node: str, cells: tuple[_Cell | None, _Cell | None]) -> list[Gap]:
    gaps = []
    shown = {gpu for cell in cells if cell is not None for gpu in cell.exposures}
    for phase, cell in zip((Phase.BEFORE, Phase.AFTER), cells, strict=True):
        if cell is None:
            gaps.append(Gap(node, measure, phase, "no sample"))
            continue
        gaps += [Gap(node, measure, phase, why if n == 1 else f"{why}, {n} samples") for why, n in cell.aside.items()]
        silent = sorted((gpu for gpu in shown if not cell.exposures.get(gpu)), key=_slot)
        if silent and not (silent == [None] and cell.aside):
            gaps.append(Gap(node, measure, phase, f"no count on GPU {', '.join(map(_name, silent))}"))
    return gaps

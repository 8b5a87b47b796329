"""Samples from a metrics server's series: per node, GPU and window one value of each measure, or why there is none.

A missing series, a blank, a gap and a counter that began again are not zeros. A level is the median of the points at
which the GPU was busy, a count is an increase with the hours over which it was watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

import numpy as np

from fleet.measures import Conditions, Phase, Sample
from fleet.metrics_port import Series
from fleet.metrics_settings import MetricsSettings
from fleet.series_catalog import (
    CLOCK_EVENTS,
    GPU_TEMPERATURE,
    POWER_LIMIT,
    UTILISATION,
    How,
    SeriesRule,
    with_conditions,
)
from fleet.series_labels import NodeNames, node_of
from fleet.series_lines import Lines, Part, build_lines
from fleet.series_notes import NoteKind, SeriesNote, hole_text, lost_gpus
from fleet.series_points import Merged, Points
from fleet.series_values import codes_begun, increase, median, raised, reasons, watched_hours

_LEAST_GAP_SECONDS = 300.0
_GAP_STEPS = 3.0
_LEAST_BUSY_SHARE = 0.05
_LEAST_BUSY_POINTS = 5


@dataclass(frozen=True, slots=True)
class PhaseWindow:
    """A time that is read as one value. Several windows of one phase are its runs."""

    phase: Phase
    start: datetime
    end: datetime
    run: int = 0


@dataclass(frozen=True, slots=True)
class SeriesReading:
    """The samples, and what was seen beside them.

    `complete` is the share of a window's points that were there, by node, GPU, measure, phase and run. `absent` are
    measures that no node exports. `warnings` are the server's own, where its answer was partial.
    """

    samples: tuple[Sample, ...]
    notes: tuple[SeriesNote, ...] = ()
    complete: Mapping[tuple[str, int | None, str, Phase, int], float] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_samples(
    rules: Iterable[SeriesRule],
    answers: Mapping[str, Sequence[Series]],
    names: NodeNames,
    windows: Sequence[PhaseWindow],
    settings: MetricsSettings,
    inlet: Sequence[Series] = (),
    warnings: tuple[str, ...] = (),
) -> SeriesReading:
    """One sample of every measure for every node, GPU and window.

    `answers` are series by the name of their metric, with a point every `settings.step`; those of
    `with_conditions(rules)` belong to it. A GPU that no series shows is not known of: a node without any has one
    sample, of no GPU, that is missing. `warnings` say that the answers are partial.
    """
    asked = tuple(rule for rule in rules if rule.how is not How.MASK)
    lines = build_lines(with_conditions(asked), answers, names, settings.labels)
    reader = _Reader(lines, settings, _inlets(inlet, names, settings), warnings)
    for window in windows:
        for node in names.nodes:
            reader.read_node(asked, node, window)
        reader.notes.extend(lost_gpus(lines, names.nodes, window.phase, *_span(window), reader.longest_gap))
    reader.note_parts(names.nodes)
    return SeriesReading(
        tuple(reader.samples), tuple(dict.fromkeys(reader.notes)), reader.complete, lines.absent(asked), warnings
    )


@dataclass(frozen=True, slots=True)
class _Value:
    """A value, or why there is none."""

    value: float | None = None
    missing: str = ""
    hours: float | None = None


class _Reader:
    """Goes through nodes and windows, and keeps what it finds."""

    def __init__(
        self, lines: Lines, settings: MetricsSettings, inlets: Mapping[str, Points], warnings: tuple[str, ...]
    ) -> None:
        self.samples: list[Sample] = []
        self.notes: list[SeriesNote] = []
        self.complete: dict[tuple[str, int | None, str, Phase, int], float] = {}
        self.longest_gap = max(_LEAST_GAP_SECONDS, _GAP_STEPS * settings.step_seconds)
        self._lines = lines
        self._settings = settings
        self._inlets = inlets
        self._partial = f"; the answer was partial: {warnings[0]}" if warnings else ""
        self._conditions = lru_cache(maxsize=None)(self._conditions_of)

    def read_node(self, rules: Sequence[SeriesRule], node: str, window: PhaseWindow) -> None:
        slots = self._lines.slots_of(node)
        for rule in rules:
            for gpu in slots or (None,):
                part = None if gpu is None else self._lines.parts[node, gpu][0]
                self._read(rule, node, part, window)

    def note_parts(self, nodes: Iterable[str]) -> None:
        """Slots in which one GPU followed another."""
        for node in nodes:
            for gpu in self._lines.slots_of(node):
                parts = self._lines.parts[node, gpu]
                if len(parts) > 1:
                    text = " then ".join(part.uuid or "a GPU without UUID" for part in parts)
                    self.notes.append(SeriesNote(NoteKind.REPLACED, node, gpu, "", None, text))

    def _read(self, rule: SeriesRule, node: str, part: Part | None, window: PhaseWindow) -> None:
        gpu = None if part is None else part.slot[1]
        line = None if part is None else self._lines.line(rule.measure, part)
        points = Points() if line is None else line.points.between(*_span(window))
        share = min(1.0, len(points) / self._expected(window))
        self.complete[node, gpu, rule.measure, window.phase, window.run] = share
        missing = self._missing(line, points, share, rule, part, window)
        found = _Value(missing=missing)
        if not missing and part is not None and line is not None:
            found = self._value(rule, part, line, points, window)
        if line is not None and line.doubled:
            self._note(NoteKind.DOUBLED, node, gpu, rule, window, "several series had points for the same times")
        self.samples.append(
            Sample(
                node=node,
                measure=rule.measure,
                phase=window.phase,
                at=window.end,
                value=found.value,
                gpu=gpu,
                run=window.run,
                missing=found.missing,
                exposure_hours=found.hours,
                conditions=Conditions() if part is None else self._conditions(part, window, rule.busy_only),
            )
        )

    def _missing(
        self,
        line: Merged | None,
        points: Points,
        share: float,
        rule: SeriesRule,
        part: Part | None,
        window: PhaseWindow,
    ) -> str:
        """Why the window has no value; "" where it may have one."""
        if part is None:
            return f"no series of this node{self._partial}"
        if not len(points) and self._other_part(rule, part, window):
            return "another GPU is in the slot"
        if line is None:
            return f"no series{self._partial}"
        if line.torn:
            return "two series of this GPU disagree"
        if not len(points):
            return f"DCGM has no value{self._partial}" if line.points.unknown else f"no points{self._partial}"
        if share < self._settings.least_complete:
            return hole_text(points, *_span(window), share, self.longest_gap) + self._partial
        return ""

    def _other_part(self, rule: SeriesRule, part: Part, window: PhaseWindow) -> bool:
        others = (self._lines.line(rule.measure, other) for other in self._lines.parts[part.slot] if other != part)
        return any(line is not None and len(line.points.between(*_span(window))) for line in others)

    def _value(self, rule: SeriesRule, part: Part, line: Merged, points: Points, window: PhaseWindow) -> _Value:
        if rule.how is How.LEVEL:
            return self._level(rule, part, points, window)
        if rule.how in (How.COUNTER, How.LASTING_COUNTER):
            watched = line.points.with_last_before(*_span(window), self.longest_gap)
            return self._count(rule, part, watched, window)
        hours, before = watched_hours(points, self.longest_gap), line.points.last_before(window.start.timestamp())
        if rule.how is How.FLAG:
            times = raised(points, before)
            return _Value(None if times is None else float(times), "", hours)
        return self._codes(rule, part, points, window, before, hours)

    def _codes(
        self, rule: SeriesRule, part: Part, points: Points, window: PhaseWindow, before: float | None, hours: float
    ) -> _Value:
        codes = codes_begun(points, before) or ()
        if codes:
            text = "Xid " + ", ".join(str(code) for code in codes)
            self._note(NoteKind.XID, *part.slot, rule, window, text)
        elif before is None and points.values[0] > 0:
            text = f"shows {points.values[0]:.0f} from the beginning; since when is not known"
            self._note(NoteKind.XID, *part.slot, rule, window, text)
        return _Value(float(len(codes)), "", hours)

    def _level(self, rule: SeriesRule, part: Part, points: Points, window: PhaseWindow) -> _Value:
        if not rule.busy_only:
            return _Value(median(points))
        busy = self._busy(part, window)
        if busy is None:
            return _Value(missing="whether the GPU was busy is not known")
        kept = points.at(busy.times)
        if len(kept) < max(_LEAST_BUSY_POINTS, _LEAST_BUSY_SHARE * self._expected(window)):
            return _Value(missing=f"the GPU was at rest: busy at {len(kept)} of {len(points)} points")
        return _Value(median(kept))

    def _count(self, rule: SeriesRule, part: Part, points: Points, window: PhaseWindow) -> _Value:
        node, gpu = part.slot
        found = increase(points, self.longest_gap)
        if found is None or found.hours <= 0:
            return _Value(missing="one point says nothing of a counter")
        if rule.how is How.LASTING_COUNTER and found.fell:
            return _Value(missing="a counter that the part keeps became less: another part, or a wrong reading")
        if found.resets:
            text = f"began again at 0 {found.resets} times; the increase is the least that can be"
            self._note(NoteKind.RESET, node, gpu, rule, window, text)
        if found.wraps:
            self._note(NoteKind.WRAPPED, node, gpu, rule, window, f"passed 32 bits {found.wraps} times")
        return _Value(found.count, "", found.hours)

    def _busy(self, part: Part, window: PhaseWindow) -> Points | None:
        """The points at which the GPU was busy; None where its utilisation is not known."""
        line = self._lines.line(UTILISATION, part)
        points = Points() if line is None else line.points.between(*_span(window))
        if not len(points):
            return None
        return points.at(points.times[points.values >= self._settings.busy_percent])

    def _conditions_of(self, part: Part, window: PhaseWindow, busy_only: bool) -> Conditions:
        busy = self._busy(part, window) if busy_only else None
        inlet = self._inlets.get(part.slot[0], Points()).between(*_span(window))

        def points_of(measure: str) -> Points:
            line = self._lines.line(measure, part)
            points = Points() if line is None else line.points.between(*_span(window))
            return points if busy is None else points.at(busy.times)

        return Conditions(
            throttled=reasons(points_of(CLOCK_EVENTS)),
            inlet_celsius=median(inlet),
            gpu_celsius=median(points_of(GPU_TEMPERATURE)),
            power_limit_watts=median(points_of(POWER_LIMIT)),
        )

    def _expected(self, window: PhaseWindow) -> float:
        start, end = _span(window)
        return max(1.0, (end - start) // self._settings.step_seconds)

    def _note(
        self, kind: NoteKind, node: str, gpu: int | None, rule: SeriesRule, window: PhaseWindow, text: str
    ) -> None:
        self.notes.append(SeriesNote(kind, node, gpu, rule.measure, window.phase, text))


def _span(window: PhaseWindow) -> tuple[float, float]:
    return window.start.timestamp(), window.end.timestamp()


def _inlets(inlet: Sequence[Series], names: NodeNames, settings: MetricsSettings) -> dict[str, Points]:
    """The inlet temperature of each node; of several sensors the coolest, which is the one at the inlet."""
    found: dict[str, Points] = {}
    for series in inlet:
        node = node_of(series.labels, names, settings.labels)
        values = np.array(series.values, dtype=np.float64)
        real = np.isfinite(values) & (values > 0) & (values < 100)
        points = Points(np.array(series.times, dtype=np.float64)[real], values[real])
        if node is None or not len(points):
            continue
        least = found.get(node)
        if least is None or float(np.median(points.values)) < float(np.median(least.values)):
            found[node] = points
    return found

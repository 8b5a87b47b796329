"""From a metrics server's series to one line of points for each measure, node and GPU.

A GPU is known by its UUID: numbers move when a GPU before it is lost, labels change with the driver and the exporter,
and series of several exporters or slices stand for one GPU. Its slot is the number under which it was first seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.metrics_port import Series
from fleet.metrics_settings import MetricsLabels
from fleet.series_catalog import How, SeriesRule
from fleet.series_labels import NodeNames, gpu_of, node_of
from fleet.series_points import Merged, Piece, known_points, merge

Slot = tuple[str, int]
"""A node and the number of a GPU on it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU in a slot; `uuid` is "" where no series told one."""

    slot: Slot
    uuid: str


@dataclass(frozen=True, slots=True)
class _Found:
    """One series of a known node's GPU. `number` None: the series has a UUID only."""

    measure: str
    node: str
    number: int | None
    uuid: str
    piece: Piece
    began: float


@dataclass(frozen=True)
class Lines:
    """The points by measure and GPU. `parts` are the GPUs that were in each slot, the first one first."""

    by_measure: Mapping[str, Mapping[Part, Merged]] = field(default_factory=dict)
    parts: Mapping[Slot, tuple[Part, ...]] = field(default_factory=dict)

    def slots_of(self, node: str) -> tuple[int, ...]:
        """The node's GPUs, as far as any series shows them."""
        return tuple(sorted(number for of, number in self.parts if of == node))

    def line(self, measure: str, part: Part) -> Merged | None:
        """None where no series of the measure was found."""
        return self.by_measure.get(measure, {}).get(part)

    def absent(self, rules: Iterable[SeriesRule]) -> tuple[str, ...]:
        """The measures of which no node has a series: their metric is not exported."""
        return tuple(rule.measure for rule in rules if not self.by_measure.get(rule.measure))


def build_lines(
    rules: Iterable[SeriesRule],
    answers: Mapping[str, Sequence[Series]],
    names: NodeNames,
    labels: MetricsLabels,
) -> Lines:
    """Every line that the answers hold. `answers` are series by the name of their metric."""
    rules = tuple(rules)
    found = [one for rule in rules for one in _of_rule(rule, answers, names, labels)]
    slots = _slots(found)
    grouped: dict[str, dict[Part, list[Piece]]] = {}
    began: dict[Part, float] = {}
    for one in found:
        part = _part(one, slots)
        if part is not None:
            grouped.setdefault(one.measure, {}).setdefault(part, []).append(one.piece)
            began[part] = min(one.began, began.get(part, one.began))
    levels = {rule.measure for rule in rules if rule.how is How.LEVEL}
    merged = {
        measure: {part: merge(pieces, measure in levels) for part, pieces in of_part.items()}
        for measure, of_part in grouped.items()
    }
    parts: dict[Slot, tuple[Part, ...]] = {}
    for part in sorted(began, key=lambda one: (began[one], one.uuid)):
        parts[part.slot] = (*parts.get(part.slot, ()), part)
    return Lines(merged, parts)


def _of_rule(
    rule: SeriesRule, answers: Mapping[str, Sequence[Series]], names: NodeNames, labels: MetricsLabels
) -> Iterable[_Found]:
    for rank, name in enumerate(rule.names):
        for series in answers.get(name.name, ()):
            node, gpu = node_of(series.labels, names, labels), gpu_of(series.labels, labels)
            if node is None or not series.times or (gpu.number is None and not gpu.uuid):
                continue
            piece = Piece(known_points(series, name, rule.most), rank, gpu.slice)
            yield _Found(rule.measure, node, gpu.number, gpu.uuid, piece, series.times[0])


@dataclass(frozen=True, slots=True)
class _Slots:
    """The slot of every UUID, and the first UUID of every slot."""

    by_uuid: Mapping[tuple[str, str], int]
    first: Mapping[Slot, str]


def _slots(found: Sequence[_Found]) -> _Slots:
    by_uuid: dict[tuple[str, str], int] = {}
    first: dict[Slot, str] = {}
    for one in sorted(found, key=lambda each: each.began):
        if one.uuid and one.number is not None:
            number = by_uuid.setdefault((one.node, one.uuid), one.number)
            first.setdefault((one.node, number), one.uuid)
    return _Slots(by_uuid, first)


def _part(one: _Found, slots: _Slots) -> Part | None:
    number = slots.by_uuid.get((one.node, one.uuid), one.number) if one.uuid else one.number
    if number is None:
        return None
    slot = (one.node, number)
    return Part(slot, one.uuid or slots.first.get(slot, ""))

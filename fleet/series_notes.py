"""What is worth saying of series beside their values: resets, gaps, GPUs that went away, parts that were replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fleet.measures import Phase
from fleet.series_lines import Lines
from fleet.series_points import Points


class NoteKind(StrEnum):
    """What was seen."""

    RESET = "reset"
    WRAPPED = "wrapped"
    DOUBLED = "doubled"  # two exporters, or a server's two replicas
    REPLACED = "replaced"
    LOST = "lost"  # a GPU's series ended while others of its node went on
    XID = "xid"


@dataclass(frozen=True, slots=True)
class SeriesNote:
    """`measure` is "" and `phase` None where it is of all of them."""

    kind: NoteKind
    node: str
    gpu: int | None
    measure: str
    phase: Phase | None
    text: str


def hole_text(points: Points, start: float, end: float, share: float, longest_gap: float) -> str:
    """Where an incomplete window's points are missing."""
    late, early = float(points.times[0]) - start, end - float(points.times[-1])
    told = f"{share:.0%} of its points"
    if late > longest_gap:
        told += f"; it began {_duration(late)} after the window did"
    if early > longest_gap:
        told += f"; it ended {_duration(early)} before the window did"
    return told


def lost_gpus(
    lines: Lines, nodes: Iterable[str], phase: Phase, start: float, end: float, longest_gap: float
) -> Iterator[SeriesNote]:
    """GPUs of which every series ended in the window while another GPU of the node was still seen."""
    for node in nodes:
        until = {gpu: _seen_until(lines, node, gpu, start, end) for gpu in lines.slots_of(node)}
        last = max((moment for moment in until.values() if moment is not None), default=None)
        for gpu, moment in until.items():
            if moment is not None and last is not None and last - moment > longest_gap:
                text = f"its series ended {_duration(last - moment)} before those of other GPUs of the node"
                yield SeriesNote(NoteKind.LOST, node, gpu, "", phase, text)


def _seen_until(lines: Lines, node: str, gpu: int, start: float, end: float) -> float | None:
    ends = [
        float(points.times[-1])
        for by_part in lines.by_measure.values()
        for part in lines.parts[node, gpu]
        if part in by_part and len(points := by_part[part].points.between(start, end))
    ]
    return max(ends, default=None)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"

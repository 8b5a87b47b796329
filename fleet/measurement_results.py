"""What a measurement found, node by node and measure by measure, for people to read. Nothing here judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fleet.measures import Phase, Sample

_REASONS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measure on one node in one phase, over its GPUs and runs.

    `median` in the measure's unit and `spread` (largest less smallest, as a share of the median) are None without a
    value; `values` counts them. `missing` has each reason for which a value is missing, with how many are. `slowed`
    names the clocks event reasons that were seen.
    """

    node: str
    measure: str
    phase: Phase
    median: float | None
    spread: float | None
    values: int
    missing: tuple[tuple[str, int], ...]
    slowed: tuple[str, ...]


def measured_rows(samples: Iterable[Sample]) -> tuple[MeasuredRow, ...]:
    """A row for each node, measure and phase, in the samples' order."""
    found: dict[tuple[str, str, Phase], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.node, sample.measure, sample.phase), []).append(sample)
    return tuple(_row(*key, of) for key, of in found.items())


def _row(node: str, measure: str, phase: Phase, samples: Sequence[Sample]) -> MeasuredRow:
    values = [sample.value for sample in samples if sample.value is not None]
    middle = median(values) if values else None
    slowed = dict.fromkeys(reason for sample in samples for reason in sample.conditions.throttled or ())
    return MeasuredRow(
        node=node,
        measure=measure,
        phase=phase,
        median=middle,
        spread=(max(values) - min(values)) / middle if middle else None,
        values=len(values),
        missing=missing_reasons(samples),
        slowed=tuple(slowed),
    )


def missing_reasons(samples: Iterable[Sample]) -> tuple[tuple[str, int], ...]:
    """Why values are missing, and how many for each reason; the commonest first."""
    return tuple(Counter(sample.missing or "no value" for sample in samples if sample.value is None).most_common())


def missing_words(missing: Sequence[tuple[str, int]]) -> str:
    """`3 missing: nvbandwidth is not installed`; "" where nothing is."""
    if not missing:
        return ""
    shown = "; ".join(reason for reason, _ in missing[:_REASONS_SHOWN])
    more = len(missing) - _REASONS_SHOWN
    return f"{sum(count for _, count in missing)} missing: {shown}" + (
        f"; and {more} other reasons" if more > 0 else ""
    )

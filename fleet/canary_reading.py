"""A verdict in the words and figures of its report: intervals, what would have changed it, and what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fleet.canary_cohorts import age_band
from fleet.canary_verdict import CanaryVerdict, Cause, CauseKind, Gap, MeasureVerdict, Outcome, ReturnVerdict, Why
from fleet.canary_words import count, hosts
from fleet.forest_plot import ForestRow, signed_percent
from fleet.measures import MeasureKind, NodeTraits

_OTHERWISE: Mapping[Why, str] = {
    Why.SETTINGS_LOST: "With the settings mended it can be measured again and decided.",
    Why.THROTTLED: "Without the throttling it can be measured again and decided.",
    Why.HEAT: "With inlets as warm as the controls' it can be measured again and decided.",
    Why.UNEVEN: "Once it is known why those nodes differ it can be measured again and decided.",
    Why.DATA_MISSING: "The data that is missing would decide it.",
}


@dataclass(frozen=True, slots=True)
class ReportAbout:
    """What a report says of the canary beside the verdict.

    `change` is what was changed ("driver 570.133.20 to 580.95.05"); `traits` are those of the nodes, by name;
    `returned` is the verdict on the way back, where it was gone; `evidence` says where the raw output is kept.
    """

    operation: str
    change: str
    pool: str = ""
    at: datetime | None = None
    traits: Mapping[str, NodeTraits] = field(default_factory=dict)
    returned: ReturnVerdict | None = None
    evidence: str = ""


def is_count(measure: MeasureVerdict) -> bool:
    """Whether it is compared by the ratio of its rates."""
    return measure.kind is MeasureKind.COUNT


def effect_words(measure: MeasureVerdict) -> str:
    """ "−9.1 %"; of a COUNT "×2.0", the rate after over the rate before. "not known" where there is none."""
    if measure.effect is None:
        return "not known"
    return _ratio(measure.effect) if is_count(measure) else signed_percent(measure.effect)


def interval_words(measure: MeasureVerdict) -> str:
    """Both bounds with the confidence of each."""
    low = _bound(measure, measure.low, measure.confidence_low, "at most" if is_count(measure) else "above")
    high = _bound(measure, measure.high, measure.confidence_high, "at least" if is_count(measure) else "below")
    known = [words for words in (low, high) if words]
    return ", ".join(known) or "not known"


def margin_words(measure: MeasureVerdict) -> str:
    """The accepted loss."""
    return f"up to ×{1 + measure.margin:.2f}" if is_count(measure) else signed_percent(-measure.margin)


def detectable_words(measure: MeasureVerdict) -> str:
    """The smallest loss that this test would have failed."""
    if measure.smallest_detectable is None:
        return "not known"
    if is_count(measure):
        return f"×{1 + measure.smallest_detectable:.2f}"
    return signed_percent(-measure.smallest_detectable)


def noise_words(measure: MeasureVerdict) -> tuple[str, str, str]:
    """Run to run, node to node, and of a node's change: standard deviations in percent."""
    noise = measure.noise
    shares = (noise.run_to_run, noise.node_to_node, noise.change)
    first, second, third = ("–" if share is None else f"{share * 100:.2f} %" for share in shares)
    return first, second, third


def measure_words(measure: MeasureVerdict) -> str:
    """What the verdict says of the measure, and what would have changed that, as sentences; its name stands before."""
    said = [sentence(measure.text.removeprefix(f"{measure.name}:").strip()), would_change(measure)]
    if measure.cause.kind is not CauseKind.NONE and measure.cause.text not in measure.text:
        said.insert(1, sentence(f"cause: {cause_words(measure.cause)}"))
    return " ".join(words for words in said if words)


def sentence(words: str) -> str:
    """The words with a capital and a full stop; "" stays empty."""
    return words[:1].upper() + words[1:] + ("" if words[-1:] in ("", ".", "!", "?") else ".")


def would_change(measure: MeasureVerdict) -> str:
    """What would have made another outcome of this measure: another margin, more data, or other conditions."""
    low, high = measure.low, measure.high
    if measure.outcome is Outcome.PASS:
        if low is None or low <= -measure.margin:
            return "It passed because so few events are tolerated, whatever their ratio."
        return "It would have passed with any margin." if low >= 0 else _with_margin(measure, "under", -low, "passed")
    if measure.outcome is Outcome.FAIL:
        if high is None or high > -measure.margin:
            return "Its interval alone does not fail it; the reason does."
        return _with_margin(measure, "above", -high, "failed")
    more = _more(measure.more_nodes, measure.more_hours)
    return more or _OTHERWISE.get(measure.why, "No reasonable number of nodes or hours would decide it.")


def would_change_all(verdict: CanaryVerdict) -> tuple[str, ...]:
    """What would have changed the decision, one sentence each."""
    failed = [measure.name for measure in verdict.measures if measure.outcome is Outcome.FAIL]
    open_ = [measure.name for measure in verdict.measures if measure.outcome is Outcome.INCONCLUSIVE]
    if verdict.outcome is Outcome.PASS:
        return ("Any one measure that had not passed would have kept it from passing.",)
    if verdict.outcome is Outcome.FAIL:
        alone = f"{failed[0]} alone failed it: the others did not." if len(failed) == 1 else ""
        several = f"{', '.join(failed)} failed it; each of them would have been enough." if len(failed) > 1 else ""
        return tuple(words for words in (alone, several) if words) or ("The reason given above alone decided it.",)
    more = _more(verdict.more_nodes, verdict.more_hours)
    waits = f"Open: {', '.join(open_)}." if open_ else ""
    return tuple(words for words in (waits, more) if words)


def forest_rows(measures: Iterable[MeasureVerdict]) -> tuple[ForestRow, ...]:
    """The rows of a plot."""
    return tuple(
        ForestRow(
            measure.name,
            measure.effect,
            measure.low,
            measure.high,
            measure.margin,
            measure.outcome.value,
            f"effect {effect_words(measure)}, {interval_words(measure)}, accepted {margin_words(measure)}",
        )
        for measure in measures
    )


def cohort_rows(verdict: CanaryVerdict, traits: Mapping[str, NodeTraits]) -> tuple[tuple[str, ...], ...]:
    """Nodes alike in model, firmware and age: the racks they stand in, canary nodes, controls.

    Nodes whose traits are not known stand together, last.
    """
    groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    unknown: list[str] = []
    for node in (*verdict.canary, *verdict.control):
        own = traits.get(node)
        place = unknown if own is None else groups[own.model, own.firmware, age_band(own.age_days)]
        place.append(node)
    rows = [(*key, *_members(verdict, nodes, traits)) for key, nodes in sorted(groups.items())]
    last = [(*["not known"] * 3, *_members(verdict, unknown, traits))] if unknown else []
    return (*rows, *last)


def _members(verdict: CanaryVerdict, nodes: Sequence[str], traits: Mapping[str, NodeTraits]) -> tuple[str, str, str]:
    racks = sorted({traits[node].rack for node in nodes if node in traits})
    canary = frozenset(verdict.canary)
    mine, others = [node for node in nodes if node in canary], [node for node in nodes if node not in canary]
    return ", ".join(racks) or "not known", _named(mine), _named(others)


def _named(nodes: Sequence[str]) -> str:
    return f"{len(nodes)}: {hosts(nodes)}" if nodes else "0"


def gap_rows(verdict: CanaryVerdict) -> tuple[tuple[str, str, str, str], ...]:
    """What is missing: measure, phase, nodes and reason; nodes with the same gap are one row."""
    groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    gaps: list[tuple[Gap, str]] = [(gap, gap.measure or "all") for gap in verdict.missing]
    gaps += [(gap, gap.measure or measure.name) for measure in verdict.measures for gap in measure.missing]
    for gap, measure in gaps:
        groups[measure, "both" if gap.phase is None else gap.phase.value, gap.reason].append(gap.node)
    return tuple(
        (measure, phase, hosts(dict.fromkeys(nodes)), reason) for (measure, phase, reason), nodes in groups.items()
    )


def cause_words(cause: Cause) -> str:
    """The cause in words; "" where none is named."""
    if cause.kind is CauseKind.NONE:
        return ""
    names = f": {', '.join(cause.names)}" if cause.names else ""
    where = f" on {hosts(cause.nodes)}" if cause.nodes else ""
    said = f"; {cause.text}" if cause.text else ""
    return f"{cause.kind.value}{names}{where}{said}"


def _bound(measure: MeasureVerdict, share: float | None, confidence: float, word: str) -> str:
    if share is None:
        return ""
    value = _ratio(share) if is_count(measure) else signed_percent(share)
    return f"{word} {value} ({confidence * 100:.4g} %)"


def _ratio(share: float) -> str:
    return f"×{max(1 - share, 0.0):.2f}"


def _with_margin(measure: MeasureVerdict, word: str, share: float, outcome: str) -> str:
    margin = f"×{1 + share:.2f}" if is_count(measure) else f"{share * 100:.1f} %"
    return f"With a margin {word} {margin} it would not have {outcome}."


def _more(nodes: int | None, hours: float | None) -> str:
    wishes = []
    if nodes:
        wishes.append(f"{count(nodes, 'more node')} in each cohort")
    if hours:
        wishes.append(f"{hours:.3g} more hours of the same nodes")
    return f"{' or '.join(wishes)} would decide, if the effect stays as it looks." if wishes else ""

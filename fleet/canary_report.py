"""The report of a canary: one self-contained page, and the same in Markdown for an artifact.

The page loads nothing from anywhere, runs no script, and reads in light and dark, on paper and on a phone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from fleet.canary_reading import (
    ReportAbout,
    cause_words,
    cohort_rows,
    detectable_words,
    effect_words,
    forest_rows,
    gap_rows,
    interval_words,
    is_count,
    margin_words,
    measure_words,
    noise_words,
    sentence,
    would_change_all,
)
from fleet.canary_verdict import CanaryVerdict, ReturnVerdict
from fleet.canary_words import count, hosts
from fleet.forest_plot import forest_plot, signed_percent, text
from fleet.json_values import printable
from fleet.report_style import STYLE

_GAPS = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&])")

MEASURE_HEADING = ("measure", "outcome", "effect", "lies", "accepted", "smallest loss that would fail", "nodes")
NOISE_HEADING = ("measure", "run to run", "node to node", "a node's change", "unlike the others")
COHORT_HEADING = ("model", "firmware", "age", "racks", "canary", "control")
GAP_HEADING = ("measure", "phase", "nodes", "why")
RETURN_HEADING = ("measure", "outcome", "remains", "regained", "in words")

Row = Sequence[str]


def report_html(verdict: CanaryVerdict, about: ReportAbout) -> str:
    """The whole page as one HTML document. Every text of the verdict is escaped."""
    title = f"{verdict.outcome.value.upper()}: {about.change}"
    cohorts = cohort_rows(verdict, about.traits)
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body><main>",
        *_head(verdict, about),
        *_plots(verdict),
        _section("Measures", _table("measures", "What each measure showed", MEASURE_HEADING, measure_rows(verdict))),
        _section("What would have changed it", _would_change(verdict)),
        *_returned(about.returned),
        _section("Cohorts", _table("cohorts", "Nodes that are alike", COHORT_HEADING, cohorts)),
        _section("Noise", _table("noise", "Standard deviations before the change", NOISE_HEADING, _noise(verdict))),
        _section("Missing data", _gaps(verdict)),
        _section("How it was judged", _list(_rules(verdict, about))),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def report_markdown(verdict: CanaryVerdict, about: ReportAbout) -> str:
    """The same without the picture, for a Prefect artifact."""
    lines = [f"# {_md(verdict.outcome.value.upper())}: {_md(about.change)}", "", _md(sentence(verdict.text)), ""]
    lines += [f"- {_md(line)}" for line in (*_facts(verdict, about), *would_change_all(verdict))]
    lines += ["", "## Measures", "", *_md_table(MEASURE_HEADING, measure_rows(verdict))]
    lines += ["", *(f"- {_md(one.name)}: {_md(measure_words(one))}" for one in verdict.measures)]
    if about.returned is not None:
        lines += ["", "## The way back", "", _md(sentence(about.returned.text)), ""]
        lines += _md_table(RETURN_HEADING, _return_rows(about.returned))
    lines += ["", "## Cohorts", "", *_md_table(COHORT_HEADING, cohort_rows(verdict, about.traits))]
    lines += ["", "## Noise", "", *_md_table(NOISE_HEADING, _noise(verdict))]
    gaps = gap_rows(verdict)
    lines += ["", "## Missing data", "", *(_md_table(GAP_HEADING, gaps[:_GAPS]) if gaps else ["Nothing is missing."])]
    lines += [*_more_gaps(len(gaps)), "", *(f"- {_md(line)}" for line in _rules(verdict, about))]
    return "\n".join(lines) + "\n"


def measure_rows(verdict: CanaryVerdict) -> tuple[Row, ...]:
    """The table of the measures, as MEASURE_HEADING says: for a terminal too."""
    return tuple(
        (
            measure.name + (f" ({measure.unit})" if measure.unit else ""),
            f"{measure.outcome.value}: {measure.why.value}",
            effect_words(measure),
            interval_words(measure),
            margin_words(measure),
            detectable_words(measure),
            f"{measure.n_canary} canary, {measure.n_control} control",
        )
        for measure in verdict.measures
    )


def _head(verdict: CanaryVerdict, about: ReportAbout) -> Iterator[str]:
    outcome = verdict.outcome.value
    yield f'<header><p class="badge {text(outcome)}">{text(outcome)}</p><h1>{text(about.change)}</h1>'
    yield f'<p class="lead">{text(sentence(verdict.text))}</p>{_list(_facts(verdict, about))}</header>'


def _facts(verdict: CanaryVerdict, about: ReportAbout) -> Iterator[str]:
    pool = f", pool {about.pool}" if about.pool else ""
    when = f", {about.at:%Y-%m-%d %H:%M} UTC" if about.at is not None else ""
    yield f"Operation {about.operation}{pool}{when}."
    yield f"Decided because: {verdict.why.value}."
    cause = cause_words(verdict.cause)
    if cause:
        yield f"Likely cause: {cause}."
    yield f"{count(len(verdict.canary), 'canary node')}, {count(len(verdict.control), 'control node')}."
    yield from (sentence(note) for note in verdict.notes)


def _plots(verdict: CanaryVerdict) -> Iterator[str]:
    levels = [measure for measure in verdict.measures if not is_count(measure)]
    counts = [measure for measure in verdict.measures if is_count(measure)]
    plots = (
        forest_plot(forest_rows(levels), "Effect of the change on each measure", "levels"),
        forest_plot(forest_rows(counts), "Effect of the change on each count of errors", "counts", ratio=True),
    )
    if any(plots):
        legend = (
            "Marks: effect. Lines: where it lies; an arrow where that is not bounded. The shaded side is a loss that "
            "is not accepted. Circle: pass. Square: fail. Open diamond: inconclusive."
        )
        figures = "".join(f"<div>{plot}</div>" for plot in plots if plot)
        yield _section("Effects", f"<figure>{figures}<figcaption>{legend}</figcaption></figure>")


def _would_change(verdict: CanaryVerdict) -> str:
    each = (
        f"<dt>{text(measure.name)}</dt><dd>{text(measure_words(measure))}"
        f"{''.join(f'<br>{text(sentence(note))}' for note in measure.notes)}</dd>"
        for measure in verdict.measures
    )
    return f"{_list(would_change_all(verdict))}<dl>{''.join(each)}</dl>"


def _returned(returned: ReturnVerdict | None) -> Iterator[str]:
    if returned is not None:
        table = _table("back", "After the former version was back", RETURN_HEADING, _return_rows(returned))
        yield _section("The way back", f"<p>{text(sentence(returned.text))}</p>{table}")


def _return_rows(returned: ReturnVerdict) -> tuple[Row, ...]:
    return tuple(
        (
            measure.name,
            measure.outcome.value,
            "not known" if measure.remaining is None else signed_percent(measure.remaining),
            "not known" if measure.regained is None else signed_percent(measure.regained),
            measure.text,
        )
        for measure in returned.measures
    )


def _noise(verdict: CanaryVerdict) -> tuple[Row, ...]:
    return tuple(
        (measure.name, *noise_words(measure), hosts(measure.noise.unlike) or "none") for measure in verdict.measures
    )


def _gaps(verdict: CanaryVerdict) -> str:
    rows = gap_rows(verdict)
    if not rows:
        return "<p>Nothing is missing.</p>"
    caption = "What could not be had, and why; it counts as nothing, never as zero"
    table = _table("gaps", caption, GAP_HEADING, rows[:_GAPS])
    return table + "".join(f"<p>{text(line)}</p>" for line in _more_gaps(len(rows)))


def _more_gaps(rows: int) -> tuple[str, ...]:
    return (f"And {rows - _GAPS} more.",) if rows > _GAPS else ()


def _rules(verdict: CanaryVerdict, about: ReportAbout) -> Iterator[str]:
    rate = f"{verdict.alpha * 100:.3g} %"
    yield f"Of canaries of a change that loses nothing at most {rate} are failed, all measures and looks together."
    yield f"Look {verdict.look} of {verdict.looks}, with {verdict.information * 100:.0f} % of the planned data."
    yield "A measure passes where its effect surely lies above the accepted loss, and fails where it surely lies below."
    if about.evidence:
        yield f"Raw output: {about.evidence}."


def _section(title: str, body: str) -> str:
    return f"<section><h2>{text(title)}</h2>{body}</section>"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _table(ident: str, caption: str, heading: Row, rows: Iterable[Row]) -> str:
    """A table that scrolls in its own box; on a phone each row is a card, and `role` says that it is a table still."""
    head = "".join(f'<th role="columnheader" scope="col">{text(name)}</th>' for name in heading)
    body = "".join(f'<tr role="row">{_cells(heading, row)}</tr>' for row in rows)
    box = f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{ident}-caption">'
    top = f'<caption id="{ident}-caption">{text(caption)}</caption>'
    heads = f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
    return f'{box}<table role="table">{top}{heads}<tbody role="rowgroup">{body}</tbody></table></div>'


def _cells(heading: Row, row: Row) -> str:
    first, *rest = row
    cells = (
        f'<td role="cell" data-name="{text(name)}">{text(cell)}</td>'
        for name, cell in zip(heading[1:], rest, strict=True)
    )
    return f'<th role="rowheader" scope="row">{text(first)}</th>{"".join(cells)}'


def _md_table(heading: Row, rows: Iterable[Row]) -> list[str]:
    lines = [f"| {' | '.join(heading)} |", f"|{' --- |' * len(heading)}"]
    return lines + [f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows]


def _md(value: str) -> str:
    """The text with what Markdown would act on made plain, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(str(printable(value)).split()))

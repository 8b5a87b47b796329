"""A forest plot as inline SVG: for each measure its effect, what it lies between, and the loss that is accepted.

Outcomes differ in shape and not only in colour, colours are the page's (`var(--pass)` …), and everything that the
picture shows is said in its `desc` too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from fleet.json_values import printable

_WIDTH, _LEFT, _RIGHT = 420.0, 14.0, 406.0
_ROW, _TOP, _AXIS = 46.0, 8.0, 36.0
_LABEL_LETTERS = 44
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST_TICKS = 7
_WIDEST = 20.0  # shares; what lies beyond is shown by an arrow


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One measure, in shares (-0.05 is a loss of 5 %). None: not known, or on that side not bounded.

    `outcome` is pass, fail or inconclusive; `said` are the figures in words.
    """

    label: str
    effect: float | None
    low: float | None
    high: float | None
    margin: float
    outcome: str
    said: str


def forest_plot(rows: Sequence[ForestRow], title: str, ident: str, ratio: bool = False) -> str:
    """An `svg` element whose ids begin with `ident`. All text is escaped; without rows it is empty.

    `ratio`: the shares are one minus a ratio of rates, and the axis shows the ratios.
    """
    if not rows:
        return ""
    span = _span(rows, ratio)
    height = _TOP + _ROW * len(rows) + _AXIS
    said = " ".join(f"{row.label}: {row.outcome}, {row.said}." for row in rows)
    head = (
        f'<svg class="forest" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{ident}-title">{text(title)}</title><desc id="{ident}-desc">{text(said)}</desc>'
    )
    body = [*_axis(span, len(rows), ratio), *(part for at, row in enumerate(rows) for part in _row(at, row, span))]
    return head + "".join(body) + "</svg>"


def text(value: str) -> str:
    """The text for HTML and SVG: escaped, without characters that would act on a reader's screen, no lone "%"."""
    return escape(str(printable(value)), quote=True).replace(" %", "\u00a0%")


def signed_percent(share: float, digits: int = 1) -> str:
    """ "−9.1 %": signed, with the sign that typography uses; a value that rounds to nothing has no sign."""
    shown = f"{abs(share) * 100:.{digits}f}"
    sign = "" if float(shown) == 0 else "−" if share < 0 else "+"
    return f"{sign}{shown} %"


@dataclass(frozen=True, slots=True)
class _Span:
    """The shares at both ends of the axis."""

    low: float
    high: float

    def x(self, share: float) -> float:
        bounded = max(self.low, min(self.high, share))
        return _LEFT + (bounded - self.low) / (self.high - self.low) * (_RIGHT - _LEFT)


def _span(rows: Sequence[ForestRow], ratio: bool) -> _Span:
    """Room for every bound, for the margins, and on the better side for an arrow. No rate falls by more than all."""
    values = [value for row in rows for value in (row.effect, row.low, row.high) if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    worst = max([2 * row.margin for row in rows] + [-1.1 * value for value in finite])
    best = max([0.4 * worst] + [1.1 * value for value in finite])
    worst, best = (min(max(end, 0.001), _WIDEST) for end in (worst, best))
    return _Span(-worst, min(best, 1.0) if ratio else best)


def _axis(span: _Span, rows: int, ratio: bool) -> Iterator[str]:
    bottom = _TOP + _ROW * rows
    step = next((step for step in _STEPS if (span.high - span.low) / step <= _MOST_TICKS), _STEPS[-1])
    digits = 1 if step < 0.01 else 0
    yield f'<line class="rule" x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    for tick in range(math.ceil(span.low / step), math.floor(span.high / step) + 1):
        x, share = span.x(tick * step), tick * step
        kind = "zero" if tick == 0 else "grid"
        label = f"×{1 - share:.3g}" if ratio else signed_percent(share, digits)
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP:g}" y2="{bottom + 4:g}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 16:g}">{text(label)}</text>'
    yield f'<text class="side" x="{_LEFT:g}" y="{bottom + 28:g}">worse</text>'
    yield f'<text class="side end" x="{_RIGHT:g}" y="{bottom + 28:g}">better</text>'


def _row(at: int, row: ForestRow, span: _Span) -> Iterator[str]:
    top = _TOP + _ROW * at
    y = top + 30
    label = row.label if len(row.label) <= _LABEL_LETTERS else row.label[: _LABEL_LETTERS - 1] + "…"
    yield f'<g class="{text(row.outcome)}">'
    margin = span.x(-row.margin)
    yield f'<rect class="loss" x="{_LEFT:g}" y="{top + 20:g}" width="{margin - _LEFT:.1f}" height="20"/>'
    yield f'<line class="margin" x1="{margin:.1f}" x2="{margin:.1f}" y1="{top + 20:g}" y2="{top + 40:g}"/>'
    yield f'<text class="label" x="{_LEFT:g}" y="{top + 14:g}">{text(label)}</text>'
    known = (row.effect, row.low, row.high) != (None, None, None)
    word = row.outcome if known else "no data"
    yield f'<text class="label end" x="{_RIGHT:g}" y="{top + 14:g}">{text(word)}</text>'
    if known:
        yield from _interval(row, span, y)
    yield "</g>"


def _interval(row: ForestRow, span: _Span, y: float) -> Iterator[str]:
    left = _LEFT if row.low is None else span.x(row.low)
    right = _RIGHT if row.high is None else span.x(row.high)
    yield f'<line class="interval" x1="{left:.1f}" x2="{right:.1f}" y1="{y:g}" y2="{y:g}"/>'
    yield _end(left, y, -1, row.low is not None and row.low >= span.low)
    yield _end(right, y, 1, row.high is not None and row.high <= span.high)
    if row.effect is not None:
        yield _mark(span.x(row.effect), y, row.outcome)


def _end(x: float, y: float, way: int, bounded: bool) -> str:
    """A stroke where the interval ends, an arrow where it goes on."""
    if bounded:
        return f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 5:g}" y2="{y + 5:g}"/>'
    back = x - way * 6
    return f'<path class="arrow" d="M{back:.1f} {y - 5:g}L{x:.1f} {y:g}L{back:.1f} {y + 5:g}"/>'


def _mark(x: float, y: float, outcome: str) -> str:
    if outcome == "pass":
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:g}" r="5"/>'
    if outcome == "fail":
        return f'<rect class="mark" x="{x - 5:.1f}" y="{y - 5:g}" width="10" height="10"/>'
    return f'<path class="mark open" d="M{x:.1f} {y - 6:g}L{x + 6:.1f} {y:g}L{x:.1f} {y + 6:g}L{x - 6:.1f} {y:g}Z"/>'

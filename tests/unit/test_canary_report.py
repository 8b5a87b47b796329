"""The report says what was decided and why, loads nothing, and lets no text of a node act on its reader."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from fleet.canary_reading import ReportAbout, cohort_rows, forest_rows, gap_rows, measure_words, would_change
from fleet.canary_report import report_html, report_markdown
from fleet.canary_verdict import (
    CanaryVerdict,
    Cause,
    CauseKind,
    Gap,
    MeasuredNoise,
    MeasureReturn,
    MeasureVerdict,
    Outcome,
    ReturnVerdict,
    Why,
)
from fleet.forest_plot import ForestRow, forest_plot, signed_percent
from fleet.measures import MeasureKind, NodeTraits, Phase

EVIL = "<script>alert('x')</script> & \"quoted\" \x1b[31m | `code` [link](http://x)"
VOID = {"meta", "br", "line", "rect", "circle", "path"}


def _measure(
    name: str,
    outcome: Outcome = Outcome.PASS,
    effect: float | None = -0.004,
    low: float | None = -0.009,
    high: float | None = 0.002,
    kind: MeasureKind = MeasureKind.BENCHMARK,
) -> MeasureVerdict:
    return MeasureVerdict(
        name=name,
        unit="GB/s",
        kind=kind,
        outcome=outcome,
        why=Why.OK if outcome is Outcome.PASS else Why.SLOWER,
        text=f"{name}: slower; 9.1 % lost",
        effect=effect,
        low=low,
        high=high,
        margin=0.02,
        smallest_detectable=0.031,
        n_canary=8,
        n_control=8,
        confidence_low=0.95,
        confidence_high=0.9975,
        noise=MeasuredNoise(0.004, 0.011, 0.005, ("gpu-0003",)),
    )


def _verdict(*measures: MeasureVerdict, outcome: Outcome = Outcome.FAIL) -> CanaryVerdict:
    return CanaryVerdict(
        outcome=outcome,
        why=Why.SLOWER,
        text="The all-reduce lost 9.1 %.",
        cause=Cause(CauseKind.SETTING, ("power_limit_watts",), ("gpu-0001",), "it was 700 W and is 500 W"),
        measures=measures or (_measure("hbm_bandwidth"), _measure("all_reduce", Outcome.FAIL, -0.091, -0.11, -0.07)),
        look=2,
        looks=3,
        information=0.66,
        alpha=0.01,
        canary=("gpu-0001", "gpu-0002"),
        control=("gpu-0003",),
        missing=(Gap("gpu-0002", "", Phase.AFTER, "its driver did not answer"),),
    )


ABOUT = ReportAbout(
    "drv-20261130-7k3q",
    "driver 570.133.20 to 580.95.05",
    "train",
    datetime(2026, 11, 30, 12, 0, tzinfo=UTC),
    {f"gpu-000{n}": NodeTraits(f"gpu-000{n}", "HGX-H100-8", f"r0{n}", "96.00.A5", 200.0) for n in (1, 3)},
)


class Page(HTMLParser):
    """The elements and attributes of a page; fails where they do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.replace("\u00a0", " ")


def test_the_page_says_what_was_decided_why_and_what_would_have_changed_it() -> None:
    words = Page(report_html(_verdict(), ABOUT)).words
    assert "The all-reduce lost 9.1 %." in words
    assert "setting: power_limit_watts on gpu-0001; it was 700 W and is 500 W" in words
    assert "all_reduce alone failed it" in words
    assert "With a margin above 7.0 % it would not have failed." in words
    assert "With a margin under 0.9 % it would not have passed." in words
    assert "its driver did not answer" in words


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = report_html(_verdict(), ABOUT)
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert not [value for name, value in parsed.attributes if name in ("src", "href", "onload", "onclick")]
    assert re.findall(r"https?://[^\"' ]+", page) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in page
    assert "@import" not in page


def test_every_text_is_escaped_in_page_and_markdown() -> None:
    evil = replace(_measure(EVIL), text=EVIL, unit=EVIL, notes=(EVIL,), missing=(Gap(EVIL, "", None, EVIL),))
    verdict = replace(_verdict(evil), text=EVIL, cause=Cause(CauseKind.NODE, (EVIL,), (EVIL,), EVIL), notes=(EVIL,))
    traits = {"gpu-0001": NodeTraits("gpu-0001", EVIL, EVIL, EVIL)}
    about = ReportAbout(EVIL, EVIL, EVIL, traits=traits, evidence=EVIL)
    page = report_html(verdict, about)
    assert "script" not in Page(page).tags
    assert "\x1b" not in page
    markdown = report_markdown(verdict, about)
    assert "<script" not in markdown.replace("\\<", "")
    assert "\x1b" not in markdown
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("| ")} <= {
        5,
        6,
        7,
        8,
    }


def test_the_picture_is_well_formed_and_said_in_words() -> None:
    page = report_html(_verdict(), ABOUT)
    (svg,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    root = ElementTree.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    title, description = root.find("s:title", space), root.find("s:desc", space)
    assert title is not None
    assert description is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "all_reduce: fail, effect −9.1\u00a0%" in (description.text or "")


def test_tables_have_captions_and_headings() -> None:
    tags = Page(report_html(_verdict(), ABOUT)).tags
    assert tags.count("table") == tags.count("caption") == 4
    assert tags.count("main") == tags.count("h1") == 1


def test_outcomes_differ_in_shape_and_an_open_side_is_an_arrow() -> None:
    def plot(outcome: str, low: float | None = -0.01) -> str:
        return forest_plot([ForestRow("m", -0.005, low, 0.001, 0.02, outcome, "")], "t", "p")

    assert "<circle" in plot("pass")
    assert 'class="mark"' in plot("fail")
    assert "<circle" not in plot("fail")
    assert 'class="mark open"' in plot("inconclusive")
    assert "arrow" in plot("pass", low=None)
    assert "arrow" not in plot("pass")


def test_everything_drawn_stays_inside_the_picture() -> None:
    rows = [
        ForestRow("far" * 40, -40.0, None, -30.0, 0.02, "fail", ""),
        ForestRow("none", None, None, None, 0.02, "inconclusive", ""),
        ForestRow("small", 0.0, -0.0001, 0.0001, 0.0005, "pass", ""),
    ]
    svg = forest_plot(rows, "t", "p")
    places = [float(x) for x in re.findall(r'\b(?:x|x1|x2|cx)="(-?[\d.]+)"', svg)]
    assert min(places) >= 0
    assert max(places) <= 420
    assert "no data" in svg
    assert "nan" not in svg


def test_a_count_is_shown_as_a_ratio_in_a_plot_of_its_own() -> None:
    xid = replace(_measure("xid", Outcome.FAIL, -1.0, -2.5, -0.4, MeasureKind.COUNT), margin=0.25)
    page = report_html(_verdict(_measure("hbm_bandwidth"), xid), ABOUT)
    assert page.count("<svg") == 2
    words = Page(page).words
    assert "×2.00" in words
    assert "at most ×3.50 (95 %), at least ×1.40 (99.75 %)" in words
    assert "With a margin above ×1.40 it would not have failed." in words
    counts = page[page.rindex("<svg") :]
    assert ">×2<" in counts
    assert "×-" not in counts


def test_an_open_measure_says_how_many_more_would_decide() -> None:
    open_ = replace(_measure("gemm", Outcome.INCONCLUSIVE, -0.01, -0.05, 0.03), more_nodes=4, more_hours=12.0)
    assert "4 more nodes in each cohort or 12 more hours" in would_change(open_)
    assert "No reasonable number" in would_change(replace(open_, more_nodes=None, more_hours=None))
    lost = replace(open_, more_nodes=None, more_hours=None, why=Why.SETTINGS_LOST)
    assert "With the settings mended" in would_change(lost)


def test_a_measures_text_is_a_sentence_without_its_name() -> None:
    assert measure_words(_measure("gemm")).startswith("Slower; 9.1 % lost. With a margin under 0.9 %")
    heat = replace(_measure("gemm"), cause=Cause(CauseKind.HEAT, text="the inlets became 6.0 °C warmer"))
    assert "Cause: heat; the inlets became 6.0 °C warmer." in measure_words(heat)


def test_a_count_that_passed_by_its_rate_says_so() -> None:
    few = replace(_measure("xid", Outcome.PASS, -1.0, -9.0, 0.9, MeasureKind.COUNT), margin=0.25)
    assert "so few events are tolerated" in would_change(few)


def test_a_measure_without_data_is_not_known_and_not_zero() -> None:
    empty = replace(_measure("gemm", Outcome.INCONCLUSIVE, None, None, None), smallest_detectable=None)
    page = report_html(_verdict(empty, outcome=Outcome.INCONCLUSIVE), ABOUT)
    assert "not known" in Page(page).words
    assert "no data" in page
    assert ">0.0 %<" not in page.split("</svg>")[1]


def test_cohorts_stand_by_what_is_alike_and_unknown_nodes_apart() -> None:
    first, second = cohort_rows(_verdict(), ABOUT.traits)
    assert first == ("HGX-H100-8", "96.00.A5", "under a year", "r01, r03", "1: gpu-0001", "1: gpu-0003")
    assert second == ("not known", "not known", "not known", "not known", "1: gpu-0002", "0")
    assert len(cohort_rows(_verdict(), {})) == 1


def test_nodes_with_the_same_gap_are_one_row() -> None:
    gaps = tuple(Gap(f"gpu-000{n}", "", None, "is away") for n in (1, 2, 3))
    (row,) = gap_rows(replace(_verdict(), missing=gaps))
    assert row == ("all", "both", "gpu-[0001-0003]", "is away")


def test_the_way_back_has_its_own_section() -> None:
    measure = MeasureReturn("all_reduce", Outcome.PASS, "It is as before.", 0.001, -0.004, 0.006, 0.099, 0.08, 0.02)
    about = replace(ABOUT, returned=ReturnVerdict(Outcome.PASS, "The loss went away with the driver.", (measure,)))
    for report in (Page(report_html(_verdict(), about)).words, report_markdown(_verdict(), about)):
        assert "The loss went away with the driver." in report
        assert "+9.9 %" in report


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_report(outcome: Outcome) -> None:
    verdict = _verdict(_measure("gemm", outcome), outcome=outcome)
    assert Page(report_html(verdict, ABOUT)).words.count(outcome.value) >= 2
    assert report_markdown(verdict, ABOUT).startswith(f"# {outcome.value.upper()}: driver 570.133.20")


def test_figures_carry_their_sign_and_nothing_is_minus_zero() -> None:
    assert [signed_percent(share) for share in (-0.0912, 0.0912, -0.0001, 0.0)] == [
        "−9.1 %",
        "+9.1 %",
        "0.0 %",
        "0.0 %",
    ]


def test_rows_of_a_plot_follow_the_measures() -> None:
    assert [row.label for row in forest_rows(_verdict().measures)] == ["hbm_bandwidth", "all_reduce"]

"""What ends when, for whom, and what its owners do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.catalog_data import Catalog, load_catalog
from fleet.compatibility import Verdict, judge
from fleet.end_of_life import LifecycleRow, NodeSoftware, Support, architecture_end, branch_end, lifecycle_rows
from fleet.errors import ConfigurationError
from fleet.findings import Action
from fleet.operator_catalog import extend

TODAY = date(2026, 11, 30)

FILE = """\
version: 1
retention_months: 24
branches:
  R625: {kind: PB, released: 2026-12, ends: 2027-12, max_cuda_major: 13, source: our contract, as_of: 2026-12}
  R590: {ends: 2026-12-15, source: our contract}
architectures:
  "8.7": {architecture: Ampere, first_cuda: "11.4", source: our lab}
  "7.5": {last_driver: R620, last_cuda: "13.4", source: a notice to customers}
gpus:
  Orin Board: {capability: "8.7", gpu_class: data_center, source: our lab}
toolkits:
  "14.0.0": {packaged_driver: 625.10.01, minimum_driver: "620.10", source: release notes}
cuda_compat:
  cuda-compat-13-0: {bases: [R535, R570], source: the vendor's table}
"""


def _rows(*nodes: NodeSoftware, today: date = TODAY, catalog: Catalog | None = None) -> dict[str, LifecycleRow]:
    return {row.item: row for row in lifecycle_rows(nodes, today, catalog)}


@pytest.mark.parametrize(
    ("driver", "support", "ends"),
    [
        ("R570", Support.END_OF_LIFE, date(2026, 2, 28)),
        ("570.86.10", Support.END_OF_LIFE, date(2026, 2, 28)),
        ("580", Support.SUPPORTED, date(2028, 6, 30)),
        ("R620", Support.SUPPORTED, date(2029, 9, 30)),
        ("R575", Support.END_OF_LIFE, None),
        ("R590", Support.UNKNOWN, None),
        ("R999", Support.UNKNOWN, None),
        ("junk", Support.UNKNOWN, None),
    ],
)
def test_a_branch_ends_with_its_month(driver: str, support: Support, ends: date | None) -> None:
    end = branch_end(driver, TODAY)
    assert (end.support, end.ends) == (support, ends)


def test_the_last_day_of_support_is_still_supported() -> None:
    assert branch_end("R535", date(2026, 6, 30)).support is Support.SUPPORTED
    assert branch_end("R535", date(2026, 7, 1)).support is Support.END_OF_LIFE


def test_what_is_uncertain_about_a_date_is_said() -> None:
    assert "reckoned" in branch_end("R525", TODAY).note
    assert "unconfirmed" in branch_end("R525", TODAY).text


def test_retention_counts_from_the_release() -> None:
    end = branch_end("R580", TODAY)
    assert (end.retention_ends, end.over_retention) == (date(2027, 2, 28), False)
    assert branch_end("R580", date(2027, 3, 1)).over_retention
    without = branch_end("R580", date(2027, 3, 1), replace(load_catalog(), retention_months=None))
    assert (without.retention_ends, without.over_retention) == (None, False)


def test_an_architecture_ends_with_its_last_branch() -> None:
    (volta,) = architecture_end("Tesla V100-SXM2-32GB", TODAY)
    assert (volta.last_branch, volta.last_cuda, volta.ends) == ("R580", "12.9", date(2028, 6, 30))
    (hopper,) = architecture_end("H100", TODAY)
    assert (hopper.last_branch, hopper.ends, hopper.support) == (None, None, Support.SUPPORTED)
    assert len(architecture_end("Kepler", TODAY)) == 2
    (fermi,) = architecture_end("M2090", TODAY)
    assert (fermi.last_branch, fermi.support) == ("R390", Support.UNKNOWN)


def test_nodes_on_an_ended_branch_are_told_where_to_go() -> None:
    rows = _rows(
        NodeSoftware("n2", "train", "NVIDIA H100 80GB HBM3", "535.54.03"),
        NodeSoftware("n1", "train", "HGX-H100-8", "R535"),
    )
    row = rows["driver R535 on Hopper"]
    assert (row.nodes, row.support, row.action) == (("n1", "n2"), Support.END_OF_LIFE, Action.UPDATE_SOFTWARE)
    assert "R620" in row.what_to_do
    assert list(rows) == ["driver R535 on Hopper"]


def test_old_gpus_go_to_their_last_branch_and_their_end_is_a_row_of_its_own() -> None:
    rows = _rows(NodeSoftware("n1", "old", "V100", "535.54.03"))
    assert "R580" in rows["driver R535 on Volta"].what_to_do
    volta = rows["GPU Volta"]
    assert (volta.due, volta.action) == (date(2028, 6, 30), Action.WATCH)
    assert "12.9" in volta.what_to_do


def test_gpus_without_a_supported_branch_are_to_be_replaced() -> None:
    rows = _rows(NodeSoftware("n1", "old", "Tesla K80", "470.82.01"))
    assert rows["driver R470 on Kepler"].action is Action.REPLACE_PART
    assert rows["GPU Kepler"].action is Action.REPLACE_PART


def test_what_is_not_known_is_a_row_that_asks() -> None:
    rows = _rows(NodeSoftware("n1", "p", None, None), NodeSoftware("n2", "p", "H10O", "R999"))
    assert {row.support for row in rows.values()} == {Support.UNKNOWN}
    assert {row.action for row in rows.values()} == {Action.INVESTIGATE}
    assert "H100" in rows["GPU 'H10O'"].why
    assert rows["driver unknown"].nodes == ("n1",)


def test_a_supported_branch_is_watched_until_the_earlier_of_its_two_dates() -> None:
    row = _rows(NodeSoftware("n1", "p", "H100", "580.95.05"))["driver R580 on Hopper"]
    assert (row.action, row.due, row.ends) == (Action.WATCH, date(2027, 2, 28), date(2028, 6, 30))


def test_past_retention_a_supported_branch_is_left_where_another_one_fits() -> None:
    later = date(2027, 3, 1)
    rows = _rows(NodeSoftware("n1", "p", "H100", "580"), NodeSoftware("n2", "p", "V100", "580"), today=later)
    assert rows["driver R580 on Hopper"].action is Action.UPDATE_SOFTWARE
    assert "Keep it" in rows["driver R580 on Volta"].what_to_do


def test_the_earliest_comes_first_and_the_unknown_last() -> None:
    nodes = [
        NodeSoftware("a", "p", "H100", None),
        NodeSoftware("b", "p", "H100", "580"),
        NodeSoftware("c", "p", "H100", "470"),
    ]
    assert [row.nodes for row in lifecycle_rows(nodes, TODAY)] == [("c",), ("b",), ("a",)]


def test_plain_tuples_do_as_nodes() -> None:
    assert lifecycle_rows([("n1", "p", "H100", "580")], TODAY) == lifecycle_rows(
        [NodeSoftware("n1", "p", "H100", "580")], TODAY
    )


def test_an_operators_file_extends_and_overrides_the_catalogue() -> None:
    catalog = extend(load_catalog(), FILE, "ours.yaml")
    assert branch_end("R625", TODAY, catalog).source == "our contract"
    assert branch_end("R590", date(2026, 12, 16), catalog).support is Support.END_OF_LIFE
    assert branch_end("R590", TODAY, catalog).kind == "NFB"
    assert branch_end("R580", TODAY, catalog).retention_ends == date(2027, 8, 31)
    assert architecture_end("orin board", TODAY, catalog)[0].name == "Ampere (8.7)"
    assert judge("T4", "625", catalog=catalog).verdict is Verdict.REFUSED
    assert judge("H100", "625", "14.0", catalog=catalog).verdict is Verdict.OK
    assert judge("H100", "535", "13.0", catalog=catalog).package == "cuda-compat-13-0"
    refused = judge("A100", "525", "13.0", catalog=catalog)
    assert (refused.verdict, refused.rules[0].source) == (Verdict.REFUSED, "the vendor's table")
    assert branch_end("R625", TODAY).support is Support.UNKNOWN


def test_retention_may_be_switched_off() -> None:
    assert extend(load_catalog(), "version: 1\nretention_months: 0\n", "f").retention_months is None
    assert extend(load_catalog(), "version: 1\n", "f").retention_months == 18


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("version: 1\nbranchs: {}\n", 2, "did you mean 'branches'"),
        ("version: 1\nbranches:\n  R625: {ends: 2027-12, source: x}\n", 3, "needs kind"),
        ("version: 1\nbranches:\n  R625: {kind: PB, ends: 2027-13, source: x}\n", 3, "ends"),
        ("version: 1\nbranches:\n  R625: {kind: PB}\n", 3, "source"),
        ("version: 1\nbranches:\n  R625: {kind: LTS, source: x}\n", 3, "kind"),
        ("version: 1\nbranches: {R620: {source: x}, R620: {source: y}}\n", 2, "given 2 times"),
        ('version: 1\narchitectures:\n  "8.7": {source: x}\n', 3, "needs architecture and first_cuda"),
        (
            'version: 1\ngpus:\n  B: {capability: "9.9", gpu_class: consumer, source: x}\n',
            3,
            "no architecture with 9.9",
        ),
        ("version: 1\nretention_months: -1\n", 2, "retention_months"),
        ('version: 1\ntoolkits:\n  "14.0": {packaged_driver: new, minimum_driver: "620", source: x}\n', 3, "no driver"),
        ("- 1\n", 1, "mapping"),
        ("a: [\n", 2, "not YAML"),
    ],
)
def test_every_fault_of_an_operators_file_has_its_line(text: str, line: int, fault: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        extend(load_catalog(), text, "ours.yaml")
    assert any(part.startswith(f"ours.yaml:{line}:") and fault in part for part in str(raised.value).splitlines())


@given(st.text(max_size=60), st.dates())
def test_any_word_and_any_day_get_an_answer(word: str, today: date) -> None:
    assert branch_end(word, today).text
    assert lifecycle_rows([NodeSoftware("n", "p", word, word)], today)


@given(st.text(max_size=80))
def test_any_text_is_a_catalogue_file_or_a_fault(text: str) -> None:
    said = ""
    try:
        extend(load_catalog(), text, "f")
    except ConfigurationError as error:
        said = str(error)
    assert not said or said.startswith("f:")


@pytest.mark.corpus
def test_every_settled_case_of_the_facts_comes_out(shared: Path) -> None:
    cases = [c for c in json.loads((shared / "facts" / "cases.json").read_text()) if c["id"] == "driver_eol"]
    assert cases
    for case in cases:
        end = branch_end(case["input"]["branch"], date.fromisoformat(case["input"]["on"]))
        assert end.support == case["expected"], case


def test_a_retention_beyond_the_calendar_is_its_last_day() -> None:
    text = "version: 1\nbranches:\n  R625: {kind: PB, released: 9999-12, ends: 9999-12, source: a test}\n"
    assert branch_end("R625", TODAY, extend(load_catalog(), text, "own.yaml")).retention_ends == date.max

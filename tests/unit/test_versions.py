from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.versions import Relation, compare, is_same, is_upgrade

_WORDS = {
    "<": Relation.OLDER,
    ">": Relation.NEWER,
    "==": Relation.EQUAL,
    "incomparable": Relation.INCOMPARABLE,
    "unknown": Relation.INCOMPARABLE,
    "equality-only": Relation.EQUALITY_ONLY,
    "missing": Relation.MISSING,
    "same version, other signing key set": Relation.OTHER_KEYS,
    "same base, nvm id differs": Relation.OTHER_BUILD,
}
_FLIPPED = {Relation.OLDER: Relation.NEWER, Relation.NEWER: Relation.OLDER}


@pytest.mark.corpus
def test_every_pair_of_the_corpus_has_its_relation_both_ways(shared: Path) -> None:
    with (shared / "corpus/fwver/compare_public.tsv").open(newline="") as file:
        rows = list(csv.reader((line for line in file if line[0] != "#"), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) > 40
    for a, b, word, *_ in rows[1:]:
        relation = compare(a, b)
        assert (a, b, relation) == (a, b, _WORDS[word])
        assert (b, a, compare(b, a)) == (b, a, _FLIPPED.get(relation, relation))


@pytest.mark.parametrize(
    "text", [None, "", "  ", "NA", "N/A", "[N/A]", "-*", "0", "00", "0.0.0", "Unknown", '""', "FFFF.FFFF"]
)
def test_a_placeholder_is_never_older_newer_or_equal(text: str | None) -> None:
    assert compare(text, "96.00.99.00.01") is Relation.MISSING
    assert compare(text, text) is Relation.MISSING
    assert is_same(text, text) is None
    assert is_upgrade(text, "1.2") is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("535.86.10", "535.104.05"),
        ("96.00.99.00.01", "96.00.a5.00.01"),
        ("1.2.3-beta2", "1.2.3-rc1"),
        ("1.2.3-rc9", "1.2.3-rc10"),
        ("GB200Nvl-25.01-E", "GB200Nvl-25.01-F"),
        ("3.3", "3.3a"),
        ("3.3a", "3.4"),
        ("00.73.1.3", "00.73.1.10"),
        ("0x00 0x0b 0x03 0x04", "0x00 0x10 0x01 0x0f"),
        ("iLO 5 v2.72", "iLO 5 v2.80"),
        ("21.80.9", "21.80.16.95"),
        ("R570", "R580"),
        ("v2.14.0", "v2.14.0-12-gdeadbee"),
    ],
)
def test_versions_of_one_family_are_ordered(older: str, newer: str) -> None:
    assert compare(older, newer) is Relation.OLDER
    assert is_upgrade(older, newer) is True
    assert is_upgrade(newer, older) is False


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("96.00.99.00.01", "97.00.B9.00.69"),  # another chip
        ("G548.0201.00.06", "G520.0200.00.05"),  # another board
        ("20.31.10.14", "28.37.1014"),  # another NIC generation
        ("iLO 5 v2.72", "iLO 6 v1.40"),
        ("96.00.99.00.01", "535.54.03"),
        ("GB200Nvl-25.01-9", "GB200Nvl-25.01-E"),  # a letter build beside a numbered one
        ("0.9", "0.1C"),  # hexadecimal or a letter after: cannot be told
        ("carlonext-bmc_0.82.03", "0.82.03"),
    ],
)
def test_what_has_no_known_order_is_incomparable(a: str, b: str) -> None:
    assert compare(a, b) is Relation.INCOMPARABLE
    assert is_upgrade(a, b) is None
    assert is_same(a, b) is None


def test_a_key_set_or_build_that_only_one_side_tells_does_not_make_them_differ() -> None:
    assert is_same("01.04.0026_n04", "01.04.0026") is True
    assert is_same("01.04.0026_n04", "01.04.0026_n01") is False
    assert is_same("3.50 0x800016DC", "3.50") is True
    assert is_same("3.50 0x800016DC", "3.50 0x80001700") is False
    assert is_upgrade("01.04.0026_n04", "01.04.0026_n01") is False


def test_build_ids_differ_without_an_order() -> None:
    assert is_same("buildbrain-gcid-38635631", "buildbrain-gcid-39000000") is False
    assert is_upgrade("buildbrain-gcid-38635631", "buildbrain-gcid-39000000") is None


_number = st.integers(1, 120)
_one_family = st.one_of(
    st.lists(st.tuples(_number, _number, _number).map(lambda v: f"7.{v[0]}.{v[1]}.{v[2]}"), min_size=3, max_size=3),
    st.lists(
        st.tuples(*[st.integers(0, 255)] * 3).map(lambda v: f"96.00.{v[0]:02X}.{v[1]:02x}.{v[2]:02X}"),
        min_size=3,
        max_size=3,
    ),
    st.lists(st.tuples(_number, _number).map(lambda v: f"HGX-22.10-{v[0] % 4}-rc{v[1]}"), min_size=3, max_size=3),
    st.lists(st.tuples(_number, _number).map(lambda v: f"535.{v[0]:02}.{v[1] % 99:02}"), min_size=3, max_size=3),
)


@given(_one_family)
def test_within_a_family_the_order_is_total_and_transitive(versions: list[str]) -> None:
    a, b, c = sorted(versions)
    orders = (Relation.OLDER, Relation.EQUAL)
    for x, y, z in ((a, b, c), (a, c, b), (b, a, c), (b, c, a), (c, a, b), (c, b, a)):
        assert compare(x, y) in (Relation.OLDER, Relation.EQUAL, Relation.NEWER)
        if compare(x, y) in orders and compare(y, z) in orders:
            assert compare(x, z) in orders


_any_text = st.one_of(
    st.text(max_size=30),
    st.from_regex(
        r"(R|v|HGX-|A42 v)?[0-9a-fA-F]{1,3}([._:-][0-9a-cA-C]{1,4}){0,4}(-rc[0-9]|_n0[1-4])?", fullmatch=True
    ),
)


@given(_any_text, _any_text, _any_text)
def test_no_three_strings_contradict_each_other(a: str, b: str, c: str) -> None:
    assert compare(a, a) in (Relation.EQUAL, Relation.MISSING)
    relation = compare(a, b)
    assert compare(b, a) is _FLIPPED.get(relation, relation)
    if relation is Relation.OLDER and compare(b, c) is Relation.OLDER:
        assert compare(a, c) in (Relation.OLDER, Relation.INCOMPARABLE)

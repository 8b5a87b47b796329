from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import ConfigurationError
from fleet.hostlist import compress, expand


@pytest.mark.corpus
def test_every_expression_of_the_corpus_expands_to_what_it_says(shared: Path) -> None:
    for line in (shared / "corpus/slurm/hostlists_public.tsv").read_text().splitlines():
        text, count, shown = line.split("\t")
        if count == "ERROR":
            with pytest.raises(ConfigurationError):
                expand(text)
            continue
        names = expand(text)
        assert len(names) == int(count), text
        if count != "0":
            assert names[0] == shown.split()[0].split("..")[0]
        if not set(shown.split()) & {"..", "..."} and ".." not in shown and count != "0":
            assert list(names) == shown.split()


def test_padding_is_kept_and_mixed_widths_are_different_hosts() -> None:
    assert expand("n[09-10],n9") == ("n09", "n10", "n9")
    assert expand("n[098-101]") == ("n098", "n099", "n100", "n101")


def test_brackets_multiply_and_may_stand_in_brackets() -> None:
    assert expand("r[0-1]b[2-3]") == ("r0b2", "r0b3", "r1b2", "r1b3")
    assert expand("x[1[0-1],20]") == ("x10", "x11", "x20")


@pytest.mark.parametrize("text", ["", "(null)", "None assigned", "n/a"])
def test_slurms_words_for_no_nodes_are_no_names(text: str) -> None:
    assert expand(text) == ()


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("gpu[09-10", 3, "not closed"),
        ("gpu1]", 4, "without"),
        ("gpu[1-x]", 6, "expected a number"),
        ("gpu[]", 4, "missing"),
        ("gpu[5-3]", 4, "backwards"),
        ("gpu[01-1]", 4, "padded"),
        ("gpu[1-010]", 4, "padded"),
        ("a,,b", 2, "missing"),
        ("a,", 1, "missing"),
        ("gpu[1-999999999]", 4, "mistyped"),
    ],
)
def test_an_error_points_at_the_character(text: str, column: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        expand(text)
    shown, pointer = caught.value.message.splitlines()[1:]
    assert shown == f"  {text}"
    assert pointer.index("^") - 2 == column


def test_names_are_folded_over_every_number() -> None:
    assert compress(expand("rack[0-1]_blade[0-1]")) == "rack[0-1]_blade[0-1]"
    assert compress(["gpu9", "gpu10", "gpu8", "login"]) == "gpu[8-10],login"
    assert compress(["n099", "n100", "n1000"]) == "n[099-100,1000]"
    assert compress([]) == ""


@pytest.mark.parametrize("name", ["", "a b", "a[1]", "a,b"])
def test_a_name_that_no_hostlist_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a host name"):
        compress([name])


_names = st.from_regex(r"[a-c]{1,2}(-?[0-9]{1,4}){0,3}[a-b]?", fullmatch=True)


@given(st.lists(_names, max_size=40))
def test_compressed_names_expand_to_the_same_set_once_each(names: list[str]) -> None:
    text = compress(names)
    assert sorted(expand(text)) == sorted(set(names))
    assert compress(expand(text)) == text

"""What a log, a terminal or pdsh adds to a tool's text is taken away, and JSON is found in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import EVIDENCE_CHARACTERS, by_host, evidence, number, plain_lines, whole


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "\x1b[4m{}\x1b[0m",
        "\ufeff{}",
        "2026-01-02T03:04:05.678Z {}",
        "2026-01-02T03:04:05+01:00 stderr F {}",
        "Jan  2 03:04:05 node7 dcgmi[123]: {}",
        "[1,0]<stdout>:{}",
        "node7: {}",
    ],
)
def test_a_line_is_what_the_tool_printed(line: str) -> None:
    text = "\r\n".join(line.format(words) for words in ("  Link 0: 25 GB/s  ", "Link 1: up"))
    assert plain_lines(text) == ("  Link 0: 25 GB/s", "Link 1: up")


def test_names_that_differ_are_not_taken_for_a_host() -> None:
    text = "Speed: 1\nDuplex: Full"
    assert plain_lines(text) == ("Speed: 1", "Duplex: Full")


def test_several_hosts_are_told_apart() -> None:
    text = "a1: GPU 0: X\na2: GPU 0: Y\na1:   Link 0: up\na2:   Link 0: down\n"
    assert by_host(text) == {"a1": "GPU 0: X\n  Link 0: up\n", "a2": "GPU 0: Y\n  Link 0: down\n"}


@pytest.mark.parametrize("text", ["", "one line", "a: 1\nb: 2\n", "a: 1\na: 2\n", "a: 1\na: 2\nb: 3\nb: 4\nno name\n"])
def test_what_has_no_hosts_is_one_text(text: str) -> None:
    assert by_host(text) == {"": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12.0), ("1.5 GB/s", 1.5), ("15e-255", 1.5e-254), ("N/A", None), ("", None), ("1e999", None), ("nan", None)],
)
def test_a_number_is_finite_or_unknown(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("0x1c2", 450), ("-1", -1), ("7.5", None), ("٣", None), (None, None)]
)
def test_a_whole_number_is_ascii_or_unknown(text: str | None, value: int | None) -> None:
    assert whole(text) == value


@given(st.text(), st.text())
def test_evidence_is_one_printable_line_of_bounded_length(one: str, other: str) -> None:
    shown = evidence(one, other)
    assert shown.isprintable()
    assert len(shown) <= EVIDENCE_CHARACTERS


def _is_wanted(value: object) -> bool:
    return isinstance(value, dict) and "wanted" in value


def test_the_wanted_document_is_found_among_others() -> None:
    found = find_json('[INFO] {"other": 1} {not json} {"wanted": [1, {"a": "}"}]} tail }', _is_wanted)
    assert found is not None
    assert (found.value, found.complete) == ({"wanted": [1, {"a": "}"}]}, True)


@given(st.integers(0, 70))
def test_a_cut_document_has_only_what_was_whole(place: int) -> None:
    whole_one = {"wanted": [{"name": "a", "n": 1}, {"name": "b", "n": 22}], "end": True}
    text = json.dumps(whole_one)
    found = find_json(text[: min(place, len(text) - 1)], _is_wanted)
    if found is not None:
        assert found.complete is False
        assert isinstance(found.value, dict)
        for item, original in zip(found.value["wanted"], whole_one["wanted"], strict=False):  # type: ignore[arg-type]
            assert item.items() <= original.items()


def test_a_number_without_end_is_infinite_and_no_error() -> None:
    found = find_json('{"wanted": 1' + "0" * 6000 + ', "n": 7}', _is_wanted)
    assert found is not None
    assert found.value == {"wanted": float("inf"), "n": 7}


@pytest.mark.parametrize("text", ['{"' * 20000, "[" * 20000, "{" * 20000, '{"a":' * 20000, "", "no json"])
def test_nesting_without_end_is_no_document(text: str) -> None:
    assert find_json(text, _is_wanted) is None


def test_blocks_of_dshbak_and_clush_are_split_by_their_hosts() -> None:
    line = "-" * 15
    text = f"{line}\ngpu-[1-2] (2)\n{line}\na\nb\n{line}\ngpu-3\n{line}\nc\n"
    assert by_host(text) == {"gpu-[1-2]": "a\nb\n", "gpu-3": "c\n"}


def test_a_host_that_could_not_be_asked_does_not_mix_the_others() -> None:
    text = "a1: x\na1: y\na2: x\na2: z\na3: ssh: connect to host a3 port 22: Connection timed out\n"
    assert by_host(text)["a1"] == "x\ny\n"
    assert by_host(text)["a3"].startswith("ssh:")

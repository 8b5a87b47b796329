"""How much `explain` lists, how much work it does for it, and that it says what it left out."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cli.explain
from cli.main import app
from fleet.explain import Piece, answer, explain, pieces
from fleet.findings import Action, Explanation, Finding, Severity
from fleet.readers.causes import Found, ordered
from fleet.readers.kernel_log import read_kernel_log

XID = "[ {n}.500000] NVRM: Xid (PCI:{n:04x}:3b:00): {code}, pid={n}, x\n"


def _lines(of: int, code: int = 13) -> str:
    return "".join(XID.format(n=n, code=code) for n in range(of))


def test_what_is_left_out_is_counted_by_its_code() -> None:
    found = explain(_lines(6000) + _lines(1, 79))
    assert (len(found.findings), len(found.subjects), found.findings[0].code) == (5000, 5000, "xid.79")
    assert any(line.startswith("1001 findings more than are listed here: 1001 of ") for line in found.unknown)
    assert any(line == "1000 subjects more than are listed here" for line in found.unknown)


def test_things_that_cannot_be_told_are_counted_too() -> None:
    found = explain("".join(f"[1.5] NVRM: Xid (PCI:0000:3b:00) {n}x\n" for n in range(3000)))
    assert any("things more that cannot be told and are not listed here" in line for line in found.unknown)
    assert len(found.unknown) <= 2003


def _calls(work: int) -> int:
    """How many functions are called to find the causes among so many faulty parts."""
    found = [
        Found(
            Finding(f"gpu {n:04x}:3b:00", f"xid.{code}", Severity.ERROR, Action.WATCH, ""), 10 * n + at, None, float(n)
        )
        for n in range(work)
        for at, code in enumerate((79, 45, 145, 154))
    ]
    found += [
        Found(Finding(f"switch {n:04x}:06:00.0", "sxid.20034", Severity.FATAL, Action.WATCH, ""), n)
        for n in range(work)
    ]
    found += [
        Found(Finding(f"port {n:04x}:01:00.0", "pcie.aer_fatal", Severity.FATAL, Action.WATCH, ""), n)
        for n in range(work)
    ]
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        ordered(found)
    finally:
        sys.setprofile(None)
    return count


def test_four_times_as_many_faulty_parts_take_four_times_the_work() -> None:
    assert _calls(160) < 5 * _calls(40)


def test_a_fault_of_two_thousand_processes_is_one_event_with_its_count() -> None:
    text = "".join(f"[ {n}.500000] NVRM: Xid (PCI:0000:3b:00): 13, pid={n}, GPC 1, TPC {n}: x\n" for n in range(2_000))
    (event,) = read_kernel_log(text).xids
    assert event.count == 2_000
    assert len(event.pids) <= 256


def test_reading_stops_at_the_deadline_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(text: str) -> Iterator[Piece]:
        yield from pieces(text)
        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(cli.explain, "pieces", cut_off)
    file = tmp_path / "dmesg"
    file.write_text(XID.format(n=1, code=79))
    result = CliRunner().invoke(app, ["explain", "--deadline", "600", "--json", str(file)])
    shown = json.loads(result.stdout)
    assert (result.exit_code, [finding["code"] for finding in shown["findings"]]) == (3, ["xid.79"])
    assert shown["unknown"][0].startswith("the rest of the text: reading it was stopped after 600 s")


def test_of_a_text_that_no_reader_came_to_the_end_of_the_beginning_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(text: str) -> Iterator[Piece]:
        if len(text) > 1000:
            signal.raise_signal(signal.SIGALRM)
        yield from pieces(text)

    monkeypatch.setattr(cli.explain, "pieces", cut_off)
    monkeypatch.setattr(cli.explain, "_BEGINNING", 500)
    file = tmp_path / "dmesg"
    file.write_text(XID.format(n=1, code=79) + "x\n" * 1000)
    shown = CliRunner().invoke(app, ["explain", "--deadline", "600", "--json", str(file)])
    found = json.loads(shown.stdout)
    assert (shown.exit_code, [finding["code"] for finding in found["findings"]]) == (3, ["xid.79"])
    assert "what is told is of its first" in found["unknown"][0]


def test_the_beginning_has_its_seconds_out_of_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def read_in(seconds: float, text: str) -> tuple[list[Piece], bool]:
        given.append(seconds)
        return [], False

    monkeypatch.setattr(cli.explain, "_read_in", read_in)
    monkeypatch.setattr(cli.explain, "_BEGINNING", 500)
    file = tmp_path / "dmesg"
    file.write_text("x\n" * 1000)
    CliRunner().invoke(app, ["explain", "--deadline", "8", "--json", str(file)])
    assert (len(given), sum(given)) == (2, 8.0)


def test_a_deadline_that_is_none_is_refused() -> None:
    for word in ("0", "nan"):
        assert CliRunner().invoke(app, ["explain", f"--deadline={word}"], input="").exit_code == 2, word


def test_nothing_read_before_the_deadline_is_unknown_and_not_well() -> None:
    found = answer([], "the rest of the text: stopped")
    assert found == Explanation("unknown", unknown=("the rest of the text: stopped",))

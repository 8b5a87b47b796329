"""`gpufleet explain`: what a text from a node, a BMC or the scheduler says, and what to do."""

from __future__ import annotations

import gzip
import io
import signal
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

from cli.exit_codes import NOT_FOUND, PROBLEMS
from cli.session import JsonOption, console, errors, exits, plain_table, print_json
from fleet.explain import Piece, answer, pieces
from fleet.findings import DRAINS, Explanation, Finding, Severity

_LARGEST = 64 * 2**20  # bytes of one text; a kernel log of a year is less
_BEGINNING = 256 * 2**10  # characters of a text of which no reader came to its end
_FOR_BEGINNING = 0.25  # of the seconds
_STYLE = {Severity.FATAL: "bold red", Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
_SUBJECTS_SHOWN = 24
_FINDINGS_SHOWN = 500


@exits
def explain(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files; none or - reads standard input.")
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", help="Seconds for each text; then what is known by then is shown.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Say what a text is, what it shows, what cannot be told from it, and what to do.

    Takes what nodes, BMCs and the scheduler print: nvidia-smi (table, -q, XML, CSV), a kernel log, DCGM's JSON
    or tables, a Redfish resource or error body, scontrol and sinfo, ibstat, nvidia-smi nvlink and topo, and more.
    The kind is found from the text itself. No fleet is needed and nothing is changed.

    Example: dmesg | gpufleet explain

    Example: gpufleet explain smi.xml dmesg.txt --json

    Exit codes: 0 explained; 1 a folder, or a file that cannot be read; 3 the kind of a text is not known, or its
    reading was stopped at the deadline; 6 a file is not there.
    """
    if not 0.1 <= deadline <= 86_400:
        raise typer.BadParameter("--deadline takes seconds, 0.1 to 86400")
    readings = [(name, _explained(_read(name), deadline)) for name in files or ["-"]]
    explained = [(name, found) for name, (found, _) in readings]
    if as_json:
        documents = [{"file": name} | as_document(found) for name, found in explained]
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        for name, found in explained:
            _show(name, found)
    if any(found.kind == "unknown" or not whole for _, (found, whole) in readings):
        raise typer.Exit(PROBLEMS)


class _DeadlinePassed(BaseException):
    """Raised wherever the reading is just then: no reader may take it for a fault of the text."""


def _explained(text: str, seconds: float) -> tuple[Explanation, bool]:
    """What the text says as far as it was read in `seconds`, and whether that was all.

    Of a long text a part of the time is kept for its beginning, which is read alone where nothing else was.
    """
    kept = seconds * _FOR_BEGINNING if len(text) > _BEGINNING else 0.0
    found, whole = _read_in(seconds - kept, text)
    if whole:
        return answer(found), True
    why = f"the rest of the text: reading it was stopped after {seconds - kept:g} s; --deadline gives it longer"
    if kept and not any(piece.said for piece in found):
        found, _ = _read_in(kept, text[:_BEGINNING])
        why += f"; what is told is of its first {_BEGINNING >> 10} KiB"
    return answer(found, stopped=why), False


def _read_in(seconds: float, text: str) -> tuple[list[Piece], bool]:
    found: list[Piece] = []
    try:
        with _deadline(seconds):
            for piece in pieces(text):
                found.append(piece)
    except _DeadlinePassed:
        return found, False
    return found, True


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Ends the block with `_DeadlinePassed` after so many seconds, in the midst of an expression if need be."""
    if threading.current_thread() is not threading.main_thread():  # no signal reaches another thread
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _DeadlinePassed

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def as_document(found: Explanation) -> dict[str, object]:
    """The JSON of one text: kind, subjects with their facts, findings, unknown."""
    return {
        "kind": found.kind,
        "subjects": [{"name": subject.name, "facts": dict(subject.facts)} for subject in found.subjects],
        "findings": [asdict(finding) | {"drain_first": finding.action in DRAINS} for finding in found.findings],
        "unknown": list(found.unknown),
    }


def _read(name: str) -> str:
    if name == "-":
        return _decoded(sys.stdin.buffer.read(_LARGEST + 1), "standard input")
    path = Path(name)
    if not path.exists():  # a pipe will do: gpufleet explain <(ssh gpu-0012 dmesg)
        errors.print(f"error: no file {name}", style="red", highlight=False, markup=False)
        raise typer.Exit(NOT_FOUND)
    with path.open("rb") as file:
        return _decoded(file.read(_LARGEST + 1), name)


def _decoded(content: bytes, name: str) -> str:
    """UTF-8, UTF-16 with its mark, or what comes near; gzip is opened. Only the first 64 MiB are read."""
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(_LARGEST + 1)
        except (OSError, EOFError, zlib.error):
            errors.print(f"{name}: a damaged gzip file", highlight=False, markup=False)
    if len(content) > _LARGEST:
        errors.print(f"{name}: only its first {_LARGEST >> 20} MiB are read", highlight=False, markup=False)
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    return content[:_LARGEST].decode("utf-16" if wide else "utf-8", errors="replace")


def _show(name: str, found: Explanation) -> None:
    console.print(f"{name}: {found.kind}", style="bold", highlight=False, markup=False)
    rows = ((subject.name, ", ".join(f"{k} {v}" for k, v in subject.facts.items())) for subject in found.subjects)
    shown = [row for row in rows if row[1]]
    if shown:
        console.print(plain_table(("subject", "what it says"), shown[:_SUBJECTS_SHOWN]))
    if len(shown) > _SUBJECTS_SHOWN:
        console.print(f"and {len(shown) - _SUBJECTS_SHOWN} more; --json has them all")
    for finding in found.findings[:_FINDINGS_SHOWN]:
        console.print(_finding_text(finding), soft_wrap=True)
    if len(found.findings) > _FINDINGS_SHOWN:
        console.print(
            f"and {len(found.findings) - _FINDINGS_SHOWN} more findings, none of them graver; --json has them all"
        )
    if not found.findings and found.kind != "unknown":
        console.print("nothing wrong is told by it", highlight=False)
    for line in found.unknown:
        console.print(f"cannot be told: {line}", style="cyan", highlight=False, markup=False, soft_wrap=True)


def _finding_text(finding: Finding) -> Text:
    text = Text(f"{finding.severity.value:7} ", style=_STYLE[finding.severity])
    text.append(f"{finding.subject}: {finding.code}", style="bold")
    text.append(f"  {finding.text}" if finding.text else "")
    first = "drain it, then " if finding.action in DRAINS else ""
    text.append(f"\n        do: {first}{finding.action.value.replace('_', ' ')}")
    text.append(f"\n        from: {finding.evidence}", style="dim")
    return text

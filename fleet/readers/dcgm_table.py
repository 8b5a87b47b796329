"""The table of `dcgmi diag`: "Pass - All" and "Fail - GPU: 0" up to 3.x, one "GPU0: Pass" row a part since 4.x.

Source: NVIDIA/DCGM dcgmi/Diag.cpp. A message is cut into rows of 45 characters, in the midst of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fleet.readers.dcgm_diag import DiagReport, DiagResult, DiagTest, DiagWarning, entities_in, entity_name, result_of
from fleet.readers.plain_text import any_of, plain_lines

_SECTION = re.compile(r"[|+]-{3,}\s+([A-Za-z][\w /]*?)\s+-{3,}\+")
_ROW = re.compile(r"\|([^|]*)\|(.*)$")
_RESULT = re.compile(r"(pass|fail|warn|skip|not[ _]run)(?:ed|ped)?\b\s*(?:-\s*(.*))?$", re.IGNORECASE)
_PART = re.compile(r"(GPU|CPU|NVSwitch|Switch)s?[ :]*(\d+)\s*:\s*(.+)$", re.IGNORECASE)
_MESSAGE = re.compile(r"(warning|error|info)s?\b\s*[:-]?\s*(.*)$", re.IGNORECASE)
_WRAP = 45


@dataclass(slots=True)
class _Test:
    """A test while its rows are read: results by part (None: all), and its messages (kind, place, pieces)."""

    category: str | None
    name: str
    results: list[tuple[str | None, DiagResult]] = field(default_factory=list)
    messages: list[tuple[str, str, list[str]]] = field(default_factory=list)


def has_table(text: str) -> bool:
    """Is there a table of a diagnostic in it, whole or in part?"""
    if not any_of((" - ", "GPU", "Diagnostic"), text) or "|" not in text:
        return False
    if re.search(r"\|\s*Diagnostic\s*\|\s*Result\s*\|", text):
        return True
    parts = r"\|[ ]*(?:Pass|Fail|Skip|Warn) - (?:All\b|[A-Z][A-Za-z]+s?: ?\d)|\|[ ]*GPU\d+: (?:Pass|Fail|Skip|Warn)"
    return re.search(parts, text) is not None


def read_diag_table(text: str) -> DiagReport:
    """The run. A table without its closing frame has `complete` False; an excerpt of rows None."""
    lines = plain_lines(text)
    category: str | None = None
    facts: dict[str, str] = {}
    tests: list[_Test] = []
    for line in lines:
        section = _SECTION.search(line)
        row = _ROW.search(line)
        if section:
            category = section[1].strip()
        elif row and (row[1].strip(), row[2].strip(" |")) != ("Diagnostic", "Result"):
            _take(row[1].strip(), row[2], category, facts, tests)
    return DiagReport(
        version=facts.get("DCGM Version"),
        driver=facts.get("Driver Version Detected"),
        tests=tuple(result for test in tests for result in _finish(test)),
        complete=_complete(lines),
        device_ids=tuple(dict.fromkeys(re.findall(r"[0-9a-fA-F]{4}\b", facts.get("GPU Device IDs Detected", "")))),
    )


def _complete(lines: tuple[str, ...]) -> bool | None:
    """The frame closes a run; without a heading the text is an excerpt, of which that cannot be told."""
    filled = [line.strip() for line in lines if line.strip().startswith(("|", "+"))]
    closed = bool(filled) and re.fullmatch(r"\+[-+]+\+", filled[-1]) is not None
    return closed if any("Diagnostic" in line and "Result" in line for line in filled) else closed or None


def _take(left: str, cell: str, category: str | None, facts: dict[str, str], tests: list[_Test]) -> None:
    right = cell.split("|")[0]
    value = right.strip()
    if category == "Metadata" or left.startswith(("DCGM Version", "Driver Version", "GPU Device")):
        if left:
            facts[left] = value
        elif facts:
            last = list(facts)[-1]
            facts[last] += f" {value}"
        return
    message = _MESSAGE.match(left)
    result = _RESULT.match(value)
    if message and tests:
        tests[-1].messages.append((message[1].casefold(), message[2], [_piece(right)]))
    elif left and (result or not value):
        tests.append(_Test(category, left))
        tests[-1].results += _results(value)
    elif not left and tests:
        _continue(tests[-1], value, right)


def _continue(test: _Test, value: str, right: str) -> None:
    """A row without a name: a further result, or more of the last message."""
    part = _PART.match(value)
    results = [] if test.messages else _results(value)
    if part and result_of(part[3]) is not DiagResult.UNKNOWN:
        test.results.append((entity_name(part[1], part[2]), result_of(part[3])))
    elif results:
        test.results += results
    elif re.match(r"(?:warning|error)\b", value, re.IGNORECASE) and not test.messages:
        test.messages.append(("warning", "", [_piece(right)]))
    elif test.messages:
        test.messages[-1][2].append(_piece(right))


def _piece(cell: str) -> str:
    """What of a message a cell holds: its 45 characters, with the blank at their end where the message has one."""
    inner = cell[1:] if cell.startswith(" ") else cell
    return inner[:_WRAP] if len(inner) == _WRAP + 2 and not inner[_WRAP:].strip() else inner


def _results(value: str) -> list[tuple[str | None, DiagResult]]:
    found = _RESULT.match(value)
    if found is None:
        return []
    result, where = result_of(found[1]), (found[2] or "").strip()
    numbers = re.findall(r"\d+", where)
    group = re.match(r"[A-Za-z]+?(?=s?\b)", where)
    if not numbers:
        return [(None, result)]
    return [(entity_name(group[0] if group else "gpu", number), result) for number in numbers]


def _finish(test: _Test) -> Iterable[DiagTest]:
    """The test's results, each with the messages that name its part; the rest goes to the parts that failed."""
    plain = [DiagTest(test.category, test.name, entity, result) for entity, result in test.results]
    parts = [one for one in plain if one.entity is not None]
    if parts and any(one.entity is None for one in plain):
        plain = [one for one in plain if one.entity is not None or one.result not in {part.result for part in parts}]
    plain = plain or [DiagTest(test.category, test.name, None, DiagResult.UNKNOWN)]
    for kind, where, pieces in test.messages:
        text = " ".join("".join(pieces).split())
        named = entities_in(f"{where} {text}")
        bad = [one for one in plain if one.result in (DiagResult.FAIL, DiagResult.WARN)] or plain
        fits = [one for one in bad if one.entity in named] or [one for one in bad if one.entity is None] or bad
        for one in fits:
            place = plain.index(one)
            if kind == "info":
                plain[place] = replace(one, info=(*one.info, text))
            else:
                plain[place] = replace(one, warnings=(*one.warnings, DiagWarning(text)))
    return plain

"""Hostlists, as Slurm writes them: `gpu[001-004,007]`, `rack[0-1]_blade[0-1]`, both ways.

Source of the grammar: Slurm's "Host range" notation (`man scontrol`, `show hostlist`); brackets inside
brackets are allowed here as well. Padding is kept: `node1` and `node01` are different hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from fleet.errors import ConfigurationError

MAX_NAMES = 200_000
"""A longer list is taken for a typing error."""

_NOBODY = frozenset({"", "(null)", "none", "none assigned", "n/a"})  # Slurm's words for "no nodes"
_SEPARATORS = ", \t\r\n"
_DIGITS = re.compile(r"([0-9]+)")


def expand(text: str) -> tuple[str, ...]:
    """The names in the order of the text; duplicates stay, as they do in Slurm.

    Slurm's words for "no nodes" (`(null)`, `None assigned`) give an empty tuple. Raises
    ConfigurationError whose second and third line point at the character that is wrong.
    """
    if text.strip().lower() in _NOBODY:
        return ()
    reader = _Reader(text)
    names: list[str] = []
    while True:
        reader.skip_blanks()
        names += reader.item()
        if len(names) > MAX_NAMES:
            reader.fail(0, f"more than {MAX_NAMES} names; is a range mistyped?")
        if not reader.next_item():
            return tuple(names)


class _Reader:
    """A cursor over one hostlist."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, at: int, what: str) -> None:
        line = re.sub(r"\s", " ", self.text)
        shown = line[max(0, at - 60) : at + 20]
        raise ConfigurationError(f"hostlist: {what}\n  {shown}\n  {' ' * min(at, 60)}^")

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def next_item(self) -> bool:
        """Step over the separators; False at the end."""
        start = self.at
        self.skip_blanks()
        if self.at < len(self.text) and self.text[self.at] == ",":
            self.at += 1
            self.skip_blanks()
            if self.at == len(self.text):
                self.fail(start, "a name is missing after this comma")
        return self.at < len(self.text)

    def item(self) -> list[str]:
        """Literals and brackets up to a separator, multiplied out."""
        start = self.at
        parts: list[list[str]] = []
        size = 1
        while self.at < len(self.text) and self.text[self.at] not in _SEPARATORS:
            here = self.at
            parts.append(self.bracket() if self.text[here] == "[" else [self.literal()])
            size *= len(parts[-1])
            if size > MAX_NAMES:
                self.fail(here, f"more than {MAX_NAMES} names; is a range mistyped?")
        if not parts:
            self.fail(start, "a name is missing here")
        return ["".join(choice) for choice in product(*parts)]

    def literal(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in "[]" + _SEPARATORS:
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] == "]":
            self.fail(self.at, "']' without '['")
        return self.text[start : self.at]

    def bracket(self) -> list[str]:
        opened = self.at
        self.at += 1
        values: list[str] = []
        while True:
            values += self.alternative(opened)
            if len(values) > MAX_NAMES:
                self.fail(opened, f"more than {MAX_NAMES} names; is a range mistyped?")
            mark, self.at = self.text[self.at], self.at + 1
            if mark == "]":
                return values

    def alternative(self, opened: int) -> list[str]:
        """One entry between brackets: a number, a range, or numbers with brackets of their own."""
        parts: list[list[str]] = []
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",]":
            if self.text[self.at] == "[":
                parts.append(self.bracket())
                continue
            first = self.at
            while self.at < len(self.text) and self.text[self.at] not in "[],":
                self.at += 1
            parts.append(self.numbers(first))
        if self.at == len(self.text):
            self.fail(opened, "'[' is not closed")
        if not parts:
            self.fail(start, "a number or a range is missing here")
        return ["".join(choice) for choice in product(*parts)]

    def numbers(self, start: int) -> list[str]:
        """`7`, `007` or `01-16`, which ends at the cursor."""
        text = self.text[start : self.at]
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
        if match is None:
            wrong = re.match(r"[0-9]*(?:-[0-9]*)?", text)
            self.fail(start + (wrong.end() if wrong else 0), "expected a number or a range like 01-16")
            return []
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            self.fail(start, f"the range {text} runs backwards")
        if len(high) < len(low) or (high.startswith("0") and len(high) != len(low)):
            self.fail(start, f"the ends of {text} are padded to different widths")
        if int(high) - int(low) >= MAX_NAMES:
            self.fail(start, f"more than {MAX_NAMES} names; is a range mistyped?")
        return [str(value).zfill(len(low)) for value in range(int(low), int(high) + 1)]


def compress(names: Iterable[str]) -> str:
    """The shortest hostlist that this module finds, sorted, without duplicates; "" for no names.

    `expand` gives back the same set. Raises ConfigurationError for a name that no hostlist can hold.
    """
    shapes: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in set(names):
        if not name or any(mark in name for mark in "[]" + _SEPARATORS):
            raise ConfigurationError(f"{name!r} is not a host name: it is empty or holds a bracket, comma or blank")
        parts = _DIGITS.split(name)
        shapes.setdefault(tuple(parts[::2]), []).append(tuple(parts[1::2]))
    items: list[tuple[tuple[object, ...], str]] = []
    for literals, numbers in shapes.items():
        for folded in _fold(numbers):
            text = literals[0] + "".join(n + rest for n, rest in zip(folded, literals[1:], strict=True))
            items.append((_natural(text), text))
    return ",".join(text for _, text in sorted(items))


def _fold(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Join rows that differ in one column only, the last column first."""
    folded = rows
    for column in reversed(range(len(rows[0]))):
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in folded:
            groups.setdefault((*row[:column], *row[column + 1 :]), []).append(row[column])
        folded = [(*key[:column], _ranges(values), *key[column:]) for key, values in groups.items()]
    return folded


def _ranges(values: list[str]) -> str:
    """Digit strings of one column as `[001-004,007]`; a lone value stays bare."""
    if len(values) == 1:
        return values[0]
    runs: list[list[str]] = []
    for value in sorted(values, key=lambda text: (len(text), text)):
        last = runs[-1] if runs else None
        if last is not None and int(value) == int(last[1]) + 1 and _same_padding(last[0], last[1], value):
            last[1] = value
        else:
            runs.append([value, value])
    return "[" + ",".join(low if low == high else f"{low}-{high}" for low, high in runs) + "]"


def _same_padding(low: str, high: str, value: str) -> bool:
    """May `value` prolong low-high? Across a width (9 → 10) only where nothing is padded."""
    return len(value) == len(high) if low.startswith("0") and len(low) > 1 else not value.startswith("0")


def _natural(text: str) -> tuple[object, ...]:
    parts = _DIGITS.split(text)
    return tuple((int(part), len(part)) if index % 2 else part for index, part in enumerate(parts))

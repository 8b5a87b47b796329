"""How Slurm writes durations, times and sizes, and how it lays out columns."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from simulator.clock import SimClock

Row = TypeVar("Row")
_FIELD = re.compile(r"%(#)?(\.)?(\d+)?([A-Za-z])")


def clock_text(clock: SimClock, at: float | None, missing: str = "Unknown") -> str:
    return missing if at is None else clock.wall(at).strftime("%Y-%m-%dT%H:%M:%S")


def long_duration(seconds: float | None) -> str:
    """`1-02:03:04`, `02:03:04`, as scontrol writes it; UNLIMITED for None."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def short_duration(seconds: float | None) -> str:
    """`1-02:03:04`, `2:03:04`, `3:04`, as squeue writes it."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(int(seconds), 86400)
    if days:
        return long_duration(seconds)
    if rest >= 3600:
        return f"{rest // 3600}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{rest // 60}:{rest % 60:02d}"


def parse_limit(text: str) -> float | None:
    """Seconds of sbatch's --time; None for UNLIMITED. Raises ValueError."""
    if text.upper() in {"UNLIMITED", "INFINITE", "0"}:
        return None
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        raise ValueError(f"Invalid --time specification {text}")
    days, first, second, third = (int(part) if part else None for part in found.groups())
    assert first is not None
    if days is not None:
        return float(days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0))
    if third is not None:
        return float(first * 3600 + (second or 0) * 60 + third)
    return float(first * 60 + (second or 0))


def user_id(user: str) -> int:
    """A uid that stays the same for a name."""
    return 0 if user == "root" else 1000 + zlib.crc32(user.encode()) % 50000


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its title and how a row fills it."""

    title: str
    value: Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A field of a format: `width` 0 is as wide as its text; `after` is the text behind it."""

    letter: str
    width: int
    right: bool
    after: str

    def show(self, text: str) -> str:
        if not self.width:
            return text + self.after
        cut = text[: self.width]
        return (cut.rjust(self.width) if self.right else cut.ljust(self.width)) + self.after


def parse_format(text: str) -> tuple[str, list[Cell]]:
    """`%.18i %j` → the text in front and the fields."""
    found = list(_FIELD.finditer(text))
    if not found:
        return text, []
    ends = [(match.end(), follower.start()) for match, follower in pairwise(found)]
    ends.append((found[-1].end(), len(text)))
    cells = [
        Cell(match[4], int(match[3] or 0), match[2] is not None, text[start:end])
        for match, (start, end) in zip(found, ends, strict=True)
    ]
    return text[: found[0].start()], cells


def table(text: str, columns: dict[str, Column[Row]], rows: Sequence[Row], header: bool, command: str) -> str:
    """Rows in a `-o` format. Raises ValueError for a letter that the command does not have."""
    front, cells = parse_format(text)
    for cell in cells:
        if cell.letter not in columns:
            raise ValueError(f"{command}: error: Invalid job format specification: {cell.letter}")
    lines = ["".join(cell.show(columns[cell.letter].title) for cell in cells)] if header else []
    lines += ["".join(cell.show(columns[cell.letter].value(row)) for cell in cells) for row in rows]
    return "".join(f"{front}{line}\n" for line in lines)

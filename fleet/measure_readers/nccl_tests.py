"""The bus bandwidth of one run of nccl-tests, in GB/s, over what `fleet.readers.nccl_tests` reads of its table.

The value is that of the largest size, the mean of out-of-place and in-place where both are there: for a run of one
size it is the tool's own average. A run with wrong results, with fewer GPUs, or without its last lines measured
nothing. Columns of -I (per iteration, since 2.19) and -T (time of day) are taken away first.
Source: NVIDIA/nccl-tests src/common.cu and src/util.cu, tags v2.9.0 to v2.19.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fleet.measure_readers.values import Measured, ToolReading, measured, short_lines
from fleet.readers.nccl_tests import NcclRow, NcclRun, read_nccl
from fleet.readers.plain_text import evidence

_RANK = re.compile(r"^\[[\w.@-]+,\d+\]\s*(?:<std(?:out|err)>)?:?\s?")
_HEADING = re.compile(r"^#\s+size\s+count\b")
_TIME_OF_DAY = re.compile(r"\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\s*$")
_VERSION = re.compile(r"# nccl-tests version (\S+)")
_FAILED = re.compile(r"Test (?:NCCL|CUDA) failure")
_REFUSED = re.compile(r"Invalid number of GPUs: \d+ requested but only \d+|CUDA error|No devices? (?:was |were )?found")
_HALF = 4  # columns of each half: time, algbw, busbw, #wrong
_COLUMNS = re.compile(r"\b(?:cpu)?time\s+algbw\s+busbw\s+(?:#wrong|error)\b")


def nccl_value(text: str, gpus: int | None = None) -> ToolReading:
    """The bus bandwidth of the largest size in the text; `gpus` is how many the run must have had."""
    lines = [_RANK.sub("", line) for line in short_lines(text)]
    run = read_nccl("\n".join(_without_extras(lines)))
    version = next((found[1] for line in lines if (found := _VERSION.search(line))), None)
    tool = f"nccl-tests {version}" if version else "nccl-tests"
    return ToolReading((_value(run, lines, gpus),), tool, {})


def _value(run: NcclRun, lines: Sequence[str], gpus: int | None) -> Measured:
    name = f"{run.collective or 'nccl-tests'}"
    failure = next((line.strip() for line in lines if _FAILED.search(line) or _REFUSED.search(line)), None)
    last = max(run.rows, key=lambda row: row.size_bytes, default=None)
    wrong = sum((row.wrong or 0) + (row.in_place_wrong or 0) for row in run.rows) or run.out_of_bounds or 0
    if failure is not None:
        missing = evidence(f"{name} failed: {failure}")
    elif wrong:
        missing = f"{name} gave {wrong} wrong values: its bandwidth says nothing"
    elif last is None or not run.complete:
        said = "; ".join(run.errors) or "its output ends before the summary"
        missing = evidence(f"{name} did not run to its end: {said}")
    elif gpus is not None and run.ranks is not None and run.ranks != gpus:
        missing = f"{name} ran on {run.ranks} of {gpus} GPUs"
    else:
        return measured(None, _both(last), f"{name} printed no bus bandwidth for its largest size")
    return Measured(None, None, missing)


def _both(row: NcclRow) -> float | None:
    known = [value for value in (row.bus_gb_s, row.in_place_bus_gb_s) if value is not None]
    return sum(known) / len(known) if known else None


def _without_extras(lines: Sequence[str]) -> Iterator[str]:
    """The table with the columns that every version has: time, algbw, busbw and #wrong, twice."""
    extra = 0
    for line in lines:
        if _HEADING.match(line):
            ends = [found.end() for found in _COLUMNS.finditer(line)]
            extra = len(line[ends[0] :].split()) - _HALF if len(ends) == 1 else _between(line, ends)
            yield line
            continue
        line = _TIME_OF_DAY.sub("", line)
        yield _cut(line, extra) if extra > 0 and line[:1] in " 0123456789" else line


def _between(line: str, ends: Sequence[int]) -> int:
    """How many columns stand between the halves' own."""
    starts = [found.start() for found in _COLUMNS.finditer(line)]
    return len(line[ends[0] : starts[1]].split()) if len(starts) > 1 else 0


def _cut(line: str, extra: int) -> str:
    words = line.split()
    first = len(words) - 2 * (_HALF + extra)
    if first < 3:
        return line
    halves = [words[first + at : first + at + _HALF] for at in (0, _HALF + extra)]
    return "  ".join(words[:first] + halves[0] + halves[1])

"""The output of nccl-tests (and rccl-tests): all versions' columns, with ranks' prefixes and NCCL's log between.

Source: NVIDIA/nccl-tests src/common.cu. Old versions have no column for the root; "#wrong" is N/A where nothing was
checked, and that is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.readers.plain_text import any_of, number, plain_lines


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One size. Bandwidths are GB/s, out of place then in place; `wrong` is None where nothing was checked."""

    size_bytes: int
    time_us: float | None
    algorithm_gb_s: float | None
    bus_gb_s: float | None
    wrong: int | None
    in_place_bus_gb_s: float | None = None
    in_place_wrong: int | None = None

    @property
    def best_bus_gb_s(self) -> float | None:
        known = [value for value in (self.bus_gb_s, self.in_place_bus_gb_s) if value is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True)
class NcclRun:
    """A whole run. `collective` is as in bus_bandwidth ("all_reduce"), None where the text does not say;
    `average_bus_gb_s` is the tool's own mean over all sizes, small ones too; `out_of_bounds` its count of wrong values;
    `complete` whether its last lines are there."""

    rows: tuple[NcclRow, ...] = ()
    collective: str | None = None
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    average_bus_gb_s: float | None = None
    out_of_bounds: int | None = None
    errors: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.average_bus_gb_s is not None

    @property
    def peak(self) -> NcclRow | None:
        """The size with the highest bus bandwidth."""
        measured = [row for row in self.rows if row.best_bus_gb_s is not None]
        return max(measured, key=lambda row: row.best_bus_gb_s or 0.0, default=None)


_RANK = re.compile(r"#\s*Rank\s+(\d+).*?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\]\s*(.*)$")
_ROW = re.compile(r"^\s*(?:\d+: +)?(\d+)\s+(\d+)\s+([a-z]\w*)\s+(.*)$")
_ERROR = re.compile(r"(Test (?:NCCL|CUDA) failure.*|.*NCCL WARN .*|.*unhandled (?:cuda|system) error.*|.*Bus error.*)")
_COLLECTIVE = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf\b"
)


def is_nccl(text: str) -> bool:
    """Is it the output of one of nccl-tests?"""
    if not any_of(("algbw", "Avg bus bandwidth", "nThread ", "Test NCCL failure"), text):
        return False
    return re.search(r"algbw\s+busbw|#\s*Avg bus bandwidth|#\s*nThread \d+ nGpus|Test NCCL failure", text) is not None


def read_nccl(text: str) -> NcclRun:
    """The run. Text without one gives a run without rows."""
    rows, ranks, errors = [], {}, []
    average: float | None = None
    bounds: int | None = None
    for line in plain_lines(text):
        rank, row, error = _RANK.search(line), _ROW.match(line), _ERROR.search(line)
        mean = re.search(r"#\s*Avg bus bandwidth\s*:\s*(\S+)", line)
        wrong = re.search(r"#\s*Out of bounds values\s*:\s*(\d{1,18})", line)
        if rank:
            ranks[int(rank[1][:9])] = (rank[2], rank[3].strip())
        elif mean:
            average = number(mean[1])
        elif wrong:
            bounds = int(wrong[1])
        elif error:
            errors.append(line.strip())
        elif row:
            read = _row(int(row[1][:18]), row[4].split())
            rows += [read] if read else []
    collective = _COLLECTIVE.search(text)
    return NcclRun(
        rows=tuple(rows),
        collective=collective[1] if collective else None,
        ranks=len(ranks) or None,
        hosts=tuple(dict.fromkeys(host for host, _ in ranks.values())),
        gpus=tuple(dict.fromkeys(gpu for _, gpu in ranks.values() if gpu)),
        average_bus_gb_s=average,
        out_of_bounds=bounds,
        errors=tuple(dict.fromkeys(errors)),
    )


def _row(size: int, words: Sequence[str]) -> NcclRow | None:
    """The figures behind the type: a word for the operation and the root come first, as far as the version has them.

    Each half is time, algbw, busbw and #wrong; a line that was cut in its second half keeps its first.
    """
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"\d+\.\d+|\d{3,}", word)), None)
    while at is not None and at > 0 and len(words) - at < 4:
        at -= 1
    if at is None or len(words) - at < 3:
        return None
    if len(words) - at > 8:
        at = len(words) - 8
    first, second = words[at : at + 4], words[at + 4 : at + 8]
    return NcclRow(
        size,
        number(first[0]),
        number(first[1]),
        number(first[2]),
        _count(first[3:]),
        number(second[2]) if len(second) > 2 else None,
        _count(second[3:]),
    )


def _count(words: Sequence[str]) -> int | None:
    """The number of wrong values, which old versions print as 0e+00; None for N/A and for nothing."""
    value = number(words[0]) if words else None
    return None if value is None else int(value)

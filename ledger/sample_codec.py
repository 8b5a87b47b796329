"""Numbers of one node as bytes: little for what does not change, exact for what does. Pure.

A block is an array of doubles, NaN where nothing was read, with the bytes of equal weight put side by side and
then deflated: neighbouring columns resemble each other in their high bytes, and unused columns cost nothing.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NAN = math.nan
_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Summary:
    """Columns over a span of time. `counts` says how many numbers went in; where it is 0 the others are NaN."""

    counts: Sequence[float]
    minima: Sequence[float]
    means: Sequence[float]
    maxima: Sequence[float]
    lasts: Sequence[float]


def pack(numbers: Sequence[float], level: int = 1) -> bytes:
    """`numbers` as a block; `level` is zlib's."""
    values = array("d", numbers)
    if sys.byteorder == "big":
        values.byteswap()
    raw = values.tobytes()
    return zlib.compress(b"".join(raw[plane::_WIDTH] for plane in range(_WIDTH)), level)


def unpack(block: bytes) -> Sequence[float]:
    """All numbers of a block."""
    planes = zlib.decompress(block)
    size = len(planes) // _WIDTH
    raw = bytearray(len(planes))
    for plane in range(_WIDTH):
        raw[plane::_WIDTH] = planes[plane * size : (plane + 1) * size]
    values = array("d")
    values.frombytes(bytes(raw))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pick(block: bytes, columns: Sequence[int]) -> list[float]:
    """Some numbers of a block, without unpacking the rest."""
    planes = zlib.decompress(block)
    size = len(planes) // _WIDTH
    return [struct.unpack("<d", planes[column::size])[0] for column in columns]


def pack_summary(summary: Summary) -> bytes:
    """Means are kept to seven digits: a mean has no more, and the rest would not deflate."""
    means = array("f", summary.means)
    return pack([*summary.counts, *summary.minima, *means, *summary.maxima, *summary.lasts], level=6)


def unpack_summary(block: bytes) -> Summary:
    values = unpack(block)
    size = len(values) // 5
    return Summary(*(values[start : start + size] for start in range(0, 5 * size, size)))


def summarise(rows: Sequence[Sequence[float]]) -> Summary:
    """Samples of equal width, oldest first, as one span."""
    columns = [_of_column(column) for column in zip(*rows, strict=True)]
    return _transposed(columns)


def combine(spans: Sequence[Summary]) -> Summary:
    """Consecutive spans of equal width, oldest first, as one."""
    parts = ((span.counts, span.minima, span.means, span.maxima, span.lasts) for span in spans)
    flat = [list(zip(*part, strict=True)) for part in parts]
    return _transposed([_of_spans(column) for column in zip(*flat, strict=True)])


_Cell = tuple[float, float, float, float, float]
_EMPTY: _Cell = (0.0, NAN, NAN, NAN, NAN)


def _of_column(column: Iterable[float]) -> _Cell:
    there = [value for value in column if value == value]
    if not there:
        return _EMPTY
    low, high = min(there), max(there)
    mean = low if low == high else math.fsum(there) / len(there)
    return float(len(there)), low, mean, high, there[-1]


def _of_spans(column: Sequence[_Cell]) -> _Cell:
    there = [cell for cell in column if cell[0]]
    if not there:
        return _EMPTY
    count = math.fsum(cell[0] for cell in there)
    low, high = min(cell[1] for cell in there), max(cell[3] for cell in there)
    mean = low if low == high else math.fsum(cell[0] * cell[2] for cell in there) / count
    return count, low, mean, high, there[-1][4]


def _transposed(columns: Sequence[_Cell]) -> Summary:
    if not columns:
        return Summary((), (), (), (), ())
    counts, minima, means, maxima, lasts = zip(*columns, strict=True)
    return Summary(counts, minima, means, maxima, lasts)

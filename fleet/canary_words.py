"""The sentences of a verdict: plain, with the figures that they rest on."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.errors import ConfigurationError
from fleet.hostlist import compress


def percent(share: float) -> str:
    """A share's size in percent, with as many digits as it is worth."""
    size = abs(share) * 100
    return f"{size:.0f} %" if size >= 10 else f"{size:.1f} %"


def change(share: float) -> str:
    """ "4.9 % lost" or "0.3 % gained"."""
    return f"{percent(share)} {'lost' if share < 0 else 'gained'}"


def bounds(low: float | None, high: float | None) -> str:
    """An interval of shares, with signs."""
    ends = ["open" if end is None else f"{end * 100:+.1f} %" for end in (low, high)]
    return f"{ends[0]} to {ends[1]}"


def hosts(nodes: Iterable[str]) -> str:
    """Node names as a hostlist where they have the form of one."""
    names = list(nodes)
    try:
        return compress(names)
    except ConfigurationError:
        return ", ".join(names)


def count(number: int, noun: str) -> str:
    """ "1 node", "2 nodes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""The units of acceptance values and limits, so that a rate in MB/s is never held against one in GB/s."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FAMILIES: Mapping[str, Mapping[str, float]] = {
    "rate": {
        "b/s": 1.0,
        "kb/s": 1e3,
        "mb/s": 1e6,
        "gb/s": 1e9,
        "tb/s": 1e12,
        "kib/s": 2.0**10,
        "mib/s": 2.0**20,
        "gib/s": 2.0**30,
        "tib/s": 2.0**40,
        "kbit/s": 1e3 / 8,
        "mbit/s": 1e6 / 8,
        "gbit/s": 1e9 / 8,
        "tbit/s": 1e12 / 8,
    },
    "compute": {"mflop/s": 1e6, "gflop/s": 1e9, "tflop/s": 1e12, "pflop/s": 1e15},
    "power": {"mw": 1e-3, "w": 1.0, "kw": 1e3},
    "time": {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "temperature": {"c": 1.0},
    "share": {"1": 1.0, "%": 0.01},
}
# A small b before "/s" or "ps" is a bit, a capital one a byte: "Gb/s" and "GB/s" differ by eight.
_BITS = {"Kb": "kbit", "Mb": "mbit", "Gb": "gbit", "Tb": "tbit"}
_SPELLED = {
    "µs": "us",
    "μs": "us",
    "°c": "c",
    "cel": "c",
    "celsius": "c",
    "fraction": "1",
    "percent": "%",
    "watts": "w",
    "seconds": "s",
    "hours": "h",
}
_FLOPS = {
    name: f"{name[0]}flop/s"
    for prefix in "mgtp"
    for name in (f"{prefix}flops", f"{prefix}flop", f"{prefix}flop/s", f"{prefix}flops/s")
}


def convert(value: float, unit: str, to: str) -> float | None:
    """`value` of `unit` in the unit `to`; None where the two are not of one kind.

    Units that are no measure of nature ("rows", "events") convert only to themselves.
    """
    one, other = _plain(unit), _plain(to)
    if one == other:
        return value
    for family in _FAMILIES.values():
        if one in family and other in family:
            return value * family[one] / family[other]
    return None


def same_kind(unit: str, to: str) -> bool:
    """Whether a value of one unit can be told in the other."""
    return convert(1.0, unit, to) is not None


def _plain(unit: str) -> str:
    """One spelling of each unit."""
    text = unit.strip().replace(" ", "")
    if text.endswith("ps") and len(text) > 2 and text[-3] in "bB":
        text = f"{text[:-2]}/s"
    head, slash, tail = text.partition("/")
    if slash and tail.lower() in ("s", "sec") and head in _BITS:
        return f"{_BITS[head]}/s"
    plain = re.sub(r"/sec$", "/s", text.lower())
    plain = _SPELLED.get(plain, plain)
    return _FLOPS.get(plain, plain)

"""Readings of nodes, as a sweep makes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fleet.facts import NodeFacts, PartFacts


def gpu(
    slot: str,
    serial: str | None = None,
    uuid: str | None = None,
    facts: Mapping[str, str] | None = None,
    unknown: Mapping[str, str] | None = None,
    numbers: Mapping[str, float | None] | None = None,
) -> PartFacts:
    """A GPU; facts default to a model and a VBIOS."""
    told = {"model": "H100", "vbios": "96.00"} if facts is None else facts
    return PartFacts("gpu", slot, serial, uuid, told, unknown or {}, numbers or {})


def reading(
    node: str,
    at: datetime,
    *parts: PartFacts,
    facts: Mapping[str, str] | None = None,
    unknown: Mapping[str, str] | None = None,
    numbers: Mapping[str, float | None] | None = None,
    source: str = "probe",
) -> NodeFacts:
    """What one source tells of a node; facts default to a driver."""
    told = {"driver.loaded": "570.10"} if facts is None else facts
    return NodeFacts(node, at, source, told, unknown or {}, numbers or {}, parts)

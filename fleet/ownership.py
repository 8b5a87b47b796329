"""Who owns a node, and what was there before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleet.model import NodeState


@dataclass(frozen=True, slots=True)
class Before:
    """A node as the operation found it; its return step restores exactly this.

    `reason` and `reason_by` are the scheduler's texts, letter by letter.
    """

    cordoned: bool
    reason: str | None
    reason_by: str | None
    state: NodeState


@dataclass(frozen=True, slots=True)
class Lease:
    """One operation's ownership of one node. `external_slot` is the rack of whose limit in Prefect it has a slot."""

    node: str
    operation: str
    since: datetime
    before: Before
    external_slot: str | None

"""A clock that only moves when told, and a small fleet in a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from fleet.budget import Granted, PoolLimits, Refused
from fleet.model import Node, NodeState
from fleet.ownership import Before
from ledger import Ledger
from ledger.operation import Runner

FREE = Before(cordoned=False, reason=None, reason_by=None, state=NodeState.IN_SERVICE)
LIMITS = PoolLimits(capacity_floor=0.5, domain_limit=9, breaker_share=1.0)
DIGEST = "d" * 64


class FakeClock:
    """Time that moves by itself only while somebody sleeps."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def node(name: str, rack: str = "r1", pool: str = "main", domain: str | None = None) -> Node:
    return Node(name, pool, rack, "hgx-h100", f"https://bmc-{name}", f"{name}:22", nvlink_domain=domain)


def fleet_of(ledger: Ledger, racks: Mapping[str, int], each: int = 4, limits: PoolLimits = LIMITS) -> None:
    """`each` nodes a rack, named r1-0, r1-1 …; `racks` gives each rack's limit."""
    nodes = [node(f"{rack}-{index}", rack) for rack in racks for index in range(each)]
    ledger.inventory.sync(nodes, racks, {"main": limits})


def running(ledger: Ledger, kind: str = "firmware_rollout", pid: int = 100) -> tuple[str, int]:
    """An operation with a runner, as (id, token)."""
    operation = ledger.operations.create(kind, "{}", DIGEST, "alice")
    return operation.id, ledger.operations.claim(operation.id, Runner("ctl1", pid, 1.0, None))


def take(ledger: Ledger, owner: tuple[str, int], *unit: str, before: Before = FREE) -> Granted | Refused:
    return ledger.leases.acquire(owner[0], owner[1], unit, dict.fromkeys(unit, before))

"""One global concurrency limit per rack, kept in step with the fleet file.

People may change a limit in the Prefect UI, for instance to close a rack. Such a change stays until the
fleet file itself says something new about that rack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate

from fleet.config import FleetSpec

PREFIX = "rack-"
_PAGE = 200  # the server's largest page


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What is to be done about one limit. `limit` is nodes at once; None for delete."""

    name: str
    action: Literal["create", "update", "delete", "keep"]
    limit: int | None


def desired_limits(spec: FleetSpec) -> dict[str, int]:
    """Limit name → nodes of that rack which may be disrupted at once."""
    return {f"{PREFIX}{rack}": spec.rack_limit(rack) for rack in spec.racks}


def plan_limits(desired: dict[str, int], present: dict[str, int], set_before: dict[str, int]) -> list[LimitChange]:
    """What to change. `set_before` is what we set last time: only those may be updated or deleted."""
    changes: list[LimitChange] = []
    for name, limit in sorted(desired.items()):
        if name not in present:
            changes.append(LimitChange(name, "create", limit))
        elif present[name] != limit:
            by_a_person = set_before.get(name) == limit
            changes.append(LimitChange(name, "keep" if by_a_person else "update", limit))
    stale = sorted(set(set_before) & set(present) - set(desired))
    return changes + [LimitChange(name, "delete", None) for name in stale]


async def ensure_limits(client: PrefectClient, spec: FleetSpec, set_before: dict[str, int]) -> list[LimitChange]:
    """Bring the server's limits in step with `spec` and say what was done."""
    present = await _read_limits(client)
    changes = plan_limits(desired_limits(spec), present, set_before)
    for change in changes:
        if change.action == "delete":
            await client.delete_global_concurrency_limit_by_name(change.name)
        elif change.limit is not None and change.action == "create":
            await client.create_global_concurrency_limit(
                GlobalConcurrencyLimitCreate(name=change.name, limit=change.limit)
            )
        elif change.limit is not None and change.action == "update":
            await client.update_global_concurrency_limit(change.name, GlobalConcurrencyLimitUpdate(limit=change.limit))
    return changes


async def _read_limits(client: PrefectClient) -> dict[str, int]:
    found: dict[str, int] = {}
    while True:
        page = await client.read_global_concurrency_limits(limit=_PAGE, offset=len(found))
        found |= {limit.name: limit.limit for limit in page}
        if len(page) < _PAGE:
            return found

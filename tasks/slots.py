"""The rack limits that people see and set in the Prefect UI, held once per node for its whole visit.

The ledger's budget is what safety rests on. These slots let a person lower a rack's limit while a rollout
runs; the id of each is kept in the ledger, so that another runner can carry on with it or give it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client

_AT_ONCE = 8
_LEASE_SECONDS = 180.0  # a slot whose id was lost in a crash is free again after this


class RackSlots:
    """Takes and gives back slots of the global concurrency limits `rack-<name>`; for one thread.

    Each is a request to the Prefect server, which takes from 30 ms to a second: they are made side by side.
    """

    def __init__(self) -> None:
        self._client: SyncPrefectClient = get_client(sync_client=True)
        self._side_by_side = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rack-slots")

    def __enter__(self) -> RackSlots:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._side_by_side.shutdown()
        self._client.__exit__(None, None, None)

    def take(self, racks: Sequence[str]) -> list[str | None]:
        """A lease on one slot for each entry; None where the limit is used up, missing, or nobody answers."""
        return list(self._side_by_side.map(self._take_one, racks))

    def _take_one(self, rack: str) -> str | None:
        try:
            answer = self._client.increment_concurrency_slots_with_lease(
                [f"rack-{rack}"], 1, "concurrency", _LEASE_SECONDS
            )
        except httpx.HTTPError:
            return None
        lease = answer.json().get("lease_id")
        return None if lease is None or not answer.json().get("limits") else str(lease)

    def renew(self, lease: str) -> bool:
        """Keep a lease; False where it has expired or nobody answers."""
        try:
            self._client.renew_concurrency_lease(UUID(lease), _LEASE_SECONDS)
        except httpx.HTTPError:
            return False
        return True

    def give_back(self, lease: str) -> None:
        """Free the slot a little later; a lease that is gone already, or nobody to tell, is fine: it expires."""
        self._side_by_side.submit(self._give_back_one, lease)

    def _give_back_one(self, lease: str) -> None:
        try:
            self._client.release_concurrency_slots_with_lease(UUID(lease))
        except httpx.HTTPError:
            return

"""The rack limits that people see and set in the Prefect UI, held once per node for its whole visit.

The ledger's budget is what safety rests on. These slots let a person lower a rack's limit while a rollout runs. They
are plain slots, taken many racks at a time: Prefect's leases on slots cost 70 to 150 ms a node and a renewal of each
every minute. A slot that a node gives up goes to the next node of its rack without the server, which answers in up to
a second while many nodes end together; a limit that was lowered is seen within ten seconds. What became of a slot
whose holder died is told by the ledger, which keeps for each leased node whether it has one: the reconciler brings the
server's count in step with that.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.exceptions import ObjectNotFound

from fleet.ports import Clock

PREFIX = "rack-"  # as deployments/limits.py names them
_PAGE = 200  # the server's largest page
_LOOKS_EACH_SECONDS = 10.0


class RackSlots:
    """Takes and gives back slots of the global concurrency limits `rack-<name>`; for one thread.

    Requests are made one at a time and in the order in which they were asked for: a slot that was given back is free
    for whoever takes one next.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: Counter[str] = Counter()  # given back, and the server not told yet
        self._lowered: frozenset[str] = frozenset()  # racks with more slots taken than their limit is now
        self._looked = clock.monotonic()
        self._client: SyncPrefectClient = get_client(sync_client=True)
        self._returned: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._requests = ThreadPoolExecutor(1, thread_name_prefix="rack-slots")

    def __enter__(self) -> RackSlots:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.tell()
        self._requests.shutdown()
        self._client.__exit__(None, None, None)

    def take(self, racks: Sequence[str]) -> Future[list[bool]]:
        """A slot for each entry: False where its rack's limit is used up, missing, or nobody answers.

        In a burst the server takes up to a second for it; the caller has something else to do meanwhile.
        """
        for rack in self._lowered.intersection(racks):
            self._tell(rack)
        passed = [self._pass_on(rack) for rack in racks]
        if all(passed):
            done: Future[list[bool]] = Future()
            done.set_result(passed)
            return done
        return self._requests.submit(self._take_others, racks, passed)

    def give_back(self, rack: str) -> None:
        """Give up one slot: to whoever takes one of this rack next, or with `tell` to the server."""
        self._kept[rack] += 1

    def tell(self) -> None:
        """Free at the server, a little later, what was given back and not taken since; called every few seconds.

        That is also when the limits are looked at: a take must not be the first to learn that one was lowered.
        """
        self._look_for_lowered()
        for rack in list(self._kept):
            self._tell(rack)

    def _tell(self, rack: str) -> None:
        count = self._kept.pop(rack, 0)
        for _ in range(count):
            self._returned.put(rack)
        if count:
            self._requests.submit(self._give_back)

    def _pass_on(self, rack: str) -> bool:
        if not self._kept[rack]:
            return False
        self._kept[rack] -= 1
        return True

    def _look_for_lowered(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked >= _LOOKS_EACH_SECONDS:
            self._looked = now
            self._requests.submit(self._look)

    def _look(self) -> None:
        with suppress(httpx.HTTPError):
            self._lowered = frozenset(
                limit.name.removeprefix(PREFIX)
                for limit in self._limits()
                if limit.active and limit.active_slots > limit.limit
            )

    def _take_others(self, racks: Sequence[str], passed: Sequence[bool]) -> list[bool]:
        got = iter(self._take([rack for rack, has in zip(racks, passed, strict=True) if not has]))
        return [has or next(got) for has in passed]

    def wrong(self, held: Mapping[str, int], racks: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Racks whose limit counts other slots as taken than are `held`: (taken, held). Empty where nobody answers."""
        return self._requests.submit(self._wrong, held, frozenset(racks)).result()

    def mend(self, rack: str, held: int) -> None:
        """Set how many slots the rack's limit counts as taken."""
        self._requests.submit(self._mend, rack, held)

    def _take(self, racks: Sequence[str]) -> list[bool]:
        wanted, taken = Counter(racks), Counter[str]()
        while wanted:
            taken.update(self._take_one_of_each(sorted(wanted)))
            wanted = Counter({rack: count - 1 for rack, count in wanted.items() if count > 1})
        answers = []
        for rack in racks:
            answers.append(taken[rack] > 0)
            taken[rack] -= 1
        return answers

    def _take_one_of_each(self, racks: list[str]) -> list[str]:
        """The racks that had room. The server takes all or none, so those that have none are left out first."""
        try:
            got = self._increment(racks)
            if got is None:
                room = {limit.name for limit in self._limits() if not limit.active or limit.active_slots < limit.limit}
                racks = [rack for rack in racks if f"{PREFIX}{rack}" in room]
                got = self._increment(racks) if racks else []
        except httpx.HTTPError:
            return []
        return [rack for rack in racks if f"{PREFIX}{rack}" in (got or ())]

    def _increment(self, racks: list[str]) -> list[str] | None:
        """The limits that have one more slot taken, None where one of them had none left."""
        try:
            answer = self._client.increment_concurrency_slots([f"{PREFIX}{rack}" for rack in racks], 1, "concurrency")
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (httpx.codes.LOCKED, httpx.codes.UNPROCESSABLE_ENTITY):
                return None
            raise
        return [str(limit["name"]) for limit in answer.json()]

    def _give_back(self) -> None:
        """All that were returned by now, in as few requests as they allow: nodes of many racks end together."""
        returned: Counter[str] = Counter()
        with suppress(queue.Empty):
            while True:
                returned[self._returned.get_nowait()] += 1
        while returned:
            with suppress(httpx.HTTPError):
                self._client.release_concurrency_slots([f"{PREFIX}{rack}" for rack in sorted(returned)], 1, 60.0)
            returned = Counter({rack: count - 1 for rack, count in returned.items() if count > 1})

    def _limits(self) -> list[GlobalConcurrencyLimitResponse]:
        found: list[GlobalConcurrencyLimitResponse] = []
        while True:
            page = self._client.read_global_concurrency_limits(limit=_PAGE, offset=len(found))
            found += page
            if len(page) < _PAGE:
                return found

    def _wrong(self, held: Mapping[str, int], racks: frozenset[str]) -> dict[str, tuple[int, int]]:
        try:
            taken = {limit.name.removeprefix(PREFIX): limit.active_slots for limit in self._limits()}
        except httpx.HTTPError:
            return {}
        return {
            rack: (taken[rack], held.get(rack, 0))
            for rack in sorted(racks & taken.keys())
            if taken[rack] != held.get(rack, 0)
        }

    def _mend(self, rack: str, held: int) -> None:
        with suppress(httpx.HTTPError, ObjectNotFound):
            change = GlobalConcurrencyLimitUpdate(active_slots=held)
            self._client.update_global_concurrency_limit(f"{PREFIX}{rack}", change)

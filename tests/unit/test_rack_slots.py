"""The racks' limits in the Prefect UI: a slot goes from node to node, and a limit that was lowered is heeded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import pytest
from unit.ledger_tools import FakeClock

import tasks.slots
from tasks.slots import RackSlots


class Server:
    """Prefect's limits: rack → [slots taken, limit]; every change is a request."""

    def __init__(self, **limits: int) -> None:
        self.limits = {f"rack-{rack}": [0, limit] for rack, limit in limits.items()}
        self.changes = 0

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None: ...

    def increment_concurrency_slots(self, names: list[str], slots: int, mode: str) -> httpx.Response:
        self.changes += 1
        request = httpx.Request("POST", "http://prefect/")
        if any(self.limits[name][0] + slots > self.limits[name][1] for name in names):
            refused = httpx.Response(423, request=request)
            raise httpx.HTTPStatusError("locked", request=request, response=refused)
        for name in names:
            self.limits[name][0] += slots
        return httpx.Response(200, json=[{"name": name} for name in names], request=request)

    def release_concurrency_slots(self, names: list[str], slots: int, seconds: float) -> None:
        self.changes += 1
        for name in names:
            self.limits[name][0] -= slots

    def read_global_concurrency_limits(self, limit: int, offset: int) -> list[SimpleNamespace]:
        found = [
            SimpleNamespace(name=name, active_slots=taken, limit=most, active=True)
            for name, (taken, most) in self.limits.items()
        ]
        return found[offset : offset + limit]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(r1=2, r2=2)
    monkeypatch.setattr(tasks.slots, "get_client", lambda sync_client: server)
    return server


@contextmanager
def slots_of(clock: FakeClock) -> Iterator[RackSlots]:
    with RackSlots(clock) as slots:
        yield slots


def test_a_slot_that_was_given_back_goes_to_the_next_node_without_the_server(server: Server) -> None:
    with slots_of(FakeClock()) as slots:
        assert slots.take(["r1", "r1"]).result() == [True, True]
        asked = server.changes
        slots.give_back("r1")
        assert slots.take(["r1"]).result() == [True]
        assert server.changes == asked
        assert slots.take(["r1"]).result() == [False]


def test_what_nobody_takes_is_told_to_the_server_at_the_end(server: Server) -> None:
    with slots_of(FakeClock()) as slots:
        slots.take(["r1", "r2"]).result()
        slots.give_back("r1")
        slots.give_back("r2")
    assert [taken for taken, _ in server.limits.values()] == [0, 0]


def test_what_was_told_is_not_passed_on_a_second_time(server: Server) -> None:
    with slots_of(FakeClock()) as slots:
        slots.take(["r1", "r1"]).result()
        slots.give_back("r1")
        slots.tell()
        assert slots.take(["r1", "r1"]).result() == [True, False]
    assert server.limits["rack-r1"][0] == 2


def test_kept_and_new_slots_of_one_request_are_told_apart(server: Server) -> None:
    with slots_of(FakeClock()) as slots:
        slots.take(["r1", "r1", "r2", "r2"]).result()
        slots.give_back("r2")
        assert slots.take(["r1", "r2", "r2", "r1"]).result() == [False, True, False, False]


def test_a_limit_that_a_person_lowered_is_heeded_within_seconds(server: Server) -> None:
    clock = FakeClock()
    with slots_of(clock) as slots:
        assert slots.take(["r1", "r1"]).result() == [True, True]
        server.limits["rack-r1"][1] = 1
        clock.sleep(11)
        slots.tell()  # each pass of the dispatcher, whether a node ended or not
        assert slots.wrong({}, ()) == {}  # requests are made in turn: the look is over
        slots.give_back("r1")
        assert slots.take(["r1"]).result() == [False]
        assert server.limits["rack-r1"] == [1, 1]
        slots.give_back("r1")
        assert slots.take(["r1"]).result() == [True]
        assert server.limits["rack-r1"] == [1, 1]

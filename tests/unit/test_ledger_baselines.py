"""Baselines: the newest counts, old ones stay, and only a decision moves one."""

from __future__ import annotations

import json

import pytest
from unit.ledger_tools import FakeClock, fleet_of

from fleet.errors import PreconditionError
from fleet.model import FirmwareComponent, FirmwareRole
from ledger import Ledger

pytest_plugins = ("unit.ledger_fixtures",)

FIRST = {"bundle": "hgx", "release": "24.06", "versions": {"gpu": "96.00.74.00.01"}}
SECOND = {"bundle": "hgx", "release": "24.09", "versions": {"gpu": "96.00.A5.00.03"}}


@pytest.fixture
def pool(ledger: Ledger) -> str:
    fleet_of(ledger, {"r1": 1})
    return "main"


def test_the_newest_baseline_is_the_current_one_and_the_old_ones_stay(
    ledger: Ledger, clock: FakeClock, pool: str
) -> None:
    ledger.baselines.set(pool, "firmware", FIRST, "a" * 64, "fw-1")
    clock.sleep(3600)
    ledger.baselines.set(pool, "firmware", SECOND, "b" * 64, "fw-2")
    current = ledger.baselines.current(pool, "firmware")
    assert current is not None
    assert (current.document, current.digest, current.actor, current.at) == (SECOND, "b" * 64, "fw-2", clock.now())
    assert [one.document for one in ledger.baselines.history(pool, "firmware")] == [SECOND, FIRST]


def test_a_baseline_of_another_kind_is_apart(ledger: Ledger, pool: str) -> None:
    ledger.baselines.set(pool, "driver", {"branch": "550"}, "c" * 64, "ann")
    assert ledger.baselines.current(pool, "firmware") is None
    assert ledger.baselines.history(pool, "firmware") == ()


def test_what_is_the_baseline_already_is_neither_set_nor_recorded_again(ledger: Ledger, pool: str) -> None:
    ledger.baselines.set(pool, "firmware", FIRST, "a" * 64, "fw-1")
    before = ledger.audit.head()
    ledger.baselines.set(pool, "firmware", dict(reversed(FIRST.items())), "a" * 64, "fw-9")
    assert ledger.audit.head() == before
    assert [one.actor for one in ledger.baselines.history(pool, "firmware")] == ["fw-1"]


def test_going_back_to_an_older_baseline_is_a_new_decision(ledger: Ledger, pool: str) -> None:
    for document, digest in ((FIRST, "a" * 64), (SECOND, "b" * 64), (FIRST, "a" * 64)):
        ledger.baselines.set(pool, "firmware", document, digest, "ann")
    assert [one.document for one in ledger.baselines.history(pool, "firmware")] == [FIRST, SECOND, FIRST]


def test_the_audit_says_who_moved_it_from_what_to_what(ledger: Ledger, pool: str) -> None:
    ledger.baselines.set(pool, "firmware", FIRST, "a" * 64, "fw-1")
    ledger.baselines.set(pool, "firmware", SECOND, "b" * 64, "fw-2")
    record = ledger.audit.tail(1, pool)[0]
    assert (record.actor, record.action) == ("fw-2", "baseline.set")
    evidence = json.loads(record.payload)
    assert (evidence["from"], evidence["to"], evidence["document"]) == ("a" * 64, "b" * 64, SECOND)
    assert ledger.audit.verify() == []


def test_a_node_that_was_updated_by_hand_moves_nothing(ledger: Ledger, pool: str) -> None:
    ledger.baselines.set(pool, "firmware", FIRST, "a" * 64, "fw-1")
    newer = FirmwareComponent(
        "gpu", "96.00.A5.00.03", None, FirmwareRole.ACTIVE, "Enabled", "OK", True, "/fw/gpu", "gpu"
    )
    ledger.inventory.record_firmware("r1-0", (newer,))
    assert [one.document for one in ledger.baselines.history(pool, "firmware")] == [FIRST]


def test_a_pool_that_the_ledger_never_saw_is_named(ledger: Ledger, pool: str) -> None:
    with pytest.raises(PreconditionError, match=r"no pool 'mian' .* add it to the fleet file"):
        ledger.baselines.set("mian", "firmware", FIRST, "a" * 64, "ann")
    with pytest.raises(PreconditionError, match="no pool 'mian'"):
        ledger.baselines.current("mian", "firmware")

"""What was found at each look at a change is kept once, and the audit chain knows of it."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from unit.ledger_tools import FakeClock, running

from fleet.errors import LeaseLost
from ledger import Ledger
from ledger.operation import Runner

pytest_plugins = ("unit.ledger_fixtures",)

WAITS = '{"outcome": "inconclusive", "look": 1}'
FAILS = '{"outcome": "fail", "look": 2}'


@pytest.fixture
def owner(ledger: Ledger) -> tuple[str, int]:
    return running(ledger, "driver_canary")


def test_a_verdict_is_read_back_with_its_time_and_its_samples(
    ledger: Ledger, owner: tuple[str, int], clock: FakeClock
) -> None:
    made = ledger.verdicts.record(*owner, 1, 1, WAITS, '[{"node": "r1-0"}]')
    assert ledger.verdicts.of(owner[0]) == (made,)
    assert (made.wave, made.look, made.at) == (1, 1, clock.now())
    assert (made.verdict_json, made.samples_json) == (WAITS, '[{"node": "r1-0"}]')


def test_the_same_look_twice_keeps_the_first_verdict(ledger: Ledger, owner: tuple[str, int], clock: FakeClock) -> None:
    first = ledger.verdicts.record(*owner, 1, 1, WAITS)
    clock.sleep(60.0)
    assert ledger.verdicts.record(*owner, 1, 1, FAILS, "[]") == first
    assert ledger.verdicts.of(owner[0]) == (first,)
    assert [record.action for record in ledger.audit.tail(100)].count("wave.verdict") == 1


def test_the_newest_is_that_of_the_last_look_at_the_wave_or_of_the_last_wave(
    ledger: Ledger, owner: tuple[str, int]
) -> None:
    for wave, look in ((2, 1), (1, 1), (1, 2), (1, 10)):
        ledger.verdicts.record(*owner, wave, look, WAITS)
    newest, of_first = ledger.verdicts.newest(owner[0]), ledger.verdicts.newest(owner[0], 1)
    assert newest is not None
    assert of_first is not None
    assert ((newest.wave, newest.look), (of_first.wave, of_first.look)) == ((2, 1), (1, 10))
    assert [(v.wave, v.look) for v in ledger.verdicts.of(owner[0])] == [(1, 1), (1, 2), (1, 10), (2, 1)]
    assert ledger.verdicts.newest(owner[0], 3) is None


def test_another_operations_verdicts_are_its_own(ledger: Ledger, owner: tuple[str, int]) -> None:
    other = running(ledger, "driver_canary", pid=7)
    ledger.verdicts.record(*other, 1, 1, FAILS)
    assert ledger.verdicts.of(owner[0]) == ()
    assert ledger.verdicts.newest(owner[0]) is None


def test_an_old_runner_cannot_record_a_verdict(ledger: Ledger, owner: tuple[str, int]) -> None:
    ledger.operations.claim(owner[0], Runner("ctl2", 5, 1.0, None), takeover=True)
    with pytest.raises(LeaseLost, match="took over"):
        ledger.verdicts.record(*owner, 1, 1, WAITS)
    assert ledger.verdicts.of(owner[0]) == ()


def test_the_audit_chain_holds_the_outcome_and_the_digests(ledger: Ledger, owner: tuple[str, int]) -> None:
    made = ledger.verdicts.record(*owner, 1, 2, FAILS, "[]")
    (record,) = ledger.audit.tail(1)
    evidence = json.loads(record.payload)
    assert (record.action, record.subject) == ("wave.verdict", owner[0])
    assert (evidence["outcome"], evidence["wave"], evidence["look"]) == ("fail", 1, 2)
    assert evidence["verdict"] == sha256(made.verdict_json.encode()).hexdigest()
    assert evidence["samples"] == sha256(b"[]").hexdigest()
    assert ledger.audit.verify() == []


def test_a_verdict_shows_that_the_operation_gets_on(ledger: Ledger, owner: tuple[str, int]) -> None:
    assert ledger.operations.get(owner[0]).fruitless == 1
    ledger.verdicts.record(*owner, 1, 1, WAITS)
    assert ledger.operations.get(owner[0]).fruitless == 0


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"outcome": 1}'])
def test_a_text_that_is_no_verdict_is_refused(ledger: Ledger, owner: tuple[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ledger.verdicts.record(*owner, 1, 1, text)
    assert ledger.verdicts.of(owner[0]) == ()


def test_a_text_that_no_database_can_store_is_kept_readable(ledger: Ledger, owner: tuple[str, int]) -> None:
    made = ledger.verdicts.record(*owner, 1, 1, '{"outcome": "pass", "text": "a\\u0000b \ud800"}')
    assert ledger.verdicts.newest(owner[0]) == made

"""What was tried on a node, and how it ended."""

from __future__ import annotations

import pytest
from unit.ledger_tools import fleet_of, running, take

from fleet.errors import LeaseLost
from ledger import Ledger
from ledger.journal import Outcome
from ledger.operation import Runner

pytest_plugins = ("unit.ledger_fixtures",)


@pytest.fixture
def owner(ledger: Ledger) -> tuple[str, int]:
    """An operation that holds r1-0."""
    fleet_of(ledger, {"r1": 4})
    running_operation = running(ledger)
    take(ledger, running_operation, "r1-0")
    return running_operation


def test_an_intent_is_there_before_its_outcome(ledger: Ledger, owner: tuple[str, int]) -> None:
    entry = ledger.journal.begin(*owner, "r1-0", "flash", {"component": "BMC_0", "to": "2.0"})
    begun = ledger.journal.last(owner[0], "r1-0", "flash")
    assert begun is not None
    assert (begun.id, begun.outcome, begun.intent) == (entry, None, {"component": "BMC_0", "to": "2.0"})
    ledger.journal.finish(entry, Outcome.DONE, {"read": "2.0"})
    ended = ledger.journal.last(owner[0], "r1-0", "flash")
    assert ended is not None
    assert (ended.outcome, ended.result) == (Outcome.DONE, {"read": "2.0"})


def test_tries_are_counted_per_node_and_step(ledger: Ledger, owner: tuple[str, int]) -> None:
    for step in ("flash", "reset", "flash"):
        ledger.journal.begin(*owner, "r1-0", step, {})
    assert ledger.journal.attempts(owner[0], "r1-0", "flash") == 2
    assert ledger.journal.attempts(owner[0], "r1-1", "flash") == 0
    assert [(e.step, e.attempt) for e in ledger.journal.entries(owner[0], "r1-0")] == [
        ("flash", 1),
        ("reset", 1),
        ("flash", 2),
    ]


def test_an_old_runner_cannot_begin_a_step(ledger: Ledger, owner: tuple[str, int]) -> None:
    ledger.operations.claim(owner[0], Runner("ctl2", 5, 1.0, None), takeover=True)
    with pytest.raises(LeaseLost, match="took over"):
        ledger.journal.begin(*owner, "r1-0", "flash", {})
    assert ledger.journal.attempts(owner[0], "r1-0", "flash") == 0


def test_a_step_on_a_node_that_is_not_leased_cannot_begin(ledger: Ledger, owner: tuple[str, int]) -> None:
    with pytest.raises(LeaseLost, match="r1-1"):
        ledger.journal.begin(*owner, "r1-1", "flash", {})


def test_an_unknown_outcome_may_become_known_and_a_known_one_stays(ledger: Ledger, owner: tuple[str, int]) -> None:
    entry = ledger.journal.begin(*owner, "r1-0", "flash", {})
    ledger.journal.finish(entry, Outcome.UNKNOWN)
    ledger.journal.finish(entry, Outcome.DONE)
    ledger.journal.finish(entry, Outcome.DONE)
    with pytest.raises(LeaseLost, match="already settled as done"):
        ledger.journal.finish(entry, Outcome.FAILED)


def test_a_text_that_no_database_can_store_is_kept_readable(ledger: Ledger, owner: tuple[str, int]) -> None:
    entry = ledger.journal.begin(*owner, "r1-0", "flash", {"said": "a\0b\ud800 ü"})
    ledger.operations.add_nodes(owner[0], [("r1-0", 1, 0)])
    ledger.operations.say(owner[0], "r1-0", "a\0b\ud800")
    assert ledger.journal.entries(owner[0], "r1-0")[0].id == entry
    assert ledger.operations.node_rows(owner[0])[0].waiting_for == "a\ufffdb?"
    assert ledger.audit.verify() == []

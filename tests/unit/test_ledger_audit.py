"""The audit chain shows what was done to it."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from unit.ledger_tools import DIGEST, fleet_of, running, take

from fleet.model import NodeState
from ledger import Ledger
from ledger.audit import FaultKind, Head

pytest_plugins = ("unit.ledger_fixtures",)


@pytest.fixture
def chain(ledger: Ledger) -> Ledger:
    """A ledger with a dozen records."""
    fleet_of(ledger, {"r1": 4})
    owner = running(ledger)
    for name in ("r1-0", "r1-1"):
        take(ledger, owner, name)
        ledger.inventory.move(name, NodeState.DRAINING, "", owner[0])
        ledger.leases.release(*owner, name)
    return ledger


def tamper(url: str, *statements: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_an_untouched_chain_holds(chain: Ledger) -> None:
    assert chain.audit.verify() == []
    assert chain.audit.head().seq == len(chain.audit.tail(100)) > 8


def test_an_empty_chain_holds(ledger: Ledger) -> None:
    assert ledger.audit.verify() == []
    assert ledger.audit.tail(5) == ()


def test_a_record_says_who_did_what_under_which_plan(chain: Ledger) -> None:
    created = next(r for r in chain.audit.tail(100) if r.action == "operation.create")
    assert (created.actor, json.loads(created.payload)["plan"]) == ("alice", DIGEST)
    acquired = next(r for r in chain.audit.tail(100, "r1-0") if r.action == "lease.acquire")
    assert acquired.actor == f"{created.subject}#1"
    assert json.loads(acquired.payload)["plan"] == DIGEST[:16]


def test_a_changed_record_is_found(chain: Ledger, url: str) -> None:
    tamper(url, "UPDATE audit SET actor = 'mallory' WHERE seq = 3")
    assert [(f.kind, f.seq) for f in chain.audit.verify()] == [(FaultKind.CHANGED, 3)]


def test_a_missing_record_is_found(chain: Ledger, url: str) -> None:
    tamper(url, "DELETE FROM audit WHERE seq = 3")
    assert [(f.kind, f.seq) for f in chain.audit.verify()] == [(FaultKind.MISSING, 3)]


def test_a_missing_record_is_found_after_the_rest_was_renumbered(chain: Ledger, url: str) -> None:
    last = chain.audit.head().seq
    later = [f"UPDATE audit SET seq = {n - 1} WHERE seq = {n}" for n in range(4, last + 1)]
    tamper(url, "DELETE FROM audit WHERE seq = 3", *later, f"UPDATE audit_head SET seq = {last - 1}")
    assert [(f.kind, f.seq) for f in chain.audit.verify()] == [(FaultKind.MISSING, 3)]


def test_reordered_records_are_found(chain: Ledger, url: str) -> None:
    swap = [f"UPDATE audit SET seq = {new} WHERE seq = {old}" for old, new in ((3, -1), (4, 3), (-1, 4))]
    tamper(url, *swap)
    faults = chain.audit.verify()
    assert (faults[0].kind, faults[0].seq) == (FaultKind.REORDERED, 3)


def test_a_cut_off_end_is_found(chain: Ledger, url: str) -> None:
    last = chain.audit.head().seq
    tamper(url, f"DELETE FROM audit WHERE seq > {last - 2}")
    assert [(f.kind, f.seq) for f in chain.audit.verify()] == [(FaultKind.TRUNCATED, last - 1)]


def test_an_anchor_kept_elsewhere_shows_a_chain_cut_off_with_its_head(chain: Ledger, url: str) -> None:
    anchor = chain.audit.head()
    kept = anchor.seq - 1
    tamper(
        url,
        f"UPDATE audit_head SET seq = {kept}, hash = (SELECT hash FROM audit WHERE seq = {kept})",
        f"DELETE FROM audit WHERE seq = {anchor.seq}",
    )
    assert chain.audit.verify() == []
    assert [f.kind for f in chain.audit.verify(anchor)] == [FaultKind.TRUNCATED]


def test_an_anchor_kept_elsewhere_shows_a_rebuilt_chain(chain: Ledger) -> None:
    other = Head(2, "0" * 64)
    assert [(f.kind, f.seq) for f in chain.audit.verify(other)] == [(FaultKind.CHANGED, 2)]

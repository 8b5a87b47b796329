"""What only a real PostgreSQL can show; everything else runs on both databases in tests/unit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from real.postgresql import Server
from unit.ledger_tools import FakeClock, fleet_of

from fleet.errors import ConfigurationError, TransientError
from ledger import Ledger

pytest_plugins = ("unit.ledger_fixtures",)
pytestmark = pytest.mark.postgresql


def test_a_server_that_went_away_is_transient_and_the_same_ledger_goes_on_after(
    postgresql_server: Server, postgresql_template: str
) -> None:
    clock = FakeClock()
    ledger = Ledger.open(postgresql_server.url(postgresql_server.create(postgresql_template)), clock)
    fleet_of(ledger, {"r1": 1})
    postgresql_server.stop()
    try:
        with pytest.raises(TransientError):
            fleet_of(ledger, {"r1": 2})
        with pytest.raises(TransientError):
            ledger.inventory.nodes()
    finally:
        postgresql_server.start()
    assert len(ledger.inventory.nodes()) == 4
    fleet_of(ledger, {"r1": 2})
    assert ledger.audit.verify() == []
    ledger.close()


def test_threads_that_migrate_an_empty_database_together_do_it_once(postgresql_server: Server) -> None:
    url = postgresql_server.url(postgresql_server.create())
    with ThreadPoolExecutor(6) as pool:
        ledgers = list(pool.map(lambda _: Ledger.open(url, FakeClock()), range(6)))
    fleet_of(ledgers[0], {"r1": 1})
    assert len(ledgers[5].inventory.nodes()) == 4
    for ledger in ledgers:
        ledger.close()


def test_a_database_that_does_not_exist_is_for_a_person_to_mend(postgresql_server: Server) -> None:
    with pytest.raises(ConfigurationError, match="nosuch"):
        Ledger.open(postgresql_server.url("nosuch"), FakeClock())

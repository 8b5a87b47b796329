"""Opening, migrating, and what a person reads when it cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from unit.ledger_tools import FakeClock, fleet_of

from fleet.errors import ConfigurationError, PreconditionError, TransientError
from ledger import Ledger
from ledger.database import Database
from ledger.migrate import schema_version
from ledger.schema import HEAD, metadata

pytest_plugins = ("unit.ledger_fixtures",)


def test_the_migrations_make_the_tables_that_the_code_uses(ledger: Ledger, url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert schema_version(connection) == HEAD
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_ledger_opened_again_keeps_what_is_in_it(ledger: Ledger, url: str, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 1})
    again = Ledger.open(url, clock)
    assert len(again.inventory.nodes()) == 4
    again.close()


def test_a_ledger_of_a_newer_version_is_left_alone(ledger: Ledger, url: str, clock: FakeClock) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ConfigurationError, match=r"schema 9999.*install the newer gpufleet"):
        Ledger.open(url, clock)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("sqlite://", "needs a file"),
        ("sqlite:////nowhere/at/all/ledger.db", "create it first"),
        ("mysql://host/x", "use sqlite or postgresql"),
        ("ledger.db", "URL"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_to_write(bad: str, said: str, clock: FakeClock) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Ledger.open(bad, clock)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("this is a diary" * 100)
    with pytest.raises(ConfigurationError, match="not a database"):
        Ledger.open(f"sqlite:///{file}", clock)


def test_a_password_in_the_url_is_never_shown(clock: FakeClock) -> None:
    with pytest.raises(TransientError) as caught:
        Ledger.open("postgresql://fleet:hunter2@127.0.0.1:1/ledger", clock)
    shown = [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    assert not any("hunter2" in text for text in shown)


def test_a_ledger_that_stays_locked_is_busy_and_not_broken(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.database._WAIT_SECONDS", 0.01)
    ledger = Ledger.open(f"sqlite:///{tmp_path}/ledger.db", clock)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = clock.now()
    with pytest.raises(TransientError, match="database is locked"):
        fleet_of(ledger, {"r1": 1})
    assert (clock.now() - started).total_seconds() == 2.0
    other.execute("ROLLBACK")
    fleet_of(ledger, {"r1": 1})
    assert len(ledger.inventory.nodes()) == 4
    ledger.close()


def _write_and_fail(database: Database) -> None:
    with database.write() as transaction:
        transaction.record("me", "test", "x", {})
        raise PreconditionError("stop")


def test_a_write_that_fails_keeps_nothing_and_lets_the_next_one_in(url: str, clock: FakeClock) -> None:
    ledger = Ledger.open(url, clock)
    database = Database(url, clock)
    with pytest.raises(PreconditionError):
        _write_and_fail(database)
    assert ledger.audit.head().seq == 0
    fleet_of(ledger, {"r1": 1})
    assert ledger.audit.verify() == []
    database.close()
    ledger.close()

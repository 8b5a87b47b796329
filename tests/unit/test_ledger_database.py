"""Opening, migrating, and what a person reads when it cannot be used."""

from __future__ import annotations

import gc
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from unit.ledger_tools import FakeClock, fleet_of

from fleet.errors import ConfigurationError, PreconditionError, TransientError
from ledger import Ledger
from ledger.database import Database, LedgerUnusable
from ledger.migrate import migrate, schema_version
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
        ("postgresql://host:99999/x", "port 99999"),
        ("postgresql://host:port/x", "URL"),
        ("ledger.db", "URL"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_to_write(bad: str, said: str, clock: FakeClock) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Ledger.open(bad, clock)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("this is a diary" * 100)
    with pytest.raises(LedgerUnusable, match="not a database"):
        Ledger.open(f"sqlite:///{file}", clock)


def test_a_ledger_on_a_full_disk_keeps_nothing_and_says_so(tmp_path: Path, clock: FakeClock) -> None:
    database = Database(f"sqlite:///{tmp_path}/ledger.db", clock)
    migrate(database)
    with database.read() as connection:  # the pool has this one connection, and hands it out again
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    with pytest.raises(LedgerUnusable, match="disk is full"), database.write() as transaction:
        transaction.record("me", "test", "x", {"text": "x" * 1_000_000})
    database.close()


def copy_of(file: Path) -> int:
    """How many nodes a copy of this one file has."""
    copy = file.with_name("copy.db")
    shutil.copyfile(file, copy)
    with sqlite3.connect(copy) as connection:
        return int(connection.execute("SELECT count(*) FROM nodes").fetchone()[0])


def test_a_closed_ledger_is_whole_in_its_one_file(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "ledger.db"
    ledger, other = (Ledger.open(f"sqlite:///{file}", clock) for _ in range(2))
    fleet_of(ledger, {"r1": 1})
    assert len(other.inventory.nodes()) == 4
    ledger.close()  # another process's connection, as here `other`'s, keeps the journal there
    assert copy_of(file) == 4
    ledger.close()
    other.close()


def test_closing_a_ledger_waits_for_nobody_who_writes(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "ledger.db"
    ledger = Ledger.open(f"sqlite:///{file}", clock)
    fleet_of(ledger, {"r1": 1})
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    ledger.close()
    assert time.monotonic() - began < 5
    other.execute("ROLLBACK")


def test_a_ledger_that_nobody_closes_is_folded_when_it_is_forgotten(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "ledger.db"
    fleet_of(Ledger.open(f"sqlite:///{file}", clock), {"r1": 1})
    gc.collect()
    assert copy_of(file) == 4


def test_a_ledger_that_was_copied_without_its_journal_is_no_new_one(tmp_path: Path, clock: FakeClock) -> None:
    file, trace = tmp_path / "ledger.db", tmp_path / "run" / "kernel_log_cursors.json"
    sqlite3.connect(file).execute("PRAGMA journal_mode=WAL").close()
    trace.parent.mkdir()
    trace.write_text("{}")
    with pytest.raises(LedgerUnusable, match=r"is empty, and .*kernel_log_cursors.json shows.*ledger.db-wal"):
        Ledger.open(f"sqlite:///{file}", clock)
    file.unlink()
    Ledger.open(f"sqlite:///{file}", clock).close()
    Ledger.open(f"sqlite:///{file}", clock).close()


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

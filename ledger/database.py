"""One writer at a time, on SQLite and on PostgreSQL, and database errors translated once."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from fleet.canonical import canonical_json
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, TransientError
from fleet.ports import Clock
from ledger.chain import Record, append
from ledger.schema import clean_text

_WAIT_SECONDS = 30
_BEGIN_TRIES = 3
_WRITER_LOCK = 0x67707566  # PostgreSQL advisory lock "gpuf"; one writer per database
_POSTGRESQL_OPTIONS = f"-c lock_timeout={_WAIT_SECONDS}s -c idle_in_transaction_session_timeout=60s"

# One lock per database and process: threads queue here instead of polling the database's lock.
_turns: dict[str, threading.Lock] = {}
_turns_guard = threading.Lock()


class LedgerUnusable(ConfigurationError):
    """The ledger is where it should be and cannot be used: full, read-only, damaged, emptied."""


@dataclass(slots=True)
class Transaction:
    """A write under way. Its audit records are chained just before the commit."""

    connection: Connection
    now: datetime
    records: list[Record] = field(default_factory=list)

    def record(self, actor: str, action: str, subject: str, payload: Mapping[str, object]) -> None:
        """Say who did what to what; `payload` must be JSON and hold no secret."""
        text = clean_text(canonical_json(payload))
        self.records.append(Record(self.now, clean_text(actor), action, clean_text(subject), text))


class Database:
    """Connections to one ledger; may be used from any thread.

    `file` is an SQLite ledger's, None for PostgreSQL; `made_now` says that it was not there before.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        parsed = _checked(url)
        self.name = parsed.render_as_string(hide_password=True)
        self.clock = clock
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.file = Path(parsed.database or "").absolute() if self.sqlite else None
        self.made_now = self.file is not None and _make_private(self.file)
        self._engine = _sqlite(parsed) if self.sqlite else _postgresql(parsed)
        self._end = weakref.finalize(self, _end, self._engine, self.file)  # at the latest when the process ends
        self._writer = self._engine.execution_options(ledger_write=True)
        with _turns_guard:
            self._turn = _turns.setdefault(str(parsed), threading.Lock())

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that sees the newest state and that nobody else writes beside.

        Raises TransientError when the turn does not come (60 s for this process' other threads, three times
        30 s for other processes) or the connection breaks. Nothing is then kept; only a break during the
        commit itself leaves that open, which every caller may answer by repeating the call.
        """
        if not self._turn.acquire(timeout=2 * _WAIT_SECONDS):
            raise TransientError(f"the ledger {self.name} is busy: no turn to write for {2 * _WAIT_SECONDS} s")
        try:
            connection = self._begin()
            try:
                with self._translated(), connection:
                    transaction = Transaction(connection, self.clock.now())
                    yield transaction
                    append(connection, transaction.records)
                    connection.commit()
            finally:
                connection.close()
        finally:
            self._turn.release()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent look at the database."""
        with self._translated(), self._engine.connect() as connection:
            if not self.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def close(self) -> None:
        """Close every connection; an SQLite ledger is then whole in its one file, unless others are at work in it."""
        self._end()

    def _begin(self) -> Connection:
        for left in reversed(range(_BEGIN_TRIES)):
            connection: Connection | None = None
            try:
                with self._translated():
                    connection = self._writer.connect()
                    connection.begin()
                    return connection
            except TransientError:
                if connection is not None:
                    connection.close()
                if not left:
                    raise
                self.clock.sleep(1.0)
        raise AssertionError("unreachable")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, exc.TimeoutError) as error:
            raise _translate(error, self.name) from error


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise ConfigurationError("the ledger's URL is not one; e.g. sqlite:////srv/fleet/ledger.db") from error
    backend = parsed.get_backend_name()
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise ConfigurationError(f"the ledger's URL has port {parsed.port}; a port is a number from 1 to 65535")
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigurationError("the ledger needs a file; e.g. sqlite:////srv/fleet/ledger.db")
        folder = Path(parsed.database or "").parent
        if not folder.is_dir():
            raise ConfigurationError(f"the ledger's folder {folder} does not exist; create it first")
        return parsed.set(drivername="sqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigurationError(f"the ledger cannot be kept in {backend!r}; use sqlite or postgresql")


def _make_private(file: Path) -> bool:
    """A ledger names hosts and people: a new one is for its owner only, and SQLite gives its journals the same mode.

    True where it was made now.
    """
    with suppress(OSError):  # a folder that cannot be written says so when it is opened
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return True
    return False


def _end(engine: Engine, file: Path | None) -> None:
    engine.dispose()
    if file is not None:
        _fold_journal(file)


def _fold_journal(file: Path) -> None:
    """Bring SQLite's write-ahead log into the file, for those who copy it alone. Nobody else is waited for."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=0)) as own:
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _sqlite(url: URL) -> Engine:
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        pool_size=16,
        max_overflow=48,
        pool_timeout=_WAIT_SECONDS,
        connect_args={"timeout": _WAIT_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("ledger_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            pool_size=8,
            max_overflow=24,
            pool_timeout=_WAIT_SECONDS,
            pool_pre_ping=True,
            connect_args={"options": _POSTGRESQL_OPTIONS, "connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError("a PostgreSQL ledger needs psycopg: pip install 'gpufleet[postgresql]'") from error

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get("ledger_write"):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")

    return engine


_SQLITE_PERSON = (
    "unable to open",
    "readonly database",
    "disk is full",
    "malformed",
    "not a database",
    "no such",
)
_SQLSTATE_PERSON = ("42", "53100", "25006")  # no right or no table, disk full, read-only


def _translate(error: exc.DBAPIError | exc.TimeoutError, name: str) -> FleetError:
    """Busy or cut off: TransientError. A wrong URL: ConfigurationError. Whatever else a person must mend, or is a
    fault of ours: LedgerUnusable."""
    if isinstance(error, exc.TimeoutError):
        return TransientError(f"the ledger {name} is busy: no free connection for {_WAIT_SECONDS} s")
    text = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    state = str(getattr(error.orig, "sqlstate", None) or "")
    if state.startswith("28") or "password authentication failed" in text or "no password supplied" in text:
        return CredentialsRejected(f"the ledger {name} refused the credentials")
    if state.startswith("3D") or ('database "' in text and "does not exist" in text):
        return ConfigurationError(f"the ledger {name} cannot be used: {text}")
    if state.startswith(_SQLSTATE_PERSON) or any(word in text for word in _SQLITE_PERSON):
        return LedgerUnusable(f"the ledger {name} cannot be used: {text}")
    if isinstance(error, exc.OperationalError | exc.InterfaceError) or error.connection_invalidated:
        return TransientError(f"the ledger {name} did not answer: {text}")
    return LedgerUnusable(f"the ledger {name} refused a statement: {text}")

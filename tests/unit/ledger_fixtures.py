"""A ledger on each kind of database; a pytest plugin of the ledger's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real import postgresql
from unit.ledger_tools import FakeClock

from ledger import Ledger


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.Server]:
    folder = postgresql.binaries()
    if folder is None:
        pytest.skip("initdb is not installed (Debian: postgresql)")
    with postgresql.Server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: postgresql.Server) -> str:
    """A database that is migrated already: copying it is quicker than migrating."""
    name = postgresql_server.create()
    Ledger.open(postgresql_server.url(name), FakeClock()).close()
    return name


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty or just migrated database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server: postgresql.Server = request.getfixturevalue("postgresql_server")
    return server.url(server.create(request.getfixturevalue("postgresql_template")))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(url: str, clock: FakeClock) -> Iterator[Ledger]:
    opened = Ledger.open(url, clock, actor="tester@desk")
    yield opened
    opened.close()

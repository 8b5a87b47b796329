"""What all tests share: the corpus' place, and that a CI run skips nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

import ledger.ledger
from adapters.clock import SystemClock
from ledger import Ledger
from ledger.database import Database

# A shared machine is slow at times: how long one example takes says nothing. Hypothesis would repeat the same examples
# wherever CI is set; new ones are wanted there too, and the failure prints what repeats it.
settings.register_profile("gpufleet", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("gpufleet")

ROOT = Path(__file__).resolve().parent.parent
CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real outputs, read in place: $GPUFLEET_SHARED, else ../shared beside the clone."""
    folder = Path(os.environ.get("GPUFLEET_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no corpus at {folder}: set GPUFLEET_SHARED")
    return folder


_MIGRATING = frozenset({"test_ledger_database.py", "test_ledger_parts.py", "test_ledger_facts.py"})
_migrate = ledger.ledger.migrate


@pytest.fixture(scope="session")
def new_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger of today's schema, as the migrations make it."""
    file = tmp_path_factory.mktemp("template") / "ledger.db"
    Ledger.open(f"sqlite:///{file}", SystemClock()).close()
    return file


@pytest.fixture(autouse=True)
def _ledgers_from_a_copy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests open more than a thousand new ledgers, and the migrations take 0.08 s each time: they run once."""
    if request.path.name in _MIGRATING:
        return
    template: Path = request.getfixturevalue("new_ledger")

    def migrate(database: Database) -> None:
        if database.made_now and database.file is not None:
            with closing(sqlite3.connect(template)) as source, closing(sqlite3.connect(database.file)) as target:
                source.backup(target)
        _migrate(database)

    monkeypatch.setattr(ledger.ledger, "migrate", migrate)


_LONGEST = (
    "test_driver_apt.py",
    "test_driver_killed.py",
    "test_canary_visit.py",
    "test_canary_rollback.py",
    "test_driver_give_back.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)  # stable


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and a CI run skips nothing: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and a CI run skips nothing: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)

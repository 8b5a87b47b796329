"""What all tests share: the corpus' place, and that a CI run skips nothing."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

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

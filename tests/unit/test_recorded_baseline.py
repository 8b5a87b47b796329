"""A finished rollout leaves its bundle as the baseline of its pools."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli_site import CliSite, cli_site, plan_of_one
from unit.site_fakes import NEW

from blocks.fleet import Fleet
from fleet.errors import LeaseLost
from tasks.baselines import FIRMWARE, record_baselines
from tasks.operations import OperationRun


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    return cli_site(tmp_path, monkeypatch)


def _run(site: CliSite) -> OperationRun:
    operation = site.operation()
    return OperationRun(Fleet(fleet_file=str(site.file)), operation, site.hold(operation), plan_of_one())


def test_every_pool_of_the_operation_gets_its_bundle_as_baseline_and_no_other_pool(site: CliSite) -> None:
    run = _run(site)
    record_baselines(run)
    baseline = site.ledger().baselines.current("train", FIRMWARE)
    assert baseline is not None
    assert (baseline.actor, baseline.digest) == (run.operation, "b" * 64)
    assert baseline.document == {
        "bundle": "hgx",
        "release": "24.09",
        "digest": "b" * 64,
        "versions": {"gpu": NEW, "sw": NEW},
    }
    assert site.ledger().baselines.current("dev", FIRMWARE) is None


def test_a_runner_that_died_before_the_end_was_written_records_it_once(site: CliSite) -> None:
    run = _run(site)
    record_baselines(run)
    record_baselines(run)
    assert len(site.ledger().baselines.history("train", FIRMWARE)) == 1


def test_a_runner_that_was_replaced_moves_no_baseline(site: CliSite) -> None:
    run = _run(site)
    site.hold(run.operation)
    with pytest.raises(LeaseLost):
        record_baselines(run)
    assert site.ledger().baselines.current("train", FIRMWARE) is None

"""A driver rollout on a real Prefect server: a slower release is found and taken back, a good one goes to all nodes.

Its process is killed while a node is being changed, and again while the way back is under way.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes
from fleet.canary_verdict import CanaryVerdict, Outcome, Why
from fleet.model import NodeState
from ledger import NodeStatus, OperationState
from simulator.driver_verdict import DriverExpectations, judge_drivers
from simulator.host.releases import FIRST
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

SLOWER, GOOD = "580.65.06", "580.95.05"
POOL = "driven"


def begin(site: Site, release: str) -> str:
    said = site.done("run", "driver", "--to", release, "--pool", POOL, "--seed", "1", "--yes", "--json")
    return str(json.loads(said)["operation"])


def kill_runner_of(site: Site, operation: str) -> None:
    """kill -9 of the operation's flow process, then what an operator does."""
    runner = site.operation(operation).runner
    assert runner is not None
    (process,) = [found for found in flow_processes(RunFolder(site.file).path) if found.pid == runner.pid]
    os.kill(runner.pid, signal.SIGKILL)
    site.wait("the killed process's end", lambda: not process.is_running() or process.status() == "zombie")
    site.reconcile()


def begun(site: Site, operation: str, step: str) -> bool:
    """Whether a node of the operation is in the middle of the step."""
    last = [site.ledger.journal.last(operation, node, step) for node in site.nodes(POOL)]
    return any(entry is not None and entry.outcome is None for entry in last)


def children(site: Site, operation: str, kind: str) -> list[str]:
    """Operations of this kind that were begun for the operation's waves, by the marks that it kept."""
    marks = {mark for wave in (1, 2, 3) for mark in site.ledger.waves.marks(operation, wave)}
    found = [mark.partition(":")[2] for mark in sorted(marks)]
    return [child for child in found if child and site.operation(child).kind == kind]


def test_a_slower_release_is_taken_back_everywhere_and_a_good_one_goes_to_all(site: Site, tmp_path: Path) -> None:
    nodes = site.nodes(POOL)
    bad = begin(site, SLOWER)
    site.wait(f"{bad} installs", lambda: begun(site, bad, "driver:install"), seconds=240)
    kill_runner_of(site, bad)
    (back,) = site.wait("the way back", lambda: children(site, bad, "driver_rollback"), seconds=300)
    site.wait(f"{back} installs", lambda: begun(site, back, "restore:install"), seconds=120)
    kill_runner_of(site, back)
    kept = site.wait_until(bad, OperationState.FAILED, seconds=300)

    assert "fail, slower: seen in all_reduce" in kept.reason, kept.reason
    assert "the former driver was put back" in kept.reason
    assert len(children(site, bad, "measurement")) == 3  # its controls: before, after, after the return; none twice
    assert "the effect went away with the driver" in kept.reason
    record = site.ledger.verdicts.newest(bad)
    assert record is not None
    verdict = CanaryVerdict.from_json(record.verdict_json)
    assert (verdict.outcome, verdict.why) == (Outcome.FAIL, Why.SLOWER)
    assert {one.name: one.outcome for one in verdict.measures}["hbm_bandwidth"] is not Outcome.FAIL
    changed = sorted(site.with_status(bad, NodeStatus.UPDATED))
    assert sorted(site.with_status(back, NodeStatus.UPDATED)) == changed
    expected = DriverExpectations(FIRST, must_not_change=frozenset(nodes) - frozenset(changed))
    assert judge_drivers(site.folder / "truth.jsonl", expected).wrong() == ()
    assert {site.ledger.inventory.node(node).state for node in nodes} == {NodeState.IN_SERVICE}

    page = tmp_path / "report.html"
    shown = site.gpufleet("verdict", bad, "--html", str(page))
    assert shown.returncode == 1, shown.stderr
    assert "all_reduce" in page.read_text()

    good = begin(site, GOOD)
    site.wait_until(good, OperationState.DONE, seconds=600)
    assert sorted(site.with_status(good, NodeStatus.UPDATED)) == nodes
    others = dict.fromkeys(site.nodes("measured"), FIRST)
    assert judge_drivers(site.folder / "truth.jsonl", DriverExpectations(GOOD, others)).wrong() == ()
    assert site.at_rest(POOL)
    assert site.ledger.audit.verify() == []

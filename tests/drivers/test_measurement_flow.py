"""A measurement on a real Prefect server: drained, benchmarked, given back; and its process killed on the way."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes
from fleet.model import NodeState
from ledger import NodeStatus, OperationState, Outcome
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

PER_GPU = ("hbm_bandwidth", "host_to_device", "gemm")


def begin(site: Site, *options: str) -> str:
    said = site.done("measure", ",".join(site.nodes("measured")), "--runs", "1", "--yes", "--json", *options)
    return str(json.loads(said)["operation"])


def test_nodes_are_measured_and_given_back_though_the_process_is_killed_while_it_measures(site: Site) -> None:
    nodes = site.nodes("measured")
    operation = begin(site, "--reason", "slow since Monday")

    def measures() -> bool:
        last = [site.ledger.journal.last(operation, node, "measure:before") for node in nodes]
        return all(entry is not None and entry.outcome is None for entry in last)

    site.wait(f"{operation} measures", measures)
    runner = site.operation(operation).runner
    assert runner is not None
    (process,) = [found for found in flow_processes(RunFolder(site.file).path) if found.pid == runner.pid]
    os.kill(runner.pid, signal.SIGKILL)
    site.wait("the killed process's end", lambda: not process.is_running() or process.status() == "zombie")
    site.done("up")
    site.reconcile()

    site.wait_until(operation, OperationState.DONE, seconds=240)
    assert sorted(site.with_status(operation, NodeStatus.UNCHANGED)) == nodes
    for node in nodes:
        tries = [entry for entry in site.ledger.journal.entries(operation, node) if entry.step == "measure:before"]
        assert [entry.outcome for entry in tries] == [None, Outcome.DONE]
        assert site.ledger.inventory.node(node).state is NodeState.IN_SERVICE
    assert site.at_rest("measured")

    shown = json.loads(site.done("measure", "--show", operation, "--json"))["measured"]
    found = {(row["node"], row["measure"]): (row["values"], row["missing"]) for row in shown}
    expected: dict[tuple[str, str], tuple[int, list[object]]] = {
        (node, measure): (8, []) for node in nodes for measure in PER_GPU
    }
    assert found == expected | {(node, "all_reduce"): (1, []) for node in nodes}
    assert all(row["median"] > 0 for row in shown)
    assert site.ledger.audit.verify() == []

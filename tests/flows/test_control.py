"""Halt, resume, abort, cancel and kill in the middle of a wave, on a real Prefect server."""

from __future__ import annotations

import os
import signal

import pytest

from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes
from ledger import NodeStatus, OperationState
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]


def _in_mid_flash(site: Site, operation: str) -> str:
    """A node whose BMC is being sent an image."""

    def look() -> str | None:
        return next((row.node for row in site.rows(operation) if (row.waiting_for or "").startswith("BMC task")), None)

    return site.wait(f"a node of {operation} in mid-flash", look)


def _nodes_in_hand_were_finished(site: Site, operation: str, pool: str) -> None:
    """Every node that was leased before the request is updated, the others are as they were."""
    records = site.ledger.audit.tail(2000)
    asked = next(r.seq for r in records if (r.action, r.subject) == ("operation.request", operation))
    taken = {r.subject: r.seq for r in records if r.action == "lease.acquire" and r.actor.startswith(operation)}
    assert all(seq < asked for seq in taken.values()), "a node was taken after the request"
    assert sorted(site.with_status(operation, NodeStatus.UPDATED)) == sorted(taken)
    assert sorted(site.with_status(operation, NodeStatus.PENDING)) == sorted(set(site.nodes(pool)) - set(taken))
    assert site.with_status(operation, NodeStatus.PENDING), "the request came too late to show anything"
    assert site.at_rest(pool)
    for node, history in site.truth().nodes.items():
        if node in taken:
            assert not history.still_behind
        elif node in site.nodes(pool):
            assert not history.flashed


def _each_component_was_flashed_once(site: Site, pool: str) -> None:
    for node in site.nodes(pool):
        history = site.truth().nodes[node]
        assert sorted(history.flash_order) == sorted(history.behind), node
        assert not history.still_behind


def test_a_halt_finishes_the_nodes_in_hand_and_resume_does_the_rest(site: Site) -> None:
    operation = site.begin("halted")
    _in_mid_flash(site, operation)
    site.done("halt", operation, "--reason", "storage maintenance")
    halted = site.wait_until(operation, OperationState.HALTED)
    assert halted.reason.startswith("halt was asked for by ")
    _nodes_in_hand_were_finished(site, operation, "halted")

    wrong_wave = site.gpufleet("resume", operation, "--wave", "2")
    assert wrong_wave.returncode != 0
    assert "would go on with wave 1" in wrong_wave.stderr
    site.done("resume", operation, "--wave", "1")
    site.wait_until(operation, OperationState.DONE)
    _each_component_was_flashed_once(site, "halted")
    assert site.at_rest("halted")


def test_an_abort_finishes_the_nodes_in_hand_and_ends_for_good(site: Site) -> None:
    operation = site.begin("aborted")
    _in_mid_flash(site, operation)
    site.done("abort", operation, "--reason", "bad release")
    site.wait_until(operation, OperationState.ABORTED)
    _nodes_in_hand_were_finished(site, operation, "aborted")
    again = site.gpufleet("resume", operation)
    assert again.returncode != 0
    assert "is aborted" in again.stderr


def test_a_cancel_in_the_prefect_ui_is_a_halt(site: Site) -> None:
    operation = site.begin("cancelled")
    _in_mid_flash(site, operation)
    run = site.operation(operation).flow_run_id
    assert site.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})["status"] == "ACCEPT"
    site.wait("the cancelled run's end", lambda: site.run_state(operation) == "CANCELLED")
    site.reconcile()
    site.wait_until(operation, OperationState.HALTED, seconds=120)
    _nodes_in_hand_were_finished(site, operation, "cancelled")
    requests = [r for r in site.ledger.audit.tail(500, operation) if r.action == "operation.request"]
    assert ["cancelled" in record.payload for record in requests] == [True]

    site.done("resume", operation)
    site.wait_until(operation, OperationState.DONE)
    _each_component_was_flashed_once(site, "cancelled")


def test_a_killed_flow_process_is_replaced_and_nothing_is_flashed_twice(site: Site) -> None:
    operation = site.begin("killed")
    _in_mid_flash(site, operation)
    runner = site.operation(operation).runner
    assert runner is not None
    mine = [process for process in flow_processes(RunFolder(site.file).path) if process.pid == runner.pid]
    assert len(mine) == 1
    os.kill(runner.pid, signal.SIGKILL)
    site.wait("the killed process's end", lambda: not mine[0].is_running() or mine[0].status() == "zombie")
    site.done("up")
    site.reconcile()
    site.wait_until(operation, OperationState.DONE, seconds=120)
    assert len(site.with_status(operation, NodeStatus.UPDATED)) == 2
    _each_component_was_flashed_once(site, "killed")
    assert site.at_rest("killed")
    assert site.ledger.audit.verify() == []

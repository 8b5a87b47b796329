"""Commands that only look: status --watch, nodes, audit tail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from unit.cli_site import CliSite, cli_site

from fleet.model import NodeState
from fleet.reasons import ReasonKind
from ledger import ControlVerb, NodeStatus, OperationState


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    return cli_site(tmp_path, monkeypatch)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("look", "nodes", "audit"):
        monkeypatch.setattr(f"cli.{module}.console", Console(width=50))


def _moves(site: CliSite, operation: str, state: OperationState, why: str) -> Callable[[], None]:
    return lambda: site.ledger().operations.set_state(operation, state, ReasonKind.PERSON, why)


@pytest.mark.parametrize(("state", "code"), [(OperationState.DONE, 0), (OperationState.HALTED, 7)])
def test_watching_ends_when_the_operation_ends_or_halts(site: CliSite, state: OperationState, code: int) -> None:
    operation = site.operation()
    site.site_clock.after(30, _moves(site, operation, OperationState.RUNNING, ""))
    site.site_clock.after(90, _moves(site, operation, state, "for a test"))
    began = site.site_clock.monotonic()
    shown = site.run("status", operation, "--watch")
    assert (shown.exit_code, site.site_clock.monotonic() - began) == (code, 90)
    assert f"{operation} firmware_rollout, {state.value}: for a test" in shown.stdout


def test_watching_a_halted_operation_that_was_just_resumed_waits_for_its_run(site: CliSite) -> None:
    operation = site.operation()
    _moves(site, operation, OperationState.HALTED, "for a test")()
    site.site_clock.sleep(5)
    site.ledger().operations.request(operation, ControlVerb.RESUME, "eva", "")
    site.site_clock.after(60, _moves(site, operation, OperationState.RUNNING, ""))
    site.site_clock.after(90, _moves(site, operation, OperationState.DONE, "all of it"))
    assert "done: all of it" in site.run("status", operation, "--watch").stdout


def test_without_a_terminal_each_change_is_a_line(site: CliSite) -> None:
    operation = site.operation()
    site.site_clock.after(30, _moves(site, operation, OperationState.RUNNING, "begun"))
    site.site_clock.after(90, _moves(site, operation, OperationState.DONE, "all of it"))
    said = site.run("status", operation, "--watch").stderr.splitlines()
    assert said.count(f"{operation} running: begun") == 1
    assert f"{operation} done: all of it" in said
    assert any(line.startswith("wave 1 ") and "1 of 1 over (1 failed)" in line for line in said)


def test_watching_with_json_prints_one_object_at_the_end(site: CliSite) -> None:
    operation = site.operation()
    site.site_clock.after(5, _moves(site, operation, OperationState.ABORTED, "enough"))
    shown = site.run("status", operation, "--watch", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["state"]) == (0, "aborted")


def test_ctrl_c_leaves_the_operation_alone(site: CliSite) -> None:
    operation = site.operation()
    _moves(site, operation, OperationState.RUNNING, "")()

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    site.site_clock.after(10, ctrl_c)
    before = site.ledger().audit.head()
    shown = site.run("status", operation, "--watch")
    assert (shown.exit_code, f"{operation} goes on" in shown.stderr) == (0, True)
    assert site.ledger().operations.control(operation) is None
    assert site.ledger().audit.head() == before


def test_watching_needs_an_operation_whose_plan_can_be_read(site: CliSite) -> None:
    assert site.run("status", "--watch").exit_code == 2
    other = site.ledger().operations.create("drain", "{}", "d" * 64, "ann").id
    refused = site.run("status", other, "--watch")
    assert (refused.exit_code, "is not the one its digest names" in refused.stderr) == (2, True)


@pytest.mark.usefixtures("narrow")
def test_an_operation_id_is_whole_in_a_narrow_terminal(site: CliSite) -> None:
    operation = site.operation()
    _moves(site, operation, OperationState.HALTED, "a rather long reason that needs many words to be told")()
    assert operation in site.run("status").stdout


def test_a_reason_in_brackets_is_shown_letter_by_letter(site: CliSite, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("look", "nodes", "audit"):
        monkeypatch.setattr(f"cli.{module}.console", Console(width=200))
    operation = site.operation(NodeStatus.PENDING)
    site.ledger().operations.finish_node(operation, "gpu-0001", NodeStatus.SKIPPED, "by gpufleet[fw-1]")
    site.quarantine("by gpufleet[fw-1]")
    for command in (("status", operation), ("why", "gpu-0001"), ("nodes",), ("audit", "tail")):
        assert "gpufleet[fw-1]" in site.run(*command).stdout, command


def test_nodes_are_listed_by_pool_rack_and_state(site: CliSite) -> None:
    site.quarantine()

    def names(*options: str) -> list[str]:
        return [node["node"] for node in json.loads(site.run("nodes", *options, "--json").stdout)["nodes"]]

    assert names() == ["gpu-0001", "gpu-0002", "gpu-0003"]
    assert names("--pool", "train") == ["gpu-0001", "gpu-0002"]
    assert names("--rack", "r02", "--pool", "train") == ["gpu-0002"]
    assert names("--state", NodeState.QUARANTINED.value) == ["gpu-0001"]
    assert "no such nodes" in site.run("nodes", "--state", "rma").stdout


def test_the_table_of_nodes_says_who_holds_a_node_and_why(site: CliSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.nodes.console", Console(width=160))
    operation = site.operation()
    site.hold(operation)
    site.ledger().inventory.move("gpu-0001", NodeState.DRAINING, "waits for its work", operation)
    line = next(line for line in site.run("nodes").stdout.splitlines() if "gpu-0001" in line)
    assert all(text in line for text in ("train", "r01", "draining", operation, "waits for its work"))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--pool", "trian"), 6, "no pool 'trian' in this fleet; did you mean 'train'?"),
        (("--rack", "r9"), 6, "r01, r02"),
        (("--state", "fine"), 2, "quarantined"),
    ],
)
def test_a_filter_that_names_nothing_says_what_there_is(
    site: CliSite, options: tuple[str, ...], code: int, said: str
) -> None:
    refused = site.run("nodes", *options)
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (code, True)


def test_the_newest_audit_records_come_last_with_their_evidence(site: CliSite) -> None:
    operation = site.operation()
    site.quarantine()
    records = json.loads(site.run("audit", "tail", "-n", "2", "--json").stdout)["records"]
    assert [(record["action"], record["subject"]) for record in records] == [
        ("operation.node", "gpu-0001"),
        ("node.move", "gpu-0001"),
    ]
    assert records[-1]["evidence"]["reason"] == "reset ignored"
    last = site.run("audit", "tail", "-n", "1").stdout
    assert (last.count("\n"), "node.move gpu-0001 {" in last) == (1, True)
    only = json.loads(site.run("audit", "tail", "--subject", operation, "--json").stdout)["records"]
    assert {record["subject"] for record in only} == {operation}


def test_the_audit_table_says_when_there_is_nothing(site: CliSite) -> None:
    assert "no such records" in site.run("audit", "tail", "--subject", "nobody").stdout
    assert site.run("audit", "verify").exit_code == 0

"""`gpufleet measure`: the plan is shown and confirmed, and what was measured is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from unit.cli_site import CliSite, cli_site
from unit.measurement_site import MISSING, ToolHost
from unit.site_fakes import SPEC as ONE_NODE

from blocks.fleet import Fleet
from fleet.errors import TransientError
from fleet.measures import Phase
from ledger import NodeStatus, Operation, Runner
from tasks.measurement import Measuring, make_measurement_plan, measure_visit, read_measurement_plan
from tasks.operations import OperationRun
from tasks.scheduler import wait_until_empty
from tasks.standing import before_now
from tasks.visit import Visit

NODE = "gpu-0001"


class Started:
    """Flow runs that were asked for, as (fleet, operation)."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, Operation]] = []
        self.error: TransientError | None = None

    def start(self, fleet: str, operation: Operation, after: str = "") -> str:
        if self.error is not None:
            raise self.error
        self.runs.append((fleet, operation))
        return "2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr("tasks.runs.start_run", made.start)
    monkeypatch.setattr("cli.measure.use_server", lambda file, required: None)
    monkeypatch.setattr("cli.measure.console", Console(width=200))
    return made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    return cli_site(tmp_path, monkeypatch, ONE_NODE)


def measured(site: CliSite) -> str:
    """An operation that has measured the node."""
    ledger = site.ledger()
    operation = ledger.operations.create("measurement", "{}", "d" * 64, "ann").id
    ledger.operations.add_nodes(operation, [(NODE, 1, 0)])
    token = ledger.operations.claim(operation, Runner("lab", 1, 1.0, None))
    fleet = Fleet(fleet_file=str(site.file))
    plan = make_measurement_plan(fleet, [NODE], Phase.BEFORE, 1, "")
    before = before_now(OperationRun(fleet, operation, token, plan), (NODE,))
    ledger.leases.acquire(operation, token, (NODE,), before)
    node = site.spec.inventory()[0]
    visit = Visit(fleet, operation, token, node, plan.nodes[NODE], before[NODE], (NODE,), 3600.0, {})
    measure_visit(visit, Measuring(Phase.BEFORE, 1, site.spec.canary), wait_until_empty.fn)
    return operation


def test_the_plan_is_only_shown_with_plan(site: CliSite, started: Started) -> None:
    shown = site.run("measure", NODE, "--plan", "--runs", "2")
    assert (shown.exit_code, started.runs) == (0, [])
    assert "1 node to measure, 2 runs of each benchmark" in shown.stdout
    planned = json.loads(site.run("measure", NODE, "--plan", "--json").stdout)
    assert (planned["kind"], planned["phase"], planned["runs"], list(planned["nodes"])) == (
        "measurement",
        "before",
        3,
        [NODE],
    )
    assert site.ledger().operations.list() == ()


def test_nothing_begins_where_the_person_says_no(site: CliSite, started: Started) -> None:
    refused = site.run("measure", NODE, answer="n\n")
    assert (refused.exit_code, started.runs) == (8, [])
    assert "Measure 1 node?" in refused.stdout
    assert site.ledger().operations.list() == ()


def test_a_measurement_that_is_confirmed_begins_with_the_plan_that_was_shown(site: CliSite, started: Started) -> None:
    begun = site.run("measure", NODE, "--reason", "slow", answer="y\n")
    assert begun.exit_code == 0
    ((fleet, operation),) = started.runs
    assert (fleet, operation.kind) == ("lab", "measurement")
    assert operation.digest[:16] in begun.stdout
    plan = read_measurement_plan(operation)
    assert (plan.reason, plan.phase, plan.parent, list(plan.nodes)) == ("slow", Phase.BEFORE, None, [NODE])
    assert site.ledger().operations.get(operation.id).flow_run_id is not None
    rows = json.loads(site.run("status", operation.id, "--json").stdout)["nodes"]
    assert [(row["node"], row["status"]) for row in rows] == [(NODE, NodeStatus.PENDING.value)]


def test_machines_get_the_operation_as_json(site: CliSite, started: Started) -> None:
    begun = json.loads(site.run("measure", NODE, "--yes", "--json").stdout)
    assert begun["operation"] == started.runs[0][1].id
    assert begun["nodes"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "give nodes to measure, or --show OP"),
        ((NODE, "--show", "ms-1"), 2, "give nodes to measure, or --show OP"),
        (("--show", "ms-1"), 6, "no operation 'ms-1'"),
        (("gpu-9999", "--plan"), 6, "not in the fleet file: gpu-9999"),
        ((NODE, "--runs", "0"), 2, "--runs"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    site: CliSite, started: Started, arguments: tuple[str, ...], code: int, said: str
) -> None:
    refused = site.run("measure", *arguments)
    assert refused.exit_code == code
    assert said in " ".join(refused.stderr.split())


def test_several_nodes_and_hostlists_are_taken_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = cli_site(tmp_path, monkeypatch)
    refused = site.run("measure", "gpu-[0001-0002]", "gpu-0003", "gpu-9999", "--plan")
    assert "not in the fleet file: gpu-9999" in refused.stderr
    shown = site.run("measure", "gpu-[0001-0002]", "gpu-0003", "--plan", "--json")
    planned = json.loads(shown.stdout)
    assert set(planned["nodes"]) | set(planned["left_out"]) == {"gpu-0001", "gpu-0002", "gpu-0003"}


def test_the_table_shows_median_spread_unit_and_why_values_are_missing(site: CliSite, started: Started) -> None:
    host = ToolHost()
    host.tools["all_reduce_perf"] = MISSING
    site.fake_host = host
    operation = measured(site)
    shown = site.run("measure", "--show", operation)
    lines = {line.split()[1]: line for line in shown.stdout.splitlines() if line.startswith(NODE)}
    assert set(lines) == {"hbm_bandwidth", "host_to_device", "all_reduce", "gemm"}
    assert all(text in lines["hbm_bandwidth"] for text in ("2903.5", "0.24%", "GB/s"))
    assert "1 missing: all_reduce_perf is not installed" in lines["all_reduce"]
    rows = {
        row["measure"]: row for row in json.loads(site.run("measure", "--show", operation, "--json").stdout)["measured"]
    }
    assert (rows["hbm_bandwidth"]["median"], rows["hbm_bandwidth"]["values"]) == (2903.5, 8)
    assert rows["all_reduce"]["median"] is None
    assert rows["all_reduce"]["missing"] == [{"reason": "all_reduce_perf is not installed", "values": 1}]


def test_an_operation_that_has_measured_nothing_says_so(site: CliSite, started: Started) -> None:
    operation = site.operation()
    assert "nothing measured yet" in site.run("measure", "--show", operation).stdout
    assert json.loads(site.run("measure", "--show", operation, "--json").stdout)["measured"] == []

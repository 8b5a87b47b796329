"""`gpufleet drift`: what is printed, and how it ends."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner
from unit.cli_site import CliSite, cli_site
from unit.drift_facts import AT, BASELINE, good_fleet, gpu, reading, without

from blocks.scheduler import SharedScheduler
from cli.drift import drift
from cli.session import csv_cell
from fleet.errors import SchedulerUnreachable
from fleet.facts import NodeFacts
from fleet.model import Job

OLD = "570.172.08"
NODES = ("gpu-0001", "gpu-0002")
OFF = reading("gpu-0002", gpus=(gpu(1, "gpu-0002", {"ecc_mode": "disabled"}), gpu(2, "gpu-0002")))


class Site:
    """A fleet with a baseline, and what its last sweep read."""

    def __init__(self, inner: CliSite) -> None:
        self.inner = inner
        self.facts: tuple[NodeFacts, ...] = good_fleet()
        self.baseline = inner.file.with_name("baseline.yaml")
        self.baseline.write_text(BASELINE)
        self.app = typer.Typer()
        self.app.command()(drift)

    def run(self, *options: str) -> Result:
        self.inner.ledger().facts.record(self.facts)
        return CliRunner().invoke(self.app, [*options, "--fleet", str(self.inner.file)])

    def json(self, *options: str) -> dict[str, list[dict[str, str]]]:
        document: dict[str, list[dict[str, str]]] = json.loads(self.run(*options, "--json").stdout)
        return document


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(cli_site(tmp_path, monkeypatch))
    monkeypatch.setattr("cli.drift_tables.console", Console(width=220))
    return made


def test_a_fleet_as_it_should_be_ends_with_0(site: Site) -> None:
    shown = site.run()
    assert shown.exit_code == 0
    assert "52 items ok (0 by exception), 0 drifted on 0 nodes, 0 unknown" in shown.stdout
    assert "pool dev has no baseline: 1 not judged" in shown.stdout


def test_a_drift_ends_with_1_and_says_since_when_and_what_mends_it(site: Site) -> None:
    assert site.run().exit_code == 0
    site.facts = (replace(OFF, at=AT + timedelta(minutes=30)),)
    shown = site.run()
    line = next(line for line in shown.stdout.splitlines() if line.startswith("gpu-0002"))
    assert shown.exit_code == 1
    for text in ("gpu 0000:1b:00.0", "ecc_mode", "drifted", "on", "disabled", "2026-11-30 12:30", "driver settings"):
        assert text in line


def test_nodes_that_differ_alike_share_a_line_and_each_gives_every_one(site: Site) -> None:
    def lines(*options: str) -> list[str]:
        shown = site.run("--only", "drifted", *options).stdout.splitlines()
        return [" ".join(line.split()) for line in shown if line.startswith("gpu-") and "mixed" not in line]

    assert site.run().exit_code == 0
    old = {"kernel.running": "5.15.0-1-generic"}
    off = {name: (gpu(1, name, {"ecc_mode": "disabled"}), gpu(2, name, {"ecc_mode": "disabled"})) for name in NODES}
    site.facts = tuple(
        replace(reading(name, old, gpus=off[name]), at=AT + timedelta(minutes=minutes))
        for name, minutes in zip(NODES, (10, 20), strict=True)
    )
    kernel, ecc = lines()
    assert kernel.startswith("gpu-[0001-0002] node kernel.running drifted 6.8.0-*-generic 5.15.0-1-generic")
    assert "2026-11-30 12:10 to 2026-11-30 12:20 person" in kernel
    assert ecc.startswith("gpu-[0001-0002] gpu 0000:1b:00.0, gpu 0000:2b:00.0 ecc_mode drifted on disabled")
    assert len(lines("--each")) == 6
    assert len(site.json("--only", "drifted")["rows"]) == 6


def test_each_gives_every_unknown_item_too(site: Site) -> None:
    site.facts = ()
    lines = [line for line in site.run("--each").stdout.splitlines() if line.startswith("gpu-")]
    assert (len(lines), all("unknown" in line for line in lines)) == (40, True)


def test_unknown_alone_ends_with_3_and_nodes_that_were_never_read_are_one_line(site: Site) -> None:
    site.facts = ()
    shown = site.run()
    lines = [line.split() for line in shown.stdout.splitlines() if line.startswith("gpu-")]
    assert shown.exit_code == 3
    assert [" ".join(line) for line in lines] == [
        "gpu-[0001-0002] node, gpu ? 20 items unknown the node was never read"
    ]


def test_a_node_that_can_no_longer_be_read_is_unknown_with_its_gpus(site: Site) -> None:
    assert site.run("--node", "gpu-0001").exit_code == 0
    later = AT + timedelta(minutes=5)
    site.facts = (NodeFacts("gpu-0001", later, "probe", {"probe.state": "refused"}, {"probe": "connection refused"}),)
    shown = site.run("--node", "gpu-0001")
    assert shown.exit_code == 3
    assert "0 items ok (0 by exception), 0 drifted on 0 nodes, 25 unknown" in shown.stdout
    assert "connection refused; last read 2026-11-30 12:00" in shown.stdout


def test_drift_weighs_more_than_unknown(site: Site) -> None:
    site.facts = (OFF,)
    assert site.run().exit_code == 1
    assert site.run("--node", "gpu-0001").exit_code == 3
    assert site.run("--only", "unknown").exit_code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            BASELINE.replace("driver:", "drivr:"),
            "baseline.yaml:4: pools.train.drivr: unknown key; did you mean 'driver'?",
        ),
        (BASELINE.replace("train:", "trian:"), "the fleet file has no pool 'trian'; did you mean 'train'?"),
        ("", "a baseline is a mapping"),
    ],
)
def test_a_wrong_baseline_ends_with_2_and_every_fault(site: Site, text: str, said: str) -> None:
    site.baseline.write_text(text)
    shown = site.run()
    assert (shown.exit_code, said in shown.stderr) == (2, True)


def test_a_baseline_that_is_not_there_or_no_text_ends_with_2(site: Site, tmp_path: Path) -> None:
    site.baseline.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in site.run().stderr
    site.baseline.unlink()
    shown = site.run()
    assert (shown.exit_code, "cannot read the baseline" in shown.stderr) == (2, True)
    other = tmp_path / "other.yaml"
    other.write_text(BASELINE)
    assert site.run("--baseline", str(other)).exit_code == 0


def test_filters_choose_nodes_and_facts(site: Site) -> None:
    site.facts = (reading("gpu-0001", {"kernel.running": "5.15.0-1-generic"}), OFF)

    def rows(*options: str) -> set[tuple[str, str]]:
        return {(row["node"], row["fact"]) for row in site.json("--only", "drifted", *options)["rows"]}

    both = {("gpu-0001", "kernel.running"), ("gpu-0002", "ecc_mode")}
    assert rows() == rows("--pool", "train") == rows("--node", "gpu-[0001-0002]") == both
    assert rows("--rack", "r02") == rows("--fact", "ecc*") == {("gpu-0002", "ecc_mode")}
    assert rows("--pool", "dev") == set()
    assert site.run("--rack", "r01", "--fact", "ecc_mode").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--pool", "trian"), 6, "did you mean 'train'?"),
        (("--rack", "r9"), 6, "r01, r02"),
        (("--node", "gpu-[0003-0005]"), 6, "'gpu-0004', 'gpu-0005'"),
        (("--node", "gpu-[1"), 2, "not closed"),
        (("--only", "fine"), 2, "drifted"),
        (("--json", "--csv"), 2, "one of"),
    ],
)
def test_an_option_that_names_nothing_says_what_there_is(
    site: Site, options: tuple[str, ...], code: int, said: str
) -> None:
    shown = site.run(*options)
    assert (shown.exit_code, said in shown.stderr) == (code, True)


def test_json_has_every_row_and_csv_a_line_for_each(site: Site) -> None:
    site.facts = (reading("gpu-0001"), OFF)
    document = site.json()
    assert document["counts"] == {"ok": 51, "drifted": 1, "unknown": 0}
    table = list(csv.DictReader(io.StringIO(site.run("--csv").stdout)))
    assert len(document["rows"]) == len(table) == 52
    drifted = next(row for row in table if row["verdict"] == "drifted")
    assert (drifted["part"], drifted["since"]) == ("gpu:gpu-0002-1", "2026-11-30T12:00:00+00:00")


def test_an_exception_is_shown_and_ends_with_0(site: Site) -> None:
    accept = "    accept:\n      - {nodes: gpu-0002, fact: ecc_mode, until: 2099-12-31, why: for a test}\n"
    site.baseline.write_text(BASELINE + accept)
    site.facts = (reading("gpu-0001"), OFF)
    shown = site.run()
    assert (shown.exit_code, "allowed until 2099-12-31: for a test" in shown.stdout) == (0, True)
    assert "1 by exception" in shown.stdout


def test_mixed_drivers_in_a_running_job_end_with_1_even_where_no_baseline_minds(site: Site) -> None:
    changed = {"driver.loaded": OLD, "driver.on_disk": OLD, "driver.user_space": OLD, "fabric_manager.version": OLD}
    site.baseline.write_text(BASELINE.replace("    driver: 580.105.08\n", ""))
    site.facts = (reading("gpu-0001"), reading("gpu-0002", changed))
    assert site.run().exit_code == 0
    job = Job("4711", "llm", "ada", "RUNNING", ("gpu-0001", "gpu-0002"), 16, 1.0, None, "", "ml", "gpu")
    site.inner.fake_scheduler.jobs = (job,)
    shown = site.run()
    assert shown.exit_code == 1
    assert "job 4711: mixed.driver" in shown.stdout
    assert {group["name"] for group in site.json("--fact", "driver.loaded")["mixed"]} == {"4711"}
    assert site.run("--fact", "kernel.running").exit_code == 0


def test_a_scheduler_that_does_not_answer_is_said_and_hides_no_drift(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(SharedScheduler):
        def read_jobs(self) -> tuple[Job, ...]:
            raise SchedulerUnreachable("slurmctld does not answer")

    inner = site.inner
    silent = Silent(inner.fake_scheduler, inner.clock, 0.0)
    monkeypatch.setattr(inner, "scheduler", lambda: silent)
    site.facts = (reading("gpu-0001"), OFF)
    shown = site.run()
    assert shown.exit_code == 1
    assert "mixed versions inside jobs are not known: slurmctld does not answer" in shown.stdout


def test_a_rollout_that_left_other_firmware_is_said_and_changes_no_exit_code(site: Site) -> None:
    document = {"bundle": "hgx", "versions": {"vbios": "96.00.C2.00.01"}}
    site.inner.ledger().baselines.set("train", "firmware", document, "d" * 64, "fw-1")
    shown = site.run()
    assert shown.exit_code == 0
    assert "pool train firmware vbios: baseline.disagrees" in shown.stdout
    assert "last rollout 96.00.C2.00.01" in shown.stdout


def test_text_in_brackets_is_shown_letter_by_letter(site: Site) -> None:
    lost = without(reading("gpu-0001"), "kernel.running", "[red]uname[/red] failed")
    site.facts = (lost, replace(OFF, facts={**OFF.facts, "os.release": "[bold]Debian"}))
    shown = site.run().stdout
    assert "[red]uname[/red] failed" in shown
    assert "[bold]Debian" in shown


def test_nodes_and_facts_that_fit_nothing_do_not_look_like_order(site: Site) -> None:
    nothing = site.run("--node", "")
    assert (nothing.exit_code, nothing.stdout) == (6, "")
    assert "the baseline judges no fact 'driver_loaded'" in site.run("--fact", "driver_loaded").stdout


@pytest.mark.parametrize(
    ("cell", "told"),
    [("=cmd|x", "'=cmd|x"), ("@SUM(A1)", "'@SUM(A1)"), ("-2+3", "'-2+3"), ("-5", "-5"), ("ok", "ok"), (None, None)],
)
def test_a_spreadsheet_runs_no_cell_of_ours(cell: str | None, told: str | None) -> None:
    assert csv_cell(cell) == told

"""`gpufleet jobs`: each job's checkpoints, its interval against the fleet's failures, and what stopping it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console
from unit.checkpoint_tools import NOW, tree
from unit.cli_site import SPEC, CliSite, cli_site
from unit.knowledge_tools import reading

from fleet.checkpoint_readers.listing import Listing
from fleet.errors import NodeUnreachable, SchedulerUnreachable
from fleet.json_values import JsonObject
from fleet.model import Job
from ledger import NodeStatus

WITH_STORAGE = SPEC + "drain: {checkpoints: {clock_folder: /ckpt/.clock}}\n"
NODE = "gpu-0001"
HOUR, DAY = 3600.0, 86400.0


class Trees:
    """Folders by path; one that is not here does not exist. `away`: the storage's host does not answer."""

    def __init__(self) -> None:
        self.folders: dict[str, Listing] = {}
        self.away = False

    def read_tree(self, root: str, seconds: float) -> Listing:
        if self.away:
            raise NodeUnreachable("timed out")
        return self.folders.get(root) or Listing(root, problem="is not there")

    def steps(self, root: str, every: float, age: float = 20.0, write: float = 2.0, offset: float | None = 0.0) -> None:
        """Three checkpoints of PyTorch DCP; all in minutes."""
        files = []
        for step in range(3):
            written = age + (2 - step) * every
            files += [(f"step-{step + 1}000/__0_0.distcp", written + write), (f"step-{step + 1}000/.metadata", written)]
        self.folders[root] = replace(tree(*files, root=root), offset_seconds=offset)

    def beacon(self, root: str, age: float = 20.0) -> None:
        self.folders[root] = replace(tree(("beacon", age, ""), root=root), offset_seconds=0.0)


def job(ident: str, nodes: int = 1, comment: str | None = None, state: str = "RUNNING") -> Job:
    """A job of 8 GPUs a node that has run for ten hours; one of its nodes is in the fleet."""
    names = (NODE, *(f"far-{number}" for number in range(nodes - 1)))
    told = f"ckpt=/ckpt/{ident};kind=dcp" if comment is None else comment
    return Job(ident, "pretrain", "eva", state, names, 8 * nodes, 10 * HOUR, None, told, "ml", "train")


@pytest.fixture
def trees() -> Trees:
    return Trees()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trees: Trees) -> CliSite:
    made = cli_site(tmp_path, monkeypatch, WITH_STORAGE)
    monkeypatch.setattr(made, "_storage", lambda: trees)
    monkeypatch.setattr("cli.jobs.console", Console(width=400))
    return made


def run(site: CliSite, *jobs: Job) -> None:
    site.fake_scheduler.jobs = jobs


def told(site: CliSite, *options: str) -> dict[str, JsonObject]:
    """The jobs of the JSON answer, by id."""
    shown = site.run("jobs", *options, "--json")
    assert shown.exit_code == 0, shown.output
    return {row["job"]: row for row in json.loads(shown.stdout)["jobs"]}


def sweep(site: CliSite, health: str = "ok") -> None:
    """A reading of every node; `health` is that of gpu-0002."""
    facts = {name: "ok" if name != "gpu-0002" else health for name in ("gpu-0001", "gpu-0002", "gpu-0003")}
    now = site.site_clock.now()
    site.ledger().facts.record(
        reading(name, now, facts={"probe.state": "read", "health": each}) for name, each in facts.items()
    )


def fail(site: CliSite, times: int) -> None:
    """gpu-0002 loses a GPU so many times, a day apart, and gets it back after an hour."""
    for _ in range(times):
        sweep(site)
        site.site_clock.sleep(DAY - HOUR)
        sweep(site, "fatal: gpu 0000:3b:00 gpu.lost")
        site.site_clock.sleep(HOUR)
    sweep(site)


def test_each_job_has_its_verdict_for_its_own_size(site: CliSite, trees: Trees) -> None:
    run(site, job("1", nodes=64), job("2"), job("3", nodes=512))
    trees.steps("/ckpt/1", every=120)
    trees.steps("/ckpt/2", every=45)
    trees.steps("/ckpt/3", every=360)
    found = told(site)
    assert [found[ident]["verdict"] for ident in "123"] == ["suits", "too often", "too rare"]
    assert [found[ident]["interval_seconds"] for ident in "123"] == [7200.0, 2700.0, 21600.0]
    assert all(found[ident]["write_seconds"] == 120.0 and found[ident]["write_measured"] for ident in "123")
    assert found["1"]["recommended_seconds"] == pytest.approx(118 * 60, rel=0.02)
    shown = site.run("jobs").stdout
    assert "3 jobs: 1 suits, 1 too rare, 1 too often; those that do not suit lose about" in shown
    assert "too often: costs 4." in shown
    assert "too rare: loses about" in shown


def test_a_row_says_whose_job_it_is_and_what_stopping_it_now_costs(site: CliSite, trees: Trees) -> None:
    run(site, job("4711", nodes=64))
    trees.steps("/ckpt/4711", every=120)
    row = next(line for line in site.run("jobs").stdout.splitlines() if line.startswith("4711"))
    for cell in ("eva", "train", "64", "512", "step 3000, 20 min ago", "2 h 0 min", "171 GPU-h", "suits"):
        assert f" {cell}" in row, cell
    found = told(site)["4711"]
    assert found["stop_now_gpu_hours"] == pytest.approx(512 / 3)
    checkpoint = found["checkpoint"]
    assert isinstance(checkpoint, dict)
    assert (checkpoint["step"], checkpoint["complete"], checkpoint["age_seconds"]) == (3000, True, 1200.0)


def test_a_clock_that_was_not_measured_is_said(site: CliSite, trees: Trees) -> None:
    run(site, job("4711"))
    trees.steps("/ckpt/4711", every=120, offset=None)
    assert "step 3000, 20 min ago by the storage's clock" in site.run("jobs").stdout


def test_without_readings_the_published_rate_is_assumed_and_named(site: CliSite) -> None:
    shown = site.run("jobs")
    assert shown.exit_code == 0
    assert "no job runs on nodes of this fleet" in shown.stdout
    assert "no node in service was read by a sweep in this time" in shown.stdout
    assert "6.5 per 1,000 node-days is assumed (Meta's RSC-1, arXiv 2410.21680)" in shown.stdout


def test_two_failures_are_too_few_and_are_shown(site: CliSite) -> None:
    fail(site, 2)
    assert (
        "failures of 3 nodes in the last 30 days (2 health): 2 failures in 5.9 node-days in service: "
        "too little to call it a rate; 6.5 per 1,000 node-days is assumed"
    ) in site.run("jobs").stdout


def test_the_fleets_own_rate_counts_from_three_failures_on(site: CliSite, trees: Trees) -> None:
    run(site, job("4711"))
    fail(site, 4)
    trees.steps("/ckpt/4711", every=120, age=20 - (site.site_clock.now() - NOW) / timedelta(minutes=1))
    shown = site.run("jobs", "--json")
    rate = json.loads(shown.stdout)["failure_rate"]
    days = 4 * 3 - 4 / 24
    assert (rate["failures"], rate["assumed"], rate["nodes"]) == (4, None, 3)
    assert rate["node_days"] == pytest.approx(days, abs=0.001)
    assert rate["per_1000_node_days"] == pytest.approx(4000 / days)
    assert rate["limits"][0] < rate["per_1000_node_days"] < rate["limits"][1]
    assert [one["node"] for one in rate["seen"]] == ["gpu-0002"] * 4
    (row,) = json.loads(shown.stdout)["jobs"]
    assert row["mtbf_seconds"] == pytest.approx(days / 4 * DAY)
    assert row["firm"] in (True, False)


def test_days_say_how_far_back_failures_are_counted(site: CliSite) -> None:
    fail(site, 4)
    found = json.loads(site.run("jobs", "--days", "2", "--json").stdout)["failure_rate"]
    assert (found["failures"], found["assumed"] is not None) == (2, True)
    assert site.run("jobs", "--days", "0").exit_code == 2


def test_what_the_job_says_and_what_is_assumed_bear_a_mark(site: CliSite, trees: Trees) -> None:
    run(site, job("5", comment="ckpt=/ckpt/5;kind=beacon;interval=45m"))
    trees.beacon("/ckpt/5")
    plain, assumed = site.run("jobs").stdout, site.run("jobs", "--write-seconds", "90").stdout
    assert "~45 min" in plain
    assert "its files do not show how long a write takes; --write-seconds assumes it" in plain
    assert "too often: costs" in assumed
    assert "~13 h" in assumed
    found = told(site, "--write-seconds", "90")["5"]
    assert (found["interval_measured"], found["write_measured"], found["write_seconds"]) == (False, False, 90.0)
    assert site.run("jobs", "--write-seconds", "0").exit_code == 2


def test_a_storage_that_does_not_answer_leaves_everything_open_and_says_why(site: CliSite, trees: Trees) -> None:
    run(site, job("4711"))
    trees.away = True
    found = told(site)["4711"]
    assert (found["verdict"], found["stop_now_gpu_hours"], found["interval_seconds"]) == ("unknown", None, None)
    assert "not known (the storage of checkpoints does not answer: timed out)" in str(found["text"])


def test_without_a_storage_in_the_fleet_file_the_key_to_set_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = cli_site(tmp_path, monkeypatch)
    run(site, job("4711"))
    assert "the fleet file names no storage of checkpoints: drain.checkpoints" in str(told(site)["4711"]["text"])


def test_consent_is_the_owners_word_before_the_jobs_own(site: CliSite) -> None:
    run(site, job("1", comment="consent=no"), job("2", comment="consent=no"), job("3", comment=""))
    site.ledger().jobs.set_consent("2", True, "eva", "")
    assert [told(site)[ident]["consent"] for ident in "123"] == [False, True, None]


def test_a_job_that_was_stopped_shows_when_it_may_be_again(site: CliSite) -> None:
    stopped = job("7")
    run(site, stopped, job("8"))
    operation = site.operation(NodeStatus.PENDING)
    token, jobs = site.hold(operation), site.ledger().jobs
    jobs.note_release(jobs.meet(operation, token, "7", {}, None), token, stopped, "requeued", 1.0)
    again = site.site_clock.now() + timedelta(days=7)
    site.site_clock.sleep(DAY)
    found = told(site)
    assert (found["7"]["not_before"], found["8"]["not_before"]) == (again.isoformat(), None)
    assert f"{again:%F %H:%M}" in site.run("jobs", "7").stdout
    site.site_clock.sleep(7 * DAY)
    assert told(site)["7"]["not_before"] is None


def test_only_the_jobs_that_are_asked_for_are_shown(site: CliSite) -> None:
    run(site, job("4711"), job("77_1"), job("77_2"), job("77_10"), job("90+0"))
    assert list(told(site, "4711", "90")) == ["90+0", "4711"]
    assert list(told(site, "77")) == ["77_1", "77_2", "77_10"]
    assert list(told(site, "77_2")) == ["77_2"]


def test_a_job_that_is_not_there_is_an_error_with_the_nearest_id(site: CliSite) -> None:
    run(site, job("4711"), replace(job("5000"), nodes=("far-1",)))
    for asked in ("4712", "5000"):
        shown = site.run("jobs", asked)
        assert (shown.exit_code, f"no running job '{asked}'" in shown.stderr) == (6, True)
    assert "did you mean '4711'?" in site.run("jobs", "4712").stderr


def test_a_job_on_other_peoples_nodes_is_none_of_this_fleet(site: CliSite) -> None:
    run(site, replace(job("1"), nodes=("far-1", "far-2")))
    assert told(site) == {}


def test_a_scheduler_that_does_not_answer_is_no_fleet_without_jobs(
    site: CliSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> tuple[Job, ...]:
        raise SchedulerUnreachable("slurmctld: connection refused")

    monkeypatch.setattr(site.fake_scheduler, "read_jobs", away)
    shown = site.run("jobs")
    assert (shown.exit_code, "no job" in shown.stdout) == (4, False)


def test_a_job_that_does_not_run_shows_its_state_and_unknown_gpus_are_no_zero(site: CliSite) -> None:
    run(site, replace(job("9", state="SUSPENDED"), gpus=None))
    row = next(line for line in site.run("jobs").stdout.splitlines() if line.startswith("9 "))
    assert row.startswith("9 (suspended)")
    assert told(site)["9"]["gpus"] is None


def test_names_of_a_job_cannot_act_on_the_terminal(site: CliSite) -> None:
    run(site, replace(job("1"), user="eva\x1b[2J", partition="[bold]tr\nain"))
    shown = site.run("jobs").stdout
    assert "\x1b" not in shown
    assert "[bold]tr ain" in shown


def test_looking_changes_nothing(site: CliSite, trees: Trees) -> None:
    run(site, job("4711"))
    trees.steps("/ckpt/4711", every=120)
    before = site.ledger().audit.head()
    assert site.run("jobs").exit_code == 0
    assert site.ledger().audit.head() == before
    assert (site.fake_scheduler.signalled, site.fake_scheduler.requeued) == ([], [])

"""`gpufleet node` and `gpufleet gpus`, on a fleet that was swept twice."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner
from unit.cli_site import CliSite, cli_site
from unit.knowledge_tools import gpu, reading

from cli.gpus import gpus
from cli.node import node
from cli.session import plain_table
from fleet.model import NodeState

READ = {"probe.state": "read"}
app = typer.Typer()
app.command()(node)
app.command()(gpus)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    for module in ("node", "gpus", "missing"):
        monkeypatch.setattr(f"cli.{module}.console", Console(width=200))
    return cli_site(tmp_path, monkeypatch)


@pytest.fixture
def swept(site: CliSite) -> CliSite:
    """gpu-0001: a GPU replaced and its driver lost a day later; gpu-0002: an A100; stray: in no file, no driver."""
    clock, record = site.site_clock, site.ledger().facts.record
    first, second = gpu("0000:3b:00.0", "S1", "GPU-1"), gpu("0000:3b:00.0", "S2", "GPU-2", {"model": "NVIDIA H100"})
    a100 = gpu("0000:3b:00.0", "S3", facts={"model": "NVIDIA A100", "ecc_mode": "enabled"})
    record(
        [
            reading("gpu-0001", clock.now(), first, facts=READ | {"driver.loaded": "570.10", "os.release": "22.04"}),
            reading("gpu-0002", clock.now(), a100, facts=READ | {"driver.loaded": "570.1"}),
            reading("stray", clock.now(), gpu("5d", "S4"), facts=READ | {"os.release": "22.04"}),
        ]
    )
    clock.sleep(86400)
    lost = {"driver.loaded": "nvidia-smi hung"}
    record([reading("gpu-0001", clock.now(), second, facts=READ | {"os.release": "22.04"}, unknown=lost)])
    return site


def run(site: CliSite, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--fleet", str(site.file)])


def serials(site: CliSite, *options: str) -> list[str]:
    return [row["serial"] for row in json.loads(run(site, "gpus", *options, "--json").stdout)["gpus"]]


def test_a_node_now_shows_what_is_unknown_with_its_last_value(swept: CliSite) -> None:
    shown = run(swept, "node", "gpu-0001").stdout
    assert "in_service since" in shown
    assert "unknown: nvidia-smi hung; was 570.10" in shown
    assert "gpu in 0000:3b:00.0: S2" in shown


def test_a_node_at_a_date_shows_what_was_then(swept: CliSite) -> None:
    day = swept.site_clock.now() - timedelta(days=1)
    document = json.loads(run(swept, "node", "gpu-0001", "--at", f"{day:%F}", "--json").stdout)
    assert (document["facts"]["driver.loaded"]["value"], document["state"]) == ("570.10", "in_service")
    assert [part["key"] for part in document["parts"]] == ["gpu:S1"]
    assert document["at"].startswith(f"{day:%F}T23:59:59")
    before = run(swept, "node", "gpu-0001", "--at", (day - timedelta(hours=1)).isoformat()).stdout
    assert "nothing was read yet: first seen" in before


def test_a_node_that_was_never_read_shows_where_it_stands(swept: CliSite) -> None:
    document = json.loads(run(swept, "node", "gpu-0003", "--json").stdout)
    assert (document["pool"], document["facts"], len(document["unknown"])) == ("dev", {}, 1)
    assert "nothing was ever read" in run(swept, "node", "gpu-0003").stdout


def test_a_node_that_only_a_sweep_knows_has_no_state(swept: CliSite) -> None:
    assert json.loads(run(swept, "node", "stray", "--json").stdout)["state"] is None
    assert "state unknown" in run(swept, "node", "stray").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("node", "nobody"), 6, "nothing was ever read"),
        (("node", "gpu-0001", "--at", "yesterday"), 2, "is no date"),
        (("node", "gpu-0001", "--at", "2999-01-01"), 2, "yet to come"),
        (("gpus", "--nodes", "gpu-[1"), 2, "not closed"),
        (("gpus", "--json", "--csv"), 2, "not both"),
        (("gpus", "--pool", "trian"), 6, "did you mean 'train'?"),
        (("gpus", "--rack", "r9"), 6, "known: r01, r02"),
        (("gpus", "--nodes", "gpu-[0003-0004]"), 6, "no node 'gpu-0004' in this fleet; did you mean 'gpu-000"),
        (("gpus", "--missing", "--nodes", "gpu-0009"), 6, "no node 'gpu-0009'"),
        (("gpus", "--missing", "--pool", "trian"), 6, "did you mean 'train'?"),
        (("gpus", "--missing", "--model", "H100"), 2, "--missing goes with"),
    ],
)
def test_what_cannot_be_answered_says_why(swept: CliSite, arguments: tuple[str, ...], code: int, said: str) -> None:
    refused = run(swept, *arguments)
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (code, True)


def test_gpus_are_found_by_place_model_driver_and_state(swept: CliSite) -> None:
    swept.ledger().inventory.move("gpu-0002", NodeState.QUARANTINED, "Xid 79")
    assert serials(swept) == ["S2", "S3", "S4"]
    assert serials(swept, "--pool", "train") == ["S2", "S3"]
    assert serials(swept, "--rack", "r01") == serials(swept, "--nodes", "gpu-[0001,0003]") == ["S2"]
    assert serials(swept, "--state", "quarantined") == serials(swept, "--model", "a100") == ["S3"]
    assert serials(swept, "--driver", "570") == serials(swept, "--driver", "570.1") == ["S3"]
    assert serials(swept, "--driver", "57") == []


def test_gpus_that_a_filter_cannot_judge_are_counted(swept: CliSite) -> None:
    assert "2 GPUs are left out: their driver is not known" in run(swept, "gpus", "--driver", "570").stderr


def test_a_gpu_that_its_node_no_longer_lists_is_shown_as_missing(swept: CliSite) -> None:
    swept.site_clock.sleep(30)
    swept.ledger().facts.record([reading("gpu-0002", swept.site_clock.now(), facts=READ | {"driver.loaded": "570.1"})])
    lines = run(swept, "gpus").stdout.splitlines()
    assert [("missing" in line) for line in lines[1:-1]] == [False, True, False]
    assert lines[-1] == "2 GPUs on 2 nodes; 1 missing"
    assert [row["missing"] for row in json.loads(run(swept, "gpus", "--json").stdout)["gpus"]] == ["no", "yes", "no"]


def test_a_gpu_of_a_node_that_could_not_be_read_is_not_counted_as_missing(swept: CliSite) -> None:
    swept.site_clock.sleep(30)
    silent = reading("gpu-0002", swept.site_clock.now(), facts={"probe.state": "unreachable"}, unknown={"probe": "?"})
    swept.ledger().facts.record([silent])
    last = run(swept, "gpus").stdout.splitlines()[-1]
    assert last == "2 GPUs on 2 nodes; 0 missing; 1 not known, as their nodes could not be read"
    document = json.loads(run(swept, "gpus", "--missing", "--json").stdout)
    assert (document["missing"], document["not_read"]) == ([], "gpu-[0002-0003]")


def test_missing_gpus_are_listed_with_when_and_why(swept: CliSite) -> None:
    swept.site_clock.sleep(30)
    swept.ledger().facts.record([reading("gpu-0002", swept.site_clock.now(), facts=READ | {"gpu.on_bus": "2"})])
    rows = json.loads(run(swept, "gpus", "--missing", "--json").stdout)["missing"]
    assert [(row["node"], row["rack"], row["slot"], row["serial"]) for row in rows] == [
        ("gpu-0002", "r02", "0000:3b:00.0", "S3"),
        ("gpu-0002", "r02", None, None),
    ]
    shown = run(swept, "gpus", "--missing").stdout
    assert "seen there before" in shown
    assert "the PCI bus shows 2, 1 is known" in shown
    assert "not known: 1 node, gpu-0003: not read" in shown
    assert "not known: 3 nodes, gpu-[0001-0002],stray: nothing says how many they need" in shown
    assert shown.splitlines()[-1] == "2 missing on 1 of 4 nodes"
    assert run(swept, "gpus", "--missing", "--csv").stdout.splitlines()[2].startswith("gpu-0002,train,r02,,,,")


def test_a_node_of_which_only_the_bmc_was_read_has_no_missing_gpus(site: CliSite) -> None:
    site.file.with_name("baseline.yaml").write_text(
        "version: 1\npools: {train: {models: {HGX-H100-8: {gpu_count: 8}}}}\n"
    )
    of_bmc = reading("gpu-0001", site.site_clock.now(), facts={"bmc.state": "read"}, source="bmc")
    site.ledger().facts.record([of_bmc])
    document = json.loads(run(site, "gpus", "--missing", "--json").stdout)
    assert (document["missing"], document["not_read"]) == ([], "gpu-[0001-0003]")


def test_missing_gpus_are_those_of_the_nodes_that_are_asked_for(swept: CliSite) -> None:
    swept.file.with_name("baseline.yaml").write_text(
        "version: 1\npools: {train: {models: {HGX-H100-8: {gpu_count: 2}}}}\n"
    )

    def nodes(*options: str) -> list[str]:
        shown = run(swept, "gpus", "--missing", *options, "--json")
        return [row["node"] for row in json.loads(shown.stdout)["missing"]]

    assert nodes() == nodes("--pool", "train") == nodes("--state", "in_service") == ["gpu-0001", "gpu-0002"]
    assert nodes("--rack", "r02") == nodes("--nodes", "gpu-[0002-0003]") == ["gpu-0002"]
    assert nodes("--pool", "dev") == nodes("--nodes", "stray") == []


def test_gpus_as_a_table_as_json_and_as_csv_say_the_same(swept: CliSite) -> None:
    line = next(line for line in run(swept, "gpus").stdout.splitlines() if "S3" in line)
    assert all(text in line for text in ("gpu-0002", "NVIDIA A100", "570.1", "enabled", "?", "in_service"))
    document = json.loads(run(swept, "gpus", "--json").stdout)
    assert document["nodes"] == "gpu-[0001-0002],stray"
    rows = list(csv.DictReader(io.StringIO(run(swept, "gpus", "--csv").stdout)))
    told = [{key: value or None for key, value in row.items()} for row in rows]
    assert told == document["gpus"]


def test_a_fleet_that_was_never_swept_has_no_gpus_and_says_what_reads_them(site: CliSite) -> None:
    assert "a sweep reads them" in run(site, "gpus").stdout
    assert run(site, "gpus", "--csv").stdout.startswith("node,pool,rack,slot,serial")


def _printed(width: int) -> str:
    file = io.StringIO()
    Console(width=width, file=file).print(plain_table(("node", "why"), [("gpu-0001", "a " * 100)]))
    return file.getvalue()


def test_a_table_is_folded_where_it_must_be_and_never_cut() -> None:
    assert len(_printed(240).splitlines()) == 2
    assert "gpu-0001" in _printed(20)
    assert _printed(20).count("a") == 100


def test_gpus_of_one_board_are_found_by_their_drift(site: CliSite) -> None:
    site.file.with_name("baseline.yaml").write_text("version: 1\npools: {train: {gpu: {ecc: on}}}\n")
    off = gpu("18", "S1", "GPU-1", facts={"ecc_mode": "disabled"})
    on = gpu("19", "S1", "GPU-2", facts={"ecc_mode": "enabled"})
    silent = gpu("1a", facts={"ecc_mode": "disabled"})
    site.ledger().facts.record([reading("gpu-0001", site.site_clock.now(), off, on, silent)])
    shown = json.loads(site.run("gpus", "--drifted", "--json").stdout)
    assert [row["slot"] for row in shown["gpus"]] == ["18", "1a"]
    rows = json.loads(site.run("drift", "--only", "drifted", "--json").stdout)["rows"]
    assert [row["since"] is None for row in rows] == [False, False]


def test_nodes_and_gpus_are_found_by_their_drift(site: CliSite) -> None:
    site.file.with_name("baseline.yaml").write_text("version: 1\npools: {train: {gpu: {ecc: on}}}\n")
    off = gpu("0000:18:00.0", "165000000001", facts={"model": "H100", "ecc_mode": "disabled"})
    on = gpu("0000:29:00.0", "165000000002", facts={"model": "H100", "ecc_mode": "enabled"})
    site.ledger().facts.record([reading("gpu-0001", site.site_clock.now(), off, on)])
    shown = json.loads(site.run("gpus", "--drifted", "--json").stdout)
    assert [row["serial"] for row in shown["gpus"]] == ["165000000001"]
    assert site.run("nodes").stdout.splitlines()[-1] == "3 nodes: 3 in_service; 0 GPUs, those of 3 nodes not known"
    assert site.run("nodes", "--drifted", "--hostlist").stdout == "gpu-0001\n"
    assert site.run("nodes", "--driver", "123", "--hostlist").stdout.strip() == ""
    assert site.run("nodes", "--csv").stdout.startswith("node,pool,rack,model,driver,health,state")
    site.file.with_name("baseline.yaml").unlink()
    assert site.run("nodes", "--drifted").exit_code == 2

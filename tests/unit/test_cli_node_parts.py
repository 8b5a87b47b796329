"""`gpufleet node` with NICs, disks, memory modules, parts that left, and heat and errors over time."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console
from unit.cli_site import CliSite, cli_site
from unit.knowledge_tools import gpu, reading

from fleet.facts import PartFacts

MAC = "b8:3f:d2:a1:2b:3c"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    for module in ("node", "node_parts", "node_history"):
        monkeypatch.setattr(f"cli.{module}.console", Console(width=240))
    return cli_site(tmp_path, monkeypatch)


def hot(serial: str, celsius: float, ecc: float, xids: float | None, slot: str = "0000:3b:00.0") -> PartFacts:
    told = {"temperature_gpu_celsius": celsius, "ecc_aggregate_correctable": ecc, "xid_count": xids}
    return gpu(slot, serial, numbers=told)


def record(site: CliSite, node: str, *parts: PartFacts, after: timedelta = timedelta(hours=1)) -> None:
    site.site_clock.sleep(after.total_seconds())
    site.ledger().facts.record([reading(node, site.site_clock.now(), *parts)])


def nic(slot: str = "0000:1a:00.0") -> PartFacts:
    return PartFacts("nic", slot, None, MAC, {"interfaces": "ib0", "model": "MT4129", "state": "ACTIVE"})


def disk(serial: str) -> PartFacts:
    return PartFacts("disk", "nvme0n1", serial, None, {"name": "nvme0n1", "model": "KCD8"})


def test_each_kind_of_part_has_a_table_with_since_when_it_is_there(site: CliSite) -> None:
    record(site, "gpu-0001", nic(), disk("D1"))
    shown = site.run("node", "gpu-0001").stdout
    since = f"{site.site_clock.now():%F %H:%M}"
    line = next(line for line in shown.splitlines() if MAC in line)
    assert all(text in line for text in ("0000:1a:00.0", "ib0", "MT4129", "ACTIVE", since))
    assert ["NICs" in shown, "disks" in shown, "memory modules" in shown] == [True, True, False]


def test_a_part_at_a_date_is_shown_with_the_time_it_was_put_in_before_that_date(site: CliSite) -> None:
    record(site, "gpu-0001", disk("D1"))
    first = site.site_clock.now()
    record(site, "gpu-0001", disk("D2"), after=timedelta(days=1))
    record(site, "gpu-0001", disk("D1"), after=timedelta(days=1))
    shown = site.run("node", "gpu-0001", "--at", (first + timedelta(minutes=1)).isoformat()).stdout
    line = next(line for line in shown.splitlines() if "D1" in line)
    assert f"{first:%F %H:%M}" in line


@pytest.mark.parametrize("at", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("by", ["total", "day", "month"])
def test_the_ends_of_the_calendar_have_an_answer(site: CliSite, at: str, by: str) -> None:
    record(site, "gpu-0001", hot("S1", 40, 0, 0))
    assert site.run("node", "gpu-0001", "--at", at, "--by", by, "--json").exit_code in (0, 2, 6)


def test_a_part_that_left_is_told_with_its_time(site: CliSite) -> None:
    record(site, "gpu-0001", disk("D1"))
    record(site, "gpu-0001", disk("D2"))
    shown = site.run("node", "gpu-0001").stdout
    assert "disk:D1" in shown.partition("parts that were here")[2]
    document = json.loads(site.run("node", "gpu-0001", "--json").stdout)
    assert [former["part"] for former in document["former_parts"]] == ["disk:D1"]
    assert [part["key"] for part in document["parts"]] == ["disk:D2"]


def test_heat_and_errors_are_told_in_one_by_day_and_by_month(site: CliSite) -> None:
    record(site, "gpu-0001", hot("S1", 60, 100, 0))
    record(site, "gpu-0001", hot("S1", 81, 104, 2), after=timedelta(days=1))
    record(site, "gpu-0001", hot("S1", 70, 105, 1), after=timedelta(days=1))
    row = next(
        line
        for line in site.run("node", "gpu-0001").stdout.partition("heat and errors")[2].splitlines()
        if line.startswith("0000:3b:00.0")
    )
    assert row.split() == ["0000:3b:00.0", "S1", "81", "5", "3"]
    history = json.loads(site.run("node", "gpu-0001", "--by", "day", "--json").stdout)["history"]
    days = history["gpus"][0]["periods"]
    assert [(day["temperature_max_celsius"], day["ecc_correctable"], day["xids"]) for day in days] == [
        (60, 0, 0),
        (81, 4, 2),
        (70, 1, 1),
    ]
    months = json.loads(site.run("node", "gpu-0001", "--by", "month", "--json").stdout)["history"]
    assert sum(period["xids"] for period in months["gpus"][0]["periods"]) == 3
    assert months["by"] == "month"


def test_a_gpu_brings_its_heat_and_errors_along_from_another_node(site: CliSite) -> None:
    record(site, "gpu-0002", hot("S1", 90, 7, 1))
    record(site, "gpu-0002", hot("S9", 30, 0, 0))
    record(site, "gpu-0001", hot("S1", 50, 7, 0), after=timedelta(hours=2))
    (told,) = json.loads(site.run("node", "gpu-0001", "--json").stdout)["history"]["gpus"]
    assert told["periods"][0]["temperature_max_celsius"] == 90
    assert told["periods"][0]["xids"] == 1


def test_a_history_up_to_a_date_does_not_know_what_came_after(site: CliSite) -> None:
    record(site, "gpu-0001", hot("S1", 60, 0, 0))
    then = site.site_clock.now() + timedelta(minutes=5)
    record(site, "gpu-0001", hot("S1", 95, 0, 0), after=timedelta(days=2))
    told = json.loads(site.run("node", "gpu-0001", "--at", then.isoformat(), "--json").stdout)["history"]
    assert told["gpus"][0]["periods"][0]["temperature_max_celsius"] == 60


def test_gpus_whose_numbers_were_never_read_say_so(site: CliSite) -> None:
    record(site, "gpu-0001", gpu("0000:3b:00.0", "S1"))
    assert "no numbers were read in this time" in site.run("node", "gpu-0001").stdout

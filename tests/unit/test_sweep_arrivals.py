"""What a sweep announces: nodes that it reads for the first time, and other machines in a known place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.cli_site import SPEC, CliSite, cli_site
from unit.knowledge_tools import reading

from adapters.arrivals import announce_new
from blocks.fleet import Fleet
from fleet.arrival import Arrival, ArrivalSource
from fleet.hardware import Hardware
from tasks.sweeping import announce_arrivals

SERIALS = SPEC.replace("ssh: 10.1.0.3}", "ssh: 10.1.0.3, serial: SN-3}")


class Server:
    """The events that reached it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, str | None, str | None]] = []

    def emit(self, arrivals: Sequence[Arrival], fleet: str) -> None:
        self.sent += [(a.hardware.node, a.hardware.serial, a.replaces) for a in arrivals]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr("adapters.events.emit_arrivals", made.emit)
    return made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    return cli_site(tmp_path, monkeypatch, SERIALS)


def sweep(site: CliSite, node: str, serial: str | None) -> None:
    """The node's BMC is read, and what is new is announced."""
    site.site_clock.sleep(60)
    facts = {"bmc.state": "read"} | ({} if serial is None else {"system.serial": serial})
    site.ledger().facts.record([reading(node, site.site_clock.now(), facts=facts, source="bmc")])
    announce_arrivals(Fleet(fleet_file=str(site.file)))


def test_what_the_first_sweep_reads_was_there_and_what_a_later_one_reads_first_arrives(
    site: CliSite, server: Server
) -> None:
    sweep(site, "gpu-0001", "SN-1")
    assert server.sent == []
    sweep(site, "gpu-0002", "SN-2")
    sweep(site, "gpu-0002", "SN-2")
    assert server.sent == [("gpu-0002", "SN-2", None)]


def test_an_announcement_before_the_first_sweep_makes_no_arrival_of_what_was_there(
    site: CliSite, server: Server
) -> None:
    record = site.file.parent / "run" / "arrivals.jsonl"
    new = Hardware(node="new-1", serials={"system": "X9"})
    announce_new(record, "lab", [new], (), ArrivalSource.NETBOX, site.site_clock.now())
    server.sent.clear()
    sweep(site, "gpu-0001", "SN-1")
    assert server.sent == []
    sweep(site, "gpu-0002", "SN-2")
    assert server.sent == [("gpu-0002", "SN-2", None)]


def test_a_record_that_a_crash_left_empty_makes_no_arrival_of_what_was_there(site: CliSite, server: Server) -> None:
    record = site.file.parent / "run" / "arrivals.jsonl"
    record.parent.mkdir(exist_ok=True)
    record.touch()
    sweep(site, "gpu-0001", "SN-1")
    assert server.sent == []


@pytest.mark.parametrize("lost", ["arrivals.jsonl", "first_sweep_done"])
def test_a_lost_file_makes_no_arrival_silent(site: CliSite, server: Server, lost: str) -> None:
    sweep(site, "gpu-0001", "SN-1")
    (site.file.parent / "run" / lost).unlink()
    sweep(site, "gpu-0002", "SN-2")
    assert ("gpu-0002", "SN-2", None) in server.sent


def test_a_first_sweep_that_sees_only_what_was_announced_was_the_first(site: CliSite, server: Server) -> None:
    record = site.file.parent / "run" / "arrivals.jsonl"
    known = Hardware(node="gpu-0001", serials={"system": "SN-1"})
    announce_new(record, "lab", [known], (), ArrivalSource.NETBOX, site.site_clock.now())
    server.sent.clear()
    sweep(site, "gpu-0001", "SN-1")
    sweep(site, "gpu-0002", "SN-2")
    assert server.sent == [("gpu-0002", "SN-2", None)]


def test_another_machine_in_a_nodes_place_arrives_and_names_what_it_replaces(site: CliSite, server: Server) -> None:
    sweep(site, "gpu-0001", "SN-1")
    sweep(site, "gpu-0001", "SN-9")
    assert server.sent == [("gpu-0001", "SN-9", "gpu-0001")]


def test_a_machine_that_differs_from_the_written_serial_arrives_once_it_is_read(site: CliSite, server: Server) -> None:
    sweep(site, "gpu-0001", "SN-1")
    sweep(site, "gpu-0003", None)
    assert server.sent == [("gpu-0003", "SN-3", None)]  # what is written counts until something is read
    sweep(site, "gpu-0003", "sn-3")
    sweep(site, "gpu-0003", "SN-8")
    assert server.sent[1:] == [("gpu-0003", "SN-8", "gpu-0003")]


def test_two_machines_that_changed_places_have_not_arrived(site: CliSite, server: Server) -> None:
    sweep(site, "gpu-0001", "SN-1")
    sweep(site, "gpu-0002", "SN-2")
    server.sent.clear()
    sweep(site, "gpu-0001", "SN-2")
    sweep(site, "gpu-0002", "SN-1")
    assert server.sent == []

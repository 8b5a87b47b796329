"""`gpufleet inventory announce`: what NetBox tells of arrives once, and everything else says why it does not."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner
from unit.netbox_fake import device
from unit.test_arrival import NOW
from unit.test_cli_inventory import FLEET

from adapters.announced import read_announced
from adapters.arrivals import announce_new
from cli import inventory
from cli.inventory import inventory_app
from fleet.arrival import Arrival, ArrivalSource
from fleet.errors import TransientError
from fleet.hardware import Hardware


class Site:
    """A fleet file, and the Prefect server that may be away."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "fleet.yaml"
        self.file.write_text(FLEET)
        self.record = folder / "run" / "arrivals.jsonl"
        self.sent: list[Arrival] = []
        self.away = False

    def emit(self, arrivals: tuple[Arrival, ...], fleet: str) -> None:
        if self.away:
            raise TransientError("the Prefect server does not answer")
        self.sent += arrivals

    def announce(self, data: object, *options: str, event: str = "created") -> Result:
        body = json.dumps({"event": event, "model": "device", "data": data})
        arguments = ["announce", "--from-netbox", "-", *options, "--fleet", str(self.file)]
        return CliRunner().invoke(inventory_app, arguments, input=body)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setattr(inventory, "use_server", lambda path, required: None)
    monkeypatch.setattr("adapters.events.emit_arrivals", made.emit)
    return made


def test_a_device_that_the_fleet_does_not_know_arrives_once(site: Site) -> None:
    assert "gpu-0007  announced" in site.announce(device(7)).output
    assert "gpu-0007  known" in site.announce(device(7), event="updated").output
    (arrival,) = site.sent
    assert (arrival.source, arrival.hardware.node) == (ArrivalSource.NETBOX, "gpu-0007")
    assert (arrival.hardware.serial, arrival.hardware.bmc) == ("SN-7", "https://10.0.0.7")
    assert (arrival.hardware.where.rack, arrival.hardware.where.unit) == ("r02", 7)
    assert len(read_announced(site.record)) == 1


def test_a_node_of_the_fleet_file_does_not_arrive(site: Site) -> None:
    result = site.announce(device(1))
    assert (result.exit_code, "gpu-0001  known" in result.output, site.sent) == (0, True, [])


def test_a_device_that_is_only_planned_says_so(site: Site) -> None:
    result = site.announce(device(7, status={"value": "planned"}))
    assert "gpu-0007  not announced: its status is planned" in result.output
    assert (result.exit_code, site.sent, site.record.exists()) == (0, [], False)


def test_what_the_server_did_not_take_may_be_sent_again(site: Site) -> None:
    site.away = True
    assert site.announce(device(7)).exit_code == 4
    site.away = False
    assert site.announce(device(7)).exit_code == 0
    assert len(site.sent) == 1


def test_a_body_is_to_be_sent_again_where_a_known_bmcs_name_cannot_be_resolved_now(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "resolve_bmcs", lambda urls: dict.fromkeys(urls, ()))
    assert (site.announce(device(7)).exit_code, site.sent) == (4, [])


def test_machines_get_the_result_and_the_payload(site: Site) -> None:
    told = json.loads(site.announce(device(7), "--json").stdout)
    assert (told["result"], told["arrivals"][0]["source"], told["device"]["bmc"]) == ("announced", "netbox", "10.0.0.7")


def test_another_body_and_a_missing_file_are_errors_of_the_caller(site: Site) -> None:
    refused = site.announce("gpu-0007")
    assert (refused.exit_code, site.sent) == (2, [])
    gone = CliRunner().invoke(inventory_app, ["announce", "--from-netbox", "/no/such", "--fleet", str(site.file)])
    assert gone.exit_code == 6


def test_a_body_from_a_file_and_a_custom_field_for_the_bmc(site: Site) -> None:
    path = site.file.with_name("body.json")
    data = device(7, custom_fields={"mgmt": "https://bmc7.lab:8443"})
    path.write_text(json.dumps({"event": "updated", "object_type": "dcim.device", "data": data}))
    arguments = ["announce", "--from-netbox", str(path), "--bmc-field", "mgmt", "--fleet", str(site.file)]
    assert CliRunner().invoke(inventory_app, arguments).exit_code == 0
    assert site.sent[0].hardware.bmc == "https://bmc7.lab:8443"


def test_without_a_runtime_nothing_is_announced(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.announce(device(7)).exit_code == 2
    assert not site.record.exists()


def test_one_machine_that_is_announced_by_many_at_once_arrives_once(site: Site) -> None:
    seen = [Hardware(bmc="https://10.0.0.9", serials={"system": "SN-9"})]
    threads = [
        threading.Thread(target=announce_new, args=(site.record, "lab", seen, (), ArrivalSource.NETBOX, NOW))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(site.sent) == len(read_announced(site.record)) == 1

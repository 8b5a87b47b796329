"""`gpufleet inventory`: a plan until somebody says yes, every fault in one report, and no token in any output."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner
from unit.knowledge_tools import reading
from unit.netbox_fake import TOKEN, NetBoxFake, device, netbox

from adapters.announced import add_announced, read_announced
from adapters.bmc_discovery import Discovery
from blocks.fleet import Fleet
from cli import inventory
from cli.inventory import inventory_app
from fleet.arrival import Arrival, ArrivalSource
from fleet.config import parse_fleet
from fleet.errors import ConfigurationError, TransientError
from fleet.hardware import Hardware

FLEET = """\
# hall 2
version: 1
fleet: lab
bmc: {user: admin, password: {env: BMC_PASSWORD}}
ssh: {user: root, key: {file: id_ed25519}}
gate: {required: 0}
pools: {train: {}}
racks: {r01: {}, r02: {}}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1, unit: 1}  # old
"""
CSV = """\
name,rack,pool,model,bmc,ssh,unit
"gpu-[0002-0003]",r02,train,HGX-H100-8,10.0.0.{n},10.1.0.{n},{n}
gpu-0001,,,,,,2
"""


class Site:
    """A fleet file in a folder, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "fleet.yaml"
        self.file.write_text(FLEET)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(inventory_app, [*arguments, "--fleet", str(self.file)])

    def csv(self, text: str) -> str:
        path = self.folder / "new.csv"
        path.write_bytes(text.encode())
        return str(path)

    def kept(self) -> list[Path]:
        return sorted(self.folder.glob("fleet.yaml.*"))

    def names(self) -> list[str]:
        return [entry.name for entry in parse_fleet(self.file.read_text(), "fleet.yaml").nodes]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_import_shows_what_it_would_do_and_writes_nothing(site: Site) -> None:
    result = site.run("import", site.csv(CSV))
    assert result.exit_code == 0, result.output
    assert "2 added, 1 changed, 0 unchanged, 0 only in the fleet file" in result.output
    assert "unit: 1 → 2" in result.output
    assert "give --yes" in result.output
    assert (site.file.read_text(), site.kept()) == (FLEET, [])


def test_yes_writes_the_fleet_file_and_keeps_the_old_one_beside_it(site: Site) -> None:
    site.file.chmod(0o640)
    result = site.run("import", site.csv(CSV), "--yes")
    assert result.exit_code == 0, result.output
    assert site.names() == ["gpu-0001", "gpu-0002", "gpu-0003"]
    assert "# hall 2" in site.file.read_text()
    assert "unit: 2}  # old" in site.file.read_text()
    (old,) = site.kept()
    assert old.read_text() == FLEET
    assert {path.stat().st_mode & 0o777 for path in (old, site.file)} == {0o640}


def test_a_second_import_of_the_same_finds_nothing_to_do(site: Site) -> None:
    site.run("import", site.csv(CSV), "--yes")
    written = site.file.read_text()
    result = site.run("import", site.csv(CSV), "--yes")
    assert "nothing to do" in result.output
    assert (site.file.read_text(), len(site.kept())) == (written, 1)


def test_a_file_that_is_not_there_ends_with_6_and_one_that_is_no_file_with_2(site: Site) -> None:
    assert site.run("import", str(site.folder / "none.csv")).exit_code == 6
    refused = site.run("import", str(site.folder))
    assert (refused.exit_code, "it is a folder, no regular file" in " ".join(refused.output.split())) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name\n" + "x\n" * 50_001, "new.csv has 50002 lines; at most 50000 rows at once: split the file"),
        ("name\r" + "x\r" * 50_001, "has 50002 lines"),
        ('name\n"gpu-[00001-50002]"\n', "has 50002 nodes"),
    ],
)
def test_a_file_that_is_too_long_to_be_imported_at_once_is_refused_before_it_is_read(
    site: Site, text: str, said: str
) -> None:
    refused = site.run("import", site.csv(text))
    assert (refused.exit_code, said in " ".join(refused.output.split())) == (2, True)


def test_every_fault_is_in_one_report_with_its_line_and_nothing_is_written(site: Site) -> None:
    text = "name,rack,pool,model,bmc,ssh,unit,colour\n" + "".join(
        f"{row}\n"
        for row in (
            "gpu-0002,r02,train,HGX-H100-8,10.0.0.2,10.1.0.2,99",
            "gpu-0003,r9,train,HGX-H100-8,10.0.0.1,10.1.0.3,3",
            "gpu-0004,r02,trian,HGX-H100-8,10.0.0.4,10.1.0.3,4",
        )
    )
    result = site.run("import", site.csv(text), "--yes")
    assert result.exit_code == 2
    assert "6 faults" in result.output
    for line, said in (
        (1, "colour"),
        (2, "unit 99"),
        (3, "no rack 'r9'"),
        (3, "gpu-0001"),
        (4, "'train'"),
        (4, "10.1.0.3"),
    ):
        assert any(f"new.csv:{line}: " in text and said in text for text in result.output.splitlines()), (line, said)
    assert (site.file.read_text(), site.kept()) == (FLEET, [])


def test_json_gives_faults_and_plans_to_machines(site: Site) -> None:
    plan = json.loads(site.run("import", site.csv(CSV), "--json").stdout)
    assert [node["name"] for node in plan["added"]] == ["gpu-0002", "gpu-0003"]
    assert plan["added"][0]["origin"].endswith("new.csv:2")
    assert plan["changed"] == {"gpu-0001": [{"field": "unit", "old": 1, "new": 2}]}
    assert plan["imported"] is False
    faults = json.loads(site.run("import", site.csv(CSV.replace("r02", "r09")), "--json").stdout)
    assert [fault["origin"].rpartition(":")[2] for fault in faults["faults"]] == ["2", "2"]


def test_a_fleet_file_that_changes_in_the_meantime_is_not_written_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = inventory.edit_fleet

    def somebody_edits(*arguments: object) -> str:
        site.file.write_text(FLEET + "# edited\n")
        return edit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(inventory, "edit_fleet", somebody_edits)
    result = site.run("import", site.csv(CSV), "--yes")
    assert result.exit_code == 8
    assert site.file.read_text().endswith("# edited\n")
    assert site.kept() == []


@pytest.mark.parametrize("arguments", [(), ("a.csv", "--netbox", "https://n"), ("--netbox", "https://n")])
def test_a_command_line_that_says_not_where_from_is_wrong(site: Site, arguments: tuple[str, ...]) -> None:
    assert site.run("import", *arguments).exit_code == 2


def imported(site: Site, server: NetBoxFake, monkeypatch: pytest.MonkeyPatch, *more: str, token: str = TOKEN) -> Result:
    monkeypatch.setenv("NETBOX", token)
    result = site.run("import", "--netbox", server.url, "--token-env", "NETBOX", *more)
    assert token not in result.output
    return result


def test_netbox_is_imported_page_by_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with netbox([device(n) for n in range(2, 7)]) as server:
        result = imported(site, server, monkeypatch, "--filter", "role=gpu-node", "--yes")
    assert result.exit_code == 0, result.output
    assert site.names() == [f"gpu-000{n}" for n in range(1, 7)]
    assert "plain http" in result.output


def test_faults_of_netbox_devices_name_the_devices_url(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with netbox([device(2, rack={"name": "r3"}), device(3, position=2.0)]) as server:
        result = imported(site, server, monkeypatch)
    assert result.exit_code == 2
    assert "https://netbox.lab/dcim/devices/2/: gpu-0002: rack: no rack 'r3'" in result.output


def test_a_refused_token_ends_with_the_code_for_credentials(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with netbox([device(2)]) as server:
        assert imported(site, server, monkeypatch, token="x" * 40).exit_code == 5


def test_a_token_variable_that_is_not_set_is_named(site: Site) -> None:
    result = site.run("import", "--netbox", "https://netbox.lab", "--token-env", "NOT_SET_HERE")
    assert (result.exit_code, "NOT_SET_HERE" in result.output) == (2, True)


def test_what_is_exported_imports_as_unchanged(site: Site) -> None:
    exported = site.run("export")
    assert exported.stdout.splitlines()[0] == "name,rack,pool,model,bmc,ssh,unit,nvlink_domain,serial"
    assert "1 unchanged" in site.run("import", site.csv(exported.stdout)).output
    assert json.loads(site.run("export", "--json").stdout)["nodes"][0]["name"] == "gpu-0001"


def test_a_serial_is_written_to_the_fleet_file_and_comes_back_out(site: Site) -> None:
    site.run("import", site.csv('name,serial\ngpu-0001,"0123"\n'), "--yes")
    assert 'serial: "0123"}  # old' in site.file.read_text()
    exported = site.run("export")
    assert exported.stdout.splitlines()[1].endswith(",1,,0123")
    assert "1 unchanged" in site.run("import", site.csv(exported.stdout)).output


def test_a_bmc_whose_serial_the_fleet_file_has_is_moved_and_not_new(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.file.write_text(FLEET.replace("unit: 1}", "unit: 1, serial: 9ZX8Y7W}"))
    found = (Hardware(bmc="https://10.0.0.77", serials={"system": "9zx8y7w"}),)
    monkeypatch.setattr(inventory, "discover_bmcs", lambda *arguments: Discovery(found, (), 0))
    result = site.run("discover", "10.0.0.0/24")
    assert "https://10.0.0.77  moved    is gpu-0001, known at https://10.0.0.1" in result.output
    assert "0 new, 1 known" in result.output


@pytest.fixture
def two_bmcs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range with the known BMC, a new one, and a printer."""
    found = (Hardware(bmc="https://10.0.0.1"), Hardware(bmc="https://10.0.0.2", vendor="NVIDIA", model="HGX"))
    seen = Discovery(found, (("https://10.0.0.3", "no Redfish service (HTTP 404)"),), 251)
    monkeypatch.setattr(inventory, "discover_bmcs", lambda *arguments: seen)


@pytest.mark.usefixtures("two_bmcs")
def test_a_discovery_shows_what_is_new_and_announces_nothing(site: Site) -> None:
    result = site.run("discover", "10.0.0.0/24")
    assert result.exit_code == 3
    assert "1 new, 1 known, 1 unclear, 251 silent" in result.output
    assert "give --announce" in result.output
    assert not (site.folder / "run").exists()
    found = json.loads(site.run("discover", "10.0.0.0/24", "--json").stdout)
    assert [arrival["bmc"] for arrival in found["arrivals"]] == ["https://10.0.0.2"]


class Events:
    """What reaches the Prefect server, which may be away."""

    def __init__(self) -> None:
        self.sent: list[str | None] = []
        self.away = False

    def emit(self, arrivals: tuple[Arrival, ...], fleet: str) -> None:
        if self.away:
            raise TransientError("the Prefect server does not answer")
        self.sent += [f"{fleet} {arrival.hardware.bmc}" for arrival in arrivals]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    events = Events()
    monkeypatch.setattr(inventory, "use_server", lambda path, required: None)
    monkeypatch.setattr("adapters.events.emit_arrivals", events.emit)
    return events


@pytest.mark.usefixtures("two_bmcs")
def test_what_is_announced_is_announced_once(site: Site, events: Events) -> None:
    assert "announced" in site.run("discover", "10.0.0.0/24", "--announce").output
    assert "0 new, 2 known" in site.run("discover", "10.0.0.0/24", "--announce").output
    assert events.sent == ["lab https://10.0.0.2"]


@pytest.mark.usefixtures("two_bmcs")
def test_what_the_server_did_not_take_is_announced_the_next_time(site: Site, events: Events) -> None:
    events.away = True
    assert site.run("discover", "10.0.0.0/24", "--announce").exit_code == 4
    assert read_announced(site.folder / "run" / "arrivals.jsonl") == ()
    events.away = False
    site.run("discover", "10.0.0.0/24", "--announce")
    assert events.sent == ["lab https://10.0.0.2"]


@pytest.mark.usefixtures("two_bmcs")
def test_nothing_is_announced_while_a_known_bmcs_name_cannot_be_resolved(site: Site, events: Events) -> None:
    site.file.write_text(FLEET.replace("10.0.0.1", "gpu-0001-bmc.invalid"))
    result = site.run("discover", "10.0.0.0/24", "--announce")
    assert (result.exit_code, events.sent) == (4, [])
    assert "cannot be resolved" in result.output
    assert "may show as new" in site.run("discover", "10.0.0.0/24").output


@pytest.mark.usefixtures("two_bmcs")
def test_without_a_runtime_nothing_can_be_announced(site: Site) -> None:
    assert site.run("discover", "10.0.0.0/24", "--announce").exit_code == 2


def test_a_range_that_is_none_is_a_usage_error(site: Site) -> None:
    assert site.run("discover", "10.0.0.0/2").exit_code == 2


def test_a_record_of_announcements_that_is_damaged_stops_the_discovery(site: Site) -> None:
    record = site.folder / "run" / "arrivals.jsonl"
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    add_announced(record, [Arrival(Hardware(bmc="https://10.0.0.9"), ArrivalSource.DISCOVERY, moment)])
    record.write_text("{}\n" + record.read_text())
    with pytest.raises(ConfigurationError):
        read_announced(record)
    assert site.run("discover", "10.0.0.0/30").exit_code == 2


def test_a_fleet_file_behind_a_link_is_written_where_the_link_leads(site: Site) -> None:
    real = site.file.with_name("kept") / "fleet.yaml"
    real.parent.mkdir()
    site.file.replace(real)
    site.file.symlink_to(real)
    assert site.run("import", site.csv(CSV), "--yes").exit_code == 0
    assert site.file.is_symlink()
    assert "gpu-0003" in real.read_text()


def test_a_full_disk_leaves_the_fleet_file_and_no_half_copy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path, __: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = site.csv(CSV)
    monkeypatch.setattr(Path, "write_bytes", full)
    result = site.run("import", path, "--yes")
    assert result.exit_code == 1
    assert "the fleet file is as it was" in " ".join(result.output.split())
    assert (site.file.read_text(), site.kept()) == (FLEET, [])


def test_a_serial_that_a_sweep_read_on_another_node_is_refused(site: Site) -> None:
    facts = {"bmc.state": "read", "system.serial": "SN-7"}
    ledger = Fleet(fleet_file=str(site.file)).ledger()
    ledger.facts.record([reading("gpu-0001", datetime(2026, 11, 30, tzinfo=UTC), facts=facts, source="bmc")])
    text = "name,rack,pool,model,bmc,ssh,serial\ngpu-0002,r02,train,HGX-H100-8,10.0.0.2,10.1.0.2,sn-7\n"
    result = site.run("import", site.csv(text), "--yes")
    assert (result.exit_code, site.names()) == (2, ["gpu-0001"])
    assert "sn-7 was read on gpu-0001" in " ".join(result.output.split())

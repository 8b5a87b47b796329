"""A NIC, a disk and a memory module keep their history through every node, as a GPU does."""

from __future__ import annotations

import json
from datetime import timedelta

from unit.ledger_tools import FakeClock

from fleet.facts import NodeFacts
from fleet.node_facts import facts_of_probe
from fleet.node_reading import read_node
from ledger import Ledger

pytest_plugins = ("unit.ledger_fixtures",)


def swept(ledger: Ledger, clock: FakeClock, **nodes: dict[str, object]) -> None:
    """Time passes, and each node's probe tells these sections."""
    clock.sleep(3600 * 2)
    ledger.facts.record([_facts(name, clock, sections) for name, sections in nodes.items()])


def _facts(node: str, clock: FakeClock, sections: dict[str, object]) -> NodeFacts:
    document = {"version": 1, "at": clock.now().timestamp(), "sections": sections}
    return facts_of_probe(node, clock.now(), read_node(json.dumps(document)))


def nic(mac: str, slot: str = "0000:2b:00.0", firmware: str = "22.1") -> dict[str, object]:
    adapter = {"name": "mlx5_0", "pci": slot, "firmware": firmware, "ports": []}
    interfaces = [{"name": "eth0", "pci": slot, "mac": mac}]
    return {"network": {"interfaces": interfaces, "infiniband": [adapter]}, "pci": {"devices": []}}


def disk(serial: str, name: str = "nvme0n1") -> dict[str, object]:
    return {"disks": {"devices": [{"name": name, "serial": serial, "size_bytes": 10, "model": "KCD8"}]}}


def dimm(serial: str | None, socket: str = "A1", maker: str = "M321") -> dict[str, object]:
    listed = [{"locator": socket, "part_number": maker, "serial": serial, "size_mib": 65536 if serial else 0}]
    return {"memory": {"modules": listed}}


def places(ledger: Ledger, part: str) -> list[tuple[str, str, bool]]:
    return [(place.node, place.slot, place.until is None) for place in ledger.parts.placements(part)]


def test_an_adapter_that_moves_takes_its_history_along(ledger: Ledger, clock: FakeClock) -> None:
    mac = "b8:3f:d2:00:00:01"
    swept(ledger, clock, a=nic(mac))
    swept(ledger, clock, a=nic("b8:3f:d2:00:00:02"))
    swept(ledger, clock, b=nic(mac, "0000:5e:00.0", firmware="22.9"))
    assert places(ledger, mac) == [("a", "0000:2b:00.0", False), ("b", "0000:5e:00.0", True)]
    assert [fact.value for fact in ledger.facts.history(f"nic:{mac}", "firmware")] == ["22.1", "22.9"]
    assert [part.uuid for part in ledger.facts.at("a").parts] == ["b8:3f:d2:00:00:02"]


def test_an_adapter_that_a_bond_takes_in_stays_the_same_part(ledger: Ledger, clock: FakeClock) -> None:
    swept(ledger, clock, a=nic("b8:3f:d2:00:00:01"))
    swept(ledger, clock, a=nic("02:00:00:00:00:01"))
    assert places(ledger, "b8:3f:d2:00:00:01") == [("a", "0000:2b:00.0", True)]
    assert len(ledger.facts.at("a").parts) == 1


def test_drives_that_the_kernel_names_the_other_way_round_are_the_same_drives(ledger: Ledger, clock: FakeClock) -> None:
    def both(first: str, second: str) -> dict[str, object]:
        drives = [{"name": f"nvme{n}n1", "serial": s, "size_bytes": 10} for n, s in enumerate((first, second))]
        return {"disks": {"devices": drives}}

    swept(ledger, clock, a=both("D1", "D2"))
    swept(ledger, clock, a=both("D2", "D1"))
    assert places(ledger, "D1")[-1] == ("a", "nvme1n1", True)
    assert {part.serial for part in ledger.facts.at("a").parts} == {"D1", "D2"}


def test_a_replaced_drive_begins_its_own_history(ledger: Ledger, clock: FakeClock) -> None:
    swept(ledger, clock, a=disk("D1"))
    swept(ledger, clock, a=disk("D2"))
    assert places(ledger, "D1") == [("a", "nvme0n1", False)]
    assert places(ledger, "D2") == [("a", "nvme0n1", True)]


def test_a_memory_module_is_found_by_the_serial_on_its_label(ledger: Ledger, clock: FakeClock) -> None:
    swept(ledger, clock, a=dimm("80CE0F3A"), b=dimm("80CE0F3A", maker="HMCG94"))
    assert [part.serial for part in ledger.parts.find("80CE0F3A")] == ["M321 80CE0F3A", "HMCG94 80CE0F3A"]
    assert ledger.parts.find("0F3A") == ledger.parts.find("%") == ()


def test_a_module_whose_socket_is_seen_empty_has_left_it(ledger: Ledger, clock: FakeClock) -> None:
    swept(ledger, clock, a=dimm("80CE0F3A"))
    swept(ledger, clock, a=dimm(None))
    assert places(ledger, "M321 80CE0F3A") == [("a", "A1", False)]
    swept(ledger, clock, a=dimm("80CE0F3A"))
    assert places(ledger, "M321 80CE0F3A")[-1] == ("a", "A1", True)


def test_parts_of_a_section_that_was_not_read_have_not_left(ledger: Ledger, clock: FakeClock) -> None:
    swept(ledger, clock, a=disk("D1"))
    swept(ledger, clock, a={"disks": {"unknown": "no answer within 9 s"}})
    assert places(ledger, "D1") == [("a", "nvme0n1", True)]
    (node,) = ledger.facts.current()
    assert node.parts[0].missing
    assert node.known.unknown["disks"] == "no answer within 9 s"
    assert clock.now() - node.parts[0].seen == timedelta(hours=2)

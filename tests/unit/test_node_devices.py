"""NICs, disks and memory modules are parts that keep their names; what names nothing names no part."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.facts import NodeFacts, PartFacts
from fleet.json_values import JsonObject
from fleet.node_devices import NOT_TOLD, Devices, read_devices
from fleet.node_facts import facts_of_probe
from fleet.node_reading import read_node

NOW = datetime(2026, 11, 30, tzinfo=UTC)
HCA = {
    "name": "mlx5_0",
    "firmware": "28.39.1002",
    "board": "MT_0000000838",
    "model": "MT4129",
    "node_guid": "b83f:d203:00a1:2b3c",
    "pci": "0000:1a:00.0",
    "interfaces": ["ib0"],
    "ports": [
        {
            "port": 1,
            "state": "ACTIVE",
            "physical_state": "LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
            "counters": {"link_downed": 2, "symbol_error": 0, "port_rcv_errors": 1},
        }
    ],
}
CARD = {
    "address": "0000:1a:00.0",
    "vendor": "0x15b3",
    "device": "0x1021",
    "class": "0x020700",
    "driver": "mlx5_core",
    "current_link_speed_gts": 32.0,
    "current_link_width": 8,
    "max_link_width": 16,
    "aer_correctable": 3,
    "aer_nonfatal": 1,
    "aer_fatal": 0,
}
MODULE = {
    "locator": "CPU1_DIMM_A1",
    "bank": "NODE 0",
    "manufacturer": "Samsung",
    "part_number": "M321R8GA0BB0-CQKZJ",
    "serial": "80CE0F3A",
    "size_mib": 65536,
    "speed_mts": 5600,
    "configured_mts": 4800,
}
DRIVE = {"name": "nvme0n1", "model": "KCD8", "serial": "Y2A0A001", "size_bytes": 3840755982336, "state": "live"}

NO_CARDS: JsonObject = {"devices": []}


def interface(name: str, pci: str | None, mac: str, **more: object) -> dict[str, object]:
    return {"name": name, "pci": pci, "mac": mac, "state": "up", "speed_mbps": 25000, **more}


def devices(**sections: JsonObject) -> Devices:
    return read_devices(sections)


def parts(kind: str, **sections: JsonObject) -> tuple[PartFacts, ...]:
    return tuple(part for part in devices(**sections).parts if part.kind == kind)


def facts(**sections: object) -> NodeFacts:
    return facts_of_probe("n1", NOW, read_node(json.dumps({"version": 1, "at": NOW.timestamp(), "sections": sections})))


def test_an_infiniband_adapter_is_one_part_with_its_port_and_its_pcie_link() -> None:
    network = {"interfaces": [interface("ib0", "0000:1a:00.0", "00:00:10:29:fe:80" + ":00" * 14)], "infiniband": [HCA]}
    (nic,) = parts("nic", network=network, pci={"devices": [CARD]})
    assert (nic.slot, nic.uuid, nic.serial) == ("0000:1a:00.0", "b8:3f:d2:a1:2b:3c", None)
    assert nic.facts["guid"] == "b83fd20300a12b3c"
    assert (nic.facts["model"], nic.facts["firmware"], nic.facts["board"]) == ("MT4129", "28.39.1002", "MT_0000000838")
    assert (nic.facts["state"], nic.facts["link_layer"], nic.facts["pcie_width"]) == ("ACTIVE", "InfiniBand", "8")
    assert nic.facts["pcie_width_max"] == "16"
    assert (nic.numbers["link_downed"], nic.numbers["aer_uncorrectable"]) == (2, 1)
    assert nic.unknown == {}


def test_an_adapter_keeps_its_name_whether_its_guid_or_its_mac_is_read() -> None:
    ethernet = {"interfaces": [interface("eth2", "0000:1a:00.0", "b8:3f:d2:a1:2b:3c")], "infiniband": []}
    (by_mac,) = parts("nic", network=ethernet, pci={"devices": [CARD]})
    (by_guid,) = parts("nic", network={"interfaces": [], "infiniband": [HCA]}, pci={"devices": [CARD]})
    assert by_mac.uuid == by_guid.uuid


def test_the_members_of_a_bond_show_its_address_and_are_not_named_by_it() -> None:
    mac = "6c:fe:54:11:22:30"
    bonded = [
        interface("bond0", None, mac, bond_slaves=["eth0", "eth1"]),
        interface("eth0", "0000:2b:00.0", mac),
        interface("eth1", "0000:2b:00.1", mac),
    ]
    assert [nic.uuid for nic in parts("nic", network={"interfaces": bonded}, pci=NO_CARDS)] == [None, None]
    told = [entry | {"mac_permanent": f"6c:fe:54:11:22:3{n}"} for n, entry in enumerate(bonded)]
    names = [nic.uuid for nic in parts("nic", network={"interfaces": told}, pci=NO_CARDS)]
    assert names == ["6c:fe:54:11:22:31", "6c:fe:54:11:22:32"]


@pytest.mark.parametrize("mac", ["02:11:22:33:44:55", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "none", ""])
def test_an_address_that_somebody_has_set_or_that_is_none_names_no_adapter(mac: str) -> None:
    (nic,) = parts("nic", network={"interfaces": [interface("eth0", "0000:2b:00.0", mac)]}, pci=NO_CARDS)
    assert (nic.uuid, nic.unknown["mac"]) == (None, "the kernel does not tell it")


def test_virtual_functions_and_what_is_on_no_pci_bus_are_no_parts() -> None:
    virtual = {"address": "0000:1a:00.2", "vendor": "0x15b3", "device": "0x101e", "class": "0x020000"}
    marked = {"address": "0000:2b:10.0", "vendor": "0x8086", "class": "0x020000", "virtual_function": True}
    interfaces = [interface("usb0", None, "b0:7b:25:d6:00:01"), interface("v0", "0000:1a:00.2", "b0:7b:25:d6:00:02")]
    assert parts("nic", network={"interfaces": interfaces}, pci={"devices": [virtual, marked]}) == ()


def test_without_the_pci_bus_no_adapter_is_told_as_a_virtual_function_may_be_one_of_them() -> None:
    told = devices(
        network={"interfaces": [interface("v0", "0000:1a:00.2", "b0:7b:25:d6:00:02")]}, pci={"unfinished": "late"}
    )
    assert (told.parts, told.unknown["nics"]) == ((), "the PCI bus: late")


def test_two_functions_of_one_card_share_its_serial_and_have_an_address_each() -> None:
    cards = [CARD | {"serial": "MT2345X0001"}, CARD | {"serial": "MT2345X0001", "address": "0000:1a:00.1"}]
    interfaces = [
        interface("eth0", "0000:1a:00.0", "b8:3f:d2:a1:2b:3c"),
        interface("eth1", "0000:1a:00.1", "b8:3f:d2:a1:2b:3d"),
    ]
    found = parts("nic", network={"interfaces": interfaces}, pci={"devices": cards})
    assert {nic.serial for nic in found} == {"MT2345X0001"}
    assert len({nic.uuid for nic in found}) == 2


def test_an_adapter_without_a_driver_is_still_a_part_of_its_slot() -> None:
    bare = {"address": "0000:5E:00.0", "vendor": "0x15b3", "device": "0x1021", "class": "0x020000", "driver": None}
    (nic,) = parts("nic", network={"interfaces": []}, pci={"devices": [bare]})
    assert (nic.slot, nic.uuid, nic.facts["model"]) == ("0000:5e:00.0", None, "0x15b3:0x1021")
    assert nic.unknown == {"driver": "the kernel does not tell it"}


def test_a_drive_is_named_by_its_serial_and_world_wide_name() -> None:
    listed = [DRIVE | {"pci": "0000:41:00.0", "wwid": "eui.01000000000000008CE38EE20AFB1201"}]
    link = {"address": "0000:41:00.0", "class": "0x010802", "current_link_width": 4, "aer_correctable": 7}
    (disk,) = parts("disk", disks={"devices": listed}, pci={"devices": [link]})
    assert (disk.slot, disk.serial, disk.uuid) == (
        "0000:41:00.0",
        "Y2A0A001",
        "eui.01000000000000008ce38ee20afb1201",
    )
    assert (disk.facts["name"], disk.facts["pcie_width"], disk.numbers["aer_correctable"]) == ("nvme0n1", "4", 7)


def test_the_namespaces_of_one_drive_are_one_part() -> None:
    second = DRIVE | {"name": "nvme0n2", "size_bytes": 1000}
    (disk,) = parts("disk", disks={"devices": [DRIVE, second]})
    assert (disk.facts["name"], disk.facts["size_bytes"]) == ("nvme0n1 nvme0n2", "3840755983336")


def test_software_raid_remote_drives_and_a_bmcs_media_are_no_parts() -> None:
    listed = [
        {"name": "md0", "size_bytes": 10},
        {"name": "nvme3n1", "size_bytes": 10, "serial": "R1", "transport": "tcp"},
        {"name": "sdb", "size_bytes": 10, "serial": "AAAABBBBCCCC3", "model": "Virtual HDisk0"},
        {"name": "sdc", "size_bytes": 0, "model": "USB reader"},
    ]
    assert parts("disk", disks={"devices": listed}) == ()


def test_a_drive_without_a_serial_says_so() -> None:
    (disk,) = parts("disk", disks={"devices": [{"name": "sda", "size_bytes": 960197124096, "model": "MZ7L3960"}]})
    assert (disk.slot, disk.serial, disk.unknown) == ("sda", None, {"serial": "the kernel does not tell it"})


def test_two_drives_with_one_serial_and_nothing_else_are_their_slots() -> None:
    listed = [{"name": name, "size_bytes": 10, "serial": "DD2023"} for name in ("sda", "sdb")]
    assert [(disk.slot, disk.serial) for disk in parts("disk", disks={"devices": listed})] == [
        ("sda", None),
        ("sdb", None),
    ]


def test_a_memory_module_is_named_by_part_number_and_serial_and_an_empty_socket_is_seen() -> None:
    empty = {"locator": "CPU1_DIMM_A2", "size_mib": 0, "serial": "NO DIMM"}
    memory = {
        "modules": [MODULE, empty],
        "controllers": [{"dimms_with_errors": [{"label": "CPU1_DIMM_A1", "corrected": 4}]}],
    }
    told = devices(memory=memory)
    (dimm,) = [part for part in told.parts if part.kind == "dimm"]
    assert (dimm.slot, dimm.serial) == ("CPU1_DIMM_A1", "M321R8GA0BB0-CQKZJ 80CE0F3A")
    assert (dimm.facts["serial"], dimm.facts["configured_mts"]) == ("80CE0F3A", "4800")
    assert dimm.numbers == {"corrected_errors": 4}
    assert told.facts == {"slot.dimm.CPU1_DIMM_A2": "empty"}


def test_sockets_of_one_name_are_told_apart_by_their_bank() -> None:
    listed = [MODULE | {"locator": "DIMM 0", "bank": f"P0 CHANNEL {c}", "serial": f"0000000{c}1"} for c in "AB"]
    found = parts("dimm", memory={"modules": listed})
    assert [dimm.slot for dimm in found] == ["P0 CHANNEL A DIMM 0", "P0 CHANNEL B DIMM 0"]


@pytest.mark.parametrize("serial", ["00000000", "NO DIMM", "Unknown", "", None])
def test_a_module_without_a_serial_is_its_sockets(serial: str | None) -> None:
    (dimm,) = parts("dimm", memory={"modules": [MODULE | {"serial": serial}]})
    assert (dimm.serial, dimm.unknown) == (None, {"serial": "the firmware does not tell it"})


def test_a_socket_whose_size_is_not_known_is_not_empty() -> None:
    told = devices(memory={"modules": [MODULE | {"size_mib": None}]})
    assert (len(told.parts), told.facts) == (1, {})


def test_what_was_not_read_is_unknown_with_its_reason_and_no_part_is_gone() -> None:
    told = facts(network={"unknown": "no answer within 9 s"}, memory={"modules": {"unknown": "only root may read it"}})
    assert told.unknown["nics"] == "no answer within 9 s"
    assert told.unknown["dimms"] == told.unknown["slot.dimm.*"] == "only root may read it"
    assert told.unknown["disks"] == NOT_TOLD
    assert told.parts == ()


def test_the_parts_of_a_node_come_beside_its_gpus() -> None:
    gpus = {"source": "nvml", "count": 1, "devices": [{"index": 0, "known": {"serial": "S1"}}]}
    network = {"interfaces": [], "infiniband": [HCA]}
    told = facts(gpus=gpus, disks={"devices": [DRIVE]}, network=network, pci=NO_CARDS)
    assert [part.kind for part in told.parts] == ["gpu", "nic", "disk"]
    assert "nics" not in told.unknown


_KEYS = (
    *("devices", "interfaces", "infiniband", "modules", "controllers", "pci", "mac", "name", "address", "class"),
    *("serial", "size_mib", "size_bytes", "ports", "counters", "locator", "wwid", "node_guid", "bond_slaves"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(("network", "pci", "disks", "memory")), st.dictionaries(st.text(), _JSON)))
def test_whatever_a_document_holds_gives_parts_in_slots_of_their_own(sections: dict[str, dict[str, object]]) -> None:
    told = read_devices(sections)
    slots = [(part.kind, part.slot) for part in told.parts]
    assert len(slots) == len(set(slots))
    named = [(part.kind, part.uuid) for part in told.parts if part.uuid]
    assert len(named) == len(set(named))

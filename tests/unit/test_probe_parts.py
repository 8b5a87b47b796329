"""What names a part: modules by the firmware's tables, drives, and the addresses that adapters were made with."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.probe_node import FakeNode

from fleet.node_devices import read_devices
from node.probe.files import Root
from node.probe.links import read_network, read_pci
from node.probe.system import read_disks, read_memory


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


def root(node: FakeNode) -> Root:
    return Root(str(node.root))


def module(size: int, *strings: str, extended: int = 0, speed: int = 4800) -> bytes:
    """A Memory Device of SMBIOS 3.3: handle, widths, size, places, speeds; the strings by their numbers 1 to 5."""
    area = bytearray(0x5C)
    area[0:2] = 17, len(area)
    area[0x0C:0x0E] = size.to_bytes(2, "little")
    area[0x10:0x13] = 1, 2, 0x22
    area[0x15:0x17] = (5600).to_bytes(2, "little")
    area[0x17:0x1C] = 3, 4, 0, 5, 2
    area[0x1C:0x20] = extended.to_bytes(4, "little")
    area[0x20:0x22] = speed.to_bytes(2, "little")
    return bytes(area) + b"".join(text.encode() + b"\0" for text in strings) + b"\0"


def modules(node: FakeNode) -> object:
    return dict(read_memory(root(node)))["modules"]


def test_modules_and_empty_sockets_come_from_the_firmwares_tables(node: FakeNode) -> None:
    names = ("CPU1_DIMM_A1", "NODE 0", "Samsung", "80CE0F3A", "M321R8GA0BB0-CQKZJ  ")
    node.file("/sys/firmware/dmi/entries/17-0/raw", module(0x7FFF, *names, extended=65536))
    node.file("/sys/firmware/dmi/entries/17-1/raw", module(0, "CPU1_DIMM_A2", "NODE 0"))
    node.file("/sys/firmware/dmi/entries/16-0/raw", b"\x10\x17")
    first, second = modules(node)  # type: ignore[misc]
    assert first == {
        "locator": "CPU1_DIMM_A1",
        "bank": "NODE 0",
        "manufacturer": "Samsung",
        "serial": "80CE0F3A",
        "part_number": "M321R8GA0BB0-CQKZJ",
        "type": "DDR5",
        "size_mib": 65536,
        "speed_mts": 5600,
        "configured_mts": 4800,
        "rank": 2,
    }
    assert (second["locator"], second["size_mib"], second["serial"]) == ("CPU1_DIMM_A2", 0, None)
    told = read_devices({"memory": dict(read_memory(root(node)))})
    assert [part.serial for part in told.parts] == ["M321R8GA0BB0-CQKZJ 80CE0F3A"]
    assert told.facts == {"slot.dimm.CPU1_DIMM_A2": "empty"}


@pytest.mark.parametrize(("size", "mib"), [(0xFFFF, None), (16384, 16384), (0x8000 | 2048, 2)])
def test_a_size_is_in_mib_or_not_known(node: FakeNode, size: int, mib: int | None) -> None:
    node.file("/sys/firmware/dmi/entries/17-0/raw", module(size, "A1"))
    assert modules(node)[0]["size_mib"] == mib  # type: ignore[index]


@pytest.mark.parametrize("content", [b"", b"\x11", b"\x11\x1b" + bytes(24), bytes(4096), b"\xff" * 4096])
def test_a_table_that_is_cut_or_nonsense_is_survived(node: FakeNode, content: bytes) -> None:
    node.file("/sys/firmware/dmi/entries/17-0/raw", content)
    assert modules(node)
    assert isinstance(read_devices({"memory": dict(read_memory(root(node)))}).parts, tuple)


@pytest.mark.parametrize("content", [b"", b"\x11\x5c", None])
def test_a_module_that_cannot_be_read_is_not_told_as_taken_out(node: FakeNode, content: bytes | None) -> None:
    node.file("/sys/firmware/dmi/entries/17-0/raw", module(16384, "A1"))
    if content is None:
        node.file("/sys/firmware/dmi/entries/17-1/handle", "1")
    else:
        node.file("/sys/firmware/dmi/entries/17-1/raw", content)
    assert "17-1" in modules(node)["unknown"]  # type: ignore[call-overload]


def test_without_the_firmwares_tables_the_modules_are_unknown(node: FakeNode) -> None:
    assert "unknown" in modules(node)  # type: ignore[operator]


def test_an_nvme_drive_tells_its_pci_address_and_a_joined_one_that_of_its_path(node: FakeNode) -> None:
    node.files("/sys/block/nvme0n1", {"size": "1000", "wwid": "eui.0100000000000000"})
    node.files("/sys/block/nvme0n1/device", {"serial": "D1", "transport": "pcie", "address": "0000:41:00.0"})
    node.files("/sys/block/nvme1n1", {"size": "1000"})
    node.files("/sys/block/nvme1n1/device", {"serial": "D2"})
    node.files("/sys/block/nvme1n1/device/nvme3", {"transport": "tcp", "address": "traddr=10.0.0.1"})
    found = {disk["name"]: disk for disk in dict(read_disks(root(node)))["devices"]}  # type: ignore[attr-defined]
    assert (found["nvme0n1"]["pci"], found["nvme0n1"]["wwid"]) == ("0000:41:00.0", "eui.0100000000000000")
    assert (found["nvme1n1"]["pci"], found["nvme1n1"]["transport"]) == (None, "tcp")


def test_a_scsi_drive_tells_its_place_and_the_serial_of_its_data_page(node: FakeNode) -> None:
    place = "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0"
    node.files(place, {"model": "MZ7L3960", "wwid": "naa.5002538f00000001"})
    node.file(f"{place}/vpd_pg80", b"\x00\x80\x00\x0eS6CKNE0T000001")
    node.files("/sys/block/sda", {"size": "1000"})
    node.link("/sys/block/sda/device", place)
    (disk,) = dict(read_disks(root(node)))["devices"]  # type: ignore[misc]
    assert (disk["place"], disk["serial"], disk["wwid"]) == ("0:0:0:0", "S6CKNE0T000001", "naa.5002538f00000001")
    assert (disk["pci"], disk["transport"]) == (None, None)


def test_an_address_is_permanent_where_the_kernel_or_the_bond_says_so(node: FakeNode) -> None:
    for number, name in enumerate(("eth0", "eth1", "eth2")):
        device = f"/sys/devices/pci0000:00/0000:2b:00.{number}"
        node.files(device, {"vendor": "0x15b3"})
        node.files(f"/sys/class/net/{name}", {"address": "6c:fe:54:11:22:30", "addr_assign_type": "3"})
        node.link(f"/sys/class/net/{name}/device", device)
    node.files("/sys/class/net/eth2", {"addr_assign_type": "0"})
    text = "Bonding Mode: 802.3ad\n\nSlave Interface: eth1\nMII Status: up\nPermanent HW addr: 6c:fe:54:11:22:31\n"
    node.file("/proc/net/bonding/bond0", text)
    found = {entry["name"]: entry for entry in dict(read_network(root(node)))["interfaces"]}  # type: ignore[attr-defined]
    assert {name: entry["mac_permanent"] for name, entry in found.items()} == {
        "eth0": None,
        "eth1": "6c:fe:54:11:22:31",
        "eth2": "6c:fe:54:11:22:30",
    }


def test_a_virtual_function_is_marked(node: FakeNode) -> None:
    for address in ("0000:2b:00.0", "0000:2b:00.2"):
        node.files(f"/sys/bus/pci/devices/{address}", {"vendor": "0x8086", "class": "0x020000"})
    node.file("/sys/bus/pci/devices/0000:2b:00.2/physfn/vendor", "0x8086")
    listed = dict(read_pci(root(node)))["devices"]
    assert [entry["virtual_function"] for entry in listed] == [False, True]  # type: ignore[attr-defined]

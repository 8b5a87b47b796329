"""NICs out of the probe's sections `network` and `pci`: one part for each PCI function of an adapter.

An adapter's two functions have a GUID and a MAC address each and share the card's serial. A virtual function (SR-IOV)
is no part: it comes and goes with a setting.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fleet.facts import PartFacts
from fleet.hardware import mac_of
from fleet.inventory_rows import serial_of
from fleet.json_values import JsonObject, flag_at, number_at, object_at, objects_at, text_at, texts_at, value_at
from fleet.readers.pci_address import device_address

# NVIDIA's (15b3) virtual functions of ConnectX-4 to -7 and BlueField. Source: the PCI ID database, pci.ids.
_VIRTUAL = frozenset({"0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e"})
_PORT_COUNTERS = {
    "link_downed": "link_downed",
    "symbol_errors": "symbol_error",
    "receive_errors": "port_rcv_errors",
}
_LINK = {
    "pcie_speed_gts": "current_link_speed_gts",
    "pcie_speed_max_gts": "max_link_speed_gts",
    "pcie_width": "current_link_width",
    "pcie_width_max": "max_link_width",
}


def nic_parts(network: JsonObject, pci: JsonObject) -> tuple[PartFacts, ...] | None:
    """Every network function with a PCI address, by address; None where interfaces or the PCI bus were not read.

    Without the bus a virtual function cannot be told from an adapter.
    """
    if not isinstance(network.get("interfaces"), list) or not isinstance(pci.get("devices"), list):
        return None
    on_bus = {address: entry for entry in objects_at(pci, "devices") if (address := _address(entry, "address"))}
    interfaces, adapters = _by_address(network, "interfaces"), _by_address(network, "infiniband")
    shared = _shared_macs(objects_at(network, "interfaces"))
    network_class = {address for address, entry in on_bus.items() if (text_at(entry, "class") or "").startswith("0x02")}
    found = []
    for address in sorted(network_class | interfaces.keys() | adapters.keys()):
        card = on_bus.get(address, {})
        if not _virtual(card):
            found.append(_part(address, card, interfaces.get(address, []), adapters.get(address, []), shared))
    return tuple(found)


def _address(entry: JsonObject, key: str) -> str | None:
    return device_address(text_at(entry, key) or "")


def _by_address(network: JsonObject, key: str) -> dict[str, list[JsonObject]]:
    found: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for entry in objects_at(network, key):
        address = _address(entry, "pci")
        if address is not None:
            found[address].append(entry)
    return dict(found)


def _virtual(card: JsonObject) -> bool:
    if flag_at(card, "virtual_function"):
        return True
    return text_at(card, "vendor") == "0x15b3" and text_at(card, "device") in _VIRTUAL


def _shared_macs(interfaces: Sequence[JsonObject]) -> frozenset[str]:
    """Addresses that a bond has put on its members: whose own they are, nobody can tell."""
    members = {name for entry in interfaces for name in texts_at(entry, "bond_slaves")}
    bonded = (entry for entry in interfaces if text_at(entry, "name") in members)
    return frozenset(mac for entry in bonded if (mac := mac_of(text_at(entry, "mac") or "")))


def _part(
    address: str, card: JsonObject, interfaces: list[JsonObject], adapters: list[JsonObject], shared: frozenset[str]
) -> PartFacts:
    guid = next((found for entry in adapters if (found := guid_of(text_at(entry, "node_guid")))), None)
    mac = next((found for entry in interfaces if (found := _own_mac(entry, shared))), None)
    told: dict[str, str | None] = {
        "model": _first(adapters, "model") or _kind_of(card),
        "firmware": _first(adapters, "firmware"),
        "board": _first(adapters, "board"),
        "guid": guid,
        "mac": mac,
        "interfaces": " ".join(sorted(name for entry in interfaces if (name := text_at(entry, "name")))) or None,
        "driver": text_at(card, "driver") or _first(interfaces, "driver"),
        "part_number": text_at(card, "part_number"),
        **{name: _number(value_at(card, key)) for name, key in _LINK.items()},
        **_link_facts(interfaces, adapters),
    }
    wanted = ("model", "driver", *(("guid", "firmware") if adapters else ("mac",) if interfaces else ()))
    return PartFacts(
        kind="nic",
        slot=address,
        serial=serial_of(text_at(card, "serial")),
        uuid=mac_of_guid(guid) or guid or mac,
        facts={name: value for name, value in told.items() if value is not None},
        unknown={name: "the kernel does not tell it" for name in wanted if told[name] is None},
        numbers=_numbers(card, interfaces, adapters),
    )


def _own_mac(entry: JsonObject, shared: frozenset[str]) -> str | None:
    """The address that the adapter was made with; one that somebody has set is not its own.

    An older probe does not tell `mac_permanent`: then the address counts that is in use.
    """
    told = "mac_permanent" in entry
    mac = mac_of(text_at(entry, "mac_permanent" if told else "mac") or "")
    if mac is None or int(mac[:2], 16) & 3:  # locally administered, or a group's
        return None
    return mac if told or mac not in shared else None


def guid_of(text: str | None) -> str | None:
    """16 hex digits without marks; None for zeros, ones, or what is none."""
    bare = re.sub(r"[:.\s-]", "", (text or "").lower()).removeprefix("0x")
    return bare if re.fullmatch(r"[0-9a-f]{16}", bare) and len(set(bare)) > 1 else None


def mac_of_guid(guid: str | None) -> str | None:
    """The MAC address that a GUID was made of, so that a part keeps its name whichever of the two is read.

    Mellanox puts 0300 (older: 0002c9 0300) between the halves, EUI-64 puts fffe; None for a GUID of another form.
    """
    if guid is None or guid[6:10] not in ("0300", "fffe"):
        return None
    return mac_of(guid[:6] + guid[10:])


def _kind_of(card: JsonObject) -> str | None:
    vendor, device = text_at(card, "vendor"), text_at(card, "device")
    return f"{vendor}:{device}" if vendor and device else None


def _first(entries: Iterable[JsonObject], key: str) -> str | None:
    return next((text for entry in entries if (text := text_at(entry, key)) is not None), None)


def _number(value: object) -> str | None:
    number = number_at({"value": value}, "value")
    return None if number is None else f"{number:g}"


def _link_facts(interfaces: list[JsonObject], adapters: list[JsonObject]) -> Mapping[str, str | None]:
    """State and speed, by port or interface where there are several."""
    facts: dict[str, str | None] = {}
    ports = [port for entry in adapters for port in objects_at(entry, "ports")]
    for port in ports:
        name = "" if len(ports) == 1 else f"port_{_number(value_at(port, 'port')) or '?'}."
        for key in ("state", "physical_state", "rate", "link_layer"):
            facts[f"{name}{key}"] = text_at(port, key)
    for entry in () if ports else interfaces:
        name = "" if len(interfaces) == 1 else f"{text_at(entry, 'name') or '?'}."
        facts[f"{name}state"] = text_at(entry, "state")
        facts[f"{name}speed_mbps"] = _number(value_at(entry, "speed_mbps"))
    return facts


def _numbers(card: JsonObject, interfaces: list[JsonObject], adapters: list[JsonObject]) -> dict[str, float | None]:
    ports = [object_at(port, "counters") for entry in adapters for port in objects_at(entry, "ports")]
    numbers = {ours: _sum(ports, theirs) for ours, theirs in _PORT_COUNTERS.items()} if ports else {}
    if interfaces:
        numbers |= {name: _sum(interfaces, name) for name in ("carrier_changes", "rx_crc_errors")}
    if card:
        numbers["aer_correctable"] = number_at(card, "aer_correctable")
        fatal = [number for name in ("aer_nonfatal", "aer_fatal") if (number := number_at(card, name)) is not None]
        numbers["aer_uncorrectable"] = sum(fatal) if fatal else None
    return numbers


def _sum(entries: Iterable[JsonObject], key: str) -> float | None:
    """Over those that tell it; None where none does."""
    told = [number for entry in entries if (number := number_at(entry, key)) is not None]
    return sum(told) if told else None

"""Disks out of the probe's section `disks`: the drives that stand in the node, not what the network lends to it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.facts import PartFacts
from fleet.inventory_rows import serial_of
from fleet.json_values import JsonObject, number_at, objects_at, text_at, value_at
from fleet.readers.pci_address import device_address

_NO_DRIVES = re.compile(r"md\d|nbd|rbd|zd|drbd|bcache|mmcblk\d+boot|nvme\d+c\d+n")
_VIRTUAL_MEDIA = re.compile(r"^(?:AMI )?Virtual\b|\bVirtual (?:CDROM|Floppy|HDisk|Media)", re.IGNORECASE)
_REMOTE = frozenset({"tcp", "rdma", "fc", "iscsi", "loop"})
_NAMESPACE = re.compile(r"(nvme\d+)n\d+")
_FACTS = ("name", "model", "firmware", "size_bytes", "rotational", "state", "read_only")


def disk_parts(disks: JsonObject, pci: JsonObject) -> tuple[PartFacts, ...] | None:
    """The drives by slot: the PCI address or SCSI place where it is told, else the kernel's name.

    Namespaces of one NVMe drive are one part. Left out: software RAID, drives over the network, and the media that a
    BMC pretends to have. None where no disks were read.
    """
    if not isinstance(disks.get("devices"), list):
        return None
    links = {
        address: entry
        for entry in objects_at(pci, "devices")
        if (address := device_address(text_at(entry, "address") or ""))
    }
    drives: dict[str, list[JsonObject]] = {}
    for entry in objects_at(disks, "devices"):
        if _is_drive(entry):
            drives.setdefault(_drive(entry), []).append(entry)
    return tuple(_part(entries, links) for _, entries in sorted(drives.items()))


def wwn_of(text: str | None) -> str | None:
    """A World Wide Name in lower case without its blanks; None for zeros or nothing."""
    name = re.sub(r"\s+", " ", (text or "").strip().lower())
    bare = re.sub(r"^(?:0x|naa\.|eui\.|uuid\.|t10\.|nvme\.)", "", name)
    return name if len(set(re.sub(r"[\W_]", "", bare))) > 1 else None


def _is_drive(entry: JsonObject) -> bool:
    name, model = text_at(entry, "name") or "", text_at(entry, "model") or ""
    if not name or _NO_DRIVES.match(name) or _VIRTUAL_MEDIA.search(model):
        return False
    return number_at(entry, "size_bytes") != 0 and (text_at(entry, "transport") or "").lower() not in _REMOTE


def _drive(entry: JsonObject) -> str:
    """What the namespaces of one NVMe drive have in common; every other disk is by itself."""
    name, serial = text_at(entry, "name") or "", serial_of(text_at(entry, "serial"))
    namespace = _NAMESPACE.fullmatch(name)
    if namespace is None:
        return f"disk {name}"
    return f"nvme {serial}" if serial else f"nvme {namespace[1]}"


def _part(entries: list[JsonObject], links: Mapping[str, JsonObject]) -> PartFacts:
    first = entries[0]
    address = device_address(text_at(first, "pci") or "")
    told = {name: _text(value_at(first, name)) for name in _FACTS}
    told["name"] = " ".join(text_at(entry, "name") or "" for entry in entries)
    sizes = [number_at(entry, "size_bytes") for entry in entries]
    told["size_bytes"] = None if None in sizes else f"{sum(size for size in sizes if size is not None):.0f}"
    link = links.get(address or "", {})
    width = number_at(link, "current_link_width")
    told["pcie_width"] = None if width is None else f"{width:g}"
    serial = serial_of(text_at(first, "serial"))
    return PartFacts(
        kind="disk",
        slot=address or text_at(first, "place") or text_at(first, "name") or "?",
        serial=serial,
        uuid=wwn_of(text_at(first, "wwid")) if len(entries) == 1 else None,
        facts={name: value for name, value in told.items() if value is not None},
        unknown={name: "the kernel does not tell it" for name in ("model", "size_bytes") if told[name] is None}
        | ({} if serial else {"serial": "the kernel does not tell it"}),
        numbers={"aer_correctable": number_at(link, "aer_correctable")} if link else {},
    )


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    number = number_at({"value": value}, "value")
    return None if number is None else f"{number:.0f}"

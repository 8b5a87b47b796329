"""NICs, disks and memory modules out of the node probe's document, as parts with a history of their own.

A part is named by what travels with it: its serial, else what its maker burnt into it (a GUID, a MAC address, a
World Wide Name). What several parts of one node claim at once names none of them: those stay their slot's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.dimm_parts import dimm_parts, empty_sockets
from fleet.disk_parts import disk_parts
from fleet.facts import PartFacts
from fleet.json_values import JsonObject, text_at
from fleet.nic_parts import nic_parts

NOT_TOLD = "the probe did not tell it"
_KEYS = {"nics": ("nics",), "disks": ("disks",), "dimms": ("dimms", "slot.dimm.*")}


@dataclass(frozen=True, slots=True)
class Devices:
    """What one reading tells of them. `facts` are the node's: sockets that were seen empty."""

    parts: tuple[PartFacts, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def read_devices(sections: Mapping[str, JsonObject]) -> Devices:
    """The parts that the sections `network`, `pci`, `disks` and `memory` tell of.

    A kind whose section was not read is unknown with the reason, under `nics`, `disks` or `dimms`.
    """
    network, pci, disks, memory = (sections.get(name, {}) for name in ("network", "pci", "disks", "memory"))
    told: tuple[tuple[str, tuple[PartFacts, ...] | None, str], ...] = (
        ("nics", nic_parts(network, pci), _why_no_nics(network, pci)),
        ("disks", disk_parts(disks, pci), _why(disks, "devices")),
        ("dimms", dimm_parts(memory), _why(memory, "modules")),
    )
    return Devices(
        parts=tuple(part for _, parts, _ in told if parts for part in _distinct(parts)),
        facts={f"slot.dimm.{socket}": "empty" for socket in empty_sockets(memory)},
        unknown={key: why for name, parts, why in told if parts is None for key in _KEYS[name]},
    )


def _distinct(parts: Sequence[PartFacts]) -> list[PartFacts]:
    """The parts without the names that another part of the node has too, each in a slot of its own."""
    uuids = Counter(part.uuid for part in parts)
    own = [replace(part, uuid=None) if uuids[part.uuid] > 1 else part for part in parts]
    nameless = Counter(part.serial for part in own if part.uuid is None)
    serials = Counter(part.serial for part in own)
    slots: Counter[str] = Counter()
    found = []
    for part in own:
        slots[part.slot] += 1
        slot = part.slot if slots[part.slot] == 1 else f"{part.slot} #{slots[part.slot]}"
        of_many = serials[part.serial] > 1 and nameless[part.serial]
        found.append(replace(part, slot=slot, serial=None if of_many else part.serial))
    return found


def _why_no_nics(network: JsonObject, pci: JsonObject) -> str:
    read = isinstance(network.get("interfaces"), list)
    return f"the PCI bus: {_why(pci, 'devices')}" if read else _why(network, "interfaces")


def _why(section: JsonObject, key: str) -> str:
    for path in ((key, "unknown"), ("unknown",), ("unfinished",)):
        why = text_at(section, *path)
        if why is not None:
            return why
    return NOT_TOLD

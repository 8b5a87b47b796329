"""A machine as somebody saw it, and the marks by which it is known again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.config import NodeEntry
from fleet.inventory_addresses import bmc_url
from fleet.inventory_rows import Row, serial_of

# AMI's sample UUID, which boards carry where nobody wrote one; those of one digit only are refused by rule.
_NO_UUID = frozenset({"03000200-0400-0500-0006-000700080009"})


@dataclass(frozen=True, slots=True)
class Where:
    """Where it stands, as far as its source says."""

    site: str | None = None
    rack: str | None = None
    unit: int | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One machine. Anything not told is None or empty.

    `node` is the name where it has one, `bmc` a URL; `serials` maps a part (system, chassis, board) to its serial;
    `certificate_sha256` is the BMC certificate's, 64 hex digits, unverified: what intake compares when it comes.
    """

    node: str | None = None
    bmc: str | None = None
    serials: Mapping[str, str] | None = None
    uuid: str | None = None
    macs: tuple[str, ...] = ()
    vendor: str | None = None
    model: str | None = None
    where: Where = Where()
    certificate_sha256: str | None = None

    @property
    def serial(self) -> str | None:
        """The system's serial, None for a placeholder."""
        return serial_of((self.serials or {}).get("system"))

    @property
    def marks(self) -> tuple[tuple[str, str], ...]:
        """What names it wherever it stands, as (serial, mac or uuid; text), the strongest first."""
        serial, uuid = self.serial, uuid_of(self.uuid)
        macs = tuple(("mac", mac) for mac in sorted(filter(None, map(mac_of, self.macs))))
        return (*((("serial", serial.casefold()),) if serial else ()), *macs, *((("uuid", uuid),) if uuid else ()))

    @property
    def named(self) -> bool:
        """Is there anything by which it could be known again?"""
        return bool(self.marks or self.bmc or self.node)

    @property
    def label(self) -> str:
        """How it is called in a message."""
        return self.node or self.bmc or self.serial or "unnamed hardware"


def hardware_of_entry(entry: NodeEntry, site: str = "", serial: str | None = None) -> Hardware:
    """A node of the fleet file; `serial` is the one that was read, else the file's counts."""
    where = Where(site or None, entry.rack, entry.unit)
    serial = serial or entry.serial
    serials = {"system": serial} if serial else None
    return Hardware(node=entry.name, bmc=entry.bmc, serials=serials, model=entry.model, where=where)


def hardware_of_row(row: Row) -> Hardware:
    """A node of another inventory; an address that is none is left out."""
    values = row.values
    try:
        bmc = bmc_url(values["bmc"]) if "bmc" in values else None
    except ValueError:
        bmc = None
    unit = values.get("unit", "")
    return Hardware(
        node=values.get("name"),
        bmc=bmc,
        serials={"system": values["serial"]} if "serial" in values else None,
        model=values.get("model"),
        where=Where(values.get("site"), values.get("rack"), int(unit) if re.fullmatch(r"[0-9]{1,2}", unit) else None),
    )


def uuid_of(text: str | None) -> str | None:
    """A UUID in lower case with its dashes; None for a placeholder or what is none."""
    bare = re.sub(r"[{}\s-]", "", (text or "").lower().removeprefix("urn:uuid:"))
    if not re.fullmatch(r"[0-9a-f]{32}", bare) or len(set(bare)) == 1:
        return None
    uuid = f"{bare[:8]}-{bare[8:12]}-{bare[12:16]}-{bare[16:20]}-{bare[20:]}"
    return None if uuid in _NO_UUID else uuid


def mac_of(text: str) -> str | None:
    """A MAC address as `aa:bb:cc:dd:ee:ff`; None for zeros, a broadcast or what is none."""
    bare = re.sub(r"[:.\s-]", "", text).lower()
    if not re.fullmatch(r"[0-9a-f]{12}", bare) or bare in ("0" * 12, "f" * 12):
        return None
    return ":".join(bare[at : at + 2] for at in range(0, 12, 2))

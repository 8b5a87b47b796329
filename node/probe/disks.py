"""Block devices from /sys/block: what names a drive, where it is, and whether it is here or over the network."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .files import Root

_SCSI_PLACE = re.compile(r"^\d+:\d+:\d+:\d+$")
_CONTROLLER = re.compile(r"^nvme\d+$")


def read_disk(root: Root, name: str) -> dict[str, object]:
    """One block device. `pci` is an NVMe drive's address, `place` a SCSI drive's host:channel:target:unit."""
    path = f"/sys/block/{name}"
    device = f"{path}/device"
    sectors = root.number(f"{path}/size")
    controller = _controller(root, device)
    transport = root.text(f"{controller}/transport") or _scsi_transport(root, device)
    address = root.text(f"{controller}/address") if transport == "pcie" else None
    place = os.path.basename(os.path.realpath(root.path(device)))  # noqa: PTH119
    return {
        "name": name,
        "size_bytes": None if sectors is None else sectors * 512,
        "model": root.text(f"{device}/model"),
        "serial": root.text(f"{device}/serial") or _scsi_serial(root, device),
        "wwid": root.text(f"{path}/wwid") or root.text(f"{device}/wwid"),
        "pci": address,
        "place": place if _SCSI_PLACE.match(place) else None,
        "transport": transport,
        "firmware": root.text(f"{device}/firmware_rev") or root.text(f"{device}/rev"),
        "state": root.text(f"{device}/state"),
        "rotational": root.number(f"{path}/queue/rotational"),
        "read_only": root.number(f"{path}/ro"),
    }


def _controller(root: Root, device: str) -> str:
    """An NVMe drive's controller: its device, or below it where the kernel has joined several paths to the drive."""
    if root.exists(f"{device}/transport"):
        return device
    names = [name for name in root.names(device) if _CONTROLLER.match(name)]
    return f"{device}/{names[0]}" if names else device


def _scsi_transport(root: Root, device: str) -> str | None:
    path = os.path.realpath(root.path(device))
    return "iscsi" if "/session" in path else "fc" if "/rport-" in path else None


def _scsi_serial(root: Root, device: str) -> str | None:
    """The drive's Unit Serial Number. Source: SCSI Primary Commands, vital product data page 80h."""
    try:
        with open(root.path(f"{device}/vpd_pg80"), "rb") as file:  # noqa: PTH123
            page = file.read(256)
    except OSError:
        return None
    text = page[4 : 4 + int.from_bytes(page[2:4], "big")].decode("ascii", "replace")
    return text.strip("\0 ") or None

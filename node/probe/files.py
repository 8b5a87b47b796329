"""Files below a root folder, so that a copied /sys and /proc can be read as well as the running system's."""

# pathlib costs more start-up time than a section
# ruff: noqa: PTH110, PTH115, PTH118, PTH119, PTH123, PTH208

from __future__ import annotations

import os
import re

_LIMIT = 1 << 20
_PCI = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


class Root:
    """The node's file system; `folder` is "/" on a real node. Paths are given as they are there."""

    def __init__(self, folder: str = "/") -> None:
        self.folder = folder

    @property
    def live(self) -> bool:
        return os.path.realpath(self.folder) == "/"

    def path(self, absolute: str) -> str:
        return os.path.join(self.folder, absolute.lstrip("/"))

    def read(self, absolute: str, limit: int = _LIMIT) -> str:
        """At most `limit` bytes. Raises OSError."""
        with open(self.path(absolute), "rb") as file:
            return file.read(limit).decode("utf-8", "replace")

    def text(self, absolute: str) -> str | None:
        """The content without white space around it; None where it cannot be read or is empty."""
        try:
            return self.read(absolute).strip("\0 \t\r\n") or None
        except OSError:
            return None

    def number(self, absolute: str) -> int | None:
        """A decimal or 0x number; None for anything else."""
        try:
            return int(self.text(absolute) or "", 0)
        except ValueError:
            return None

    def names(self, absolute: str) -> list[str]:
        """What a folder holds, in order; empty where it is missing."""
        try:
            return sorted(os.listdir(self.path(absolute)))
        except OSError:
            return []

    def exists(self, absolute: str) -> bool:
        return os.path.exists(self.path(absolute))

    def link(self, absolute: str) -> str | None:
        """The last part of what a symbolic link points to."""
        try:
            return os.path.basename(os.readlink(self.path(absolute)))
        except OSError:
            return None

    def pci(self, absolute: str) -> str | None:
        """The PCI address that a /sys/class entry's `device` leads to; None where it is on no PCI bus itself."""
        name = os.path.basename(os.path.realpath(self.path(absolute)))
        return name if _PCI.match(name) else None


def unknown(reason: str) -> dict[str, str]:
    """What stands in the document for a value that could not be had."""
    return {"unknown": reason}

"""What all readers of nvidia-smi share: prefixes, versions, and the readings of one text by GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from fleet.gpu import GpuReading

_VERSION = re.compile(r"(?<![\d.])(\d{3}\.\d{2,3}(?:\.\d{1,3})?)(?![\d.]*\d)")
_CUDA = re.compile(r"(?<![\d.])(\d{1,2}\.\d{1,2})(?![\d.]*\d)")


def version_in(text: str | None) -> str | None:
    """The driver version in a text ("590.48.01 [Deprecated …]" gives "590.48.01"), of two or three parts."""
    match = _VERSION.search(text or "")
    return match[1] if match else None


def cuda_in(text: str | None) -> str | None:
    """The CUDA version in a text, or None ("N/A")."""
    match = _CUDA.search(text or "")
    return match[1] if match else None


def library_version_in(text: str) -> str | None:
    """The version of the NVML library that a mismatch is told with, or that `nvidia-smi --version` prints."""
    match = re.search(r"NVML (?:library )?version\s*:\s*(\d{3}\.\d{2,3}(?:\.\d{1,3})?)", text, re.IGNORECASE)
    return match[1] if match else None


def numbered(gpus: Iterable[GpuReading], attached: int | None) -> tuple[GpuReading, ...]:
    """The GPUs as a tuple; their places are their indices where every attached one is there and none has an index."""
    listed = tuple(gpus)
    if attached != len(listed) or any(gpu.index is not None for gpu in listed):
        return listed
    return tuple(replace(gpu, index=place) for place, gpu in enumerate(listed))


def without_prefix(text: str, mark: str) -> str:
    """The text without what stands before `mark` on its line (a host's name, a log's time), on every line alike."""
    rows = text.splitlines()
    line = next((row for row in rows if mark in row), "")
    start = line[: line.find(mark)] if line else ""
    if not start.strip():
        return text
    shape = re.compile(re.sub(r"[0-9]", r"\\d", re.escape(start)))
    return "\n".join(row[match.end() :] if (match := shape.match(row)) else row for row in rows)


class Readings:
    """The readings of one text, one for each GPU: told apart by UUID, else by address, else by index."""

    def __init__(self) -> None:
        self._gpus: list[GpuReading] = []
        self._places: dict[tuple[str, str | int], int] = {}

    def put(self, gpu: GpuReading, join: Callable[[GpuReading, GpuReading], GpuReading] | None = None) -> None:
        """Adds a reading; where its GPU has one already it takes its place, or what `join` makes of old and new."""
        names = [("uuid", gpu.uuid), ("address", gpu.pci_address), ("index", gpu.index)]
        keys = [(name, value) for name, value in names if value is not None]
        place = next((self._places[key] for key in keys if key in self._places and self._fits(key, gpu)), None)
        if place is None:
            place = len(self._gpus)
            self._gpus.append(gpu)
        else:
            self._gpus[place] = join(self._gpus[place], gpu) if join else gpu
        self._places.update(dict.fromkeys(keys, place))

    def _fits(self, key: tuple[str, str | int], gpu: GpuReading) -> bool:
        """Whether no stronger name speaks against it: two hosts have equal addresses and never equal UUIDs."""
        there = self._gpus[self._places[key]]
        pairs = {"uuid": [], "address": [(there.uuid, gpu.uuid)]}.get(
            key[0], [(there.uuid, gpu.uuid), (there.pci_address, gpu.pci_address)]
        )
        return all(mine is None or other is None or mine == other for mine, other in pairs)

    def all(self) -> list[GpuReading]:
        """The readings, in the order in which their GPUs came first."""
        return list(self._gpus)

"""Memory sockets from the firmware's SMBIOS tables. Source of the layout: DMTF DSP0134, structure 17."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .files import unknown

if TYPE_CHECKING:
    from .files import Root

_ENTRIES = "/sys/firmware/dmi/entries"
_LARGEST = 4096
_TYPES = {
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1E: "LPDDR4",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}


def read_modules(root: Root) -> object:
    """A dictionary for each socket, `size_mib` 0 for an empty one; {"unknown": why} where not all can be read.

    A list without one of them would say that its module was taken out.
    """
    names = [name for name in root.names(_ENTRIES) if name.startswith("17-")]
    if not names:
        return unknown("the kernel shows no memory devices of the firmware (SMBIOS)")
    found = []
    for name in sorted(names, key=lambda text: (len(text), text)):
        try:
            with open(root.path(f"{_ENTRIES}/{name}/raw"), "rb") as file:  # noqa: PTH123
                content = file.read(_LARGEST)
        except PermissionError:
            return unknown("only root may read the firmware's tables")
        except OSError as error:
            return unknown(f"the firmware's memory device {name} cannot be read: {error.strerror}")
        if len(content) <= 0x1A:
            return unknown(f"the firmware's memory device {name} is cut off")
        found.append(_module(content))
    return found


def _module(content: bytes) -> dict[str, object]:
    length = content[1]
    area = content[:length]
    strings = content[length:].split(b"\0")
    return {
        "locator": _text(area, strings, 0x10),
        "bank": _text(area, strings, 0x11),
        "manufacturer": _text(area, strings, 0x17),
        "serial": _text(area, strings, 0x18),
        "part_number": _text(area, strings, 0x1A),
        "type": _TYPES.get(_number(area, 0x12, 1) or 0),
        "size_mib": _size(area),
        "speed_mts": _speed(area, 0x15, 0x54),
        "configured_mts": _speed(area, 0x20, 0x58),
        "rank": ((_number(area, 0x1B, 1) or 0) & 15) or None,
    }


def _number(area: bytes, offset: int, size: int) -> int | None:
    """Little-endian; None where an older firmware's structure ends before it."""
    return int.from_bytes(area[offset : offset + size], "little") if offset + size <= len(area) else None


def _text(area: bytes, strings: list[bytes], offset: int) -> str | None:
    number = _number(area, offset, 1) or 0
    if not 0 < number <= len(strings):
        return None
    return strings[number - 1].decode("utf-8", "replace").strip() or None


def _size(area: bytes) -> int | None:
    size = _number(area, 0x0C, 2)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        return _number(area, 0x1C, 4)
    return (size & 0x7FFF) // 1024 if size & 0x8000 else size


def _speed(area: bytes, offset: int, extended: int) -> int | None:
    speed = _number(area, offset, 2)
    return (_number(area, extended, 4) if speed == 0xFFFF else speed) or None

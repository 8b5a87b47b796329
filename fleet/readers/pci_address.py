"""PCI addresses as drivers, kernels and tools write them, made one: lower case, domain of four digits."""

from __future__ import annotations

import re

ADDRESS = (
    r"(?<![0-9a-fA-F])(?<![0-9a-fA-F]:)(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
    r"(?![0-9a-fA-F])(?!:[0-9a-fA-F]{2})"
)
"""A regular expression for an address with or without domain and function; a time or an id ("10de:2330") is none."""

_PARTS = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.(?P<function>[0-7]))?"
)
_OLD = re.compile(r"(?P<bus>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{2})")


def gpu_address(text: str) -> str | None:
    """A GPU's address without its function: "PCI:00000000:3B:00.0" is "0000:3b:00"; None for no address.

    The two-part form of drivers before 352 ("0003:00") is bus and device.
    """
    bare = _bare(text)
    found = _PARTS.fullmatch(bare) or _OLD.fullmatch(bare)
    return _short(found) if found else None


def pci_address(text: str) -> str | None:
    """An address that has its function, as NVML and nvidia-smi give it: "0000:3b:00.0".

    None for what cannot be one: no function, a device above 1f, a domain of three digits.
    """
    found = _PARTS.fullmatch(_bare(text))
    if found is None or found["function"] is None or int(found["device"], 16) > 0x1F:
        return None
    return f"{_short(found)}.{found['function']}"


def device_address(text: str) -> str | None:
    """A device's address with its function, 0 where none is written; None for no address."""
    short = gpu_address(text)
    function = re.search(r"\.([0-7])\s*$", text)
    return f"{short}.{function[1] if function else 0}" if short else None


def _bare(text: str) -> str:
    bare = text.strip()
    return bare[4:] if bare[:4].upper() == "PCI:" else bare


def _short(found: re.Match[str]) -> str:
    parts = found.groupdict()
    domain = int(parts.get("domain") or "0", 16)
    return f"{domain:04x}:{int(parts['bus'], 16):02x}:{int(parts['device'], 16):02x}"


def requester_address(identifier: str, domain: str = "0000") -> str | None:
    """The address in a PCIe requester identifier of four hexadecimal digits ("00e0" is 00:1c.0)."""
    if not re.fullmatch(r"[0-9a-fA-F]{4}", identifier):
        return None
    number = int(identifier, 16)
    return f"{domain}:{number >> 8:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"

"""The table of NVIDIA's `nvfwupd show_version`, read with its quirks.

Source: NVIDIA/open-nvfwupd, firmware update guide. The tool's "Up-To-Date" is its own view; a version may be
the ASCII text in hexadecimal digits (312e3041 is 1.0A); the system model may be wrong FRU data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.firmware import real_version


@dataclass(frozen=True, slots=True)
class NvfwupdRow:
    """One device. `system` and `package` are None where the tool has none; `tool_says_current` is its word.

    `equal` is ours: whether both versions are the same text, without regard to case and to hexadecimal
    spelling; None where one of them is missing.
    """

    name: str
    system: str | None
    package: str | None
    tool_says_current: bool | None
    staged: str | None = None

    @property
    def equal(self) -> bool | None:
        if self.system is None or self.package is None:
            return None
        return plain_version(self.system).casefold() == plain_version(self.package).casefold()


@dataclass(frozen=True, slots=True)
class NvfwupdTable:
    """The whole output. `model` is what the tool printed, which may be another board's."""

    model: str | None
    packages: tuple[str, ...]
    connected: bool | None
    rows: tuple[NvfwupdRow, ...]


def plain_version(version: str) -> str:
    """The version with hexadecimal ASCII turned into its text; anything else as it is."""
    if len(version) % 2 or not re.fullmatch(r"[0-9a-fA-F]{6,}", version):
        return version
    text = bytes.fromhex(version)
    printable = all(byte in b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-" for byte in text)
    return text.decode("ascii") if printable and b"." in text else version


def read_nvfwupd_table(text: str) -> NvfwupdTable:
    """Read the output. Raises ValueError where there is no table in it."""
    lines = [line.strip() for line in text.splitlines()]
    header = next((i for i, line in enumerate(lines) if line.startswith("AP Name")), None)
    if header is None:
        raise ValueError("no table that begins with 'AP Name'; is this the output of nvfwupd show_version?")
    columns = re.split(r"\s{2,}", lines[header])
    rows: list[NvfwupdRow] = []
    for line in lines[header + 1 :]:
        fields = line.split()
        if not fields or set(line) <= {"-", " "}:
            if rows:
                break
            continue
        rows.append(_row(dict(zip(columns, fields, strict=False))))
    connection = _after(lines, "Connection Status:")
    return NvfwupdTable(
        model=_after(lines, "System Model:"),
        packages=tuple(re.findall(r"'([^']+)'", _after(lines, "Packages:") or "")),
        connected=None if connection is None else connection.casefold() == "successful",
        rows=tuple(rows),
    )


def _row(fields: dict[str, str]) -> NvfwupdRow:
    word = fields.get("Up-To-Date", "").casefold()
    return NvfwupdRow(
        name=fields.get("AP Name", ""),
        system=real_version(fields.get("Sys Version")),
        package=real_version(fields.get("Pkg Version")),
        tool_says_current={"yes": True, "no": False}.get(word),
        staged=real_version(fields.get("Staged Version")),
    )


def _after(lines: list[str], label: str) -> str | None:
    found = next((line for line in lines if line.startswith(label)), None)
    return (found[len(label) :].strip() or None) if found is not None else None

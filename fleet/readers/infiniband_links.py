"""What the fabric's tools say of links: iblinkinfo, perfquery, ibdiagnet, and mlxlink as text or JSON.

Source of the layouts: linux-rdma/rdma-core infiniband-diags, Mellanox/mstflint mlxlink, NVIDIA's ibdiagnet2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.json_values import JsonObject, object_at
from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import any_of, plain_lines, whole


@dataclass(frozen=True, slots=True)
class FabricLink:
    """One line of iblinkinfo: the near end, how the link runs, its far end (None: nothing there), the tool's hint."""

    near: str
    width: str | None
    speed: str | None
    state: str | None
    physical: str | None
    far: str | None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class PortCounters:
    """perfquery's counters of one port, by the tool's name."""

    port: str
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FabricNote:
    """A line of ibdiagnet: `level` is "error" or "warning"."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class ModuleLink:
    """mlxlink's pages, flat: "State", "Physical state", "Speed", "Status Opcode", "Effective Physical BER" …"""

    fields: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        """The value; None where it is missing or the tool had none."""
        value = self.fields.get(name.casefold(), "").strip()
        return None if value.casefold() in ("", "n/a", "unknown", "-") else value


_LINKINFO = re.compile(r"(?P<lid>\d+)\s+(?P<port>\d+)\[\s*\d*\s*\]\s*==\(\s*(?P<link>[^)]*?)\s*\)==>\s*(?P<far>.*)$")
_NODE = re.compile(r"^\s*(?:CA|Switch|Router)(?:\s+0x[0-9a-f]+)?:?\s*(.*?):?\s*$")


def read_linkinfo(text: str) -> tuple[FabricLink, ...]:
    """iblinkinfo's lines, each named by its node and port."""
    node = ""
    links = []
    for line in plain_lines(text):
        found = _LINKINFO.search(line)
        if found is None:
            heading = _NODE.match(line)
            node = heading[1] if heading else node
            continue
        near = re.search(r'"([^"]*)"', line[: found.start()])
        words = found["link"].split("/")
        run = words[0].split()
        width = next((word for word in run if re.fullmatch(r"\d+X", word)), None)
        speed = re.search(r"[\d.]+ Gbps", words[0])
        far = re.search(r'"([^"]*)"', found["far"])
        hint = re.search(r"\((.*(?:Could be|No state).*?)\)?\s*$", found["far"])
        links.append(
            FabricLink(
                near=f"{(near[1] if near else node).strip() or 'lid ' + found['lid']} port {found['port']}",
                width=width,
                speed=speed[0] if speed else None,
                state=run[-1].casefold() if run and run[-1].isalpha() else None,
                physical=words[1].strip().casefold() if len(words) > 1 else None,
                far=far[1].strip() if far and far[1].strip() else None,
                hint=hint[1].strip() if hint else None,
            )
        )
    return tuple(links)


_COUNTERS = re.compile(r"#\s*Port (?:extended )?counters:\s*(.*?)(?:\s*\(CapMask.*)?$", re.IGNORECASE)
_COUNTER = re.compile(r"^\s*([A-Z]\w+):\.*\s*(0x[0-9a-fA-F]+|\d+)\s*$")


def read_counters(text: str) -> tuple[PortCounters, ...]:
    """perfquery's ports; counters before the first heading belong to a port without a name."""
    ports: list[tuple[str, dict[str, int]]] = []
    for line in plain_lines(text):
        heading, counter = _COUNTERS.search(line), _COUNTER.match(line)
        if heading:
            ports.append((heading[1].strip(), {}))
        elif counter and "." * 3 in line:
            if not ports:
                ports.append(("port", {}))
            ports[-1][1][counter[1]] = whole(counter[2]) or 0
    return tuple(PortCounters(port, counters) for port, counters in ports)


_DIAGNET = re.compile(r"^\s*-([EWI])-\s+(.*)$")
_STAGE = re.compile(r"^(\S.*?)\s{2,}(\d+)\s+(\d+)(?:\s+.*)?$")


def read_diagnet(text: str) -> tuple[FabricNote, ...]:
    """ibdiagnet's errors and warnings, and the stages of its summary that count any without a line of their own.

    The summary's columns are warnings, then errors; a warning is a finding also where no error is counted.
    """
    notes, stages = [], []
    for line in plain_lines(text):
        found = _DIAGNET.match(line)
        stage = _STAGE.match(found[2]) if found and found[1] == "I" else None
        if found and found[1] in "EW":
            notes.append(FabricNote("error" if found[1] == "E" else "warning", found[2].strip()))
        elif stage:
            stages += [
                FabricNote(level, f"{stage[1]}: {count} {level}s")
                for level, count in (("warning", stage[2]), ("error", stage[3]))
                if int(count[:9])
            ]
    told = {note.level for note in notes}
    return (*notes, *(stage for stage in stages if stage.level not in told))


_MLX = re.compile(r"^\s*([A-Z][\w /.()\[\]%-]*?)\s*:\s(.*)$")


def is_mlxlink(text: str) -> bool:
    """Does it hold a page of mlxlink?"""
    return any_of(("Operational Info", "Troubleshooting Info", "Physical Counters and BER Info"), text)


def read_mlxlink(text: str) -> ModuleLink:
    """mlxlink's pages. Text without one gives no fields."""
    if not is_mlxlink(text):
        return ModuleLink()
    found = find_json(text, lambda value: isinstance(value, Mapping) and "Operational Info" in str(value))
    if found is not None:
        output = object_at(found.value, "result", "output") or object_at(found.value)
        return ModuleLink(dict(_flat(output)))
    pairs = (_MLX.match(line) for line in plain_lines(text))
    return ModuleLink({pair[1].strip().casefold(): pair[2].strip() for pair in pairs if pair})


def _flat(tree: JsonObject, depth: int = 0) -> list[tuple[str, str]]:
    pairs = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and depth < 5:
            pairs += _flat(value, depth + 1)
        elif isinstance(value, list):
            pairs.append((str(key).casefold(), ", ".join(str(item) for item in value)))
        elif value is not None:
            pairs.append((str(key).casefold(), str(value)))
    return pairs

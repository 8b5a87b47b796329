"""The text of NVLink as nvidia-smi (`nvlink -s`, `-e`, `-c`, `-R`, `-p`) and dcgmi (`nvlink -s`, `-e`) print it.

In MIG mode the driver prints a sentence in place of links, and exits with 0: that is no answer, not "no link up".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleet.json_values import JsonObject, object_at, texts_at, value_at
from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import number, plain_lines, whole


class LinkState(StrEnum):
    """`DOWN` is active's contrary in both tools' words; `DISABLED` is by configuration; `UNKNOWN` was not said."""

    UP = "up"
    DOWN = "down"
    DISABLED = "disabled"
    NOT_SUPPORTED = "not_supported"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link of one GPU or switch. `speed_gb_s` is GB/s in one direction; `remote` a PCI address as printed, with its
    domain; `counters` by the tool's name, None where the value is none; `facts` are capabilities."""

    index: int
    state: LinkState = LinkState.UNKNOWN
    speed_gb_s: float | None = None
    remote: str | None = None
    remote_link: int | None = None
    counters: Mapping[str, float | None] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkedPart:
    """A GPU or switch with its links by number. `note` is what the tool said in place of links."""

    name: str
    model: str | None = None
    uuid: str | None = None
    links: tuple[NvLink, ...] = ()
    note: str | None = None

    def count(self, state: LinkState) -> int:
        return sum(link.state is state for link in self.links)

    @property
    def states_known(self) -> bool:
        """Does the text tell of any link whether it is up?"""
        return any(link.state is not LinkState.UNKNOWN for link in self.links)


_GPU = re.compile(r"\bGPU (\d{1,3}): (?!GPU\b)(\S.*?)(?: \(UUID: ([^)\s]+)\))?$")
_LINK = re.compile(r"\bLink (\d{1,2})\s*[:,]\s*(.*)$")
NOTE = re.compile(
    r"nvlink quer\w+ are not supported|unable to retrieve nvlink|nvlink is not supported|all links are", re.I
)
NOTE_WORDS = ("nvlink quer", "unable to retrieve nvlink", "nvlink is not supported", "all links are")
_DCGM_PART = re.compile(
    r"^\s*(?:(?:physical)?gpuId|(?:nv)?switchId|(?:physical)?(?:Nv)?SwitchId)\s*:?\s*(\d{1,3})\s*:", re.I
)
_DCGM_STATES = re.compile(r"^\s*([UDX_](?:[ \t]+[UDX_])*)\s*$")
_DCGM_LETTERS = {"U": LinkState.UP, "D": LinkState.DOWN, "X": LinkState.DISABLED, "_": LinkState.NOT_SUPPORTED}
_DCGM_ROW = re.compile(r"\|\s*(->)?\s*([A-Za-z][\w /-]*?)\s*\|\s*([^|\s][^|]*?)?\s*\|")


def read_nvlink(text: str) -> tuple[LinkedPart, ...]:
    """Every GPU and switch with its links, in the text's order; the same part from two commands is one."""
    reader = _Reader()
    found = find_json(text, lambda value: any(str(key).startswith("Link ") for key in object_at(value, "body")))
    if found is not None:
        reader.take_json(object_at(found.value))
        text = ""
    for line in plain_lines(text):
        reader.take(line)
    return tuple(replace(part, links=tuple(links[i] for i in sorted(links))) for part, links in reader.parts.values())


class _Reader:
    """Where in the text we are: the part that the next link belongs to."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[LinkedPart, dict[int, NvLink]]] = {}
        self.current: str | None = None
        self.link: int | None = None
        self.kind = "gpu"

    def take(self, line: str) -> None:
        gpu, link, part = _GPU.search(line), _LINK.search(line), _DCGM_PART.match(line)
        letters, row = _DCGM_STATES.match(line), _DCGM_ROW.search(line)
        if re.match(r"\s*(?:Nv)?Switch(?:es)?\s*:", line, re.IGNORECASE):
            self.kind, self.current = "switch", None
        elif re.match(r"\s*GPUs\s*:", line):
            self.kind, self.current = "gpu", None
        elif gpu:
            self._open(f"gpu {int(gpu[1])}", gpu[2], gpu[3])
        elif part:
            self._open(f"{'switch' if 'switch' in part[0].casefold() else self.kind} {int(part[1])}")
        elif row or re.match(r"\|\s*(?:GPU|NvSwitch) \d+\s*\|\s*$", line):
            self._row(line, row)
        elif self.current is None:
            return
        elif NOTE.search(line):
            opened, links = self.parts[self.current]
            self.parts[self.current] = (replace(opened, note=line.strip()), links)
        elif letters:
            for index, letter in enumerate(letters[1].split()):
                self._merge(NvLink(index, _DCGM_LETTERS[letter]))
        elif link:
            self._merge(_link(int(link[1]), link[2].strip()))

    def take_json(self, document: JsonObject) -> None:
        """The error counts of `dcgmi nvlink -e -j`."""
        gpu = re.search(r"(GPU|NvSwitch) (\d{1,3})", " ".join(texts_at(document, "header")))
        self._open(f"{gpu[1].casefold().removeprefix('nv')} {int(gpu[2])}" if gpu else "gpu")
        body = object_at(document, "body")
        for key in body:
            link = re.fullmatch(r"Link (\d{1,2})", str(key))
            counts = object_at(body, key, "children")
            if link:
                counters = {str(name): number(str(value_at(counts, name, "value"))) for name in counts}
                self._merge(NvLink(int(link[1]), counters=counters))

    def _open(self, name: str, model: str | None = None, uuid: str | None = None) -> None:
        part, links = self.parts.get(name, (LinkedPart(name), {}))
        note = part.note
        self.parts[name] = (LinkedPart(name, model or part.model, uuid or part.uuid, note=note), links)
        self.current = name

    def _row(self, line: str, row: re.Match[str] | None) -> None:
        """A row of dcgmi's table of error counts."""
        heading = re.match(r"\|\s*(GPU|NvSwitch) (\d{1,3})\s*\|\s*$", line)
        if heading:
            self._open(f"{heading[1].casefold().removeprefix('nv')} {int(heading[2])}")
        if row is None or self.current is None:
            return
        link = re.fullmatch(r"Link (\d{1,2})", row[2])
        if link:
            self.link = int(link[1])
        elif row[1] and self.link is not None:
            self._merge(NvLink(self.link, counters={row[2]: number(row[3])}))

    def _merge(self, link: NvLink) -> None:
        assert self.current is not None
        links = self.parts[self.current][1]
        old = links.get(link.index, NvLink(link.index))
        links[link.index] = NvLink(
            link.index,
            old.state if link.state is LinkState.UNKNOWN else link.state,
            link.speed_gb_s if link.speed_gb_s is not None else old.speed_gb_s,
            link.remote or old.remote,
            link.remote_link if link.remote_link is not None else old.remote_link,
            {**old.counters, **link.counters},
            {**old.facts, **link.facts},
        )


_SPEED = re.compile(r"(\d+(?:[.,]\d+)?) ?G(?:B|iB)/s", re.IGNORECASE)
_REMOTE = re.compile(r"(?:Remote Device )?((?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:: Link (\d+))?")
_BER_FLOOR = 1e-100  # the driver prints 15e-255 where there was no error at all


def _link(index: int, words: str) -> NvLink:
    """What one line says of a link."""
    speed, remote = _SPEED.match(words), _REMOTE.match(words)
    if speed:
        rate = float(speed[1].replace(",", "."))
        return NvLink(index, LinkState.UP if rate else LinkState.DOWN, rate or None)
    if remote:
        return NvLink(index, remote=remote[1], remote_link=whole(remote[2]))
    plain = words.strip("<> ").casefold()
    if plain in ("inactive", "down", "active", "up", "disabled", "not supported", "off"):
        state = {"active": "up", "up": "up", "disabled": "disabled", "not supported": "not_supported"}.get(
            plain, "down"
        )
        return NvLink(index, LinkState(state))
    key, colon, value = words.rpartition(":")
    key = key.strip()
    if not colon or not key:
        return NvLink(index, facts={"text": words} if words else {})
    if re.search(r"error|BER\b|event|discard|recover|packet|data (?:tx|rx)|raw (?:tx|rx)", key, re.IGNORECASE):
        return NvLink(index, counters={key: ber(value) if "BER" in key else number(value)})
    return NvLink(index, facts={key: value.strip()})


def ber(text: str) -> float | None:
    """A bit error rate; the driver's 15e-255 is 0; None for what is no rate."""
    value = number(text)
    if value is None or value < 0 or value > 1:
        return None
    return 0.0 if value < _BER_FLOOR else value

"""`nvidia-smi topo -m`: how GPUs and NICs hang together, of all drivers and column sets.

Older drivers say SOC for SYS, name NICs by device, and have a CPU column only; newer ones name NICs NIC0 … with a
legend. Headings may be underlined by escapes. On Grace every GPU and NIC is SYS to each other, which is no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.plain_text import LineStart, evidence, named, plain_lines

KIND = "topology"

_NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
_RELATION = re.compile(r"X|NV\d{1,2}|PIX|PXB|PSB|PHB|NODE|SYS|SOC|N/A|C2C|OK|[CGTD]?NS|Unknown\S*", re.IGNORECASE)
_ROW_NAME = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|[a-z][\w.-]*\d[\w.-]*")
_X_ROW = LineStart(r"[ \t]*GPU\d+[ \t].*\bX\b")
_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


@dataclass(frozen=True, slots=True)
class Topology:
    """The matrix. `relations` by (row, column) as printed, SOC as SYS; NICs under their device name where the legend
    tells it; `affinities` by GPU and heading, without those that are N/A or blank; `missing` rows are in the heading
    but not in the text."""

    gpus: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    relations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    affinities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def relation(self, one: str, other: str) -> str | None:
        return self.relations.get((one, other)) or self.relations.get((other, one))

    def nearest_nics(self, gpu: str) -> tuple[str, ...]:
        """The NICs nearest to the GPU; none where all are across the CPUs or nothing is known."""
        by_word: dict[str, list[str]] = {}
        for nic in self.nics:
            by_word.setdefault(self.relation(gpu, nic) or "", []).append(nic)
        return tuple(next((by_word[word] for word in _NEAREST_FIRST[:-1] if word in by_word), ()))

    def nvlinks(self, one: str, other: str) -> int | None:
        """NVLinks between two GPUs; 0 where they are joined otherwise, None where nothing is known."""
        word = self.relation(one, other)
        if word is None or word in ("N/A", "X") or word.startswith("UNKNOWN"):
            return None
        return int(word[2:]) if word.startswith("NV") else 0


def recognises(text: str) -> bool:
    """Is there a matrix: a heading that begins with GPU0 as a column, and a row of it?"""
    if "GPU0" not in text and not ("GPU" in text and _X_ROW.search(text)):
        return False
    lines = plain_lines(text)
    at = _heading_at(lines)
    return at is not None and any(_row(line) for line in lines[at + 1 :])


def _heading_at(lines: tuple[str, ...]) -> int | None:
    for number, line in enumerate(lines):
        words = line.split()
        if words and re.fullmatch(r"GPU\d{1,3}", words[0]) and not any(_RELATION.fullmatch(word) for word in words[1:]):
            rest = [word for word in _devices(line) if not _ROW_NAME.fullmatch(word)]
            if not rest:
                return number
    return None


def _devices(heading: str) -> list[str]:
    """The columns that are devices; those of affinity follow them."""
    end = min(
        (place for name in ("CPU Aff", "NUMA Aff", "Mem Aff", "GPU NUMA") if (place := heading.find(name)) >= 0),
        default=len(heading),
    )
    return heading[:end].split()


def _row(line: str) -> tuple[str, list[str]] | None:
    """A row's name and its words; None for a line that is no row."""
    words = line.split()
    if len(words) < 2 or not _ROW_NAME.fullmatch(words[0]) or not _RELATION.fullmatch(words[1]):
        return None
    return words[0], words[1:]


def read_topology(text: str) -> Topology:
    """The first matrix in the text. Text without one gives a topology without devices."""
    lines = plain_lines(text)
    at = _heading_at(lines)
    if at is None:
        return Topology()
    legend = dict(re.findall(r"^[ \t]*(NIC\d+)[ \t]*:[ \t]*(\S+)", "\n".join(lines), re.MULTILINE))
    columns = [legend.get(name, name) for name in _devices(lines[at])]
    headings = [name for name in _COLUMNS if name.casefold() in lines[at].casefold()]
    relations: dict[tuple[str, str], str] = {}
    affinities: dict[str, dict[str, str]] = {}
    seen: list[str] = []
    for line in lines[at + 1 :]:
        row = _row(line)
        if row is None:
            if line.strip().startswith("Legend"):
                break
            continue
        name = legend.get(row[0], row[0])
        if name in seen:
            break
        seen.append(name)
        words = _words(row[1], len(columns))
        relations |= {(name, column): word for column, word in zip(columns, words, strict=False)}
        affinities[name] = _affinity(row[1][len(words) :], headings)
    gpus = tuple(name for name in columns if re.fullmatch(r"GPU\d+", name))
    return Topology(
        gpus=gpus,
        nics=tuple(name for name in columns if name not in gpus),
        relations=relations,
        affinities={name: known for name, known in affinities.items() if name in gpus},
        missing=tuple(name for name in gpus if name not in seen),
    )


def _words(words: list[str], columns: int) -> list[str]:
    found = []
    for word in words[:columns]:
        if not _RELATION.fullmatch(word):
            break
        found.append("SYS" if word.upper() == "SOC" else word.upper())
    return found


def _affinity(words: list[str], headings: list[str]) -> dict[str, str]:
    """The values under the last headings. A blank one makes it unknown which is which, so then only the first,
    which is a range of CPUs, is taken."""
    pairs = (
        zip(headings, words, strict=False)
        if len(words) == len(headings)
        else zip(headings[:1], words[:1], strict=False)
    )
    return {heading: word for heading, word in pairs if re.fullmatch(r"\d[\d,:-]*", word)}


def topology_findings(topology: Topology) -> tuple[Finding, ...]:
    """A GPU that stands out from the others. A hybrid mesh (some pairs without NVLink) is by design and no finding."""
    counts = {gpu: [topology.nvlinks(gpu, other) for other in topology.gpus if other != gpu] for gpu in topology.gpus}
    best = {gpu: max((n for n in row if n is not None), default=None) for gpu, row in counts.items()}
    findings = []
    joined = [gpu for gpu, most in best.items() if most]
    for gpu, most in best.items():
        if most == 0 and None not in counts[gpu] and len(joined) >= 2:
            text = "It has no NVLink to any GPU, though others have."
            findings.append(_finding(gpu, "topology.gpu_without_nvlink", topology, Severity.ERROR, text))
    common = max((most for most in best.values() if most), default=0)
    switched = common >= 12 and sum(most == common for most in best.values()) > len(best) // 2
    for gpu, most in best.items():
        if switched and most and most < common:
            text = f"It has {most} NVLinks to its peers, the others have {common}."
            findings.append(_finding(gpu, "topology.nvlinks_missing", topology, Severity.ERROR, text))
    return tuple(findings)


def _finding(gpu: str, code: str, topology: Topology, severity: Severity, text: str) -> Finding:
    shown = [topology.relation(gpu, other) or "?" for other in topology.gpus]
    return Finding(_subject(gpu), code, severity, Action.CHECK_LINK, evidence(gpu, *shown), text)


def _subject(device: str) -> str:
    return f"gpu {device[3:]}" if device.startswith("GPU") else device


def explain(text: str) -> Explanation:
    """The matrix for a person: each GPU's NVLinks, nearest NICs and CPUs."""
    topology = read_topology(text)
    return Explanation(
        kind=KIND,
        subjects=tuple(Subject(_subject(gpu), _facts(topology, gpu)) for gpu in topology.gpus),
        findings=topology_findings(topology),
        unknown=tuple(_unknown(topology)),
    )


def _facts(topology: Topology, gpu: str) -> dict[str, str]:
    facts = dict(topology.affinities.get(gpu, {}))
    peers = sorted({str(topology.relation(gpu, other)) for other in topology.gpus if other != gpu} - {"None"})
    if peers:
        facts["to other GPUs"] = named(peers)
    nearest = topology.nearest_nics(gpu)
    if nearest:
        facts["nearest NICs"] = f"{named(nearest)} ({topology.relation(gpu, nearest[0])})"
    return facts


def _unknown(topology: Topology) -> Iterable[str]:
    if not topology.gpus:
        yield "The topology: the text holds no whole heading."
    if topology.missing:
        yield f"{named(topology.missing)}: in the heading, but the text has no row: it is cut."
    if not topology.nics:
        yield "Which NICs are near which GPU: there is no column of a NIC."
    elif not any(topology.nearest_nics(gpu) for gpu in topology.gpus):
        yield "Which NICs are near which GPU: all are SYS, as is normal on Grace; use NUMA or another source."
    if not topology.affinities or not any(topology.affinities.values()):
        yield "The CPUs near each GPU: there is no such column."
    yield "How many NVLinks this model must have: see nvidia-smi nvlink -s."

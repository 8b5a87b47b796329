"""Mixed versions among nodes that must run alike: one NVLink domain, one rack, one running job.

Mixed firmware or drivers inside a job make failures that look like anything else, so they are findings of their
own, whatever the baseline says and allows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from fleet.drift_rules import natural
from fleet.errors import ConfigurationError
from fleet.facts import NodeFacts
from fleet.findings import Action, Finding, Severity
from fleet.hostlist import compress
from fleet.merged_facts import merge_facts, told
from fleet.model import Job, Node
from fleet.versions import is_same

_SOFTWARE = ("driver.loaded", "driver.user_space", "fabric_manager.version", "kernel.running")
_OF_A_GPU = ("vbios",)
_TEXTS = frozenset({"kernel.running"})  # no versions that have an order: other letters are another kernel
_NUMBERED = re.compile(r"(.*[._](?:GPU|NVSwitch)(?:_SXM)?_)\d+")
_RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED"})
_EVIDENCE_CHARACTERS = 300


class GroupKind(StrEnum):
    NVLINK_DOMAIN = "nvlink domain"
    RACK = "rack"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Mixed:
    """One fact with several versions in a group, each with its nodes; the most frequent version first.

    `fact` is a fact's name; the number of a numbered GPU or switch is a `*` ("firmware.HGX_FW_GPU_SXM_*").
    """

    kind: GroupKind
    name: str
    fact: str
    versions: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(node for _, nodes in self.versions for node in nodes)

    def finding(self) -> Finding:
        """As a finding: what runs together is an error, what only stands in one rack a warning."""
        firmware = self.fact.startswith("firmware.") or self.fact in _OF_A_GPU
        where = "; ".join(f"{version} on {_hostlist(nodes)}" for version, nodes in self.versions)
        return Finding(
            subject=f"{self.kind.value} {self.name}",
            code=f"mixed.{'firmware' if firmware else self.fact.split('.')[0]}",
            severity=Severity.WARNING if self.kind is GroupKind.RACK else Severity.ERROR,
            action=Action.UPDATE_FIRMWARE if firmware else Action.UPDATE_SOFTWARE,
            evidence=f"{self.fact}: {where}"[:_EVIDENCE_CHARACTERS],
            text=f"{len(self.versions)} versions of {self.fact} in one {self.kind.value}",
        )


@dataclass(frozen=True, slots=True)
class Homogeneity:
    """`unknown` names groups that run together and have nodes of which a driver, firmware or VBIOS is not known."""

    mixed: tuple[Mixed, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    kind: GroupKind
    name: str
    nodes: tuple[Node, ...]


def judge_homogeneity(nodes: Iterable[Node], facts: Iterable[NodeFacts], jobs: Iterable[Job]) -> Homogeneity:
    """Compare what nodes of one group run.

    A node without an NVLink domain is a domain of its own: its GPUs are compared with each other. In a rack only
    nodes of the same pool and model are compared. Jobs count while they hold nodes, and from two nodes on. A
    component's firmware is compared among nodes of one model. Versions that cannot be compared are not mixed.
    """
    known = merge_facts(facts)
    mixed: list[Mixed] = []
    unknown: list[str] = []
    for group in _groups(tuple(nodes), jobs):
        versions = _versions(group, known)
        several = [fact for fact, by_node in versions.items() if len({version for version, _ in by_node}) > 1]
        for fact in sorted(several, key=natural):
            classes = _classes(versions[fact], fact in _TEXTS)
            if len(classes) > 1:
                mixed.append(Mixed(group.kind, group.name, fact, classes))
        if group.kind is not GroupKind.RACK:
            unknown += _not_known(group, known)
    return Homogeneity(tuple(mixed), tuple(unknown))


def _groups(nodes: tuple[Node, ...], jobs: Iterable[Job]) -> Iterator[_Group]:
    by_name = {node.name: node for node in nodes}
    domains: defaultdict[str, list[Node]] = defaultdict(list)
    racks: defaultdict[tuple[str, str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        domains[node.nvlink_domain or node.name].append(node)
        racks[node.rack, node.pool, node.model].append(node)
    for domain in sorted(domains, key=natural):
        yield _Group(GroupKind.NVLINK_DOMAIN, domain, tuple(domains[domain]))
    for place in sorted(racks, key=lambda key: tuple(map(natural, key))):
        if len(racks[place]) > 1:
            yield _Group(GroupKind.RACK, place[0], tuple(racks[place]))
    for job in sorted(jobs, key=lambda job: natural(job.id)):
        ours = tuple(by_name[name] for name in dict.fromkeys(job.nodes) if name in by_name)
        if job.state.upper() in _RUNNING and len(ours) > 1:
            yield _Group(GroupKind.JOB, job.id, ours)


def _versions(group: _Group, known: Mapping[str, NodeFacts]) -> dict[str, list[tuple[str, str]]]:
    """By fact: (version, node) of all that tell it. Facts of one model only carry the model in their place."""
    models = {node.model for node in group.nodes}
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for node in group.nodes:
        reading = known.get(node.name)
        if reading is None:
            continue
        of_model = f" ({node.model})" if len(models) > 1 else ""
        for fact in reading.facts:
            value = told(reading.facts, fact)
            if value is not None and (fact in _SOFTWARE or fact.startswith("firmware.")):
                place = f"{_unnumbered(fact)}{of_model}" if fact.startswith("firmware.") else fact
                found[place].append((value, node.name))
        for part in reading.parts:
            values = ((name, told(part.facts, name)) for name in _OF_A_GPU if part.kind == "gpu")
            for name, value in values:
                if value is not None:
                    found[f"{name}{of_model}"].append((value, node.name))
    return found


@lru_cache(maxsize=4096)
def _unnumbered(fact: str) -> str:
    """The eight GPUs of a board, and its switches, are one thing; other components differ by their number."""
    match = _NUMBERED.fullmatch(fact)
    return f"{match[1]}*" if match else fact


def _classes(by_node: list[tuple[str, str]], as_text: bool) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Versions that are surely different, each with its nodes; what cannot be compared is left out."""
    nodes_of: defaultdict[str, set[str]] = defaultdict(set)
    for version, node in by_node:
        nodes_of[version].add(node)
    classes: dict[str, set[str]] = {}
    for version in sorted(nodes_of, key=lambda text: (-len(nodes_of[text]), natural(text))):
        same = {kept: version == kept if as_text else is_same(version, kept) for kept in classes}
        alike = next((kept for kept, answer in same.items() if answer), None)
        if alike is not None:
            classes[alike] |= nodes_of[version]
        elif None not in same.values():
            classes[version] = set(nodes_of[version])
    ordered = sorted(classes.items(), key=lambda pair: (-len(pair[1]), natural(pair[0])))
    return tuple((version, tuple(sorted(nodes, key=natural))) for version, nodes in ordered)


def _not_known(group: _Group, known: Mapping[str, NodeFacts]) -> Iterator[str]:
    """Which versions are not known of which nodes; what nobody tells of a part is not told of all."""
    silent: defaultdict[str, list[str]] = defaultdict(list)
    if len(group.nodes) > 1:
        silent["driver.loaded"] = [n.name for n in group.nodes if not _tells(known.get(n.name), "driver.loaded")]
    for model in dict.fromkeys(node.model for node in group.nodes):
        for fact, nodes in _firmware_not_known([n for n in group.nodes if n.model == model], known):
            silent[fact] += nodes
    together: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for fact in sorted(silent, key=natural):
        if silent[fact]:
            together[tuple(silent[fact])].append(fact)
    for names, facts in together.items():
        word = "is" if len(facts) == 1 else "are"
        yield f"{group.kind.value} {group.name}: {', '.join(facts)} {word} not known of {_hostlist(names)}"


def _firmware_not_known(nodes: list[Node], known: Mapping[str, NodeFacts]) -> Iterator[tuple[str, list[str]]]:
    """By firmware fact, the nodes of one model that tell it of fewer parts than another node does."""
    counts = {node.name: _firmware_counts(known.get(node.name)) for node in nodes}
    most: Counter[str] = Counter()
    for told_of in counts.values():
        most |= told_of
    if len(nodes) == 1:  # a node by itself has nothing to be held against but its own GPUs
        gpus = _gpu_count(known.get(nodes[0].name))
        if 0 < counts[nodes[0].name]["vbios"] < gpus:
            yield "vbios of some GPUs", [nodes[0].name]
        return
    bare = [name for name, told_of in counts.items() if not any(fact != "vbios" for fact in told_of)]
    if bare:
        yield "firmware", bare
    for fact in {*most, "vbios"}:
        fewer = [name for name, told_of in counts.items() if told_of[fact] < max(most[fact], 1)]
        fewer = fewer if fact == "vbios" else [name for name in fewer if name not in bare]
        yield fact, fewer


def _firmware_counts(reading: NodeFacts | None) -> Counter[str]:
    """Of how many parts a node tells each firmware fact; a numbered part is a `*`."""
    if reading is None:
        return Counter()
    names = (fact for fact in reading.facts if fact.startswith("firmware.") and _tells(reading, fact))
    found = Counter(_unnumbered(fact) for fact in names)
    found["vbios"] = sum(part.kind == "gpu" and told(part.facts, "vbios") is not None for part in reading.parts)
    return +found


def _gpu_count(reading: NodeFacts | None) -> int:
    return sum(part.kind == "gpu" for part in reading.parts) if reading is not None else 0


def _tells(reading: NodeFacts | None, fact: str) -> bool:
    return reading is not None and told(reading.facts, fact) is not None


def _hostlist(nodes: Iterable[str]) -> str:
    try:
        return compress(nodes)
    except ConfigurationError:
        return ", ".join(nodes)

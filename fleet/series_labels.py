"""Which node and which GPU a series is of, by its labels; and the query that asks for nodes' series.

Source of the labels: dcgm-exporter, which wrote `Hostname` and `modelName` for years, `hostname` since 4.8.3 and
`DCGM_FI_SYSTEM_DRIVER_VERSION` for `DCGM_FI_DRIVER_VERSION` since 4.9.0. In a pod without NODE_NAME the host name is
the pod's, and only what Prometheus adds (`instance`, `node`) tells the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.metrics_settings import MetricsLabels

_PORT = re.compile(r":[0-9]{1,5}$")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*:.*")
_DEVICE = re.compile(r"(?:nvidia)?([0-9]{1,3})")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_:-]")
_MIG = ("GPU_I_ID", "gpu_instance_id")


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """What labels say of a GPU: its number on the node, its UUID, and whether it is a slice of one (MIG)."""

    number: int | None
    uuid: str
    slice: bool


@dataclass(frozen=True)
class NodeNames:
    """Finds nodes by what labels call them. `others` are names that differ, by node."""

    nodes: tuple[str, ...]
    others: Mapping[str, str] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _by_short: dict[str, set[str]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for node in self.nodes:
            name = self.name_of(node).casefold()
            self._by_name[name] = node
            self._by_short.setdefault(name.partition(".")[0], set()).add(node)

    def name_of(self, node: str) -> str:
        """What the node is called on the metrics server."""
        return self.others.get(node, node)

    def find(self, value: str) -> str | None:
        """The node that a label's value names: as it is, with a port, by its short or its full host name.

        None for an unknown one, and for a short name that two nodes share.
        """
        name = _host(value)
        if name in self._by_name:
            return self._by_name[name]
        short = name.partition(".")[0]
        same = self._by_short.get(short, set())
        if _ADDRESS.fullmatch(name) or len(same) != 1:
            return None
        (node,) = same
        full = self.name_of(node).casefold()
        return node if "." not in name or "." not in full else None

    def pattern(self, nodes: Iterable[str]) -> str:
        """A regular expression (RE2, anchored at both ends) that every form of the nodes' names fits."""
        return f"(?i:{'|'.join(_forms(self.name_of(node)) for node in nodes)})(:[0-9]+)?"


def node_of(labels: Mapping[str, str], names: NodeNames, where: MetricsLabels) -> str | None:
    """The node of a series, by the first label that names one."""
    found = (names.find(labels[label]) for label in where.node if labels.get(label))
    return next((node for node in found if node is not None), None)


def gpu_of(labels: Mapping[str, str], where: MetricsLabels) -> GpuLabels:
    """The GPU of a series; number None and no UUID where it is of the whole node."""
    numbers = (_DEVICE.fullmatch(labels[label].strip()) for label in where.gpu if labels.get(label))
    number = next((int(found[1]) for found in numbers if found is not None), None)
    uuid = next((labels[label].strip() for label in where.uuid if labels.get(label)), "")
    return GpuLabels(number, uuid, any(labels.get(label) for label in _MIG))


def selectors_for(
    metric: str, nodes: Iterable[str], names: NodeNames, where: MetricsLabels, matchers: Mapping[str, str]
) -> tuple[str, ...]:
    """Selectors of the metric's series on these nodes, one for each label that may name a node."""
    pattern = names.pattern(nodes)
    fixed = [f"{label}={quoted(value)}" for label, value in sorted(matchers.items())]
    return tuple(f"{metric}{{{','.join([*fixed, f'{label}=~{quoted(pattern)}'])}}}" for label in where.node)


def narrowed(selector: str, matchers: str) -> str:
    """The selector with more matchers; without any it is the same."""
    return f"{selector[:-1]},{matchers}}}" if matchers else selector


def last_value_query(selectors: Iterable[str], step_seconds: float) -> str:
    """The last point of each step, so that no older one is looked back for and taken for a new one."""
    span = f"{round(step_seconds * 1000)}ms"
    return " or ".join(f"last_over_time({selector}[{span}])" for selector in selectors)


def quoted(text: str) -> str:
    """A PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _host(value: str) -> str:
    return _PORT.sub("", value.strip()).rstrip(".").casefold()


def _forms(name: str) -> str:
    """The name; behind a short one any domain, and of a full one the short form too."""
    short, dot, domain = name.partition(".")
    if _ADDRESS.fullmatch(name):
        return _literal(name)
    return f"{_literal(short)}({_literal(dot + domain)})?" if dot else f"{_literal(short)}([.][^:]*)?"


def _literal(text: str) -> str:
    """The text for a regular expression; a class for every mark, which needs no backslash."""
    return _NOT_PLAIN.sub(
        lambda mark: "[\\^]" if mark[0] == "^" else "[\\\\]" if mark[0] == "\\" else f"[{mark[0]}]", text
    )

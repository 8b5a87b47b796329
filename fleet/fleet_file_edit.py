"""Nodes added to a fleet file's text and fields changed in it; every comment, blank and order stays.

The text is cut and joined at the places that the YAML parser names, and read again afterwards: a text that would
not say exactly what was wanted is never returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import yaml

from fleet.config import FleetSpec, NodeEntry, parse_fleet
from fleet.errors import ConfigurationError
from fleet.inventory_rows import WRITTEN
from fleet.yaml_text import read_yaml

Scalar = str | int
_Edit = tuple[int, int, str]  # from, to, and what stands there then

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+){3}")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # YAML 1.1 takes these for values


def edit_fleet(
    text: str, filename: str, added: Sequence[NodeEntry], changed: Mapping[str, Mapping[str, Scalar]]
) -> str:
    """The text with `added` after the last node, written as that is, and the fields of `changed` (by node) set.

    Raises ConfigurationError where the file is wrong, or is written in a way that is left to a person (anchors).
    """
    mark, body = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    spec = parse_fleet(body, filename)
    listed = _node_list(body, filename)
    edits: list[_Edit] = []
    for entry, node in zip(spec.nodes, listed.value, strict=True):
        for key, value in changed.get(entry.name, {}).items():
            edits.append(_set_field(body, node, key, value))
    if added:
        edits.append(_add_nodes(body, listed, added))
    edits.sort(key=lambda edit: edit[0])
    for start, end, new in reversed(edits):
        body = body[:start] + new + body[end:]
    _check(body, filename, _wanted(spec, added, changed))
    return mark + body


def places(text: str, filename: str) -> dict[str, str]:
    """Where each node's entry begins, as `FILE:LINE` by name."""
    found: dict[str, str] = {}
    for node in _node_list(text.removeprefix("\ufeff"), filename).value:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == "name" and isinstance(value, yaml.ScalarNode):
                found[value.value] = f"{filename}:{node.start_mark.line + 1}"
    return found


def _node_list(text: str, filename: str) -> yaml.SequenceNode:
    tree, _ = read_yaml(text, filename)
    pairs = tree.value if isinstance(tree, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value == "nodes" and isinstance(value, yaml.SequenceNode):
            return value
    raise ConfigurationError(f"{filename}:1: no list of nodes under the key nodes")


def _wanted(spec: FleetSpec, added: Sequence[NodeEntry], changed: Mapping[str, Mapping[str, Scalar]]) -> FleetSpec:
    nodes = [entry.model_copy(update=dict(changed.get(entry.name, {}))) for entry in spec.nodes]
    return spec.model_copy(update={"nodes": (*nodes, *added)})


def _check(text: str, filename: str, wanted: FleetSpec) -> None:
    by_hand = f"{filename}: its nodes use anchors or a layout that no program should change; edit them by hand"
    try:
        got = parse_fleet(text, filename)
    except ConfigurationError as error:
        raise ConfigurationError(f"{by_hand}\n{error.message}") from error
    if got != wanted:
        raise ConfigurationError(by_hand)


def _set_field(text: str, node: yaml.Node, key: str, value: Scalar) -> _Edit:
    if not isinstance(node, yaml.MappingNode):
        return 0, 0, ""
    for name, old in node.value:
        if name.value == key and isinstance(old, yaml.ScalarNode):
            if not name.end_mark.index < old.start_mark.index < node.end_mark.index:  # it points to an anchor
                alias = re.compile(r"\s*:\s*(\*[^\s,}\]]+)").match(text, name.end_mark.index)
                return (alias.start(1), alias.end(1), scalar(value)) if alias else (0, 0, "")
            return old.start_mark.index, old.end_mark.index, scalar(value)
    if node.flow_style:
        end = node.end_mark.index - 1
        before = text[node.start_mark.index : end].rstrip()
        place = node.start_mark.index + len(before)
        return place, place, f" {key}: {scalar(value)}," if before.endswith(",") else f", {key}: {scalar(value)}"
    first = node.value[0][0].start_mark
    place, newline = _line_end(text, _content_end(node))
    return place, place, f"{newline}{' ' * first.column}{key}: {scalar(value)}"


def _add_nodes(text: str, listed: yaml.SequenceNode, added: Sequence[NodeEntry]) -> _Edit:
    if listed.flow_style:
        return _add_to_flow(text, listed, added)
    last = listed.value[-1]
    start = text.rfind("\n", 0, last.start_mark.index) + 1
    dash = re.match(r"( *-) +", text[start:])
    indent = dash[1] if dash else f"{' ' * listed.start_mark.column}-"
    place, newline = _line_end(text, _content_end(last))
    lines = _flow_lines(indent, added) if last.flow_style else _block_lines(indent, added)
    return place, place, "".join(f"{newline}{line}" for line in lines)


def _add_to_flow(text: str, listed: yaml.SequenceNode, added: Sequence[NodeEntry]) -> _Edit:
    """Into `[...]`: after its last node, a line each."""
    place = _content_end(listed.value[-1]) if listed.value else listed.start_mark.index + 1
    newline = "\r\n" if "\r\n" in text else "\n"
    entries = f",{newline}  ".join(_flow_entry(entry) for entry in added)
    if listed.value:
        return place, place, f",{newline}  {entries}"
    return place, place, f"{newline}  {entries}{newline}"


def _flow_lines(indent: str, added: Sequence[NodeEntry]) -> list[str]:
    return [f"{indent} {_flow_entry(entry)}" for entry in added]


def _flow_entry(entry: NodeEntry) -> str:
    return "{" + ", ".join(f"{key}: {scalar(value)}" for key, value in _given(entry)) + "}"


def _block_lines(indent: str, added: Sequence[NodeEntry]) -> list[str]:
    lines: list[str] = []
    for entry in added:
        given = [f"{key}: {scalar(value)}" for key, value in _given(entry)]
        lines += [f"{indent} {given[0]}", *(f"{' ' * len(indent)} {line}" for line in given[1:])]
    return lines


def _given(entry: NodeEntry) -> list[tuple[str, Scalar]]:
    values = entry.model_dump(exclude_none=True)
    return [(key, values[key]) for key in WRITTEN if key in values]


def scalar(value: Scalar) -> str:
    """A value as YAML: bare where every reader takes it for a text, else in double quotes."""
    if isinstance(value, int):
        return str(value)
    bare = _PLAIN.fullmatch(value) is not None and value.casefold() not in _WORDS
    return value if bare else json.dumps(value, ensure_ascii=False)


def _content_end(node: yaml.Node) -> int:
    """Where the last character of `node` stands; the parser counts what follows a block to it."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        return int(node.end_mark.index)
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    inside = [_content_end(part) for part in parts if part.start_mark.index >= node.start_mark.index]
    return max(inside, default=int(node.start_mark.index))


def _line_end(text: str, index: int) -> tuple[int, str]:
    """The end of the line that holds `index`, and how lines end in this text."""
    newline = "\r\n" if "\r\n" in text else "\n"
    found = text.find("\n", index)
    if found < 0:
        return len(text), newline
    return (found - 1 if text[found - 1 : found] == "\r" else found), newline

"""A YAML document with the line of every part, read within a bound, for errors that name the place."""

from __future__ import annotations

import re
from collections import Counter

import yaml

from fleet.errors import ConfigurationError

Path = tuple[str | int, ...]

_LARGEST = 5_000_000  # values of a file with every alias written out; 10,000 nodes are 150,000


def read_yaml(text: str, filename: str) -> tuple[yaml.Node | None, object]:
    """The document as nodes with their lines, and as values.

    Raises ConfigurationError with the line of what is no YAML, or where aliases grow past all bounds.
    """
    try:
        tree = yaml.compose(text, Loader=_loader())
        if tree is not None and _written_out(tree, {}) > _LARGEST:
            raise ConfigurationError(f"{filename}:1: its aliases (*name) repeat more than such a file can hold")
        return tree, yaml.load(text, Loader=_loader())  # noqa: S506  a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{filename}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as error:
        raise ConfigurationError(f"{filename}:1: not YAML that can be read: {error}") from error


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values stand below `node` with aliases written out; one that holds itself is without end."""
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = _LARGEST + 1
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        below = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    sizes[id(node)] = 1 + sum(_written_out(part, sizes) for part in below)
    return sizes[id(node)]


def _loader() -> type[yaml.SafeLoader]:
    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return loader


def line_of(tree: yaml.Node, path: Path) -> int:
    """The line of the deepest part of `path` that the document has."""
    node = tree
    line = node.start_mark.line
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line
        else:
            break
    return line + 1


def duplicate_keys(node: yaml.Node, path: Path = ()) -> list[tuple[Path, str]]:
    """Keys that a mapping gives more than once, each with its path; YAML itself would take the last."""
    found: list[tuple[Path, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        found += [((*path, key), f"{dotted((*path, key))}: given {n} times") for key, n in seen.items() if n > 1]
        for key, value in node.value:
            found += duplicate_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found += duplicate_keys(value, (*path, index))
    return found


def dotted(path: Path) -> str:
    """`nodes[3].rack`."""
    return re.sub(r"\.(\d+)", r"[\1]", ".".join(str(step) for step in path))

"""The names that a baseline may use: pools, node models and nodes of the fleet file, and facts.

Works on the document itself, so that a fault elsewhere in the file hides none of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

from fleet.config import FleetSpec
from fleet.errors import ConfigurationError
from fleet.hostlist import expand
from fleet.yaml_text import Path, dotted

FACTS = (
    "driver.loaded",
    "driver.on_disk",
    "driver.user_space",
    "fabric_manager.version",
    "kernel.running",
    "os.release",
    "container_toolkit.version",
    "secure_boot",
    "gpu.count",
    "updates.unattended",
    "ecc_mode",
    "mig_mode",
    "persistence",
    "compute_mode",
    "power_limit_watts",
    "vbios",
    "inforom",
)
"""Facts that a baseline judges by their own name; see fleet/facts.py."""

FAMILIES = ("firmware.", "bios.", "service.", "package.", "egress.")
"""Facts whose second half is a name of the node's own."""

_Fault = tuple[Path, str]


def cross_check(data: Mapping[str, object], fleet: FleetSpec) -> Iterator[_Fault]:
    """What no single entry can show, each with its path."""
    for pool, wanted in _items(data.get("pools")):
        path: Path = ("pools", pool)
        if pool not in fleet.pools:
            yield path, f"{dotted(path)}: the fleet file has no pool {pool!r}{nearest(pool, fleet.pools)}"
        elif isinstance(wanted, Mapping):
            entries = [entry for entry in fleet.nodes if entry.pool == pool]
            yield from _unknown_models(path, wanted, {entry.model for entry in entries})
            yield from _wrong_exceptions(path, wanted, {entry.name for entry in entries})
        yield from _wanted_twice(path, wanted)


def nearest(name: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?`, else what there is."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known)[:8])}"


def _items(value: object) -> list[tuple[str, object]]:
    return [(str(key), part) for key, part in value.items()] if isinstance(value, Mapping) else []


def _texts(value: object) -> list[str]:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []


def _firmware(wanted: object) -> list[tuple[str, Mapping[str, object]]]:
    section = wanted.get("firmware") if isinstance(wanted, Mapping) else None
    return [(name, wish) for name, wish in _items(section) if isinstance(wish, Mapping)]


def _unknown_models(path: Path, wanted: Mapping[str, object], models: set[str]) -> Iterator[_Fault]:
    named: list[tuple[Path, str]] = [((*path, "models", model), model) for model, _ in _items(wanted.get("models"))]
    for name, wish in _firmware(wanted):
        texts = wish.get("models")
        if isinstance(texts, list):
            named += [
                ((*path, "firmware", name, "models", index), model)
                for index, model in enumerate(texts)
                if isinstance(model, str)
            ]
    for place, model in named:
        if model not in models:
            yield place, f"{dotted(place)}: no node of this pool is a {model!r}{nearest(model, models)}"


def _wrong_exceptions(path: Path, wanted: Mapping[str, object], nodes: set[str]) -> Iterator[_Fault]:
    listed = wanted.get("accept")
    for index, entry in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(entry, Mapping):
            continue
        place: Path = (*path, "accept", index, "nodes")
        yield from ((place, f"{dotted(place)}: {what}") for what in _wrong_nodes(entry.get("nodes"), nodes))
        fact = entry.get("fact")
        if isinstance(fact, str) and not is_fact(fact):
            place = (*place[:-1], "fact")
            yield place, f"{dotted(place)}: no baseline judges {fact!r}{nearest(fact, (*FACTS, *FAMILIES))}"


def is_fact(pattern: str) -> bool:
    """Does the pattern name something that a baseline can judge?"""
    return pattern.startswith(FAMILIES) or any(fnmatchcase(name, pattern) for name in FACTS)


def _wrong_nodes(hostlist: object, nodes: set[str]) -> Iterator[str]:
    if not isinstance(hostlist, str):
        return
    try:
        names = expand(hostlist)
    except ConfigurationError as error:
        yield error.message.splitlines()[0]
        return
    if not names:
        yield "names no node"
    strangers = [name for name in dict.fromkeys(names) if name not in nodes]
    for name in strangers[:3]:
        yield f"this pool has no node {name!r}{nearest(name, nodes)}"
    if len(strangers) > 3:
        yield f"and {len(strangers) - 3} more that this pool does not have"


def _wanted_twice(path: Path, wanted: object) -> Iterator[_Fault]:
    """Two versions for one component: they would be flashed in turn for ever."""
    wishes = _firmware(wanted)
    for index, (name, wish) in enumerate(wishes):
        for earlier, other in wishes[:index]:
            if _apart(_texts(wish.get("models")), _texts(other.get("models"))):
                continue
            shared = next(_overlaps(_texts(wish.get("match")), _texts(other.get("match"))), None)
            if shared is not None:
                place: Path = (*path, "firmware", name, "match")
                yield place, f"{dotted(place)}: {shared!r} is also matched by {earlier}"


def _apart(models: list[str], others: list[str]) -> bool:
    return bool(models) and bool(others) and not set(models) & set(others)


def _overlaps(patterns: list[str], others: list[str]) -> Iterator[str]:
    return (a for a in patterns for b in others if fnmatchcase(a, b) or fnmatchcase(b, a))

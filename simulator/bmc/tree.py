"""From a path to a resource: the routes, and how collections are expanded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

Doc = dict[str, object]
Ids = tuple[str, ...]
Render = Callable[["Bmc", Ids], Doc | None]
"""Makes a resource from a BMC's state; None where there is no such member."""

ROOT = "/redfish/v1"
T = TypeVar("T")


def link(path: str) -> Doc:
    """A reference to the resource `path` below /redfish/v1."""
    return {"@odata.id": f"{ROOT}/{path}" if path else ROOT}


def resource(path: str, type_: str, name: str, **more: object) -> Doc:
    """A resource's frame; `type_` is like `Task.v1_6_1`."""
    kind = type_.split(".")[0]
    id_ = path.rsplit("/", 1)[-1]
    return {"@odata.id": f"{ROOT}/{path}", "@odata.type": f"#{type_}.{kind}", "Id": id_, "Name": name, **more}


def collection(path: str, kind: str, members: list[str]) -> Doc:
    """A collection whose members are named by their last path segment."""
    return {
        "@odata.id": f"{ROOT}/{path}",
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} Collection",
        "Members": [link(f"{path}/{member}") for member in members],
        "Members@odata.count": len(members),
    }


OK: Doc = {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}
"""The Status of what works."""


class PathTable(Generic[T]):
    """Path templates below /redfish/v1, with `{}` for an identifier; the first that fits wins."""

    def __init__(self, templates: Mapping[str, T]) -> None:
        self._table = [
            (re.compile(re.escape(f"{ROOT}/{path}").replace(r"\{\}", "([^/]+)")), value)
            for path, value in templates.items()
        ]
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, path: str) -> tuple[T, Ids] | None:
        for pattern, value in self._table:
            found = pattern.fullmatch(path)
            if found:
                return value, found.groups()
        return None


def read(tree: PathTable[Render], bmc: Bmc, path: str) -> Doc | None:
    """The resource at `path` (no trailing slash), None where there is none."""
    found = tree.find(path)
    return found[0](bmc, found[1]) if found else None


def read_expanded(tree: PathTable[Render], bmc: Bmc, path: str) -> Doc | None:
    """The resource with its members in place of links to them, one level deep."""
    doc = read(tree, bmc, path)
    members = doc.get("Members") if doc else None
    if doc is not None and isinstance(members, list):
        doc["Members"] = [read(tree, bmc, str(member["@odata.id"])) for member in members]
    return doc


def dump(doc: Doc) -> bytes:
    return json.dumps(doc, separators=(",", ":")).encode()

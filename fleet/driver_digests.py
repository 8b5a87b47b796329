"""One version of a package is one file: whose repository offers another one under the same name and version?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.driver_target import DriverTarget, PackagePin


@dataclass(frozen=True, slots=True)
class OfferedTarget:
    """What a node's repositories offer it. `platform` is as fleet/driver_facts.platform_of tells it."""

    target: DriverTarget
    platform: str | None = None


def other_bytes(offers: Mapping[str, OfferedTarget]) -> dict[str, str]:
    """By node: that a package it is offered has other bytes than the same version has on other nodes.

    Nodes of one platform are compared: another distribution or machine has packages of its own under equal versions.
    Nodes whose platform is not known are compared with each other. What more than half of the nodes are offered counts
    as right; where there is no such half nobody can tell, and all of them are named.
    """
    by_package: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for node in sorted(offers):
        for pin in offers[node].target.packages:
            if pin.sha256 is not None:
                place = (offers[node].platform or "", pin.name, pin.version)
                by_package.setdefault(place, {}).setdefault(pin.sha256, []).append(node)
    found: dict[str, str] = {}
    for (_, name, version), digests in sorted(by_package.items()):
        if len(digests) > 1:
            for node, text in _refused(PackagePin(name=name, version=version), digests).items():
                found.setdefault(node, text)
    return found


def _refused(package: PackagePin, digests: Mapping[str, list[str]]) -> dict[str, str]:
    """The nodes to refuse, with both digests. `digests` has the nodes by digest, more than one of them."""
    ranked = sorted(digests, key=lambda digest: (-len(digests[digest]), digest))
    count = sum(len(nodes) for nodes in digests.values())
    decided = 2 * len(digests[ranked[0]]) > count
    found: dict[str, str] = {}
    for digest in ranked[1:] if decided else ranked:
        other = next(one for one in ranked if one != digest)
        nodes = digests[other]
        text = (
            f"its repository offers {package.name} {package.version} with SHA-256 {digest}, that of {_some(nodes)} "
            f"with {other}: two files under one version. "
        )
        advice = "Find out why its mirror differs" if decided else "Find out which one is right"
        found |= dict.fromkeys(digests[digest], f"{text}{advice}, then plan again")
    return found


def _some(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"

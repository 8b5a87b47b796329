"""The members of a collection: complete, or said to be incomplete."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.redfish.answers import busy
from adapters.redfish.client import RedfishClient
from fleet.errors import CredentialsRejected, FleetError, NodeUnreachable
from fleet.json_values import JsonObject, number_at, objects_at, text_at

_PAGES = 200
# After this many unanswered members in a row the BMC itself is away.
_SILENT_IN_A_ROW = 3


@dataclass
class Members:
    """The resources that were read, and a line for each that was not."""

    entries: list[JsonObject] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_members(client: RedfishClient, uri: str, what: str) -> tuple[JsonObject, ...]:
    """Every member. Raises where one cannot be read or the collection is shorter than its own count."""
    found = survey_members(client, uri, what, strict=True)
    if found.problems:
        raise busy(f"{what}: incomplete ({'; '.join(found.problems)}); read it again")
    return tuple(found.entries)


def survey_members(client: RedfishClient, uri: str, what: str, strict: bool = False) -> Members:
    """All members that can be read; with `strict` the first failure is raised instead of listed."""
    links, counted = _list(client, uri, what)
    found = Members()
    if counted is not None and len(links) < counted:
        found.problems.append(f"{what}: the BMC counts {counted} members and lists {len(links)}")
    seen: set[str] = set()
    silent = 0
    for entry in links:
        target = text_at(entry, "@odata.id")
        if target is None and "Id" not in entry:
            found.problems.append(f"{what}: a member without an address")
            continue
        if target in seen:
            continue  # some boards list a member twice
        seen.add(target or "")
        try:
            whole = "Id" in entry and ("Name" in entry or "Status" in entry)
            found.entries.append(entry if whole or target is None else client.get(target, f"{what} {_last(target)}"))
            silent = 0
        except CredentialsRejected:
            raise
        except FleetError as error:
            silent = silent + 1 if isinstance(error, NodeUnreachable) else 0
            if strict or silent >= _SILENT_IN_A_ROW:
                raise
            found.problems.append(error.message)
    return found


def _list(client: RedfishClient, uri: str, what: str) -> tuple[list[JsonObject], int | None]:
    """The member entries of all pages, expanded where the BMC does that, and its own count."""
    query = client.expand_query()
    if query is not None:
        try:
            links, counted = _pages(client, uri + query, what)
            if counted is None or len(links) >= counted:
                return links, counted
        except (NodeUnreachable, CredentialsRejected):
            raise
        except FleetError:
            client.stop_expanding()
    return _pages(client, uri, what)


def _pages(client: RedfishClient, uri: str, what: str) -> tuple[list[JsonObject], int | None]:
    links: list[JsonObject] = []
    counted: int | None = None
    page: str | None = uri
    visited: set[str] = set()
    while page is not None and page not in visited and len(visited) < _PAGES:
        visited.add(page)
        body = client.get(page, what)
        links += objects_at(body, "Members")
        count = number_at(body, "Members@odata.count")
        counted = int(count) if count is not None else counted
        page = text_at(body, "Members@odata.nextLink")
    return links, counted


def _last(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]

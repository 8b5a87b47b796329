"""A listing of a checkpoint folder, as a value, and the reader of the document that carries it.

The document is JSON: {"problem", "root_is_file", "unread", "left_out", "entries": [[path, kind, size, mtime_ns, text,
tail], …]}; kind is f, d, l or o. Paths are relative to the root; "" is the root itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleet.json_values import flag_at, number_at, printable, text_at, texts_at, value_at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EntryKind(StrEnum):
    FILE = "f"
    FOLDER = "d"
    LINK = "l"
    OTHER = "o"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name below the root. `modified_at` is by the storage's clock.

    `text` holds what a small pointer file says (or a link's target); `tail` the end of a file that is longer than
    what `text` may hold. None is "not read".
    """

    path: str
    kind: EntryKind = EntryKind.FILE
    size_bytes: int | None = None
    modified_at: datetime | None = None
    text: str | None = None
    tail: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Listing:
    """What was read of the tree below `root`.

    `problem` says why nothing could be read. `unread` names folders that were not read, or not to their end;
    `left_out` counts step folders and files that were left out for the bound,
    never what a pointer names. `offset_seconds` is the storage's clock minus ours,
    None where it was not measured; `offset_error_seconds` is by how much it may be wrong.
    """

    root: str
    entries: tuple[Entry, ...] = ()
    problem: str | None = None
    unread: frozenset[str] = field(default_factory=frozenset)
    left_out: int = 0
    offset_seconds: float | None = None
    offset_error_seconds: float = 0.0

    def our_time(self, moment: datetime | None) -> datetime | None:
        """A time of the storage in our clock; as it is where the storage's clock was not measured."""
        if moment is None or self.offset_seconds is None:
            return moment
        try:
            return moment - timedelta(seconds=self.offset_seconds)
        except OverflowError:
            return None


def moment_of(nanoseconds: object) -> datetime | None:
    """A file's time from nanoseconds since 1970; None for what no calendar holds."""
    if isinstance(nanoseconds, bool) or not isinstance(nanoseconds, int):
        return None
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None


def read_listing(
    text: str, root: str, offset_seconds: float | None = None, offset_error_seconds: float = 0.0
) -> Listing:
    """Read the document. One that is cut off or of another shape is a listing with a problem, never an empty tree."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return Listing(root, problem="the listing is cut off or no JSON")
    rows = value_at(document, "entries")
    if not isinstance(rows, list):
        return Listing(root, problem="the listing has no entries")
    if problem := text_at(document, "problem"):
        return Listing(root, problem=str(printable(problem)))
    found = [_entry(row) for row in rows]
    unread = frozenset(texts_at(document, "unread"))
    if any(entry is None for entry in found) or flag_at(document, "whole") is False:
        unread |= {""}
    left_out = number_at(document, "left_out")
    return Listing(
        root=root,
        entries=tuple(entry for entry in found if entry is not None),
        unread=unread,
        left_out=int(left_out) if left_out is not None else 0,
        offset_seconds=offset_seconds,
        offset_error_seconds=offset_error_seconds,
    )


def _entry(row: object) -> Entry | None:
    if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 6:
        return None
    path, kind, size, modified, text, tail = row
    if not isinstance(path, str) or kind not in tuple(EntryKind):
        return None
    return Entry(
        path=path,
        kind=EntryKind(kind),
        size_bytes=size if isinstance(size, int) and not isinstance(size, bool) else None,
        modified_at=moment_of(modified),
        text=text if isinstance(text, str) else None,
        tail=tail if isinstance(tail, str) else None,
    )

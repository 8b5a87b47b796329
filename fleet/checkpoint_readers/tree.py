"""Questions to a listing that all readers share."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from statistics import median

from fleet.checkpoint_readers.listing import Entry, EntryKind, Listing
from fleet.checkpoint_readers.values import Checkpoint, Judged, NewestCheckpoint, UnknownCheckpoint
from fleet.json_values import JsonObject

_STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)[=_-]?(\d+)", re.IGNORECASE)
_DIGITS = re.compile(r"\d+", re.ASCII)
_WEIGHTS = re.compile(r"\.(pt|pth|bin|safetensors|distcp|ckpt|msgpack|pkl)$")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.)")
_MOST_DIGITS = 18


class Tree:
    """A listing with its folders at hand."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._entries = {entry.path: entry for entry in listing.entries}
        self._children: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._entries.values():
            if entry.path:
                self._children[entry.parent].append(entry)
        self._partly_read = {above for path in listing.unread for above in (path, *folders_above(path))}
        self.file_names = frozenset(entry.name for entry in self.files())

    def at(self, path: str) -> Entry | None:
        return self._entries.get(path)

    def file(self, path: str) -> Entry | None:
        found = self._entries.get(path)
        return found if found is not None and found.kind is EntryKind.FILE else None

    def folders(self, parent: str = "") -> Iterator[Entry]:
        return (entry for entry in self._children.get(parent, ()) if entry.kind is EntryKind.FOLDER)

    def all_folders(self) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if entry.kind is EntryKind.FOLDER)

    def files(self) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if entry.kind is EntryKind.FILE)

    def under(self, folder: str) -> list[Entry]:
        """Every file below `folder`, at any depth that was read."""
        found: list[Entry] = []
        waiting = [folder]
        while waiting:
            for entry in self._children.get(waiting.pop(), ()):
                if entry.kind is EntryKind.FOLDER:
                    waiting.append(entry.path)
                else:
                    found.append(entry)
        return found

    def was_read(self, folder: str) -> bool:
        """Were all names below `folder` read?"""
        return folder not in self._partly_read

    def newest_write(self, folder: str) -> datetime | None:
        """When a file below `folder` was last written, by the storage's clock."""
        times = [entry.modified_at for entry in self.under(folder) if entry.modified_at is not None]
        return max(times, default=None)

    def write_seconds(self, folder: str) -> float | None:
        """Seconds from the first to the last write below `folder`; None where that is no time to measure."""
        times = [entry.modified_at for entry in self.under(folder) if entry.modified_at is not None]
        seconds = (max(times) - min(times)).total_seconds() if times and folder and self.was_read(folder) else 0.0
        return seconds if seconds > 0 else None

    def full_path(self, path: str) -> str:
        return f"{self.listing.root.rstrip('/')}/{path}" if path else self.listing.root


def folders_above(path: str) -> Iterator[str]:
    """Every folder that holds `path`, the root ("") last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def step_in(name: str) -> int | None:
    """The step that a name tells (`iter_0000100`, `step-100`, `epoch=1-step=100-last`, `100`); None without digits."""
    named = _STEP.findall(name)
    digits = named[-1:] or _DIGITS.findall(name)[-1:]
    return whole_number(digits[0]) if digits else None


def whole_number(text: str) -> int | None:
    """A count in plain digits; None for anything else, and for what no training reaches."""
    clean = text.strip()
    return int(clean) if clean.isascii() and clean.isdigit() and len(clean) <= _MOST_DIGITS else None


def json_of(entry: Entry | None) -> JsonObject | None:
    """The JSON object that a small file holds; None where it is cut off, too long or something else."""
    if entry is None or entry.text is None or entry.tail is not None:
        return None
    try:
        found: object = json.loads(entry.text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def ends_as_json(entry: Entry) -> bool | None:
    """Does the file end as a JSON object does? None where its text was not read."""
    if entry.tail is not None:
        return entry.tail.rstrip().endswith("}")
    return None if entry.text is None else json_of(entry) is not None


def broken_file(files: Iterable[Entry]) -> str | None:
    """The first sign of a half-written set: an empty weights file, or a shard of a numbered set that is missing."""
    sets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for entry in files:
        if entry.size_bytes == 0 and entry.kind is EntryKind.FILE and _WEIGHTS.search(entry.name):
            return f"{entry.name} is empty"
        if (shard := _SHARD.search(entry.name)) and entry.kind is EntryKind.FILE:
            pattern = entry.path[: -len(entry.name)] + _SHARD.sub("-*", entry.name)
            sets[pattern, int(shard[2])].add(int(shard[1]))
    for (pattern, wanted), found in sets.items():
        if len(found) < wanted:
            return f"{len(found)} of {wanted} shards of {pattern.rpartition('/')[2]} are there"
    return None


def typical_interval(times: Iterable[datetime | None]) -> float | None:
    """Median seconds between the times; None for fewer than two."""
    known = sorted(time for time in times if time is not None)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(known) if later > earlier]
    return median(gaps) if gaps else None


def answer(tree: Tree, judged: Judged, interval: float | None = None) -> Checkpoint:
    listing = tree.listing
    return Checkpoint(
        path=tree.full_path(judged.path),
        step=judged.step,
        completed_at=listing.our_time(judged.completed_at),
        complete=judged.complete,
        why=judged.why,
        interval_seconds=interval,
        clock_measured=listing.offset_seconds is not None,
        write_seconds=tree.write_seconds(judged.path),
    )


def none_found(tree: Tree, what: str) -> UnknownCheckpoint:
    """No candidate is in the tree: none yet, if the tree was read to its end."""
    if tree.listing.unread or tree.listing.left_out:
        return UnknownCheckpoint(f"no {what} in the part of {tree.listing.root} that could be read")
    return UnknownCheckpoint(f"no {what} in {tree.listing.root}", none_yet=True)


def newest_of(tree: Tree, candidates: list[Judged], what: str) -> NewestCheckpoint:
    """The newest complete one of `candidates`, which come newest first.

    What is newer and not complete is named. Where none is complete and older ones were left out, nothing can be told.
    """
    if not candidates:
        return none_found(tree, what)
    complete = [one for one in candidates if one.complete]
    if complete:
        best = complete[0]
        newer = candidates[: candidates.index(best)]
        why = best.why + "".join(f"; newer, not counted: {one.path}: {one.why}" for one in newer[:2])
        interval = typical_interval(one.completed_at for one in complete)
        return answer(tree, Judged(best.path, best.step, best.completed_at, True, why), interval)
    if tree.listing.left_out:
        return UnknownCheckpoint(
            f"none of the newest {len(candidates)} is complete ({candidates[0].why}); older unread"
        )
    unsure = [one for one in candidates if one.complete is None]
    return answer(tree, (unsure or candidates)[0])

"""Orbax (JAX): a step folder without the temporary suffix, with its commit marker.

Source: google/orbax checkpoint/_src/path (step.py, atomicity.py): `N.orbax-checkpoint-tmp[-TIME]` is renamed to `N`
at the end; where renames are not atomic `commit_success.txt` is written last instead. `_CHECKPOINT_METADATA` is
written at the begin and again, with `commit_timestamp_nsecs`, at the end.
"""

from __future__ import annotations

import re
from datetime import datetime

from fleet.checkpoint_readers.listing import Entry
from fleet.checkpoint_readers.tree import Tree, join, json_of, newest_of, whole_number
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint
from fleet.json_values import number_at

TEMPORARY = ".orbax-checkpoint-tmp"
COMMITTED = "commit_success.txt"
METADATA = "_CHECKPOINT_METADATA"
_FOLDER = re.compile(rf"^(?:.*_)?(\d+)(?P<temporary>{re.escape(TEMPORARY)}.*)?$", re.ASCII)


def read_orbax(tree: Tree) -> NewestCheckpoint:
    found: list[tuple[int, bool, Entry]] = []
    for folder in tree.all_folders():
        match = _FOLDER.match(folder.name)
        inside = _FOLDER.match(folder.parent.rpartition("/")[2]) if folder.parent else None
        if match and not inside and (step := whole_number(match[1])) is not None:
            found.append((step, match["temporary"] is None, folder))
    ranked = sorted(found, key=lambda one: (one[0], one[1], one[2].path), reverse=True)
    candidates = [_judge(tree, step, folder) for step, _, folder in ranked]
    return newest_of(tree, candidates, "finished step folder")


def _judge(tree: Tree, step: int, folder: Entry) -> Judged:
    path = folder.path
    if TEMPORARY in folder.name:
        return Judged(path, step, None, False, "still has its temporary suffix")
    if any(TEMPORARY in inner.name for inner in tree.folders(path)):
        return Judged(path, step, None, False, "an item in it still has its temporary suffix")
    marker, metadata = tree.file(join(path, COMMITTED)), tree.file(join(path, METADATA))
    if marker is None and metadata is None:
        if not tree.was_read(path):
            return Judged(path, step, None, None, "was not read to its end")
        if not tree.under(path):
            return Judged(path, step, None, False, "is empty")
        return Judged(
            path, step, tree.newest_write(path), None, "has no commit marker: whether it is whole is not told"
        )
    if marker is None and COMMITTED in tree.file_names:
        return Judged(path, step, None, False, f"{COMMITTED} is not there, and others have it")
    return _marked(tree, step, path, marker, metadata)


def _marked(tree: Tree, step: int, path: str, marker: Entry | None, metadata: Entry | None) -> Judged:
    times = [entry.modified_at for entry in (marker, metadata) if entry is not None and entry.modified_at is not None]
    at: datetime | None = max(times, default=None)
    if marker is None and metadata is not None:
        told = json_of(metadata)
        if metadata.size_bytes == 0 or (metadata.text is not None and told is None):
            return Judged(path, step, at, False, f"{METADATA} is empty or cut off")
        if told is not None and "commit_timestamp_nsecs" in told and number_at(told, "commit_timestamp_nsecs") is None:
            return Judged(path, step, at, False, f"{METADATA} has no commit time")
    if tree.was_read(path) and len(tree.under(path)) <= (marker is not None) + (metadata is not None):
        return Judged(path, step, at, False, "holds its marker and no data")
    return Judged(path, step, at, True, f"{COMMITTED if marker else METADATA} is there")

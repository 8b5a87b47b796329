"""Megatron-LM (also verl): `latest_checkpointed_iteration.txt` names the iteration that a restart loads.

Source: megatron/training/checkpointing.py of NVIDIA/Megatron-LM: folders `iter_%07d` or `release`, the tracker is
written when every rank has saved. verl keeps the same tracker beside folders `global_step_N`.
"""

from __future__ import annotations

import re
from datetime import datetime

from fleet.checkpoint_readers.listing import Entry
from fleet.checkpoint_readers.tree import Tree, answer, broken_file, none_found, step_in, typical_interval, whole_number
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint, UnknownCheckpoint

TRACKER = "latest_checkpointed_iteration.txt"
_RANK = re.compile(r"^mp_rank_(\d{2,3})(?:_(\d{3}))?$")


def read_megatron(tree: Tree) -> NewestCheckpoint:
    tracker = tree.file(TRACKER)
    if tracker is None:
        return none_found(tree, TRACKER)
    if tracker.text is None:
        return UnknownCheckpoint(f"{TRACKER} could not be read")
    named = tracker.text.strip()
    step = whole_number(named)
    if step is None and named != "release":
        return UnknownCheckpoint(f"{TRACKER} says {named[:40]!r}, which is no iteration: being written, or broken")
    names = ["release"] if step is None else [f"iter_{step:07d}", f"global_step_{step}"]
    folder = next((found for name in names if (found := tree.at(name)) is not None), None)
    if folder is None:
        missing = tree.was_read("")
        complete, why = (False if missing else None), f"{TRACKER} names {names[0]}, which is not there"
        return answer(tree, Judged(names[0], step, tracker.modified_at, complete, why))
    complete, why = judge_folder(tree, folder.path)
    judged = Judged(folder.path, step, _completed(tree, tracker, folder.path), complete, why)
    others = (tree.newest_write(one.path) for one in tree.folders() if step_in(one.name) is not None)
    return answer(tree, judged, typical_interval(others))


def _completed(tree: Tree, tracker: Entry, folder: str) -> datetime | None:
    """The data's last write where it is the earlier: a tracker that was copied or touched later proves nothing new."""
    written = tree.newest_write(folder) if tree.was_read(folder) else None
    times = [time for time in (tracker.modified_at, written) if time is not None]
    return min(times, default=None)


def judge_folder(tree: Tree, folder: str) -> tuple[bool | None, str]:
    """Is what the tracker names all there? None where the folder was not read to its end."""
    files = tree.under(folder)
    if broken := broken_file(files):
        return False, broken
    if not tree.was_read(folder):
        return None, f"{folder} was not read to its end"
    if not files:
        return False, f"{folder} is empty"
    names = {entry.name for entry in files}
    if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
        return False, f"{folder} has shards and no .metadata"
    if missing := _missing_rank(tree, folder):
        return False, missing
    return True, f"{TRACKER} names {folder}, which is all there"


def _missing_rank(tree: Tree, folder: str) -> str | None:
    ranks = [(found, entry) for entry in tree.folders(folder) if (found := _RANK.match(entry.name))]
    for _, entry in ranks:
        if not tree.under(entry.path):
            return f"{entry.path} is empty"
    for part in (1, 2):
        seen = {int(found[part]) for found, _ in ranks if found[part]}
        if seen and len(seen) != max(seen) + 1:
            return f"{folder} lacks a rank: {len(seen)} of {max(seen) + 1} are there"
    return None

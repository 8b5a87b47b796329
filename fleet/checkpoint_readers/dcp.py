"""PyTorch Distributed Checkpoint (also torchtitan): `.metadata` in a step folder is written last, by a rename.

Source: torch/distributed/checkpoint/filesystem.py: shards `__RANK_N.distcp`, then `.metadata.tmp` → `.metadata`.
A restart takes the highest step, so the step ranks, not the time.
"""

from __future__ import annotations

from fleet.checkpoint_readers.listing import Entry
from fleet.checkpoint_readers.tree import Tree, broken_file, folders_above, join, newest_of, step_in
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint

MARK = ".metadata"


def read_dcp(tree: Tree) -> NewestCheckpoint:
    folders = {folder.path for folder in tree.all_folders() if _is_step(tree, folder)}
    marked = {entry.parent for entry in tree.files() if entry.name == MARK}
    # A step folder may hold one checkpoint for the model and one for the optimizer: the step folder is the candidate.
    tops = folders | {path for path in marked if folders.isdisjoint(folders_above(path))}
    ranked = sorted(
        tops, key=lambda path: (_step(tree, path) if _step(tree, path) is not None else -1, path), reverse=True
    )
    return newest_of(tree, [_judge(tree, path) for path in ranked], f"step folder with {MARK}")


def _is_step(tree: Tree, folder: Entry) -> bool:
    """A numbered folder that holds shards or the mark, or nothing yet, and lies in no other step folder."""
    if step_in(folder.name) is None or (folder.parent and step_in(folder.parent.rpartition("/")[2]) is not None):
        return False
    files = tree.under(folder.path)
    return not files or any(entry.name == MARK or entry.name.endswith(".distcp") for entry in files)


def _step(tree: Tree, path: str) -> int | None:
    return step_in((path or tree.listing.root).rpartition("/")[2])


def _judge(tree: Tree, path: str) -> Judged:
    files = tree.under(path)
    marks = [entry for entry in files if entry.name == MARK]
    times = [mark.modified_at for mark in marks if mark.modified_at is not None]
    step, completed = _step(tree, path), max(times, default=None)
    unmarked = {entry.parent for entry in files if entry.name.endswith(".distcp")} - {mark.parent for mark in marks}
    if broken := broken_file(files):
        return Judged(path, step, completed, False, broken)
    if any(mark.size_bytes == 0 for mark in marks):
        return Judged(path, step, completed, False, f"{MARK} is empty")
    if marks and not unmarked:
        return Judged(path, step, completed, True, f"{MARK} is there")
    if not tree.was_read(path):
        return Judged(path, step, None, None, "was not read to its end")
    lacking = join(min(unmarked), MARK) if unmarked and marks else MARK
    return Judged(path, step, None, False, f"{lacking} is not there: half-written")

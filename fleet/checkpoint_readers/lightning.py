"""Lightning and NeMo: `*last*.ckpt`, a folder `…-last`, or `hpc_ckpt_N.ckpt`, without an `-unfinished` marker.

Source: ModelCheckpoint and SLURMEnvironment of Lightning-AI/pytorch-lightning (a `.ckpt` appears whole, by a rename;
on a signal Slurm jobs write `hpc_ckpt_N.ckpt`); NeMoModelCheckpoint of NVIDIA-NeMo/NeMo (its marker
UNFINISHED_CHECKPOINT_SUFFIX lies beside the checkpoint, above folders of single ranks).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fleet.checkpoint_readers.listing import Entry, EntryKind
from fleet.checkpoint_readers.tree import Tree, broken_file, folders_above, join, newest_of, step_in
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint

UNFINISHED = "-unfinished"
_LAST = re.compile(r"(^|[-_=.])last(-v\d+)?(\.ckpt)?$|last.*\.ckpt$|^hpc_ckpt_\d+\.ckpt$")
_RANK = re.compile(r"^(?:tp_rank_\d+_pp_rank_\d+|mp_rank_\d+|tp_rank_\d+)$")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def read_lightning(tree: Tree) -> NewestCheckpoint:
    entries = [entry for entry in tree.listing.entries if entry.path and _is_checkpoint(entry)]
    outer = {entry.path for entry in entries if entry.kind is EntryKind.FOLDER}
    entries = [entry for entry in entries if outer.isdisjoint(folders_above(entry.path))]
    last = [entry for entry in entries if _LAST.search(entry.name)]
    judged = [_judge(tree, entry) for entry in last] or [_not_last(tree, entry) for entry in entries]
    judged = _by_rank(judged)
    ranked = sorted(judged, key=lambda one: (one.completed_at or _LONG_AGO, one.step or 0, one.path), reverse=True)
    return newest_of(tree, ranked, "last checkpoint")


def _is_checkpoint(entry: Entry) -> bool:
    if entry.name.endswith(".ckpt"):
        return True
    return entry.kind is EntryKind.FOLDER and re.search(r"-last(-v\d+)?$", entry.name) is not None


def _by_rank(judged: list[Judged]) -> list[Judged]:
    """Files of single ranks with one name are one checkpoint: it is as whole, and as old, as its worst part."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        folder, _, name = one.path.rpartition("/")
        above, _, own = folder.rpartition("/")
        groups.setdefault(join(above, name) if _RANK.match(own) else one.path, []).append(one)
    return [min(parts, key=_badness) for parts in groups.values()]


def _badness(part: Judged) -> tuple[int, datetime]:
    return ({False: 0, None: 1, True: 2}[part.complete], part.completed_at or _LONG_AGO)


def _unfinished(tree: Tree, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    places = {folder, folder.rpartition("/")[0]} if _RANK.match(folder.rpartition("/")[2]) else {folder}
    stem = name.removesuffix(".ckpt").removesuffix("-EMA")
    names = {f"{part}{UNFINISHED}" for part in (name, stem, stem.removesuffix("-last"))}
    return any(tree.at(join(place, marker)) is not None for place in places for marker in names)


def _judge(tree: Tree, entry: Entry) -> Judged:
    step, at = step_in(entry.name), entry.modified_at
    if _unfinished(tree, entry.path):
        return Judged(entry.path, step, at, False, f"its {UNFINISHED} marker is there")
    if entry.kind is EntryKind.LINK:
        return _follow(tree, entry)
    if entry.kind is EntryKind.FOLDER:
        return _folder(tree, entry, step)
    if entry.size_bytes is None:
        return Judged(entry.path, step, at, None, "its size could not be read")
    if entry.size_bytes == 0:
        return Judged(entry.path, step, at, False, "is empty")
    return Judged(entry.path, step, at, True, "is there, without an unfinished marker")


def _folder(tree: Tree, entry: Entry, step: int | None) -> Judged:
    files, at = tree.under(entry.path), tree.newest_write(entry.path)
    if broken := broken_file(files):
        return Judged(entry.path, step, at, False, broken)
    if not tree.was_read(entry.path):
        return Judged(entry.path, step, at, None, "was not read to its end")
    if not files:
        return Judged(entry.path, step, entry.modified_at, False, "is empty")
    shards = {file.parent for file in files if file.name.endswith(".distcp")}
    if shards - {file.parent for file in files if file.name == ".metadata"}:
        return Judged(entry.path, step, at, False, "has shards and no .metadata")
    return Judged(entry.path, step, at, True, "is there, without an unfinished marker")


def _follow(tree: Tree, link: Entry) -> Judged:
    """A `last` that is a link counts as what it leads to, if that is in the same folder."""
    target = (link.text or "").rpartition("/")[2]
    found = tree.at(join(link.parent, target)) if target and target != link.name else None
    if found is None or found.kind is EntryKind.LINK:
        missing = bool(link.text) and "/" not in (link.text or "") and tree.was_read(link.parent) and found is None
        return Judged(link.path, None, None, False if missing else None, f"leads to {target[:80]!r}, which is not seen")
    judged = _judge(tree, found)
    return Judged(
        found.path, judged.step, judged.completed_at, judged.complete, f"{link.name} leads to it: {judged.why}"
    )


def _not_last(tree: Tree, entry: Entry) -> Judged:
    judged = _judge(tree, entry)
    if judged.complete is not True:
        return judged
    return Judged(entry.path, judged.step, judged.completed_at, None, "no last checkpoint says that a restart loads it")

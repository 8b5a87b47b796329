"""DeepSpeed: the file `latest` names the folder that a restart loads, by any tag.

Source: `DeepSpeedEngine.save_checkpoint` of deepspeedai/DeepSpeed: rank 0 writes `latest` when all ranks have saved;
model states are `mp_rank_XX_model_states.pt` (or `layer_…`), optimizer states `…_optim_states.pt`.
"""

from __future__ import annotations

from fleet.checkpoint_readers.tree import Tree, answer, broken_file, none_found, step_in, typical_interval
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint, UnknownCheckpoint

POINTER = "latest"


def read_deepspeed(tree: Tree) -> NewestCheckpoint:
    pointer = tree.file(POINTER)
    if pointer is None:
        return none_found(tree, f"file {POINTER!r}")
    if pointer.text is None:
        return UnknownCheckpoint(f"{POINTER!r} could not be read")
    tag = pointer.text.strip()
    if not tag or tag in {".", ".."} or "/" in tag or "\n" in tag or not tag.isprintable():
        return UnknownCheckpoint(f"{POINTER!r} says {tag[:40]!r}, which names no folder: being written, or broken")
    step = step_in(tag)
    if tree.at(tag) is None:
        missing = tree.was_read("")
        why = f"{POINTER!r} names {tag}, which is not there"
        return answer(tree, Judged(tag, step, pointer.modified_at, False if missing else None, why))
    complete, why = _judge(tree, tag)
    written = tree.newest_write(tag) if tree.was_read(tag) else None
    times = [time for time in (pointer.modified_at, written) if time is not None]
    others = (tree.newest_write(folder.path) for folder in tree.folders() if step_in(folder.name) is not None)
    judged = Judged(tag, step, min(times, default=None), complete, why)
    return answer(tree, judged, typical_interval(others))


def _judge(tree: Tree, tag: str) -> tuple[bool | None, str]:
    files = tree.under(tag)
    if broken := broken_file(files):
        return False, broken
    if not tree.was_read(tag):
        return None, f"{tag} was not read to its end"
    if not files:
        return False, f"{tag} is empty"
    if not any("model_states" in entry.name for entry in files):
        return False, f"{tag} holds no model states"
    return True, f"{POINTER!r} names {tag}, which is all there"

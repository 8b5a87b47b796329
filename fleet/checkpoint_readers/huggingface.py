"""Hugging Face Trainer: `checkpoint-N/trainer_state.json`, written when model and optimizer are saved.

Source: `Trainer._save_checkpoint` and `get_last_checkpoint` of huggingface/transformers: a restart takes the highest
N; some versions write into `tmp-checkpoint-N` and rename it.
"""

from __future__ import annotations

import re

from fleet.checkpoint_readers.tree import Tree, broken_file, ends_as_json, join, json_of, newest_of, whole_number
from fleet.checkpoint_readers.values import Judged, NewestCheckpoint
from fleet.json_values import number_at

STATE = "trainer_state.json"
_FOLDER = re.compile(r"^checkpoint-(\d+)$", re.ASCII)


def read_huggingface(tree: Tree) -> NewestCheckpoint:
    found = [
        (step, folder.path)
        for folder in tree.all_folders()
        if (match := _FOLDER.match(folder.name)) and (step := whole_number(match[1])) is not None
    ]
    if not found and tree.at(STATE) is not None:
        match = _FOLDER.match(tree.listing.root.rstrip("/").rpartition("/")[2])
        found = [((whole_number(match[1]) if match else None) or 0, "")] if match else []
    ranked = sorted(found, reverse=True)
    return newest_of(tree, [_judge(tree, step, path) for step, path in ranked], f"checkpoint-N with {STATE}")


def _judge(tree: Tree, step: int, path: str) -> Judged:
    state = tree.file(join(path, STATE))
    if state is None:
        if not tree.was_read(path):
            return Judged(path, step, None, None, "was not read to its end")
        return Judged(path, step, None, False, f"{STATE} is not there: half-written")
    at = state.modified_at
    if state.size_bytes == 0 or ends_as_json(state) is False:
        return Judged(path, step, at, False, f"{STATE} is empty or cut off")
    if broken := broken_file(tree.under(path)):
        return Judged(path, step, at, False, broken)
    told = number_at(json_of(state), "global_step")
    if told is not None and told != step:
        return Judged(path, step, at, None, f"{STATE} tells step {told:.0f}: the folder was renamed or copied")
    if tree.was_read(path) and len(tree.under(path)) == 1:
        return Judged(path, step, at, False, f"nothing but {STATE} is there")
    return Judged(path, step, at, True, f"{STATE} is there")

"""The newest complete checkpoint of a job, from a listing of where it writes."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from fleet.checkpoint_readers.beacon import read_beacon
from fleet.checkpoint_readers.dcp import MARK, read_dcp
from fleet.checkpoint_readers.deepspeed import POINTER, read_deepspeed
from fleet.checkpoint_readers.huggingface import STATE, read_huggingface
from fleet.checkpoint_readers.lightning import read_lightning
from fleet.checkpoint_readers.listing import EntryKind, Listing
from fleet.checkpoint_readers.megatron import TRACKER, read_megatron
from fleet.checkpoint_readers.orbax import COMMITTED, METADATA, TEMPORARY, read_orbax
from fleet.checkpoint_readers.tree import Tree
from fleet.checkpoint_readers.values import CheckpointKind, NewestCheckpoint, UnknownCheckpoint

_READERS: dict[CheckpointKind, Callable[[Tree], NewestCheckpoint]] = {
    CheckpointKind.MEGATRON: read_megatron,
    CheckpointKind.DEEPSPEED: read_deepspeed,
    CheckpointKind.DCP: read_dcp,
    CheckpointKind.HUGGINGFACE: read_huggingface,
    CheckpointKind.LIGHTNING: read_lightning,
    CheckpointKind.ORBAX: read_orbax,
    CheckpointKind.BEACON: read_beacon,
}
_ALIASES: dict[str, CheckpointKind] = {
    **{kind.value: kind for kind in CheckpointKind},
    **dict.fromkeys(("megatronlm", "mcore", "verl"), CheckpointKind.MEGATRON),
    "ds": CheckpointKind.DEEPSPEED,
    **dict.fromkeys(("pytorchdcp", "torchdcp", "torchdist", "torchtitan", "pytorch", "fsdp"), CheckpointKind.DCP),
    **dict.fromkeys(("hf", "transformers", "trainer", "hftrainer", "huggingfacetrainer"), CheckpointKind.HUGGINGFACE),
    **dict.fromkeys(("nemo", "ptl", "pytorchlightning"), CheckpointKind.LIGHTNING),
    **dict.fromkeys(("jax", "flax", "maxtext"), CheckpointKind.ORBAX),
    **dict.fromkeys(("other", "file", "touch"), CheckpointKind.BEACON),
}


def read_kind(text: str) -> CheckpointKind | None:
    """The framework that people mean by `Megatron-LM`, `hf`, `torch_dcp` …; None for a word that is not known."""
    return _ALIASES.get("".join(c for c in text.casefold() if c.isalnum()))


def nearest_kind(text: str) -> str:
    """What may have been meant, as a text to show."""
    near = get_close_matches(text.casefold(), list(_ALIASES), n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(kind.value for kind in CheckpointKind)}"


def find_kinds(listing: Listing) -> tuple[CheckpointKind, ...]:
    """The frameworks whose marks are in the tree, by the marks that only they write."""
    tree = Tree(listing)
    files = tree.file_names
    found: set[CheckpointKind] = set()
    if tree.file("") is not None:
        return (CheckpointKind.BEACON,)
    if tree.file(TRACKER) is not None:
        found.add(CheckpointKind.MEGATRON)
    elif any(TEMPORARY in folder.name for folder in tree.all_folders()) or files & {COMMITTED, METADATA}:
        found.add(CheckpointKind.ORBAX)
    elif STATE in files:
        found.add(CheckpointKind.HUGGINGFACE)
    elif any(entry.name.endswith(".ckpt") or entry.name.endswith("-last") for entry in listing.entries):
        found.add(CheckpointKind.LIGHTNING)
    elif MARK in files:
        found.add(CheckpointKind.DCP)
    pointer = tree.at(POINTER)
    if pointer is not None and pointer.kind is EntryKind.FILE:
        found.add(CheckpointKind.DEEPSPEED)
    return tuple(sorted(found))


def newest_checkpoint(kind: CheckpointKind | str | None, listing: Listing) -> NewestCheckpoint:
    """The newest complete checkpoint below `listing.root`, or why none can be told.

    Only `complete` True may be counted on. `kind` None finds the framework by its marks, and answers unknown where
    no mark or those of two are there.
    """
    if listing.problem:
        return UnknownCheckpoint(listing.problem)
    if isinstance(kind, str) and not isinstance(kind, CheckpointKind):
        named = read_kind(kind)
        if named is None:
            return UnknownCheckpoint(f"no reader for kind {kind[:40]!r}; {nearest_kind(kind)}")
        kind = named
    if kind is None:
        found = find_kinds(listing)
        if len(found) != 1:
            told = " and ".join(found) if found else "no framework that is known"
            return UnknownCheckpoint(f"the job names no kind, and {listing.root} has the marks of {told}")
        kind = found[0]
    return _READERS[kind](Tree(listing))

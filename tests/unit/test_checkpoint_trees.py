"""What holds for the checkpoint trees of all frameworks, and for any text in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.checkpoint_tools import NOW, complete, minutes, newest, tree

from fleet.checkpoint_readers.listing import Entry, EntryKind, Listing, read_listing
from fleet.checkpoint_readers.values import Checkpoint, CheckpointKind, UnknownCheckpoint
from fleet.checkpoint_trees import newest_checkpoint, read_kind

TRACKER = "latest_checkpointed_iteration.txt"
MODEL = "mp_rank_00/model_optim_rng.pt"


def reason(kind: str | None, *files: tuple[str, float] | tuple[str, float, str], left_out: int = 0) -> str:
    found = newest(kind, *files, left_out=left_out)
    assert isinstance(found, UnknownCheckpoint), found
    return found.reason


@pytest.mark.parametrize("kind", list(CheckpointKind))
def test_an_empty_tree_holds_no_checkpoint_yet(kind: CheckpointKind) -> None:
    found = newest_checkpoint(kind, Listing("/ckpt"))
    assert isinstance(found, UnknownCheckpoint)
    assert found.none_yet


@pytest.mark.parametrize("kind", list(CheckpointKind))
def test_a_tree_that_could_not_be_read_is_not_an_empty_one(kind: CheckpointKind) -> None:
    for listing in (Listing("/c", problem="may not be read"), Listing("/c", unread=frozenset({""}))):
        found = newest_checkpoint(kind, listing)
        assert isinstance(found, UnknownCheckpoint)
        assert not found.none_yet


def test_times_are_put_into_our_clock_where_the_storage_was_measured() -> None:
    listing = replace(tree((TRACKER, 5, "1"), (f"iter_0000001/{MODEL}", 5)), offset_seconds=-90.0)
    found = newest_checkpoint("megatron", listing)
    assert isinstance(found, Checkpoint)
    assert (found.completed_at, found.clock_measured) == (NOW - minutes(3.5), True)


def test_the_framework_is_found_by_its_marks() -> None:
    assert complete(None, (TRACKER, 1, "1"), (f"iter_0000001/{MODEL}", 1)).step == 1
    assert complete(None, ("latest", 1, "t1"), ("t1/mp_rank_00_model_states.pt", 1)).step == 1
    assert complete(None, ("checkpoint-3/trainer_state.json", 1, "{}"), ("checkpoint-3/m.bin", 1)).step == 3
    assert complete(None, ("step-4/.metadata", 1)).step == 4
    assert complete(None, ("5/_CHECKPOINT_METADATA", 1, "{}"), ("5/d", 1)).step == 5
    assert complete(None, ("last.ckpt", 1)).complete
    assert "no framework that is known" in reason(None, ("weights.bin", 1))
    assert "deepspeed and megatron" in reason(None, (TRACKER, 1, "1"), ("latest", 1, "t1"))


def test_a_kind_that_is_not_known_is_named_with_the_nearest() -> None:
    assert reason("megatorn") == "no reader for kind 'megatorn'; did you mean 'megatron'?"
    assert read_kind("PyTorch DCP") is CheckpointKind.DCP


PARTS = ["iter_0000200", "step-30", "checkpoint-5", "7", "7.orbax-checkpoint-tmp-1", "m-step=9-last", "mp_rank_01", "x"]
NAMES = [
    TRACKER,
    "latest",
    ".metadata",
    "trainer_state.json",
    "_CHECKPOINT_METADATA",
    "commit_success.txt",
    "last.ckpt",
]
NAMES += ["__0_0.distcp", "beacon.json", "m-step=9-last-unfinished", "model-00001-of-00002.bin", "9" * 30]
entries = st.builds(
    Entry,
    path=st.lists(st.sampled_from(PARTS + NAMES), min_size=0, max_size=4).map("/".join),
    kind=st.sampled_from(EntryKind),
    size_bytes=st.none() | st.integers(0, 3),
    modified_at=st.none() | st.just(NOW) | st.just(NOW - minutes(5)),
    text=st.none() | st.sampled_from(["", "200", "step-30", "{}", "{", "m-step=9-last", '{"step": 1e400}']) | st.text(),
    tail=st.none() | st.sampled_from(["}", "x"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(entries, max_size=12), st.sampled_from([*CheckpointKind, None]), st.integers(0, 2))
def test_any_tree_gives_an_answer(found: list[Entry], kind: CheckpointKind | None, left_out: int) -> None:
    answer = newest_checkpoint(kind, Listing("/c", tuple(found), left_out=left_out))
    assert isinstance(answer, Checkpoint | UnknownCheckpoint)
    assert not (isinstance(answer, UnknownCheckpoint) and answer.none_yet and left_out)


@settings(max_examples=200, deadline=None)
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8).map(str))
def test_any_document_gives_a_listing(text: str) -> None:
    assert read_listing(text, "/c").problem


def test_a_row_of_another_shape_makes_the_root_partly_unread() -> None:
    found = read_listing('{"entries": [["a", "f", 1, 5, null, null], ["b"], 3], "left_out": 2}', "/c")
    assert ([entry.path for entry in found.entries], found.unread, found.left_out) == (["a"], {""}, 2)

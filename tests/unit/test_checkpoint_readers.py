"""Which checkpoint of a tree is the newest complete one, for each framework."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.checkpoint_tools import NOW, complete, minutes, newest, tree

from fleet.checkpoint_readers.listing import Entry, EntryKind, Listing
from fleet.checkpoint_readers.values import Checkpoint, UnknownCheckpoint
from fleet.checkpoint_trees import newest_checkpoint

TRACKER = "latest_checkpointed_iteration.txt"
MODEL = "mp_rank_00/model_optim_rng.pt"


def state(kind: str, *files: tuple[str, float] | tuple[str, float, str]) -> bool | None:
    found = newest(kind, *files)
    assert isinstance(found, Checkpoint), found
    return found.complete


def reason(kind: str | None, *files: tuple[str, float] | tuple[str, float, str], left_out: int = 0) -> str:
    found = newest(kind, *files, left_out=left_out)
    assert isinstance(found, UnknownCheckpoint), found
    return found.reason


# Megatron-LM


def test_megatron_restarts_where_its_tracker_points() -> None:
    found = complete("megatron", (TRACKER, 5, "200\n"), (f"iter_0000200/{MODEL}", 6), (f"iter_0000100/{MODEL}", 36))
    assert (found.step, found.path) == (200, "/ckpt/iter_0000200")
    assert found.completed_at == NOW - minutes(6)
    assert found.interval_seconds == 1800


def test_the_time_that_a_checkpoint_took_is_from_its_first_file_to_its_last() -> None:
    files = (("iter_0000200/a.pt", 8.0), ("iter_0000200/b.pt", 6.0))
    assert complete("megatron", (TRACKER, 5, "200"), *files).write_seconds == 120
    assert complete("megatron", (TRACKER, 5, "200"), *files[:1]).write_seconds is None


def test_a_newer_iteration_that_the_tracker_does_not_name_does_not_count() -> None:
    found = complete("Megatron-LM", (TRACKER, 30, "100"), (f"iter_0000100/{MODEL}", 31), (f"iter_0000200/{MODEL}", 1))
    assert found.step == 100


def test_a_tracker_with_windows_line_ends_and_blanks_is_read() -> None:
    assert complete("megatron", (TRACKER, 1, " 100 \r\n"), (f"iter_0000100/{MODEL}", 2)).step == 100


def test_the_tracker_of_verl_names_its_own_folders() -> None:
    assert complete("verl", (TRACKER, 1, "50"), ("global_step_50/actor/model.pt", 2)).path == "/ckpt/global_step_50"


def test_a_tracker_that_was_touched_later_makes_no_checkpoint_newer() -> None:
    found = complete("megatron", (TRACKER, 1, "100"), (f"iter_0000100/{MODEL}", 600))
    assert found.completed_at == NOW - minutes(600)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([("iter_0000200/", 1.0)], id="an empty folder"),
        pytest.param([("iter_0000100/" + MODEL, 1.0)], id="another folder"),
        pytest.param([("iter_0000200/" + MODEL, 1.0, "")], id="an empty file"),
        pytest.param([("iter_0000200/__0_0.distcp", 1.0)], id="shards without .metadata"),
        pytest.param([("iter_0000200/mp_rank_00/a.pt", 1.0), ("iter_0000200/mp_rank_02/a.pt", 1.0)], id="a rank lacks"),
        pytest.param([("iter_0000200/mp_rank_00/a.pt", 1.0), ("iter_0000200/mp_rank_01/", 1.0)], id="an empty rank"),
        pytest.param([("iter_0000200_old/" + MODEL, 1.0)], id="a renamed folder"),
    ],
)
def test_a_tracker_that_names_a_missing_or_incomplete_folder_is_not_complete(files: list[tuple[str, float]]) -> None:
    assert state("megatron", (TRACKER, 1, "200"), *files) is False


@pytest.mark.parametrize("text", ["", "\n", "20O", "iter_0000200", "-1", "9" * 400, "٢٠٠", "200\n300"])
def test_a_tracker_that_is_being_written_or_broken_is_unknown(text: str) -> None:
    assert "no iteration" in reason("megatron", (TRACKER, 1, text), (f"iter_0000200/{MODEL}", 1))


def test_a_folder_that_was_not_read_to_its_end_is_neither_complete_nor_broken() -> None:
    found = newest("megatron", (TRACKER, 1, "200"), (f"iter_0000200/{MODEL}", 1), unread=("iter_0000200",))
    assert isinstance(found, Checkpoint)
    assert found.complete is None


# DeepSpeed


def test_deepspeed_restarts_where_latest_points_whatever_the_tag() -> None:
    files = (("best/mp_rank_00_model_states.pt", 9.0), ("global_step900/mp_rank_00_model_states.pt", 1.0))
    found = complete("deepspeed", ("latest", 8, "best"), *files)
    assert (found.path, found.step) == ("/ckpt/best", None)
    assert complete("ds", ("latest", 1, "global_step900\r\n"), *files).step == 900


def test_latest_that_names_a_missing_or_incomplete_folder_is_not_complete() -> None:
    assert state("deepspeed", ("latest", 1, "global_step9")) is False
    assert (
        state("deepspeed", ("latest", 1, "global_step9"), ("global_step9/zero_pp_rank_0_optim_states.pt", 1)) is False
    )
    assert (
        state("deepspeed", ("latest", 1, "global_step9"), ("global_step9/mp_rank_00_model_states.pt", 1, "")) is False
    )


@pytest.mark.parametrize("text", ["", "..", "../other", "/etc", "a\nb", "\x1b[2J"])
def test_latest_that_names_no_folder_is_unknown(text: str) -> None:
    assert "names no folder" in reason("deepspeed", ("latest", 1, text))


# PyTorch DCP


def test_dcp_is_complete_when_its_metadata_is_there() -> None:
    steps = [(f"step-{n}/{name}", 100.0 - n) for n in (10, 20, 30) for name in ("__0_0.distcp", ".metadata")]
    found = complete("dcp", *steps)
    assert (found.step, found.completed_at, found.interval_seconds) == (30, NOW - minutes(70), 600)


def test_a_half_written_step_is_named_and_the_one_before_counts() -> None:
    found = complete("dcp", ("step-30/__0_0.distcp", 1), ("step-20/.metadata", 9), ("step-20/__0_0.distcp", 10))
    assert found.step == 20
    assert "step-30: .metadata is not there" in found.why


def test_a_metadata_that_was_not_renamed_yet_does_not_count() -> None:
    assert state("dcp", ("step-30/__0_0.distcp", 1), ("step-30/.metadata.tmp", 1)) is False


def test_steps_are_ordered_as_numbers_not_as_text_nor_by_time() -> None:
    found = complete("dcp", ("step-900/.metadata", 1), ("step-1000/.metadata", 50))
    assert found.step == 1000


def test_model_and_optimizer_must_both_be_there() -> None:
    both = (("step-5/model/.metadata", 2.0), ("step-5/model/__0_0.distcp", 3.0), ("step-5/optim/__0_0.distcp", 1.0))
    assert state("dcp", *both) is False
    found = complete("dcp", *both, ("step-5/optim/.metadata", 1))
    assert (found.step, found.completed_at) == (5, NOW - minutes(1))


def test_one_folder_that_is_written_again_and_again_is_a_checkpoint_too() -> None:
    assert complete("dcp", (".metadata", 4), ("__0_0.distcp", 5)).path == "/ckpt"


def test_where_the_newest_are_broken_and_older_ones_were_not_read_nothing_is_told() -> None:
    assert "older unread" in reason("dcp", ("step-9/__0_0.distcp", 1), left_out=90000)


# Hugging Face


def test_the_highest_complete_checkpoint_of_the_trainer_counts() -> None:
    found = complete(
        "huggingface",
        ("checkpoint-500/model.safetensors", 40),
        ("checkpoint-500/trainer_state.json", 39, '{"global_step": 500}'),
        ("checkpoint-1000/model.safetensors", 2),
        ("runs/events.out", 1),
    )
    assert (found.step, found.completed_at) == (500, NOW - minutes(39))


@pytest.mark.parametrize("text", ["", '{"global_step": 50', "[]"])
def test_a_trainer_state_that_is_cut_off_is_not_complete(text: str) -> None:
    assert state("hf", ("checkpoint-50/model.safetensors", 2), ("checkpoint-50/trainer_state.json", 1, text)) is False


def test_a_long_trainer_state_is_judged_by_its_end() -> None:
    listing = tree(("checkpoint-50/model.safetensors", 2), ("checkpoint-50/trainer_state.json", 1, "{"))
    for tail, expected in (('"step": 50}\n', True), ('"step": 5', False)):
        entries = [replace(e, tail=tail) if e.name == "trainer_state.json" else e for e in listing.entries]
        found = newest_checkpoint("hf", replace(listing, entries=tuple(entries)))
        assert isinstance(found, Checkpoint)
        assert found.complete is expected


def test_a_missing_shard_makes_a_checkpoint_incomplete() -> None:
    files = [(f"checkpoint-5/model-0000{n}-of-00003.safetensors", 3.0) for n in (1, 3)]
    assert state("hf", *files, ("checkpoint-5/trainer_state.json", 1, "{}")) is False


def test_a_renamed_checkpoint_is_not_taken_for_the_step_of_its_name() -> None:
    files = (
        ("checkpoint-900/model.safetensors", 3.0),
        ("checkpoint-900/trainer_state.json", 3.0, '{"global_step": 9}'),
    )
    assert state("hf", *files) is None


def test_a_staging_folder_of_the_trainer_is_no_checkpoint() -> None:
    files = (("tmp-checkpoint-9/model.safetensors", 1.0), ("tmp-checkpoint-9/trainer_state.json", 1.0, "{}"))
    assert newest("hf", *files) == UnknownCheckpoint("no checkpoint-N with trainer_state.json in /ckpt", none_yet=True)


# Lightning and NeMo


def test_the_last_checkpoint_of_lightning_counts() -> None:
    found = complete("lightning", ("last.ckpt", 3), ("epoch=1-step=900.ckpt", 1))
    assert (found.path, found.completed_at) == ("/ckpt/last.ckpt", NOW - minutes(3))


def test_the_checkpoint_that_lightning_writes_on_a_signal_counts() -> None:
    assert complete("lightning", ("last.ckpt", 30), ("hpc_ckpt_2.ckpt", 1)).path == "/ckpt/hpc_ckpt_2.ckpt"


@pytest.mark.parametrize("marker", ["m--step=20-last-unfinished", "m--step=20-unfinished"])
def test_a_nemo_folder_with_its_unfinished_marker_is_not_complete(marker: str) -> None:
    files = (("m--step=20-last/weights/.metadata", 1.0), ("m--step=20-last/weights/__0_0.distcp", 1.0))
    assert complete("nemo", *files).step == 20
    assert state("nemo", *files, (marker, 1, "")) is False


def test_a_marker_above_the_folders_of_the_ranks_counts_for_all_of_them() -> None:
    ranks = [(f"tp_rank_0{n}_pp_rank_000/m-step=9-last.ckpt", 5.0 - n) for n in range(2)]
    found = complete("nemo", *ranks)
    assert found.completed_at == NOW - minutes(5)
    assert state("nemo", *ranks, ("m-step=9-last-unfinished", 1, "")) is False


def test_a_link_counts_as_what_it_leads_to() -> None:
    listing = tree(("epoch=0-step=10.ckpt", 7))
    link = Entry("last.ckpt", EntryKind.LINK, None, NOW, "epoch=0-step=10.ckpt")
    found = newest_checkpoint("lightning", replace(listing, entries=(*listing.entries, link)))
    assert isinstance(found, Checkpoint)
    assert (found.complete, found.step, found.completed_at) == (True, 10, NOW - minutes(7))
    dangling = newest_checkpoint("lightning", replace(listing, entries=(replace(link, text="gone.ckpt"),)))
    assert isinstance(dangling, Checkpoint)
    assert dangling.complete is False


def test_a_checkpoint_that_no_restart_takes_by_itself_is_not_counted() -> None:
    assert state("lightning", ("epoch=1-step=900.ckpt", 1)) is None


# Orbax


def test_an_orbax_step_without_its_suffix_and_with_its_marker_is_complete() -> None:
    found = complete(
        "orbax",
        ("2000.orbax-checkpoint-tmp-1763000000/default/d/1", 1),
        ("1000/default/manifest.ocdbt", 8),
        ("1000/_CHECKPOINT_METADATA", 7, '{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2}'),
    )
    assert (found.step, found.completed_at) == (1000, NOW - minutes(7))


def test_metadata_without_a_commit_time_or_cut_off_is_not_complete() -> None:
    for text in ('{"commit_timestamp_nsecs": null}', '{"commit_times', ""):
        assert state("orbax", ("10/d/x", 2), ("10/_CHECKPOINT_METADATA", 1, text)) is False


def test_where_others_have_a_success_file_one_without_is_not_complete() -> None:
    old, new = ("1/d/x", 9.0), ("2/d/x", 1.0)
    found = complete("orbax", old, ("1/commit_success.txt", 8), new, ("2/_CHECKPOINT_METADATA", 1, "{}"))
    assert found.step == 1


def test_an_item_that_is_still_temporary_makes_its_step_incomplete() -> None:
    assert state("orbax", ("9/state.orbax-checkpoint-tmp/d", 1), ("9/_CHECKPOINT_METADATA", 1, "{}")) is False


def test_a_step_without_any_marker_cannot_be_told() -> None:
    assert state("orbax", ("9/d/x", 1)) is None


# Beacon


def beacon(text: str, name: str = "") -> Checkpoint:
    found = newest_checkpoint("beacon", Listing("/b", (Entry(name, EntryKind.FILE, len(text), NOW, text),)))
    assert isinstance(found, Checkpoint), found
    return found


def test_a_touched_beacon_tells_the_time_and_no_step() -> None:
    assert (beacon("").complete, beacon("").step, beacon("").completed_at) == (True, None, NOW)
    assert beacon("1200\n").step == 1200


def test_the_time_in_a_beacon_counts_where_it_is_earlier() -> None:
    earlier = (NOW - minutes(9)).isoformat()
    assert beacon(f'{{"step": 7, "time": "{earlier}"}}').completed_at == NOW - minutes(9)
    assert beacon(f'{{"time": {(NOW - minutes(9)).timestamp()}}}').completed_at == NOW - minutes(9)
    assert beacon(f'{{"time": {(NOW + minutes(9)).timestamp()}}}').completed_at == NOW


@pytest.mark.parametrize("text", ['{"step": 7, "ti', "yes", '{"time": "soon"}', '{"time": null}', '{"complete": 1}'])
def test_a_beacon_that_is_cut_off_or_not_understood_is_not_counted(text: str) -> None:
    assert beacon(text).complete is None


def test_a_beacon_may_say_that_it_is_not_complete() -> None:
    assert beacon('{"complete": false}').complete is False


def test_of_several_files_only_one_that_is_called_beacon_is_one() -> None:
    assert complete("beacon", ("beacon.json", 4, "{}"), ("other", 1)).completed_at == NOW - minutes(4)
    assert "single beacon" in reason("beacon", ("a", 1), ("b", 1))

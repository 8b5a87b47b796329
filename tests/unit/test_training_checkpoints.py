"""The checkpoints of the simulator's real jobs, read by the readers that know nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.checkpoint_storage import CheckpointStorage
from adapters.clock import SystemClock
from adapters.local import LocalHost
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint
from fleet.checkpoint_trees import newest_checkpoint, read_kind
from fleet.job_consent import read_job_text
from simulator.checkpoint_files import READERS, WRITERS
from simulator.real_jobs import JobLoad, TrainingJob, draw_jobs

KINDS = sorted(WRITERS)
TELLS_NO_STEP = {"lightning"}  # `last.ckpt` has the step inside, which no listing reads


def write(kind: str, folder: Path, step: int, ranks: int = 2) -> None:
    for _ in WRITERS[kind](folder, step, ranks):
        pass


def seen(kind: str, folder: Path) -> NewestCheckpoint:
    """As a drain sees it: the place of the job's comment, listed by a command."""
    named = TrainingJob(folder.name, "train", 1, kind, "llm", 60.0, 10.0, 1.0, True)
    said = read_job_text(named.comment(folder.parent))
    assert said.path is not None
    assert said.kind is read_kind(kind)
    return newest_checkpoint(said.kind, CheckpointStorage(LocalHost(), SystemClock()).read_tree(said.path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_was_written_to_its_end_is_complete(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    write(kind, folder, 100)
    write(kind, folder, 250)
    found = seen(kind, folder)
    assert isinstance(found, Checkpoint), found
    assert (found.complete, found.step) == (True, None if kind in TELLS_NO_STEP else 250), found
    assert READERS[kind](folder) == 250


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_cut_off_leaves_the_one_before_to_begin_again_at(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    write(kind, folder, 100)
    before = seen(kind, folder)
    next(WRITERS[kind](folder, 250, 2))
    assert READERS[kind](folder) == 100
    now = seen(kind, folder)
    assert isinstance(before, Checkpoint)
    assert isinstance(now, Checkpoint)
    assert (now.path, now.complete) == (before.path, True)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_was_never_finished_is_none_to_begin_at(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    next(WRITERS[kind](folder, 50, 2))
    assert READERS[kind](folder) is None
    assert getattr(seen(kind, folder), "complete", None) is not True


@pytest.mark.parametrize("kind", KINDS)
def test_a_half_written_one_of_a_higher_step_is_not_begun_at_after_others_were_written(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "run"
    write(kind, folder, 100)
    next(WRITERS[kind](folder, 250, 2))
    for step in (150, 160, 170, 180):
        write(kind, folder, step)
    assert READERS[kind](folder) == 180


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_storage_is_away_nothing_is_found_and_writing_fails(tmp_path: Path, kind: str) -> None:
    (tmp_path / "storage").touch()
    folder = tmp_path / "storage" / "run"
    assert READERS[kind](folder) is None
    with pytest.raises(OSError):
        write(kind, folder, 100)


def test_the_nth_job_of_a_seed_is_the_same_whatever_else_is_asked() -> None:
    def first(seed: int, count: int | None) -> list[TrainingJob]:
        jobs = draw_jobs(seed, "train", 16, JobLoad(count))
        return [next(jobs) for _ in range(40)]

    assert first(7, None) == first(7, 12)
    assert first(7, None) != first(8, None)


def test_the_jobs_show_every_size_and_every_kind_and_some_take_no_signal() -> None:
    drawn = draw_jobs(7, "train", 16, JobLoad())
    jobs = [next(drawn) for _ in range(64)]
    assert {job.kind for job in jobs} == set(WRITERS)
    assert {job.nodes for job in jobs} == {1, 2, 3, 4, 8}
    assert {job.signal for job in jobs} == {True, False}


def test_no_job_is_larger_than_its_partition() -> None:
    drawn = draw_jobs(7, "dev", 1, JobLoad())
    assert {next(drawn).nodes for _ in range(16)} == {1}

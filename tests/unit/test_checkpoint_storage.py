"""Checkpoint folders listed by one command: real trees on disk, and hosts that answer oddly."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from unit.checkpoint_tools import job

from adapters import checkpoint_listing
from adapters.checkpoint_storage import CheckpointStorage
from adapters.clock import SystemClock
from adapters.local import Finished, LocalHost
from fleet.checkpoint_policy import policy_for
from fleet.checkpoint_readers.listing import Listing
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint, UnknownCheckpoint
from fleet.checkpoint_trees import newest_checkpoint
from fleet.checkpoints import Asked, Choice, decide
from fleet.errors import ConfigurationError, NodeUnreachable, TransientError
from fleet.job_consent import read_job_consent
from simulator.jobs import write_megatron

NOBODY = 65534


@dataclass
class OtherClock:
    """The wall clock, set wrong by so many seconds."""

    wrong_seconds: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.wrong_seconds)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


@dataclass
class OddHost:
    """Answers what it was given; counts the commands."""

    answer: Finished
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        self.commands.append(arguments)
        return self.answer

    def close(self) -> None: ...


class ChattyHost(LocalHost):
    """A login that prints before and after each command."""

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        done = super().run(arguments, timeout_seconds)
        return Finished(done.code, f"Welcome to login-1\r\n{done.stdout}Goodbye\n", "motd\n")


def read(root: Path | str, seconds: float = 20.0, clock_folder: str = "", wrong: float = 0.0) -> Listing:
    return CheckpointStorage(LocalHost(), OtherClock(wrong), clock_folder).read_tree(str(root), seconds)


def newest(kind: str, root: Path) -> NewestCheckpoint:
    return newest_checkpoint(kind, read(root))


def write(path: Path, text: str = "some bytes") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def paths(listing: Listing) -> set[str]:
    return {entry.path for entry in listing.entries}


def test_what_a_simulated_job_writes_is_complete(tmp_path: Path) -> None:
    write_megatron(tmp_path / "run", 40)
    found = newest("megatron", tmp_path / "run")
    assert isinstance(found, Checkpoint)
    assert (found.complete, found.step, found.path) == (True, 40, f"{tmp_path}/run/iter_0000040")
    assert found.completed_at is not None
    assert abs((datetime.now(UTC) - found.completed_at).total_seconds()) < 60


def test_of_a_huge_tree_the_highest_steps_are_read_and_the_others_counted(tmp_path: Path) -> None:
    for step in range(3000):
        (tmp_path / f"step-{step}").mkdir()
    write(tmp_path / "step-2998" / "__0_0.distcp")
    write(tmp_path / "step-2998" / ".metadata")
    listing = read(tmp_path)
    assert len(listing.entries) == checkpoint_listing.MOST_FOLDERS + 2
    assert listing.left_out == 3000 - checkpoint_listing.MOST_FOLDERS
    found = newest_checkpoint("dcp", listing)
    assert isinstance(found, Checkpoint)
    assert (found.complete, found.step) == (True, 2998)


def test_of_a_hundred_thousand_names_no_more_are_looked_at_than_of_a_few() -> None:
    walk = checkpoint_listing.Walk(time.monotonic() + 60)
    names = [f"iter_{step:07d}" for step in range(100_000)]
    chosen = walk.entered(names, ["500"], "")
    assert chosen[:3] == ["iter_0000500", "iter_0099999", "iter_0099998"]
    assert (len(chosen), walk.left_out) == (8, 99_992)


def test_the_folder_that_a_pointer_names_is_read_however_many_are_newer(tmp_path: Path) -> None:
    for step in range(50):
        (tmp_path / f"iter_{step:07d}").mkdir()
    write(tmp_path / "iter_0000003" / "mp_rank_00" / "model_optim_rng.pt")
    write(tmp_path / "latest_checkpointed_iteration.txt", "3")
    found = newest("megatron", tmp_path)
    assert isinstance(found, Checkpoint)
    assert (found.complete, found.step) == (True, 3)


def test_a_pointer_to_a_folder_that_is_not_there_is_seen_in_a_huge_tree_too(tmp_path: Path) -> None:
    for step in range(50):
        (tmp_path / f"global_step{step}").mkdir()
    write(tmp_path / "latest", "global_step77")
    found = newest("deepspeed", tmp_path)
    assert isinstance(found, Checkpoint)
    assert found.complete is False


def test_all_ranks_of_a_step_are_read(tmp_path: Path) -> None:
    for rank in range(64):
        write(tmp_path / "iter_0000001" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")
    write(tmp_path / "latest_checkpointed_iteration.txt", "1")
    found = newest("megatron", tmp_path)
    assert isinstance(found, Checkpoint)
    assert found.complete is True


def test_a_listing_whose_time_is_over_says_what_was_not_read(tmp_path: Path) -> None:
    write(tmp_path / "step-1" / ".metadata")
    listing = read(tmp_path, seconds=-1)
    assert "" in listing.unread
    found = newest_checkpoint("dcp", listing)
    assert isinstance(found, UnknownCheckpoint)
    assert not found.none_yet


def test_a_beacon_may_be_a_single_file(tmp_path: Path) -> None:
    write(tmp_path / "alive", '{"step": 12}')
    found = newest("beacon", tmp_path / "alive")
    assert isinstance(found, Checkpoint)
    assert (found.step, found.path) == (12, f"{tmp_path}/alive")


def test_a_long_trainer_state_is_known_by_its_end(tmp_path: Path) -> None:
    write(tmp_path / "checkpoint-7" / "model.safetensors")
    whole = '{"log_history": [' + "1, " * 5000 + '1], "global_step": 7}\n'
    for text, expected in ((whole, True), (whole[:9000], False)):
        write(tmp_path / "checkpoint-7" / "trainer_state.json", text)
        found = newest("hf", tmp_path)
        assert isinstance(found, Checkpoint)
        assert found.complete is expected


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone", "is not there"),
        ("file/below", "a part of its path is a file"),
        ("loop", "is a link that leads to itself"),
    ],
)
def test_a_tree_that_is_not_there_is_a_problem_and_not_an_empty_tree(tmp_path: Path, name: str, told: str) -> None:
    write(tmp_path / "file")
    (tmp_path / "loop").symlink_to("loop")
    listing = read(tmp_path / name)
    assert listing.problem is not None
    assert told in listing.problem


def test_a_tree_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    walk = checkpoint_listing.Walk(time.monotonic() + 5)
    own = os.geteuid()
    if own == 0:  # root may read everything
        os.seteuid(NOBODY)
    try:
        problem = checkpoint_listing.walk_root(str(tmp_path / "closed"), walk)
    finally:
        os.seteuid(own)
    assert problem == "may not be read by this login"


@pytest.mark.parametrize("root", ["", "relative", "/a\nb", "/a\x1b"])
def test_a_root_that_is_no_path_is_never_sent(root: str) -> None:
    host = OddHost(Finished(0, "", ""))
    assert CheckpointStorage(host, SystemClock()).read_tree(root).problem == "is no absolute path"
    assert host.commands == []


def test_a_root_with_quotes_blanks_and_a_dash_is_one_argument(tmp_path: Path) -> None:
    root = tmp_path / "-a 'b' \"c\" $(d); é"
    write(root / "step-1" / ".metadata")
    assert "step-1/.metadata" in paths(read(root))


def test_names_that_are_no_text_do_not_stop_a_listing(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"step-2\xff\n")).mkdir()
    write(tmp_path / "step-1" / ".metadata")
    found = newest("dcp", tmp_path)
    assert isinstance(found, Checkpoint)
    assert found.step == 1


def test_links_are_named_and_not_followed_and_a_root_that_is_one_is(tmp_path: Path) -> None:
    write(tmp_path / "secret", "root:x:0")
    write(tmp_path / "real" / "epoch=0.ckpt")
    (tmp_path / "real" / "latest").symlink_to(tmp_path / "secret")
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    (tmp_path / "run").symlink_to("real")
    listing = read(tmp_path / "run")
    assert paths(listing) == {"epoch=0.ckpt", "latest", "up"}
    assert all("root:x" not in (entry.text or "") for entry in listing.entries)


def test_a_pipe_with_a_pointers_name_does_not_hang_the_listing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "latest")
    assert isinstance(newest("deepspeed", tmp_path), UnknownCheckpoint)


def test_a_file_that_turns_into_a_pipe_or_a_link_before_it_is_read_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "secret", "root:x:0")
    (tmp_path / "link").symlink_to("secret")
    for name in ("pipe", "link", "gone"):
        assert checkpoint_listing.read_text(str(tmp_path / name), 8) == (None, None)


def test_a_folder_that_goes_away_during_the_listing_is_left_out(tmp_path: Path) -> None:
    walk = checkpoint_listing.Walk(time.monotonic() + 5)
    assert walk.add(str(tmp_path), "step-1", False) is not None
    walk.folder(str(tmp_path / "gone"), "step-1", 2)
    assert (walk.entries, walk.unread) == ([], [])


def test_the_storages_clock_is_measured_against_ours(tmp_path: Path) -> None:
    write(tmp_path / "run" / "step-1" / ".metadata")
    ours = tmp_path / "ours"
    ours.mkdir()
    listing = read(tmp_path / "run", clock_folder=str(ours), wrong=3600)
    assert listing.offset_seconds == pytest.approx(-3600, abs=30)
    assert list(ours.iterdir()) == []
    found = newest_checkpoint("dcp", listing)
    assert isinstance(found, Checkpoint)
    assert found.clock_measured
    assert found.completed_at is not None
    assert abs((OtherClock(3600).now() - found.completed_at).total_seconds()) < 60


def test_a_clock_folder_that_cannot_be_written_leaves_the_clock_unmeasured(tmp_path: Path) -> None:
    listing = read(tmp_path, clock_folder="/proc/self/nowhere")
    assert listing.offset_seconds is None
    assert listing.problem is None


def test_what_a_login_prints_around_the_listing_is_left_aside(tmp_path: Path) -> None:
    write(tmp_path / "last.ckpt")
    listing = CheckpointStorage(ChattyHost(), SystemClock()).read_tree(str(tmp_path))
    assert paths(listing) == {"last.ckpt"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Finished(0, "", ""), ConfigurationError),
        (Finished(83, "", ""), ConfigurationError),
        (Finished(1, "This account is currently not available.", ""), ConfigurationError),
        (Finished(-1, "", "Killed"), NodeUnreachable),
        (Finished(0, checkpoint_listing.BEGIN + '{"entries": [[', ""), TransientError),
    ],
)
def test_an_answer_that_is_no_listing_is_an_error_and_not_an_empty_tree(
    answer: Finished, error: type[Exception]
) -> None:
    with pytest.raises(error):
        CheckpointStorage(OddHost(answer), SystemClock()).read_tree("/ckpt")


def test_one_tree_costs_one_command_without_a_newline_in_it() -> None:
    document = '{"started": "x", "ended": [], "ahead": 1, "entries": []}'
    host = OddHost(Finished(0, checkpoint_listing.BEGIN + document + checkpoint_listing.END, ""))
    listing = CheckpointStorage(host, SystemClock()).read_tree("/ckpt")
    assert listing == Listing("/ckpt")
    assert len(host.commands) == 1
    assert all("\n" not in argument for argument in host.commands[0])
    assert sum(map(len, host.commands[0])) < 16_000


def test_the_listing_needs_no_more_than_python_3_8() -> None:
    source = Path(checkpoint_listing.__file__).read_text()
    imported = {
        name.name
        for node in ast.walk(ast.parse(source, feature_version=(3, 8)))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= set(sys.stdlib_module_names)


def test_the_listing_runs_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "last.ckpt")
    command = [sys.executable, "-I", "-S", checkpoint_listing.__file__, str(tmp_path), "5", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(checkpoint_listing.BEGIN)
    assert done.stderr == ""


def test_a_job_is_asked_and_let_go_once_its_storage_shows_a_newer_checkpoint(tmp_path: Path) -> None:
    root, clock = tmp_path / "run", SystemClock()
    work = job(comment=f"ckpt={root};kind=megatron;signal=USR1", elapsed=3600.0)
    said = read_job_consent(work)
    policy, storage = policy_for(work, [], said), CheckpointStorage(LocalHost(), clock)
    write_megatron(root, 40)
    before = newest_checkpoint(said.kind, storage.read_tree(said.path or ""))
    deadline = clock.now() + timedelta(hours=1)
    first = decide(work, before, clock.now(), deadline, policy, None)
    assert (first.choice, first.signal) == (Choice.ASK, "USR1")
    asked = Asked(clock.now(), before, clock.now())
    assert decide(work, before, clock.now(), deadline, policy, asked).choice is Choice.WAIT_FOR_ANSWER
    write_megatron(root, 50)
    os.utime(root / "iter_0000050" / "mp_rank_00" / "model_optim_rng.pt", (time.time() + 1, time.time() + 1))
    os.utime(root / "latest_checkpointed_iteration.txt", (time.time() + 1, time.time() + 1))
    after = newest_checkpoint(said.kind, storage.read_tree(said.path or ""))
    assert decide(work, after, clock.now(), deadline, policy, asked).choice is Choice.REQUEUE

"""Small trees and jobs for the checkpoint tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fleet.checkpoint_readers.listing import Entry, EntryKind, Listing
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint
from fleet.checkpoint_trees import newest_checkpoint
from fleet.model import Job

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
File = tuple[str, float] | tuple[str, float, str]
"""A path, minutes before NOW at which it was written, its text; a path that ends in "/" is an empty folder."""


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def tree(*files: File, root: str = "/ckpt", left_out: int = 0, unread: tuple[str, ...] = ()) -> Listing:
    """A listing, with every folder above its files; texts of 10 bytes or so, "" is an empty file."""
    entries: dict[str, Entry] = {}
    for path, age, *rest in files:
        at, parts = NOW - minutes(age), path.strip("/").split("/")
        for depth in range(1, len(parts) + path.endswith("/")):
            folder = "/".join(parts[:depth])
            entries.setdefault(folder, Entry(folder, EntryKind.FOLDER, modified_at=at))
        if not path.endswith("/"):
            text = rest[0] if rest else "some bytes"
            entries[path] = Entry(path, EntryKind.FILE, len(text), at, text)
    return Listing(root, tuple(entries.values()), unread=frozenset(unread), left_out=left_out)


def newest(kind: str | None, *files: File, left_out: int = 0, unread: tuple[str, ...] = ()) -> NewestCheckpoint:
    return newest_checkpoint(kind, tree(*files, left_out=left_out, unread=unread))


def complete(kind: str | None, *files: File, left_out: int = 0, unread: tuple[str, ...] = ()) -> Checkpoint:
    """The newest checkpoint, which must be a complete one."""
    found = newest(kind, *files, left_out=left_out, unread=unread)
    assert isinstance(found, Checkpoint), found
    assert found.complete is True, found
    return found


def job(
    ident: str = "812",
    gpus: int | None = 64,
    elapsed: float | None = 36000.0,
    limit: float | None = None,
    state: str = "RUNNING",
    comment: str = "",
    user: str = "mlee",
) -> Job:
    nodes = tuple(f"gpu-{n:04d}" for n in range(8))
    return Job(ident, "pretrain", user, state, nodes, gpus, elapsed, limit, comment, "llm", "train")

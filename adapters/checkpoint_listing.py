"""Prints a bounded listing of a checkpoint folder as one JSON document. Python 3.8, standard library only.

It is sent to a host as text and run there with the arguments ROOT SECONDS CLOCK_FOLDER. Nothing is written but
one empty file in CLOCK_FOLDER, where that is given, to learn the storage's time; it is removed at once. Links are not
followed below ROOT, and only small regular files with the names of pointers are read.
"""

# pathlib costs more start-up time than the listing; annotations are never evaluated
# ruff: noqa: PTH108, PTH115, PTH116, PTH118, PTH123

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time

BEGIN, END = "=====gpufleet-listing-begin=====", "=====gpufleet-listing-end====="
MOST_ENTRIES = 60000
MOST_FOLDERS = 8  # step folders that are entered, the highest numbers first
MOST_FILES = 20000  # files of one folder that are looked at
MOST_NAMES = 2000000  # names of one folder that are seen at all
DEPTH = 5
TEXT_BYTES, TAIL_BYTES = 4096, 64
LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay"))
POINTERS = ("latest_checkpointed_iteration.txt", "latest")
READ = frozenset((*POINTERS, "trainer_state.json", "_CHECKPOINT_METADATA"))
MARKS = frozenset((*READ, ".metadata", "commit_success.txt", "metadata.json", "common.pt"))
NUMBER = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)[=_-]?(\d+)|^(?:.*_)?(\d+)(?=\.orbax)", re.IGNORECASE)
PROBLEMS = {
    errno.ENOENT: "is not there",
    errno.ENOTDIR: "is not there: a part of its path is a file",
    errno.EACCES: "may not be read by this login",
    errno.EPERM: "may not be read by this login",
    errno.ESTALE: "is stale: the storage was unmounted or exported anew",
    errno.ENOTCONN: "is not connected: its file system is dead",
    errno.EHOSTDOWN: "is not reachable: its storage is down",
    errno.EIO: "gives input/output errors",
    errno.ELOOP: "is a link that leads to itself",
    errno.ENAMETOOLONG: "has a name that is too long",
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    Row = tuple[str, str, int | None, int, str | None, str | None]


class Walk:
    """Depth first, the newest first, within bounds of entries and time."""

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.entries: list[Row] = []
        self.unread: list[str] = []
        self.left_out = 0

    def spent(self) -> bool:
        return len(self.entries) >= MOST_ENTRIES or time.monotonic() > self.ends

    def folder(self, full: str, path: str, depth: int) -> None:
        try:
            folders, files = self.names(full)
        except FileNotFoundError:
            self.entries = [row for row in self.entries if row[0] != path]  # removed while we read
            return
        except OSError:
            self.unread.append(path)
            return
        told = self.choose(full, files, path)
        for name in self.entered(folders, told, path):
            inner = path + "/" + name if path else name
            if self.spent():
                self.unread.append(path)
                return
            if not self.add(os.path.join(full, name), inner, False):
                continue
            if depth > 1:
                self.folder(os.path.join(full, name), inner, depth - 1)
            else:
                self.unread.append(inner)

    def names(self, full: str) -> tuple[list[str], list[str]]:
        folders: list[str] = []
        files: list[str] = []
        with os.scandir(full) as found:
            for count, entry in enumerate(found):
                if count >= MOST_NAMES or (count % 1000 == 999 and time.monotonic() > self.ends):
                    raise OSError(errno.E2BIG, "too many names")
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        return folders, files

    def entered(self, folders: list[str], told: list[str], path: str) -> list[str]:
        """What a pointer names, then the highest numbers; inside a step folder, all."""
        folders.sort(key=lambda name: (is_named(name, told), number(name), name), reverse=True)
        if number(path.rpartition("/")[2]) >= 0:
            return folders
        numbered = [name for name in folders if number(name) >= 0]
        self.left_out += max(0, len(numbered) - MOST_FOLDERS)
        return numbered[:MOST_FOLDERS] + [name for name in folders if number(name) < 0]

    def choose(self, full: str, files: list[str], path: str) -> list[str]:
        """Look at the files that matter most first, and read the small ones; returns what pointers say."""
        files.sort(key=weight, reverse=True)
        if len(files) > MOST_FILES:
            self.left_out += len(files) - MOST_FILES
            self.unread.append(path)
        told: list[str] = []
        for name in files[:MOST_FILES]:
            if self.spent():
                self.unread.append(path)
                break
            inner = path + "/" + name if path else name
            row = self.add(os.path.join(full, name), inner, name in READ or "beacon" in name.lower())
            if row and name in POINTERS and row[4]:
                told.append(row[4].strip())
        return told

    def add(self, full: str, path: str, wanted: bool) -> Row | None:
        """One entry; None where it has gone or cannot be looked at."""
        try:
            found = os.lstat(full)
        except FileNotFoundError:
            return None
        except OSError:
            self.unread.append(path.rpartition("/")[0])
            return None
        kind = kind_of(found.st_mode)
        text, tail = read_text(full, found.st_size) if wanted and kind == "f" else (None, None)
        if kind == "l":
            text = link_target(full)
        row = (path, kind, found.st_size if kind == "f" else None, found.st_mtime_ns, text, tail)
        self.entries.append(row)
        return row


def weight(name: str) -> tuple[bool, bool, bool, int, str]:
    return (name in MARKS, "last" in name, not name.startswith("__"), number(name), name)


def number(name: str) -> int:
    found = NUMBER.findall(name)
    digits = "".join(found[-1]) if found else (re.findall(r"\d+", name) or [""])[-1]
    return int(digits[:18]) if digits else -1


def is_named(name: str, told: list[str]) -> bool:
    """Is this the folder that a pointer file names?"""
    return any(name == word or (word.isdigit() and number(name) == int(word[:18])) for word in told)


def kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "d"
    if stat.S_ISREG(mode):
        return "f"
    return "l" if stat.S_ISLNK(mode) else "o"


def link_target(full: str) -> str | None:
    try:
        return os.readlink(full)
    except OSError:
        return None


def read_text(full: str, size: int) -> tuple[str | None, str | None]:
    """The begin of a file, and its end where it is longer; never a pipe or a link, whatever it was turned into."""
    try:
        handle = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None, None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None, None
        text = os.read(handle, TEXT_BYTES)
        tail = None
        if size > TEXT_BYTES:
            os.lseek(handle, -TAIL_BYTES, os.SEEK_END)
            tail = os.read(handle, TAIL_BYTES).decode("utf-8", "replace")
        return text.decode("utf-8", "replace"), tail
    except OSError:
        return None, None
    finally:
        os.close(handle)


def storage_ahead(root: str, clock_folder: str) -> float | None:
    """Seconds that the storage's clock is before this host's; None where that cannot be learned."""
    if clock_folder and os.stat(clock_folder).st_dev == os.stat(root).st_dev:
        path = os.path.join(clock_folder, f".gpufleet-clock-{os.getpid()}-{time.time_ns()}")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            before = time.time()
            os.write(handle, b"\n")
            os.fsync(handle)
            return os.fstat(handle).st_mtime - (before + time.time()) / 2
        finally:
            os.close(handle)
            os.unlink(path)
    return 0.0 if file_system(os.path.realpath(root)) in LOCAL else None


def file_system(path: str) -> str | None:
    """The type of the file system that holds `path`, by the longest mount point above it."""
    longest, kind = -1, None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            head, _, tail = line.partition(" - ")
            point = head.split()[4].replace("\\040", " ").rstrip("/")
            if (path == point or path.startswith(point + "/")) and len(point) >= longest:
                longest, kind = len(point), tail.split()[0]
    return kind


def walk_root(root: str, walk: Walk) -> str | None:
    """Fill the walk; what hinders it, in words, or None."""
    try:
        found = os.stat(root)
        if stat.S_ISREG(found.st_mode):
            walk.add(os.path.realpath(root), "", True)
        elif stat.S_ISDIR(found.st_mode):
            os.scandir(root).close()
            walk.folder(root, "", DEPTH)
        else:
            return "is neither a folder nor a file"
    except OSError as error:
        return PROBLEMS.get(error.errno or 0, os.strerror(error.errno or 0))
    return None


def main(arguments: list[str]) -> None:
    root, seconds, clock_folder = arguments
    started = time.time()
    walk = Walk(time.monotonic() + float(seconds))
    problem = walk_root(root, walk)
    ahead = None
    if problem is None:
        try:
            ahead = storage_ahead(root, clock_folder)
        except (OSError, IndexError):
            ahead = None
    document: dict[str, object] = {"started": started, "problem": problem, "ahead": ahead, "entries": walk.entries}
    document.update(unread=sorted(set(walk.unread)), left_out=walk.left_out, ended=time.time())
    print(BEGIN + json.dumps(document) + END)


if __name__ == "__main__":
    main(sys.argv[1:])

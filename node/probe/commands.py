"""Outside commands, side by side, each with a deadline that holds even where the command cannot be killed."""

# pathlib costs more start-up time than a section
# ruff: noqa: PTH123

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple

from .files import Root

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = "Done | str"  # a result, or why there is none
    Commands = dict[str, tuple[str, ...]]

_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
_LIMIT = 8 << 20
_GRACE_SECONDS = 0.2


class Done(NamedTuple):
    """What a command left; `code` is negative where a signal ended it."""

    code: int
    out: str
    err: str


class _Running:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.out = bytearray()
        self.err = bytearray()
        self.open = 2


def find(root: Root, name: str) -> str | None:
    """The command's path below the root; $PATH is not looked at, as it differs between logins."""
    for folder in _FOLDERS:
        path = root.path(f"{folder}/{name}")
        if os.access(path, os.X_OK):
            return path
    return None


def claim(name: str, place: str, seconds: float) -> socket.socket | None:
    """What one process on the node can hold at a time, until it is gone; None where another holds it for `seconds`.

    `place` is the library or root folder that it is about.

    A process that hangs in the driver outlives its kill: without this, every probe would leave one more behind.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    end = time.monotonic() + seconds
    while True:
        try:
            holder.bind(f"\0gpufleet-probe-{os.geteuid()}-{name}-{zlib.crc32(place.encode()):08x}")
            return holder
        except OSError:
            if time.monotonic() > end:
                holder.close()
                return None
            time.sleep(0.05)


def run(root: Root, arguments: tuple[str, ...], seconds: float, held: socket.socket | None = None) -> Outcome:
    """Run one command; it keeps the claim `held` for as long as it lives."""
    return run_all(root, {"": arguments}, seconds, held)[""]


def run_all(root: Root, commands: Commands, seconds: float, held: socket.socket | None = None) -> dict[str, Outcome]:
    """Run all at once; whichever has not ended after `seconds` is killed with its group and not waited for."""
    outcomes: dict[str, Outcome] = {}
    running: dict[str, _Running] = {}
    selector = selectors.DefaultSelector()
    for key, arguments in commands.items():
        started = _start(root, arguments, () if held is None else (held.fileno(),))
        if isinstance(started, str):
            outcomes[key] = started
            continue
        running[key] = started
        for stream, buffer in ((started.process.stdout, started.out), (started.process.stderr, started.err)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, (started, buffer))
    end = time.monotonic() + seconds
    while selector.get_map() and time.monotonic() < end:
        for key_, _ in selector.select(max(0.0, end - time.monotonic())):
            _read(selector, key_)
    for key, command in running.items():
        outcomes[key] = _finish(commands[key][0], command, end, seconds)
    selector.close()
    return outcomes


def _start(root: Root, arguments: tuple[str, ...], kept: tuple[int, ...]) -> _Running | str:
    path = find(root, arguments[0])
    if path is None:
        return f"{arguments[0]} is not installed"
    environment = {"PATH": os.pathsep.join(_FOLDERS), "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")}
    try:
        process = subprocess.Popen(  # noqa: S603  arguments are passed on without a shell
            (path, *arguments[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            pass_fds=kept,
        )
    except OSError as error:
        return f"{arguments[0]} cannot be run: {error.strerror}"
    return _Running(process)


def _read(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    command, buffer = key.data
    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
    part = os.read(stream.fileno(), 1 << 16)
    if not part:
        selector.unregister(stream)
        command.open -= 1
    elif len(buffer) < _LIMIT:
        buffer += part


def _finish(name: str, command: _Running, end: float, seconds: float) -> Outcome:
    process = command.process
    grace = max(_GRACE_SECONDS, end - time.monotonic()) if command.open == 0 else 0.0
    code = _wait(process, grace)
    if code is None:
        _kill(process.pid)
        state = process_state(process.pid) if _wait(process, _GRACE_SECONDS) is None else None
        note = f", and cannot be killed (process state {state})" if state else ""
        return f"{name} did not end within {seconds:g} s{note}"
    if command.open:
        _kill(process.pid)  # it ended, and a child of its holds the output
    return Done(code, command.out.decode("utf-8", "replace"), command.err.decode("utf-8", "replace"))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds) if seconds > 0 else process.poll()
    except subprocess.TimeoutExpired:
        return None


def _kill(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def process_state(pid: int) -> str | None:
    """The kernel's letter for a process: D waits for a driver and cannot be killed. Source: proc(5), stat."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return None

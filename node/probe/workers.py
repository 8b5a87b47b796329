"""Sections of the document, each read in a process of its own: one that hangs or crashes leaves the others."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from .commands import process_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Pair = tuple[str, object]
    Reader = Callable[[], Iterator[Pair]]

_FAULT = "!"


class Collected(NamedTuple):
    """What a reader yielded, and why it did not come to its end (None where it did)."""

    pairs: list[Pair]
    fault: str | None


class _Worker:
    def __init__(self, name: str, pid: int, pipe: int) -> None:
        self.name = name
        self.pid = pid
        self.pipe = pipe
        self.output = bytearray()
        self.ended = False


def collect(readers: dict[str, Reader], seconds: float) -> dict[str, Collected]:
    """Run every reader in a child until it ends, or until `seconds` have passed.

    A reader yields each pair as soon as it has it: what came before a hang is kept.
    """
    selector = selectors.DefaultSelector()
    workers = [_start(name, reader) for name, reader in readers.items()]
    for worker in workers:
        selector.register(worker.pipe, selectors.EVENT_READ, worker)
    end = time.monotonic() + seconds
    while selector.get_map() and time.monotonic() < end:
        for key, _ in selector.select(max(0.0, end - time.monotonic())):
            worker = key.data
            part = os.read(worker.pipe, 1 << 16)
            worker.output += part
            if not part:
                worker.ended = True
                selector.unregister(worker.pipe)
    selector.close()
    return {worker.name: _collected(worker, seconds) for worker in workers}


def _collected(worker: _Worker, seconds: float) -> Collected:
    fault = _end(worker, seconds)
    pairs = _pairs(worker.output)
    said = [str(value) for key, value in pairs if key == _FAULT]
    return Collected([pair for pair in pairs if pair[0] != _FAULT], said[0] if said else fault)


def _start(name: str, reader: Reader) -> _Worker:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _serve(reader, write_end)
    os.close(write_end)
    return _Worker(name, pid, read_end)


def _serve(reader: Reader, pipe: int) -> None:
    """In the child; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # a process that cannot be killed must not keep the SSH session open
            os.dup2(nothing, standard)
        for pair in reader():
            _write(pipe, pair)
        code = 0
    except BaseException as error:
        _write(pipe, (_FAULT, f"the reader failed: {type(error).__name__}: {error}"))
        raise
    finally:
        os._exit(code)


def _write(pipe: int, pair: Pair) -> None:
    line = json.dumps(pair).encode() + b"\n"
    while line:
        line = line[os.write(pipe, line) :]


def _end(worker: _Worker, seconds: float) -> str | None:
    """Reap the child, killing it where it has not ended; why its answer is not whole."""
    os.close(worker.pipe)
    if not worker.ended:
        _kill(worker.pid)
    status = _reap(worker.pid)
    if not worker.ended:
        state = None if status is not None else process_state(worker.pid)
        note = f", and cannot be killed (process state {state})" if state else ""
        return f"no answer within {seconds:g} s{note}"
    if status is None or status == 0:
        return None
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}"
    return f"ended with status {os.WEXITSTATUS(status)}"


def _kill(pid: int) -> None:
    for send in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            send(pid, signal.SIGKILL)


def _reap(pid: int) -> int | None:
    """The exit status; None where the process is still there after a moment."""
    for _ in range(100):
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return status
        time.sleep(0.002)
    return None


def _pairs(output: bytearray) -> list[Pair]:
    """The whole lines; one that was cut off in the middle is dropped."""
    pairs: list[Pair] = []
    for line in bytes(output).split(b"\n")[:-1]:
        key, value = json.loads(line)
        pairs.append((key, value))
    return pairs

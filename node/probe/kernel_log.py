"""Kernel log lines since a cursor: /dev/kmsg, else the journal, else dmesg.

A cursor is `SOURCE:BOOT:POSITION`; one of another boot or source is answered with the whole log of this boot.
Source of the record format: Documentation/ABI/testing/dev-kmsg of the Linux kernel.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from .commands import run
from .files import Root, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workers import Pair

_MAX_LINES = 4000
_MAX_BYTES = 512 << 10
_READ_SECONDS = 3.0
_STAMP = re.compile(r"^(?:<\d+>)?\[ *(\d+)\.(\d+)\]")


class _Log(NamedTuple):
    source: str
    lines: list[str]
    position: str
    missed: int  # records that the kernel's buffer lost between the cursor and the first line


def read_kernel_log(root: Root, cursor: str | None, seconds: float) -> Iterator[Pair]:
    """`lines` as dmesg prints them, oldest first; `missed` and `omitted` count what is not there."""
    boot = root.text("/proc/sys/kernel/random/boot_id") or "unknown"
    known = _position(cursor, boot)
    reasons = []
    for reader in (_from_kmsg, _from_journal, _from_dmesg):
        log = reader(root, known, seconds / 3)
        if isinstance(log, str):
            reasons.append(log)
            continue
        lines = _newest(log.lines)
        yield "source", log.source
        yield "cursor", f"{log.source}:{boot}:{log.position}"
        yield "continued", log.source in known
        yield "missed", log.missed
        yield "omitted", len(log.lines) - len(lines)
        yield "lines", lines
        return
    yield "lines", unknown("; ".join(reasons))


def _position(cursor: str | None, boot: str) -> dict[str, str]:
    """{source: position} where the cursor is of this boot."""
    source, _, rest = (cursor or "").partition(":")
    of_boot, _, position = rest.partition(":")
    return {source: position} if position and of_boot == boot else {}


def _newest(lines: list[str]) -> list[str]:
    size = 0
    for count, line in enumerate(reversed(lines)):
        size += len(line) + 4
        if size > _MAX_BYTES or count >= _MAX_LINES:
            return lines[len(lines) - count :]
    return lines


def _from_kmsg(root: Root, known: dict[str, str], seconds: float) -> _Log | str:
    try:
        handle = os.open(root.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return f"/dev/kmsg: {error.strerror}"
    try:
        records = _records(handle, min(seconds, _READ_SECONDS))
    except OSError as error:
        return f"/dev/kmsg: {error.strerror}"
    finally:
        os.close(handle)
    since = int(known["kmsg"]) if known.get("kmsg", "").isdigit() else None
    first = records[0][0] if records else 0
    missed = max(0, first - since - 1) if since is not None else 0
    last = records[-1][0] if records else since or 0
    lines = [line for number, line in records if line and (since is None or number > since)]
    return _Log("kmsg", lines, str(last), missed)


def _records(handle: int, seconds: float) -> list[tuple[int, str]]:
    """(sequence number, line) of every record; the line is empty where a program, not the kernel, wrote it."""
    content = bytearray()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            part = os.read(handle, 1 << 14)
        except BlockingIOError:
            break
        except BrokenPipeError:  # overwritten while we read: the next read goes on with what is left
            continue
        if not part:
            break
        content += part
    found = []
    for text in content.decode("utf-8", "replace").split("\n"):
        head, semicolon, message = text.partition(";")
        fields = head.split(",")
        if semicolon and len(fields) >= 3 and all(field.isdigit() for field in fields[:3]):
            stamp = int(fields[2])
            line = f"[{stamp // 10**6:5d}.{stamp % 10**6:06d}] {message}"
            found.append((int(fields[1]), line if int(fields[0]) >> 3 == 0 else ""))
    return found


def _from_journal(root: Root, known: dict[str, str], seconds: float) -> _Log | str:
    command: tuple[str, ...] = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "json", "-n", str(_MAX_LINES))
    if "journal" in known:
        command += (f"--after-cursor={known['journal']}",)
    done = run(root, command, seconds)
    if isinstance(done, str):
        return done
    if done.code:
        return f"journalctl: {done.err.strip() or done.code}"
    lines, cursor = [], known.get("journal", "")
    for text in done.out.splitlines():
        try:
            entry = json.loads(text)
        except ValueError:
            continue
        stamp = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP") or "0"
        message = entry.get("MESSAGE")
        cursor = entry.get("__CURSOR", cursor)
        if isinstance(message, str) and str(stamp).isdigit():
            lines.append(f"[{int(stamp) // 10**6:5d}.{int(stamp) % 10**6:06d}] {message}")
    if not lines and not cursor:
        return "journalctl shows no kernel messages to this user"
    return _Log("journal", lines, cursor, 0)


def _from_dmesg(root: Root, known: dict[str, str], seconds: float) -> _Log | str:
    done = run(root, ("dmesg",), seconds)
    if isinstance(done, str):
        return done
    if done.code:
        return f"dmesg: {done.err.strip() or done.code}"
    since = int(known["dmesg"]) if known.get("dmesg", "").isdigit() else -1
    lines, last = [], since
    for line in done.out.splitlines():
        stamp = _STAMP.match(line)
        if stamp:
            last = int(stamp.group(1)) * 10**6 + int(stamp.group(2))
        if last > since:
            lines.append(line)
    return _Log("dmesg", lines, str(max(last, 0)), 0)

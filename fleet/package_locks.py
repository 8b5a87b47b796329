"""Who holds a package manager's locks, as a host tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

END = "gpufleet-locks-end"
"""The last line of an answer that is whole."""

_MARK = "lock"
_PID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that holds the lock `file`. `command` is its name as the kernel keeps it, "?" where it told none."""

    pid: int
    command: str
    file: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def read_lock_holders(text: str) -> tuple[LockHolder, ...] | None:
    """Lines of "lock", PID, command and file, tab separated, and END; lines of another shape are passed over.

    Each process is told once. None where END did not come: who holds the locks is then not known. Never raises.
    """
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    if END not in lines:
        return None
    found: dict[int, LockHolder] = {}
    for line in lines:
        fields = line.split("\t")
        if len(fields) == 4 and fields[0] == _MARK and _PID.fullmatch(fields[1]):
            found.setdefault(int(fields[1]), LockHolder(int(fields[1]), fields[2].strip() or "?", fields[3]))
    return tuple(found[pid] for pid in sorted(found))

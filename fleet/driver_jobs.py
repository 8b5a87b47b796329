"""Jobs that a host runs by itself, so that no cut connection ends them: their names, and what was found of one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from fleet.json_values import number_at, text_at, value_at

_ID = re.compile(r"^[A-Za-z0-9._-]+$")


class JobState(StrEnum):
    """LOST: it began, no end is recorded, and its process is gone: the host was rebooted, or somebody ended it."""

    ABSENT = "absent"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class HostJob:
    """`code` is the exit status of a job that ended; `tail` the last 4,000 characters of what it printed."""

    state: JobState
    code: int | None = None
    tail: str = ""

    @property
    def succeeded(self) -> bool:
        return self.state is JobState.ENDED and self.code == 0


def job_id(*parts: str) -> str:
    """One name of the parts, in the characters that a job's name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts)).strip(".") or "job"


def is_job_id(text: str) -> bool:
    return _ID.match(text) is not None and text not in (".", "..")


def read_job(text: str) -> HostJob | None:
    """The one JSON line that a host answers, also where a login prints something before it; None for anything else."""
    for line in reversed(text.splitlines()):
        if not line.lstrip().startswith("{"):
            continue
        try:
            told = json.loads(line)
            state = JobState(text_at(told, "state") or "")
        except (ValueError, RecursionError):
            continue
        code = number_at(told, "code")
        tail = value_at(told, "tail")
        return HostJob(state, None if code is None else int(code), tail if isinstance(tail, str) else "")
    return None

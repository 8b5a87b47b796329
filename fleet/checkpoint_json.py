"""A checkpoint as it is kept in the ledger, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint, UnknownCheckpoint


def checkpoint_to_json(found: NewestCheckpoint) -> dict[str, object]:
    """Times in ISO format with their zone."""
    if isinstance(found, UnknownCheckpoint):
        return {"unknown": found.reason, "none_yet": found.none_yet}
    return {
        "path": found.path,
        "step": found.step,
        "completed_at": None if found.completed_at is None else found.completed_at.isoformat(),
        "complete": found.complete,
        "why": found.why,
        "clock_measured": found.clock_measured,
    }


def checkpoint_from_json(kept: Mapping[str, object]) -> NewestCheckpoint:
    """What `checkpoint_to_json` wrote; anything else is unknown."""
    path, step, at, complete = (kept.get(key) for key in ("path", "step", "completed_at", "complete"))
    if not isinstance(path, str):
        return UnknownCheckpoint(str(kept.get("unknown", "was not kept")), none_yet=kept.get("none_yet") is True)
    return Checkpoint(
        path=path,
        step=step if isinstance(step, int) else None,
        completed_at=datetime.fromisoformat(at) if isinstance(at, str) else None,
        complete=complete if isinstance(complete, bool) else None,
        why=str(kept.get("why", "")),
        clock_measured=kept.get("clock_measured") is True,
    )

"""A beacon: a file that the job touches when a checkpoint is complete; for any framework.

It may be empty, hold the step as a number, or JSON: {"step": 1200, "time": seconds since 1970 or ISO 8601,
"complete": true}. A time in it counts where it is earlier than the file's own.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fleet.checkpoint_readers.listing import Entry
from fleet.checkpoint_readers.tree import Tree, answer, json_of, none_found, whole_number
from fleet.checkpoint_readers.values import Checkpoint, Judged, NewestCheckpoint, UnknownCheckpoint
from fleet.json_values import JsonObject, flag_at, number_at, text_at

_MILLISECONDS = 1e11  # more seconds than that since 1970 is the year 5138


def read_beacon(tree: Tree) -> NewestCheckpoint:
    entry = tree.file("") or _only_beacon(tree)
    if entry is None:
        return none_found(tree, "single beacon file")
    if entry.modified_at is None:
        return UnknownCheckpoint("the beacon's time could not be read")
    text = (entry.text or "").strip()
    if entry.tail is not None or (entry.text is None and entry.size_bytes):
        return answer(tree, Judged(entry.path, None, entry.modified_at, True, "was touched then; its text is not read"))
    if not text:
        return answer(tree, Judged(entry.path, None, entry.modified_at, True, "was touched then"))
    if (step := whole_number(text)) is not None:
        return answer(tree, Judged(entry.path, step, entry.modified_at, True, "was written then"))
    told = json_of(entry)
    if told is None:
        why = "what it says is cut off or not understood"
        return answer(tree, Judged(entry.path, None, entry.modified_at, None, why))
    return _told(tree, entry, told)


def _only_beacon(tree: Tree) -> Entry | None:
    files = [entry for entry in tree.files() if not entry.parent]
    named = [entry for entry in files if "beacon" in entry.name.lower() and not entry.name.endswith((".tmp", "~"))]
    chosen = named or files
    return chosen[0] if len(chosen) == 1 else None


def _told(tree: Tree, entry: Entry, told: JsonObject) -> Checkpoint:
    step = number_at(told, "step")
    whole = int(step) if step is not None and step >= 0 and step.is_integer() else None
    said = _time(told)
    done = flag_at(told, "complete") if "complete" in told else True
    if "time" in told and said is None:
        done = done and None
    times = [time for time in (said, tree.listing.our_time(entry.modified_at)) if time is not None]
    why = {True: "was written then", False: "says that it is not complete", None: "what it says is not understood"}[
        done
    ]
    found = answer(tree, Judged(entry.path, whole, entry.modified_at, done, why))
    return replace(found, completed_at=min(times, default=None))


def _time(told: JsonObject) -> datetime | None:
    """The time of the job's own clock, in UTC; a text without a zone is UTC."""
    number, text = number_at(told, "time"), text_at(told, "time")
    try:
        if number is not None:
            seconds = number / 1000 if number > _MILLISECONDS else number
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        if text is not None:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return None

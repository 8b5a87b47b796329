"""Announcing hardware: compared with what was announced before, sent, and written down, by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from adapters import events
from adapters.announced import add_announced, read_announced
from fleet.arrival import ArrivalSource, Comparison, compare
from fleet.hardware import Hardware


def announce_new(
    record: Path,
    fleet: str,
    seen: Iterable[Hardware],
    known: Iterable[Hardware],
    source: ArrivalSource,
    at: datetime,
    begun: Path | None = None,
) -> Comparison:
    """An event for what of `seen` is neither `known` nor in `record`; then it is written there.

    With `begun`, a file that marks that `source` has looked before, its first look has no events: what it sees was
    there. The mark is made once it saw anything; where the mark is lost, what `source` wrote into `record` is as good.
    Raises what `read_announced` and `emit_arrivals` raise; nothing is written
    where the events did not come through.
    """
    with _alone(record):
        before, now = read_announced(record), tuple(seen)
        comparison = compare(now, [*(arrival.hardware for arrival in before), *known], source, at)
        first = begun is not None and not begun.exists() and all(arrival.source is not source for arrival in before)
        if comparison.arrivals:
            if not first:
                events.emit_arrivals(comparison.arrivals, fleet)
            add_announced(record, comparison.arrivals)
        if begun is not None and now:
            begun.touch(mode=0o600)
    return comparison


@contextmanager
def _alone(record: Path) -> Iterator[None]:
    """A sweep and several webhooks may come at once: what each compares with must not change before it has written."""
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(record.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

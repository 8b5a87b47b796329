"""Which Xids a run that died had counted in the ledger before it could keep how far it had read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from adapters.kept_json import keep, read_kept
from fleet.json_values import object_at, text_at
from fleet.xid_counts import XidCounts


@dataclass(frozen=True, slots=True)
class Counted:
    """The Xids behind the cursor `since` that a reading of `at` counted."""

    since: str
    at: datetime
    xids: XidCounts


class CountedXids:
    """Written before a reading with Xids goes into the ledger, and emptied once the cursors behind it are kept.

    A run that dies in between reads those lines again: the next one takes off what the ledger has.
    """

    def __init__(self, path: Path, cursors: Mapping[str, str], seen: Mapping[str, datetime]) -> None:
        """`cursors` are those that were kept; `seen` is when the ledger's last reading of each host was made."""
        self._path = path
        self._there = path.exists()
        self._now: dict[str, Counted] = {}
        self._before: dict[str, Counted] = {}
        for node, told in (read_kept(path) or {}).items():
            counted = _counted(told if isinstance(told, dict) else {})
            last = seen.get(node)
            if counted and last is not None and last >= counted.at and cursors.get(node) == counted.since:
                self._before[node] = counted

    def left(self, node: str, since: str, continued: bool, xids: XidCounts | None) -> XidCounts | None:
        """Of what a reading behind `since` told, what the ledger does not have yet."""
        before = self._before.get(node)
        if before is None or xids is None or not continued or before.since != since:
            return xids
        return xids.without(before.xids)

    def note(self, told: Mapping[str, Counted]) -> None:
        """Keep what is about to be counted, all of it since the kept cursors. Raises OSError."""
        known = [self._before.pop(node) for node in told if node in self._before]
        told = {node: counted for node, counted in told.items() if counted.xids.total}
        if told or known:
            self._now |= told
            self._there = True
            keep(self._path, {node: _written(counted) for node, counted in (self._before | self._now).items()})

    def clear(self) -> None:
        """The cursors are kept: nothing of what this run read is counted beyond them. Raises OSError."""
        self._now.clear()
        if self._there and self._before:
            keep(self._path, {node: _written(counted) for node, counted in self._before.items()})
        elif self._there:
            self._path.unlink(missing_ok=True)
            self._there = False


def _written(counted: Counted) -> dict[str, object]:
    by_gpu = {gpu: str(count) for gpu, count in counted.xids.by_gpu.items()}
    return {
        "since": counted.since,
        "at": counted.at.isoformat(),
        "total": str(counted.xids.total),
        "by_gpu": by_gpu,
    }


def _counted(told: Mapping[str, object]) -> Counted | None:
    """What is no such entry is passed over: at worst its Xids are counted again."""
    gpus = object_at(told, "by_gpu")
    try:
        by_gpu = {gpu: int(text_at(gpus, gpu) or "") for gpu in gpus}
        xids = XidCounts(int(text_at(told, "total") or ""), by_gpu)
        at = datetime.fromisoformat(text_at(told, "at") or "")
    except ValueError:
        return None
    since = text_at(told, "since")
    return None if since is None or at.tzinfo is None else Counted(since, at, xids)

"""A rollout as it goes, in the terminal: a bar per wave, and what is being waited for."""

from __future__ import annotations

from collections import Counter

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fleet.plan import FirmwarePlan
from ledger import NodeRow, NodeStatus, Operation

_OVER = frozenset({NodeStatus.UPDATED, NodeStatus.UNCHANGED, NodeStatus.SKIPPED, NodeStatus.FAILED})
_SHOWN = 6


class RolloutView:
    """What Rich shows; `update` is called with fresh rows."""

    def __init__(self, plan: FirmwarePlan) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bars = {
            wave.number: self._progress.add_task(
                f"{wave.number} {wave.name}", total=len(wave.nodes), note="", start=False
            )
            for wave in plan.waves
        }
        self._lines = Text()

    def update(self, operation: Operation, rows: tuple[NodeRow, ...]) -> None:
        for number, bar in self._bars.items():
            statuses = Counter(row.status for row in rows if row.wave == number)
            over = sum(statuses[status] for status in _OVER)
            if over or statuses[NodeStatus.RUNNING]:
                self._progress.start_task(bar)
            self._progress.update(bar, completed=over, note=_note(statuses))
            if over == sum(statuses.values()):
                self._progress.stop_task(bar)
        running = [row for row in rows if row.status is NodeStatus.RUNNING]
        lines = [f"{operation.id}: {operation.state.value} {operation.reason}"]
        lines += [f"  {row.node}: {row.waiting_for or 'begins'}" for row in running[:_SHOWN]]
        if len(running) > _SHOWN:
            lines.append(f"  and {len(running) - _SHOWN} more in hand")
        self._lines = Text("\n".join(lines), overflow="ellipsis", no_wrap=True)

    def __rich__(self) -> Group:
        return Group(self._progress, self._lines)


def _note(statuses: Counter[NodeStatus]) -> str:
    shown = (NodeStatus.RUNNING, NodeStatus.FAILED, NodeStatus.SKIPPED)
    return ", ".join(f"{statuses[status]} {status.value}" for status in shown if statuses[status])

"""A rollout as it goes, in the terminal: a bar per wave, and what is being waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fleet.plan import OperationPlan
from ledger import NodeRow, NodeStatus, Operation

_OVER = frozenset({NodeStatus.UPDATED, NodeStatus.DRAINED, NodeStatus.UNCHANGED, NodeStatus.SKIPPED, NodeStatus.FAILED})
_SHOWN = 6


class Follower(Protocol):
    """Shows an operation as it goes; `update` is called with fresh rows."""

    def update(self, operation: Operation, rows: tuple[NodeRow, ...]) -> None: ...


class Silent:
    """For --json: nothing but the result is printed."""

    def update(self, operation: Operation, rows: tuple[NodeRow, ...]) -> None:
        """Show nothing."""


class RolloutLines:
    """A line for each change, where no terminal can be drawn on: a log, a pipe."""

    def __init__(self, plan: OperationPlan, console: Console) -> None:
        self._console = console
        self._waves = {wave.number: wave for wave in plan.waves}
        self._said: set[str] = set()

    def update(self, operation: Operation, rows: tuple[NodeRow, ...]) -> None:
        self._say(_standing(operation))
        for number, wave in self._waves.items():
            statuses = Counter(row.status for row in rows if row.wave == number)
            over = sum(statuses[status] for status in _OVER)
            if over:
                counts = ", ".join(f"{n} {status.value}" for status, n in sorted(statuses.items()) if status in _OVER)
                self._say(f"wave {number} {wave.name}: {over} of {len(wave.nodes)} over ({counts})")

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def following(plan: OperationPlan, console: Console, quiet: bool) -> Iterator[Follower]:
    """Bars in a terminal, lines elsewhere, nothing where `quiet`."""
    if quiet:
        yield Silent()
    elif console.is_terminal:
        view = RolloutView(plan)
        with Live(view, console=console, refresh_per_second=4):
            yield view
    else:
        yield RolloutLines(plan, console)


class RolloutView:
    """What Rich shows; `update` is called with fresh rows."""

    def __init__(self, plan: OperationPlan) -> None:
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
        lines = [_standing(operation)]
        lines += [f"  {row.node}: {row.waiting_for or 'begins'}" for row in running[:_SHOWN]]
        if len(running) > _SHOWN:
            lines.append(f"  and {len(running) - _SHOWN} more in hand")
        self._lines = Text("\n".join(lines), overflow="ellipsis", no_wrap=True)

    def __rich__(self) -> Group:
        return Group(self._progress, self._lines)


def _standing(operation: Operation) -> str:
    why = f": {operation.reason}" if operation.reason else ""
    return f"{operation.id} {operation.state.value}{why}"


def _note(statuses: Counter[NodeStatus]) -> str:
    shown = (NodeStatus.RUNNING, NodeStatus.FAILED, NodeStatus.SKIPPED)
    return ", ".join(f"{statuses[status]} {status.value}" for status in shown if statuses[status])

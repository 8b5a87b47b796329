"""`gpufleet status OP --watch`: an operation as it goes, until it ends or halts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.live import Live

from cli.session import errors
from fleet.errors import PreconditionError

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from cli.progress import RolloutView
    from ledger import Operation

_LOOK_SECONDS = 1.0


def watch_operation(fleet: Fleet, operation: str, quiet: bool) -> None:
    """Return when the operation is over or halted, or at Ctrl-C, which leaves the operation alone.

    `quiet` waits without drawing. Raises PreconditionError for an operation that has no waves to show.
    """
    from cli.progress import RolloutView
    from tasks.planning import KIND, read_plan

    kept = fleet.ledger().operations.get(operation)
    if kept.kind != KIND:
        raise PreconditionError(f"{operation} is a {kept.kind}; only {KIND} can be watched: leave --watch out")
    view = RolloutView(read_plan(kept))
    try:
        if quiet:
            _follow(fleet, kept, view)
        else:
            with Live(view, console=errors, refresh_per_second=4):
                _follow(fleet, kept, view)
    except KeyboardInterrupt:
        errors.print(f"{operation} goes on; to stop it: gpufleet halt {operation}", highlight=False)


def _follow(fleet: Fleet, operation: Operation, view: RolloutView) -> None:
    from ledger import OperationState

    operations = fleet.ledger().operations
    while True:
        view.update(operation, operations.node_rows(operation.id))
        if not operation.open or operation.state is OperationState.HALTED:
            return
        fleet.clock.sleep(_LOOK_SECONDS)
        operation = operations.get(operation.id)

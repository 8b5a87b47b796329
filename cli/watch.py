"""`gpufleet status OP --watch`: an operation as it goes, until it ends or halts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.session import errors

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from cli.progress import Follower
    from ledger import Operation

_LOOK_SECONDS = 1.0


def watch_operation(fleet: Fleet, operation: str, quiet: bool) -> None:
    """Return when the operation is over or halted, or at Ctrl-C, which leaves the operation alone.

    `quiet` waits without drawing. Raises PreconditionError for an operation that has no waves to show.
    """
    from cli.progress import following
    from tasks.taking_up import read_outline

    kept = fleet.ledger().operations.get(operation)
    try:
        with following(read_outline(kept), errors, quiet) as view:
            _follow(fleet, kept, view)
    except KeyboardInterrupt:
        errors.print(f"{operation} goes on; to stop it: gpufleet halt {operation}", highlight=False)


def _follow(fleet: Fleet, operation: Operation, view: Follower) -> None:
    from ledger import OperationState

    operations = fleet.ledger().operations
    while True:
        view.update(operation, operations.node_rows(operation.id))
        if not operation.open or (operation.state is OperationState.HALTED and not _goes_on(fleet, operation)):
            return
        fleet.clock.sleep(_LOOK_SECONDS)
        operation = operations.get(operation.id)


def _goes_on(fleet: Fleet, operation: Operation) -> bool:
    """Whether a person resumed it after it halted, and its run has not said so yet."""
    from ledger import ControlVerb

    asked = fleet.ledger().operations.control(operation.id)
    return asked is not None and asked.verb is ControlVerb.RESUME and asked.at > operation.since

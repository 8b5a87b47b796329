"""How nodes stand before an operation touches them."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.ownership import Before
from tasks.operations import AnyRun


def before_now(run: AnyRun, names: Sequence[str]) -> dict[str, Before]:
    """Each node as it is now, before the operation touches it."""
    seen = run.fleet.scheduler().look().nodes
    states = run.ledger.inventory.states(names)
    return {
        name: Before(
            cordoned=name in seen and seen[name].cordoned,
            reason=seen[name].reason if name in seen else None,
            reason_by=seen[name].reason_by if name in seen else None,
            state=state,
        )
        for name, state in states.items()
    }

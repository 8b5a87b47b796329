"""Which moves of a node's state are legal."""

from __future__ import annotations

from fleet.errors import PreconditionError
from fleet.model import NodeState as S

_MOVES: dict[S, frozenset[S]] = {
    S.ARRIVED: frozenset({S.PROVISIONING, S.BURN_IN, S.QUARANTINED, S.RMA, S.DECOMMISSIONING}),
    S.PROVISIONING: frozenset({S.BURN_IN, S.QUARANTINED}),
    S.BURN_IN: frozenset({S.IN_SERVICE, S.QUARANTINED}),
    S.IN_SERVICE: frozenset({S.DRAINING, S.QUARANTINED}),
    S.DRAINING: frozenset({S.DRAINED, S.IN_SERVICE, S.QUARANTINED}),
    S.DRAINED: frozenset({S.MAINTENANCE, S.IN_SERVICE, S.DECOMMISSIONING, S.QUARANTINED}),
    S.MAINTENANCE: frozenset({S.VALIDATING, S.DRAINED, S.QUARANTINED}),
    S.VALIDATING: frozenset({S.IN_SERVICE, S.DRAINED, S.MAINTENANCE, S.QUARANTINED}),
    S.QUARANTINED: frozenset({S.VALIDATING, S.BURN_IN, S.MAINTENANCE, S.RMA, S.DECOMMISSIONING}),
    S.RMA: frozenset({S.ARRIVED, S.RETIRED}),
    S.DECOMMISSIONING: frozenset({S.RETIRED, S.QUARANTINED}),
    S.RETIRED: frozenset(),
}

OUT_OF_SERVICE: frozenset[S] = frozenset(S) - {S.IN_SERVICE}
"""States in which a node gives no capacity."""


def check_move(node: str, old: S, new: S) -> None:
    """Raise PreconditionError where `old` → `new` is not legal; the same state again always is."""
    if new is not old and new not in _MOVES[old]:
        legal = ", ".join(sorted(_MOVES[old])) or "none"
        raise PreconditionError(f"cannot go from {old} to {new} (legal: {legal})", node=node)


def why_not_visited(state: S, reason: str, held_by: str | None) -> str:
    """Why an operation is not planned for a node that is in `state` now, and what ends that."""
    text = f"{state}: {reason}" if reason else str(state)
    if held_by is not None:
        return f"{text} (held by {held_by}; plan again when that is over)"
    return f"{text} (after the repair: gpufleet clear NODE)" if state is S.QUARANTINED else text

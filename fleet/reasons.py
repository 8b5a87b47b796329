"""Why something does not go on. Kept apart, because each has another person to ask."""

from __future__ import annotations

from enum import StrEnum


class ReasonKind(StrEnum):
    """What an operation or a node waits for."""

    NONE = "none"
    GATE = "gate"  # an approval
    FAILURE_BUDGET = "failure_budget"  # too many nodes failed
    CONFLICT = "conflict"  # another operation or tool owns the node
    BUDGET = "budget"  # rack, domain or pool limit: passes when other nodes return
    WINDOW = "window"  # outside the maintenance window
    BREAKER = "breaker"  # a pool lost nodes too fast
    HEALTH = "health"  # the pool, or the nodes just changed, are not well
    PERSON = "person"  # somebody asked for it

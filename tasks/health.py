"""What ails nodes that no operation holds: they count against the budget too."""

from __future__ import annotations

from blocks.fleet import Fleet
from fleet.model import SchedulerNode, SchedulerState


def findings_now(fleet: Fleet) -> dict[str, str]:
    """Why nodes give no capacity now though no operation of ours took them out, by node.

    Raises SchedulerUnreachable.
    """
    seen = fleet.scheduler().look().nodes
    return {name: why for name, node in seen.items() if (why := _out(node)) is not None}


def _out(node: SchedulerNode) -> str | None:
    if node.cordoned and not (node.reason or "").startswith("gpufleet["):
        return f"cordoned by {node.reason_by or 'somebody'}: {node.reason or 'no reason'}"
    if node.state is SchedulerState.DOWN:
        return "down"
    return None

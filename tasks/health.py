"""What ails nodes that no operation holds: they count against the budget too."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.model import SchedulerNode, SchedulerState


def findings_in(seen: Mapping[str, SchedulerNode]) -> dict[str, str]:
    """Why nodes give no capacity though no operation of ours took them out, by node."""
    return {name: why for name, node in seen.items() if (why := _out(node)) is not None}


def _out(node: SchedulerNode) -> str | None:
    if node.cordoned and not (node.reason or "").startswith("gpufleet["):
        return f"cordoned by {node.reason_by or 'somebody'}: {node.reason or 'no reason'}"
    if node.state is SchedulerState.DOWN:
        return "down"
    return None

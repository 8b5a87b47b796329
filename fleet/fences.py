"""Which nodes a fence holds: those of the new kind, while the pool has nodes of both that may take work."""

from __future__ import annotations

from collections.abc import Collection


def fence_name(pool: str, operation: str) -> str:
    """One fence for each pool of an operation."""
    return f"{pool}.{operation}"


def operation_of(fence: str) -> str:
    """The operation that set a fence of this name."""
    return fence.rpartition(".")[2]


def nodes_to_fence(new: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    """The nodes of the new kind; none where there are no `others` that may take work: then the fence goes."""
    return tuple(sorted(new)) if set(others) - set(new) else ()

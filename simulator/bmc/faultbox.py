"""The faults of one BMC that have bites left."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simulator.faults import Fault, FaultKind


def _any_fault(_: Fault) -> bool:
    return True


class FaultBox:
    """Hands out bites and reports each; `bool(box)` is false where nothing can bite any more."""

    def __init__(self, faults: Iterable[Fault], on_bite: Callable[[FaultKind], None]) -> None:
        self._left = [(fault, fault.times) for fault in faults]
        self._on_bite = on_bite

    def __bool__(self) -> bool:
        return bool(self._left)

    def bite(self, *kinds: FaultKind, where: Callable[[Fault], bool] = _any_fault) -> Fault | None:
        """Use up one bite of the first fault of `kinds` for which `where` holds; None where there is none."""
        for position, (fault, left) in enumerate(self._left):
            if fault.kind in kinds and where(fault):
                if left == 1:
                    del self._left[position]
                elif left > 1:
                    self._left[position] = (fault, left - 1)
                self._on_bite(fault.kind)
                return fault
        return None

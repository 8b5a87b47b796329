"""Actions at a simulated time: on the running event loop, or on a clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from simulator.clock import SimClock

Action = Callable[[], None]


class Timers:
    """Runs actions on the running event loop when their simulated second has come."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self._stopped = False

    def stop(self) -> None:
        """Nothing that is planned happens any more."""
        self._stopped = True

    def now(self) -> float:
        return self.clock.now()

    def at(self, when: float, action: Action) -> Action:
        """Run `action` at simulated second `when`; calling the result takes that back."""
        delay = max(0.0, when - self.now()) / self.clock.scale
        return asyncio.get_running_loop().call_later(delay, self._run, action).cancel

    def _run(self, action: Action) -> None:
        if not self._stopped:
            action()

    def after(self, seconds: float, action: Action) -> Action:
        return self.at(self.now() + seconds, action)


class VirtualClock(SimClock):
    """Time that moves only when `VirtualTimers.advance` moves it."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


class VirtualTimers(Timers):
    """Timers without an event loop, for tests and for planning what a fleet would do."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._virtual = clock
        self._order = count()
        self._due: list[tuple[float, int, Action]] = []
        self._cancelled: set[int] = set()

    def at(self, when: float, action: Action) -> Action:
        number = next(self._order)
        heapq.heappush(self._due, (when, number, action))
        return lambda: self._cancelled.add(number)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; what becomes due runs in order, and may set new timers."""
        end = self._virtual.seconds + seconds
        while self._due and self._due[0][0] <= end:
            when, number, action = heapq.heappop(self._due)
            self._virtual.seconds = max(self._virtual.seconds, when)
            if number in self._cancelled:
                self._cancelled.discard(number)
            else:
                action()
        self._virtual.seconds = end

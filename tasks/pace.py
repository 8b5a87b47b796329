"""When to look again, and when to begin: rarely while nothing can have happened yet, and not all at once."""

from __future__ import annotations

from fleet.ports import Clock

_CLOSE = 8.0  # looks per poll interval around the expected moment
_SLOWER = 1.5
_FARTHEST = 4.0  # poll intervals
_APART_SECONDS = 1 / 16


class Pace:
    """Sleeps between looks at something that should take `expected_seconds`.

    Half of what is left, from one to four times `poll_seconds`. Once the expected moment is near, an eighth of
    `poll_seconds`, then slower again up to the whole.
    """

    def __init__(self, clock: Clock, poll_seconds: float, expected_seconds: float) -> None:
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._due = clock.monotonic() + expected_seconds
        self._next = poll_seconds / _CLOSE

    def sleep(self) -> None:
        left = self._due - self._clock.monotonic()
        if left > self._next:
            longest = min(max(left / 2, self._poll_seconds), self._poll_seconds * _FARTHEST)
            self._clock.sleep(min(longest, left))
            return
        self._clock.sleep(self._next)
        self._next = min(self._poll_seconds, self._next * _SLOWER)


class Spread:
    """Keeps visits from beginning in step: they would want the same things at the same moments, all the way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = float("-inf")

    def next(self) -> float:
        """When another visit may begin, in monotonic seconds: now, unless many begin at once."""
        begins = max(self._clock.monotonic(), self._next)
        self._next = begins + _APART_SECONDS
        return begins

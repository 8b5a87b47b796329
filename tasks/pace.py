"""When to look again: rarely while nothing can have happened yet, often when it should be there."""

from __future__ import annotations

from fleet.ports import Clock

_CLOSE = 8.0  # looks per poll interval around the expected moment
_SLOWER = 1.5
_FARTHEST = 4.0  # poll intervals


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

"""When to look again, and when to begin: rarely while nothing can have happened yet, and not all at once."""

from __future__ import annotations

from fleet.ports import Clock

_CLOSE = 8.0  # looks per poll interval at the expected moment
_NEAR = 4.0  # and around it, while it is not known how punctual the node is
_PUNCTUAL = 0.15  # of the expected time, early or late
_SLOWER = 1.5
_FARTHEST = 4.0  # poll intervals
_APART_SECONDS = 1 / 16
_APART_LONG_SECONDS = 1 / 8
_SEVERAL_ROUNDS = 4


class Pace:
    """Sleeps between looks at something that should take `expected_seconds`.

    Half of what is left, from one to four times `poll_seconds`. Around the expected moment an eighth to a quarter of
    `poll_seconds`, then slower again up to the whole.
    """

    def __init__(self, clock: Clock, poll_seconds: float, expected_seconds: float) -> None:
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._due = clock.monotonic() + expected_seconds
        self._around = max(0.0, expected_seconds) * _PUNCTUAL
        self._next = poll_seconds / _CLOSE

    def sleep(self) -> None:
        left = self._due - self._clock.monotonic()
        if left > self._around:
            longest = min(max(left / 2, self._poll_seconds), self._poll_seconds * _FARTHEST)
            self._clock.sleep(min(longest, left - self._around))
            return
        if left > self._next:
            self._clock.sleep(min(self._poll_seconds / _NEAR, left))
            return
        self._clock.sleep(self._next)
        slowest = self._poll_seconds / _NEAR if -left < self._around else self._poll_seconds
        self._next = min(slowest, self._next * _SLOWER)


class Spread:
    """Keeps visits from beginning in step: they would want the same things at the same moments, all the way.

    In a wave of several `rounds` it pays to begin farther apart: those that follow are as far apart.
    """

    def __init__(self, clock: Clock, rounds: int = 1) -> None:
        self._clock = clock
        self._apart = _APART_SECONDS if rounds < _SEVERAL_ROUNDS else _APART_LONG_SECONDS
        self._next = float("-inf")

    def next(self) -> float:
        """When another visit may begin, in monotonic seconds: now, unless many begin at once."""
        begins = max(self._clock.monotonic(), self._next)
        self._next = begins + self._apart
        return begins

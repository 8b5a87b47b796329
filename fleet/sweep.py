"""Which nodes are to be read now: each on its interval, and one that does not answer ever more seldom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

_FIRST_PAUSE_SECONDS = 300.0  # a BMC is read every few hours; one that was busy is not left alone for as long
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class _Turn:
    node: str
    due: float
    failures: int = 0


class Rounds:
    """Turns of many nodes, in monotonic seconds. Not for several threads."""

    def __init__(
        self,
        nodes: Iterable[str],
        every_seconds: float,
        longest_pause_seconds: float,
        now: float,
        ages: Mapping[str, float] | None = None,
    ) -> None:
        """`ages`: how many seconds ago a node was last read, where it was."""
        self._every = every_seconds
        self._longest = max(longest_pause_seconds, every_seconds)
        self._turns = {
            node: _Turn(node, now + max(0.0, every_seconds - (ages or {}).get(node, every_seconds))) for node in nodes
        }

    def due(self, now: float) -> tuple[str, ...]:
        """The nodes whose turn it is, longest waiting first; those that failed last time come after all others."""
        ready = [turn for turn in self._turns.values() if turn.due <= now]
        return tuple(turn.node for turn in sorted(ready, key=lambda turn: (turn.failures > 0, turn.due)))

    def failing(self, node: str) -> bool:
        """Whether it failed the last time it was asked."""
        return self._turns[node].failures > 0

    def read(self, node: str, now: float) -> None:
        """It answered: the next turn keeps its rhythm, unless the rhythm cannot be kept."""
        turn = self._turns[node]
        self._turns[node] = _Turn(node, max(turn.due + self._every, now))

    def failed(self, node: str, now: float) -> None:
        """It did not: the pause doubles with each failure, from the interval or five minutes up to the longest."""
        turn = self._turns[node]
        first = min(self._every, _FIRST_PAUSE_SECONDS)
        pause = min(first * 2 ** min(turn.failures, _MOST_DOUBLINGS), self._longest)
        self._turns[node] = replace(turn, due=now + pause, failures=turn.failures + 1)

    def next_due(self) -> float | None:
        """When the next turn is; None without nodes."""
        return min((turn.due for turn in self._turns.values()), default=None)

"""A log service's entries."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

CAPACITY = 100


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    created: str
    severity: str  # OK, Warning, Critical
    message: str


class EventLog:
    """The newest CAPACITY entries; identifiers are never used again, not even after a clear."""

    def __init__(self) -> None:
        self.entries: deque[Event] = deque(maxlen=CAPACITY)
        self._next = 1

    def add(self, created: str, severity: str, message: str) -> None:
        self.entries.append(Event(str(self._next), created, severity, message))
        self._next += 1

    def find(self, id_: str) -> Event | None:
        return next((event for event in self.entries if event.id == id_), None)

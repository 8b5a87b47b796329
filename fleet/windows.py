"""Maintenance windows: when disruption is allowed. Times are UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FORM = re.compile(r"^(?:(?P<days>[A-Za-z,\-]+) )?(?P<start>\d{2}:\d{2})-(?P<end>\d{2}:\d{2})$")


@dataclass(frozen=True, slots=True)
class Window:
    """Weekdays (0 is Monday) on which it opens; `end` at or before `start` is on the next day."""

    days: frozenset[int]
    start: time
    end: time

    def _span(self, day: datetime) -> tuple[datetime, datetime]:
        opens = datetime.combine(day.date(), self.start, tzinfo=day.tzinfo)
        closes = datetime.combine(day.date(), self.end, tzinfo=day.tzinfo)
        return opens, closes if closes > opens else closes + timedelta(days=1)

    def contains(self, moment: datetime) -> bool:
        for day in (moment, moment - timedelta(days=1)):
            opens, closes = self._span(day)
            if day.weekday() in self.days and opens <= moment < closes:
                return True
        return False

    def next_open(self, moment: datetime) -> datetime:
        """`moment` where the window is open, else when it opens next."""
        if self.contains(moment):
            return moment
        starts = (self._span(moment + timedelta(days=n))[0] for n in range(8))
        days = (opens for opens in starts if opens.weekday() in self.days and opens >= moment)
        return min(days)


def parse_window(text: str) -> Window:
    """Read "02:00-06:00", "Sat 22:00-04:00", "Mon-Fri 01:00-05:00" or "Sat,Sun 00:00-00:00".

    Raises ValueError that says what is wrong.
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise ValueError(f'{text!r} is not a window like "Sat 02:00-06:00" (UTC)')
    try:
        start, end = time.fromisoformat(match["start"]), time.fromisoformat(match["end"])
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error
    return Window(_days(match["days"], text), start, end)


def _days(text: str | None, whole: str) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last and last not in _DAYS):
            raise ValueError(f"{whole!r}: weekdays are {', '.join(_DAYS)}")
        start, end = _DAYS.index(first), _DAYS.index(last or first)
        days |= {day % 7 for day in range(start, end + 1 if end >= start else end + 8)}
    return frozenset(days)


def next_open(windows: tuple[str, ...], moment: datetime) -> datetime:
    """When disruption is allowed next; `moment` itself where it is allowed now or no window is set."""
    return min((parse_window(w).next_open(moment) for w in windows), default=moment)

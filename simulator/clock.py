"""Simulated time: real time multiplied by a scale."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta


class SimClock:
    """Seconds since the simulator's start; `scale` simulated seconds pass in one real second."""

    def __init__(self, scale: float) -> None:
        if scale <= 0:
            raise ValueError(f"time scale must be positive, not {scale}")
        self.scale = scale
        self._real_start = time.monotonic()
        self._wall_start = datetime.now(UTC)

    def now(self) -> float:
        return (time.monotonic() - self._real_start) * self.scale

    @property
    def real_start(self) -> float:
        """The second of the machine's monotonic clock, which all its processes share, at which this one is 0."""
        return self._real_start

    def wall(self, at: float | None = None) -> datetime:
        """The simulated wall clock (UTC) at simulated second `at`, default now."""
        return self._wall_start + timedelta(seconds=self.now() if at is None else at)

    def real(self, seconds: float) -> int:
        """Simulated seconds as whole real ones, at least 1: what a client on the other side is told to wait."""
        return max(1, round(seconds / self.scale))

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of simulated time."""
        await asyncio.sleep(seconds / self.scale)

"""Tasks beside the listeners of a simulated fleet; one that fails is told to whoever keeps the fleet up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Background:
    """Runs tasks until `stop`. A task that ends by itself is forgotten, one that fails is not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = asyncio.Event()
        self._error: BaseException | None = None

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def failure(self) -> BaseException:
        """Waits for the first exception that a task ended with."""
        await self._failed.wait()
        assert self._error is not None
        return self._error

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is None:
            self._error = error
            self._failed.set()

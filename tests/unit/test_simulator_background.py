"""What runs beside a simulated fleet's listeners does not fail in silence."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from simulator.background import Background
from simulator.serve import _until
from simulator.world import World


class FollowedWorld:
    """A world of which only one task runs."""

    def __init__(self) -> None:
        self.background = Background()

    async def failure(self) -> BaseException:
        return await self.background.failure()


async def fails() -> None:
    raise RuntimeError("slurmd gpu-0003: not within 30 s")


async def ends() -> None:
    return None


async def waits() -> None:
    await asyncio.Event().wait()


def test_a_fleet_whose_slurm_cannot_be_followed_any_more_is_stopped() -> None:
    async def run() -> None:
        world = FollowedWorld()
        world.background.spawn(fails())
        await asyncio.wait_for(_until(asyncio.Event(), cast("World", world)), 10)

    with pytest.raises(OSError, match="gpu-0003: not within 30 s"):
        asyncio.run(run())


def test_a_fleet_that_is_told_to_stop_stops_and_what_ended_or_was_cancelled_is_no_failure() -> None:
    async def run() -> None:
        world, stopped = FollowedWorld(), asyncio.Event()
        world.background.spawn(ends())
        world.background.spawn(waits())
        stopped.set()
        await asyncio.wait_for(_until(stopped, cast("World", world)), 10)
        await world.background.stop()

    asyncio.run(run())

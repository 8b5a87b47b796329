"""Runs a world until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Callable

from simulator.world import World, WorldOptions

_SPARE_FILES = 256
_FILES_PER_NODE = 16


def serve(options: WorldOptions, say: Callable[[str], None]) -> None:
    """Build, listen, say so, and stop at SIGTERM or SIGINT.

    Raises ConfigurationError and OSError before anything listens, and OSError where the real Slurm can no longer be
    followed: what the truth log would say from then on is not true.
    """
    _allow_files(options.nodes * _FILES_PER_NODE + _SPARE_FILES)
    asyncio.run(_serve(options, say))


async def _serve(options: WorldOptions, say: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    world = World(options)
    try:
        await world.start()
        # What is built now lives as long as the process: the collector need not walk it again.
        gc.collect()
        gc.freeze()
        say(
            f"ready: {options.nodes} nodes, {options.nodes * options.gpus_per_node} GPUs, {options.racks} racks; "
            f"1 s here is {options.time_scale:g} s there; fleet file {world.folder / 'fleet.yaml'}"
        )
        await _until(stopped, world)
    finally:
        await world.stop()


async def _until(stopped: asyncio.Event, world: World) -> None:
    told = asyncio.ensure_future(stopped.wait())
    failed = asyncio.ensure_future(world.failure())
    try:
        await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            error = failed.result()
            raise OSError(f"the real Slurm can no longer be followed: {error}") from error
    finally:
        told.cancel()
        failed.cancel()


def _allow_files(wanted: int) -> None:
    """Two listeners a node and its connections need more open files than most systems give at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))

"""What the contract suite needs of a Slurm, real or simulated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from adapters.slurm import SlurmScheduler
from fleet.ports import Host


class SlurmBench(Protocol):
    """A Slurm of at least eight nodes with eight GPUs each, and nobody else's work on it."""

    @property
    def scheduler(self) -> SlurmScheduler: ...

    @property
    def host(self) -> Host:
        """The shell of the controller host."""
        ...

    @property
    def node_names(self) -> tuple[str, ...]: ...

    def submit(self, script: str, *options: str) -> str:
        """`sbatch` with these options; the job's id."""
        ...

    def cancel(self, job: str) -> None:
        """`scancel`."""
        ...


def eventually(met: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until `met()`; AssertionError after `seconds` of the wall clock."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.1)

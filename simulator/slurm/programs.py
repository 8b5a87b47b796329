"""What jobs run, as the controller sees it."""

from __future__ import annotations

from typing import Protocol

from simulator.slurm.records import SlurmJob


class Programs(Protocol):
    """What jobs run; told of a job's fate by the controller."""

    def started(self, job: SlurmJob) -> None: ...
    def signalled(self, job: SlurmJob, signal: str) -> None: ...
    def ended(self, job: SlurmJob) -> None:
        """It ended by itself, and has nothing left to do."""
        ...

    def killed(self, job: SlurmJob, cause: str) -> None:
        """It was stopped, or lost a node; told at most once for each start."""
        ...


class NoPrograms:
    """Jobs that run for ever and keep nothing."""

    def started(self, job: SlurmJob) -> None: ...
    def signalled(self, job: SlurmJob, signal: str) -> None: ...
    def ended(self, job: SlurmJob) -> None: ...
    def killed(self, job: SlurmJob, cause: str) -> None: ...

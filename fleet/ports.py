"""What decisions and tasks need from outside systems. Adapters implement these; tests fake them by hand.

Every method is one bounded exchange: it returns, or raises an error of `fleet.errors`. None waits for a
condition, and none repeats a request that changes something; waiting and repeating is decided above.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Protocol

from fleet.checkpoint_readers.listing import Listing
from fleet.model import (
    FirmwareComponent,
    Job,
    RedfishTask,
    ResetKind,
    ResetMarks,
    SchedulerNode,
    SystemReading,
)


class Clock(Protocol):
    """Time as a parameter."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Bmc(Protocol):
    """A baseboard management controller.

    All methods raise NodeUnreachable (no answer), BmcBusy (asked to wait), CredentialsRejected,
    ConfigurationError (TLS or address), or HardwareFault (an answer that makes no sense).
    """

    def read_system(self) -> SystemReading: ...

    def read_firmware(self) -> tuple[FirmwareComponent, ...]:
        """The complete firmware inventory; partial reads raise."""
        ...

    def read_tasks(self) -> tuple[RedfishTask, ...]:
        """Every task that the BMC still knows."""
        ...

    def read_task(self, uri: str) -> RedfishTask | None:
        """One task; None where the BMC says that there is no such task (the outcome is then unknown)."""
        ...

    def push_image(self, image: Path, targets: tuple[str, ...]) -> RedfishTask:
        """Send one image for `targets` (FirmwareComponent.uri); never repeated inside.

        Raises OutcomeUnknown where the connection broke after the first byte was sent, and BmcBusy where
        the BMC refused because another update runs. A refusal that means "already at this version" is a
        task with outcome ALREADY_CURRENT and an empty uri.
        """
        ...

    def read_reset_marks(self) -> ResetMarks: ...

    def reset(self, kind: ResetKind) -> None:
        """Ask for the reset; returns when the BMC has accepted it. Raises OutcomeUnknown when cut."""
        ...

    def close(self) -> None:
        """End the session, where one is open."""
        ...


class Host(Protocol):
    """A GPU host's shell."""

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> CommandResult:
        """Run one command, each argument quoted. Raises NodeUnreachable, HostKeyChanged, CredentialsRejected."""
        ...

    def close(self) -> None: ...


class FileHost(Host, Protocol):
    """A host that also takes files."""

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        """Write a file with that SHA-256 below the login's home; it appears whole or not at all.

        Raises what `run` raises, and ConfigurationError where the host refuses the file.
        """
        ...


class CommandResult(Protocol):
    """What a command left."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


class Scheduler(Protocol):
    """The workload manager. Raises SchedulerUnreachable rather than answer "nothing there"."""

    def read_nodes(self) -> dict[str, SchedulerNode]:
        """The whole fleet in one query."""
        ...

    def read_jobs(self) -> tuple[Job, ...]:
        """Every job that holds nodes (running, completing, suspended …), in one query."""
        ...

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        """Allow no new work; `reason` is set on these nodes."""
        ...

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        """Allow work again. Whether it is ours to do is decided above."""
        ...

    def requeue(self, job: str) -> None:
        """Stop the job and put it back into the queue, so that it may start again at once on other nodes.

        Raises JobRefused where the job is gone or may not be requeued.
        """
        ...

    def cancel(self, job: str) -> None:
        """End the job for good. Raises JobRefused where it is gone."""
        ...

    def signal(self, job: str, signal: str) -> None:
        """Ask the job for a checkpoint by `signal` (USR1 …); one try. Raises JobRefused."""
        ...

    def read_environment(self, job: str) -> dict[str, str] | None:
        """What the job was submitted with in its environment; None where the scheduler does not tell."""
        ...


class Fences(Protocol):
    """Keeps new work from running on nodes of two kinds at once. Raises what Scheduler raises.

    A fence is a named set of nodes: a new job runs wholly inside one, or wholly outside of all.
    """

    def read_fences(self) -> dict[str, tuple[str, ...]]:
        """The nodes of every fence of ours, by name."""
        ...

    def ensure_fence(self, name: str, nodes: tuple[str, ...]) -> bool:
        """Make the fence hold exactly `nodes`; without nodes it goes. True where something was changed."""
        ...


class CheckpointTrees(Protocol):
    """Where jobs keep their checkpoints."""

    def read_tree(self, root: str, seconds: float) -> Listing:
        """What is below `root`, within `seconds`; a tree that cannot be read is a listing with a problem.

        Raises NodeUnreachable, TransientError or ConfigurationError where the storage's host cannot be asked.
        """
        ...

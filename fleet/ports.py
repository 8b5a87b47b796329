"""What decisions and tasks need from outside systems. Adapters implement these; tests fake them by hand.

Every method is one bounded exchange: it returns, or raises an error of `fleet.errors`. None waits for a
condition, and none repeats a request that changes something; waiting and repeating is decided above.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Protocol

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

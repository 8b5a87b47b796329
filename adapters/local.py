"""Commands on this machine, behind the same port as those on a host over SSH."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from fleet.errors import ConfigurationError, NodeUnreachable

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF")


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left: `code` is its exit status, -1 where a signal ended it."""

    code: int
    stdout: str
    stderr: str


class LocalHost:
    """Runs commands here, without a shell, with a bare environment: no secret of ours is handed on.

    `environment` is added to it.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._environment = {**kept, "LC_ALL": "C.UTF-8", **(environment or {})}

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        """Raises NodeUnreachable after `timeout_seconds`, ConfigurationError for a missing command."""
        try:
            done = subprocess.run(  # noqa: S603  arguments are passed on without a shell
                arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NodeUnreachable(f"{arguments[0]} did not end within {timeout_seconds:g} s") from error
        except OSError as error:
            raise ConfigurationError(f"cannot run {arguments[0]}: {error.strerror}; is it installed here?") from error
        return Finished(max(done.returncode, -1), done.stdout, done.stderr)

    def close(self) -> None:
        """Nothing is kept open."""

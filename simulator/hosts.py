"""What the shells of the simulated machines answer: GPU hosts, and the Slurm controller host."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from simulator.host.gpu_host import GpuHost, not_found, split
from simulator.slurm.reply import Reply, failure
from simulator.slurm.shell import Shell

__all__ = ["ControllerHost", "GpuHost", "HostShell", "not_found", "reads_script", "split"]


class HostShell(Protocol):
    def run(self, line: str, user: str, stdin: bytes) -> Reply | Awaitable[Reply]:
        """Run one command line; what takes its time is awaited."""
        ...

    def wants_input(self, line: str) -> bool:
        """Does the command read its standard input?"""
        ...


def reads_script(words: list[str]) -> bool:
    """sbatch without a script's name reads the script from its standard input."""
    if not words or words[0].rpartition("/")[2] != "sbatch":
        return False
    return not any(word.startswith("--wrap") for word in words) and not words[-1].endswith(".sh")


class ControllerHost:
    """The host on which Slurm's commands are."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def wants_input(self, line: str) -> bool:
        return reads_script(split(line))

    def run(self, line: str, user: str, stdin: bytes) -> Reply:
        words = split(line)
        if not words:
            return Reply(0) if not line.strip() else failure("bash: -c: line 1: unexpected EOF\n", 2)
        if self._shell.knows(words[0].rpartition("/")[2]):
            return self._shell.run(words, user, stdin.decode("utf-8", "replace"))
        match words:
            case ["hostname", *_]:
                return Reply(0, "slurm-01\n")
            case ["true"]:
                return Reply(0)
            case _:
                return not_found(words[0])

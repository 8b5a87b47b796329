"""The controller host's shell where the scheduler is a real Slurm: its own commands, run as they were given."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence

from simulator.hosts import not_found, reads_script, split
from simulator.slurm.reply import Reply, failure

COMMANDS = frozenset({"scontrol", "squeue", "sinfo", "sbatch", "scancel", "sacct"})
_SECONDS = 120.0  # after which a command is ended


class RealCommands:
    """Runs Slurm's commands on this machine with the environment of a RealSlurm."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    async def run(self, words: Sequence[str], stdin: bytes = b"") -> Reply:
        """Run one of COMMANDS; status 127 where it is not installed, 124 where it does not end."""
        command = shutil.which(words[0], path=self._environment["PATH"])
        if command is None:
            return not_found(words[0])
        process = await asyncio.create_subprocess_exec(
            command,
            *words[1:],
            env=self._environment,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), _SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return failure(f"{words[0]}: did not end within {_SECONDS:.0f} s\n", 124)
        code = process.returncode or 0
        return Reply(code if code >= 0 else 128 - code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


class RealControllerHost:
    """As ControllerHost: nothing but Slurm's commands, `hostname` and `true`."""

    def __init__(self, commands: RealCommands) -> None:
        self._commands = commands

    def wants_input(self, line: str) -> bool:
        return reads_script(split(line))

    async def run(self, line: str, user: str, stdin: bytes) -> Reply:  # noqa: ARG002  the cluster is root's
        words = split(line)
        if not words:
            return Reply(0) if not line.strip() else failure("bash: -c: line 1: unexpected EOF\n", 2)
        command = words[0].rpartition("/")[2]
        if command in COMMANDS:
            return await self._commands.run([command, *words[1:]], stdin)
        match words:
            case ["hostname", *_]:
                return Reply(0, "slurm-01\n")
            case ["true"]:
                return Reply(0)
            case _:
                return not_found(words[0])

"""Command lines of the controller host that belong to Slurm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from simulator.slurm.arguments import UsageError
from simulator.slurm.controller import Controller
from simulator.slurm.reply import Reply
from simulator.slurm.sacct import sacct
from simulator.slurm.sbatch import sbatch, scancel
from simulator.slurm.scontrol import scontrol
from simulator.slurm.show import VERSION
from simulator.slurm.sinfo import sinfo
from simulator.slurm.squeue import squeue

__all__ = ["Reply", "Shell"]


class Shell:
    """Runs Slurm's commands. `files` is the only folder from which sbatch reads scripts."""

    def __init__(self, controller: Controller, files: Path | None = None) -> None:
        self.controller = controller
        self._files = files
        self._commands: dict[str, Callable[[list[str], str, str], Reply]] = {
            "scontrol": lambda words, user, _: scontrol(controller, words, user),
            "sinfo": lambda words, _, __: sinfo(controller, words),
            "squeue": lambda words, _, __: squeue(controller, words),
            "scancel": lambda words, user, _: scancel(controller, words, user),
            "sacct": lambda words, _, __: sacct(controller, words),
            "sbatch": lambda words, user, text: sbatch(controller, words, user, text, self._files),
        }

    def knows(self, command: str) -> bool:
        return command in self._commands

    def run(self, words: list[str], user: str = "root", stdin: str = "") -> Reply:
        """Run one command; `words[0]` is one that it `knows`."""
        command = words[0].rpartition("/")[2]
        if any(word in {"--version", "-V"} for word in words[1:]):
            return Reply(0, f"slurm-wlm {VERSION}\n")
        try:
            return self._commands[command](words[1:], user, stdin)
        except UsageError as error:
            code = 255 if command == "sbatch" else 1
            return Reply(code, "", f'{error}\nTry "{command} --help" for more information\n')
        except ValueError as error:
            return Reply(1, "", f"{error}\n")

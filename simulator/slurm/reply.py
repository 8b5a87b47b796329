"""What a command leaves: exit status, standard output, standard error."""

from __future__ import annotations

from dataclasses import dataclass

UNREACHABLE = "Unable to contact slurm controller (connect failure)"


@dataclass(frozen=True, slots=True)
class Reply:
    code: int
    stdout: str = ""
    stderr: str = ""


def failure(text: str, code: int = 1) -> Reply:
    return Reply(code, "", text)

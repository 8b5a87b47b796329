"""Whom a signal should reach in a Slurm job.

Source: sbatch(1) `--signal=[{R|B}:]<sig_num>[@sig_time]` and scancel(1), tried on Slurm 22.05.8, with `--ctld` and
without: `scancel --signal` alone reaches every step and not the batch shell (a job without steps: nobody); `--batch`
the batch shell alone, not its children; `--full` the shell, its children and all steps. A shell without a trap dies of
the signal, and its job is FAILED. So `--full` is never used, and the shell is signalled only where it asked for that.
"""

from __future__ import annotations

import re
import shlex
import signal as signals
from dataclasses import dataclass
from enum import StrEnum

_DECLARED = re.compile(r"(?:(?P<flags>[RB]{1,2}):)?(?:SIG)?(?P<name>[A-Z0-9+]+)(?:@\d+)?", re.IGNORECASE)
_LONG = re.compile(r"--signal(?:=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|\S+)")
_TRAP = re.compile(r"(?:^|[;&|{(]|\bthen\b|\bdo\b)[ \t]*trap[ \t]+(?P<rest>[^;&|}\n]*)", re.MULTILINE)
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"(?P<comment>(?:^|(?<=\s))#[^\n]*)|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.MULTILINE)

_EXEC = re.compile(r"^\s*exec\s+(?![<>&\d])\S", re.MULTILINE)
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "csh", "tcsh", "fish", "busybox"})


class SignalTarget(StrEnum):
    """Whom `scancel --signal` reaches."""

    STEPS = "steps"
    BATCH = "batch"  # the batch process alone


@dataclass(frozen=True, slots=True)
class DeclaredSignal:
    """`name` without SIG, upper case. `batch`: meant for the batch shell alone."""

    name: str
    batch: bool


def read_signal_option(text: str) -> DeclaredSignal | None:
    """`USR1`, `SIGUSR1@300`, `B:10@60`, `RB:USR1`; None for anything else."""
    match = _DECLARED.fullmatch(text.strip())
    if match is None:
        return None
    name = match["name"].upper()
    if name.isdigit():
        try:
            name = signals.Signals(int(name)).name.removeprefix("SIG")
        except ValueError:
            return None
    if f"SIG{name}" not in signals.Signals.__members__:
        return None
    return DeclaredSignal(name, "B" in (match["flags"] or "").upper())


def script_signal(script: str) -> str | None:
    """The `--signal` of a batch script's #SBATCH lines, as written; None where there is none. The last one counts."""
    found = None
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            options = line.removeprefix("#SBATCH")
            found = command_signal(options) or found
        elif line.strip() and not line.startswith("#"):
            break
    return found


def command_signal(line: str) -> str | None:
    """The `--signal` of a command line, as written; None where there is none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quote that is not closed
        matches = _LONG.findall(line)
        return matches[-1].strip("\"'") if matches else None
    found = None
    for at, word in enumerate(words):
        if word.startswith("--signal="):
            found = word.partition("=")[2]
        elif word == "--signal" and at + 1 < len(words):
            found = words[at + 1]
    return found


def traps(script: str, name: str) -> bool:
    """Does the batch script trap the signal `name` (USR1 …)? One that is ignored (`trap '' USR1`) is not trapped."""
    number = getattr(signals.Signals, f"SIG{name}", None)
    wanted = {name, f"SIG{name}", str(int(number)) if number is not None else name}
    for match in _TRAP.finditer(_bare(script)):
        words = match["rest"].upper().split()
        if len(words) > 1 and words[0] != "-" and wanted & set(words[1:]):
            return True
    return False


def _bare(script: str) -> str:
    """The script without its comments and here-documents, each quoted text as one word; `-` for an empty one."""
    return _QUOTED.sub(_word, _HERE.sub("", script.replace("\r\n", "\n")))


def _word(match: re.Match[str]) -> str:
    if match["comment"] is not None:
        return ""
    return "-" if len(match[0]) == 2 else "q"


def runs_trainer_itself(script: str) -> bool:
    """Is the batch process the job's own program: a script of no shell, or a shell that gives way to it by `exec`?"""
    first, _, rest = script.partition("\n")
    if not first.startswith("#!"):
        return False
    interpreter = next((word for word in first[2:].split() if not word.endswith("/env") and word[0] not in "-"), "")
    if interpreter.rpartition("/")[2] not in _SHELLS:
        return bool(interpreter)
    return _EXEC.search(_bare(rest)) is not None


def signal_target(asked: DeclaredSignal, declared: str | None, script: str | None, steps: int) -> SignalTarget | None:
    """Whom to send `asked` to; None where nobody in the job is known to wait for it.

    `declared`: the job's own `--signal`; `script`: its batch script, None where not told; `steps`: how many steps run.
    The batch process gets it where the request or the job's own option says `B:`, where the script traps it, or where
    it is the only program; the steps get it otherwise.
    """
    own = read_signal_option(declared) if declared is not None else None
    own = own if own is not None and own.name == asked.name else None
    if asked.batch or (own is not None and own.batch):
        return SignalTarget.BATCH
    trapped = script is not None and traps(script, asked.name)
    if steps > 0 and (own is not None or not trapped):
        return SignalTarget.STEPS
    if trapped or (script is not None and runs_trainer_itself(script)):
        return SignalTarget.BATCH
    return None

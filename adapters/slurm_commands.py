"""Slurm's commands on a controller host, and what their refusals mean."""

from __future__ import annotations

import re

from fleet.errors import (
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    JobRefused,
    NodeUnreachable,
    SchedulerUnreachable,
)
from fleet.hostlist import compress, expand
from fleet.ports import CommandResult, Host
from fleet.slurm import read_scontrol_nodes

STATE_REFUSED = re.compile(r"invalid node state", re.I)

_REFUSED = re.compile(
    r"invalid user id|access/permission denied|permission denied|user .* not found|not authorized", re.I
)
_AUTHENTICATION = re.compile(r"authentication error|invalid (?:auth|munge)? ?credential|munge decode failed", re.I)
_NO_COMMAND = re.compile(r"command not found|no such file or directory.*(?:scontrol|squeue)|not found$", re.I)
_NO_CONFIGURATION = re.compile(r"configuration source|s_p_parse_file|unable to process configuration file", re.I)
_JOB = re.compile(
    r"invalid job id|requested operation is presently disabled|only batch jobs are accepted|job is pending execution|"
    r"job/step already completing|job is no longer pending|job has (?:already )?finished|job is finished|"
    r"job script not available|job can not be|not supported on this system",
    re.I,
)
_NAMES_BYTES = 96 * 1024  # Linux takes 128 KiB in one argument, and a shell gets the whole command as one


class SlurmCommands:
    """Runs one command after the other; each is one bounded exchange."""

    def __init__(self, host: Host, timeout_seconds: float = 60.0) -> None:
        self._host = host
        self._timeout = timeout_seconds

    def ask(self, *arguments: str) -> CommandResult:
        """Run a command that must succeed. Raises what `explain` makes of a failure."""
        result = self.run(*arguments)
        if result.code != 0:
            raise self.explain(arguments, result)
        return result

    def run(self, *arguments: str) -> CommandResult:
        """Run a command, whatever it says. Raises SchedulerUnreachable where its host does not answer."""
        try:
            return self._host.run(arguments, timeout_seconds=self._timeout)
        except NodeUnreachable as error:
            raise SchedulerUnreachable(f"the Slurm controller host does not answer: {error}") from error

    def explain(self, arguments: tuple[str, ...], result: CommandResult) -> FleetError:
        """The error that a failed command stands for; SchedulerUnreachable where its words are not known."""
        said = words_of(result)
        command = " ".join(arguments[:2])
        evidence = (said,)
        if re.search(r"invalid node name|node .* not found", said, re.I):
            return ConfigurationError(
                f"Slurm does not know {self._unknown(arguments)}; compare the fleet file with slurm.conf",
                evidence=evidence,
            )
        if _JOB.search(said):
            return JobRefused(f"Slurm refuses `{command}`: {said}", evidence=evidence)
        if _REFUSED.search(said):
            return CredentialsRejected(
                f"Slurm lets this user not run `{command}`; it needs operator rights "
                "(SlurmUser, root, or AdminLevel=Operator)",
                evidence=evidence,
            )
        if _AUTHENTICATION.search(said):
            return CredentialsRejected(f"Slurm refuses this host's munge credential ({said})", evidence=evidence)
        if result.code == 127 or _NO_COMMAND.search(said):
            return ConfigurationError(
                f"there is no {arguments[0]} on the controller host; put Slurm's commands on the PATH",
                evidence=evidence,
            )
        if _NO_CONFIGURATION.search(said):
            return ConfigurationError(f"Slurm has no configuration on the controller host: {said}", evidence=evidence)
        if STATE_REFUSED.search(said):
            return ConfigurationError(f"Slurm refuses this change of state: {said}", evidence=evidence)
        return SchedulerUnreachable(f"`{command}` failed: {said or f'exit status {result.code}'}", evidence=evidence)

    def _unknown(self, arguments: tuple[str, ...]) -> str:
        """The names that the controller does not list; Slurm's own message names none."""
        keys = ("NodeName=", "Nodes=")
        asked = next((part.split("=", 1)[1] for part in arguments if part.startswith(keys)), "")
        try:
            known = read_scontrol_nodes(self.ask("scontrol", "show", "node", "-o").stdout)
        except FleetError:
            return f"a node of {asked}"
        return compress(set(expand(asked)) - set(known)) or f"a node of {asked}"


def words_of(result: CommandResult) -> str:
    """What a failed command said, at most its last 500 characters."""
    return (result.stderr.strip() or result.stdout.strip())[-500:]


def chunks(nodes: tuple[str, ...]) -> list[str]:
    """One hostlist, or several where one would not fit into a command line."""
    text = compress(nodes)
    if len(text) <= _NAMES_BYTES:
        return [text] if text else []
    middle = len(nodes) // 2
    ordered = tuple(sorted(set(nodes)))
    return chunks(ordered[:middle]) + chunks(ordered[middle:])

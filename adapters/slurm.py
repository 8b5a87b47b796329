"""Slurm by its commands, here or on a controller host."""

from __future__ import annotations

import re
import secrets

from fleet.errors import (
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    NodeUnreachable,
    SchedulerUnreachable,
)
from fleet.hostlist import compress, expand
from fleet.model import Job, SchedulerNode
from fleet.ports import CommandResult, Host
from fleet.slurm import (
    HOLDING_STATES,
    read_job_gpus,
    read_scontrol_nodes,
    read_squeue,
    squeue_format,
    squeue_gpu_format,
    with_gpus,
)

_REFUSED = re.compile(
    r"invalid user id|access/permission denied|permission denied|user .* not found|not authorized", re.I
)
_AUTHENTICATION = re.compile(r"authentication error|invalid (?:auth|munge)? ?credential|munge decode failed", re.I)
_NO_COMMAND = re.compile(r"command not found|no such file or directory.*(?:scontrol|squeue)|not found$", re.I)
_NO_CONFIGURATION = re.compile(r"configuration source|s_p_parse_file|unable to process configuration file", re.I)
_STATE_REFUSED = re.compile(r"invalid node state", re.I)
_NAMES_BYTES = 96 * 1024  # Linux takes 128 KiB in one argument, and a shell gets the whole command as one


class SlurmScheduler:
    """The Scheduler port over `scontrol` and `squeue`; tested on Slurm 22.05."""

    def __init__(self, host: Host, timeout_seconds: float = 60.0) -> None:
        self._host = host
        self._timeout = timeout_seconds

    def read_nodes(self) -> dict[str, SchedulerNode]:
        """Every node, by one `scontrol show node -o`: the only query that shows all flags and no limit
        to the reason's length. Raises SchedulerUnreachable, ConfigurationError."""
        nodes = read_scontrol_nodes(self._ask("scontrol", "show", "node", "-o").stdout)
        if not nodes:
            raise SchedulerUnreachable("scontrol answered, but named no node; ask again")
        return nodes

    def read_jobs(self) -> tuple[Job, ...]:
        """Every job that holds nodes. A second query follows only where a job asked for its GPUs other
        than per node. Raises SchedulerUnreachable, ConfigurationError."""
        mark = f"<{secrets.token_hex(8)}>"
        states = f"--states={HOLDING_STATES}"
        jobs = read_squeue(self._ask("squeue", states, "-o", squeue_format(mark)).stdout, mark)
        if all(job.gpus is not None for job in jobs):
            return jobs
        return with_gpus(jobs, read_job_gpus(self._ask("squeue", states, "-O", squeue_gpu_format()).stdout))

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        """State=DRAIN. Replaces the reason that is there. Where a name is unknown, Slurm may have
        drained the others before it refuses: read back. Raises as `read_nodes`, CredentialsRejected."""
        if not reason.strip():
            raise ConfigurationError("Slurm drains no node without a reason; give one")
        # scontrol takes one quote off each end, so a reason with quotes of its own stays whole
        for names in _chunks(nodes):
            self._ask("scontrol", "update", f"NodeName={names}", "State=DRAIN", f'Reason="{reason}"')

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        """State=RESUME: ends DRAIN, FAIL and DOWN, since a reboot of ours may have left the node DOWN.

        A node reads not responding until the controller has pinged it again. A node that is open already
        is no error. Raises as `cordon`.
        """
        for names in _chunks(nodes):
            change = ("scontrol", "update", f"NodeName={names}", "State=RESUME")
            result = self._run(*change)
            # Slurm resumes those that it can, and fails if one of them was open before
            settled = _STATE_REFUSED.search(result.stderr) and self._all_open(names)
            if result.code != 0 and not settled:
                raise self._explain(change, result)

    def _all_open(self, names: str) -> bool:
        seen = self.read_nodes()
        return all(
            name in seen and not seen[name].cordoned and not seen[name].flags & {"DOWN", "FAIL"}
            for name in expand(names)
        )

    def _ask(self, *arguments: str) -> CommandResult:
        result = self._run(*arguments)
        if result.code != 0:
            raise self._explain(arguments, result)
        return result

    def _run(self, *arguments: str) -> CommandResult:
        try:
            return self._host.run(arguments, timeout_seconds=self._timeout)
        except NodeUnreachable as error:
            raise SchedulerUnreachable(f"the Slurm controller host does not answer: {error}") from error

    def _explain(self, arguments: tuple[str, ...], result: CommandResult) -> FleetError:
        said = (result.stderr.strip() or result.stdout.strip())[-500:]
        command = " ".join(arguments[:2])
        evidence = (said,)
        if re.search(r"invalid node name|node .* not found", said, re.I):
            return ConfigurationError(
                f"Slurm does not know {self._unknown(arguments)}; compare the fleet file with slurm.conf",
                evidence=evidence,
            )
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
        if _STATE_REFUSED.search(said):
            return ConfigurationError(f"Slurm refuses this change of state: {said}", evidence=evidence)
        return SchedulerUnreachable(f"`{command}` failed: {said or f'exit status {result.code}'}", evidence=evidence)

    def _unknown(self, arguments: tuple[str, ...]) -> str:
        """The names that the controller does not list; Slurm's own message names none."""
        asked = next((part.removeprefix("NodeName=") for part in arguments if part.startswith("NodeName=")), "")
        try:
            known = read_scontrol_nodes(self._ask("scontrol", "show", "node", "-o").stdout)
        except FleetError:
            return f"a node of {asked}"
        return compress(set(expand(asked)) - set(known)) or f"a node of {asked}"


def _chunks(nodes: tuple[str, ...]) -> list[str]:
    """One hostlist, or several where one would not fit into a command line."""
    text = compress(nodes)
    if len(text) <= _NAMES_BYTES:
        return [text] if text else []
    middle = len(nodes) // 2
    ordered = tuple(sorted(set(nodes)))
    return _chunks(ordered[:middle]) + _chunks(ordered[middle:])

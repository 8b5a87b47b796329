"""Slurm by its commands, here or on a controller host."""

from __future__ import annotations

import re
import secrets

from adapters.slurm_commands import STATE_REFUSED, SlurmCommands, chunks
from fleet.errors import ConfigurationError, JobRefused, SchedulerUnreachable
from fleet.hostlist import expand
from fleet.model import Job, SchedulerNode
from fleet.ports import Host
from fleet.slurm import HOLDING_STATES, read_scontrol_nodes, read_squeue, squeue_format
from fleet.slurm_details import read_job_details, squeue_detail_format, with_details
from fleet.slurm_environment import read_job_environment
from fleet.slurm_signals import SignalTarget, command_signal, read_signal_option, script_signal, signal_target

_REQUEUEABLE = frozenset({"RUNNING", "CONFIGURING", "STOPPED", "SUSPENDED"})
_JOB_ID = re.compile(r"\d+(?:[_+]\d+)?")


class SlurmScheduler:
    """The Scheduler port over Slurm's commands; tested on Slurm 22.05."""

    def __init__(self, host: Host, timeout_seconds: float = 60.0) -> None:
        self._slurm = SlurmCommands(host, timeout_seconds)

    def read_nodes(self) -> dict[str, SchedulerNode]:
        """Every node, by one `scontrol show node -o`: the only query that shows all flags and no limit
        to the reason's length. Raises SchedulerUnreachable, ConfigurationError."""
        nodes = read_scontrol_nodes(self._slurm.ask("scontrol", "show", "node", "-o").stdout)
        if not nodes:
            raise SchedulerUnreachable("scontrol answered, but named no node; ask again")
        return nodes

    def read_jobs(self) -> tuple[Job, ...]:
        """Every job that holds nodes, by two queries of the whole fleet.

        Comments of any length and content come by `squeue -o`, which has no letter for the requeue mark; that comes by
        `squeue -O`, with the GPUs of jobs that asked for them other than per node. `signal` stays None: Slurm shows
        it in no query. An id names what can be stopped alone: `5_3` a task of an array, `7+1` a part of a heterogeneous
        job. Raises SchedulerUnreachable, ConfigurationError.
        """
        mark = f"<{secrets.token_hex(8)}>"
        states = f"--states={HOLDING_STATES}"
        jobs = read_squeue(self._slurm.ask("squeue", states, "-o", squeue_format(mark)).stdout, mark)
        if not jobs:
            return jobs
        details = self._slurm.ask("squeue", states, "-O", squeue_detail_format()).stdout
        return with_details(jobs, read_job_details(details))

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        """State=DRAIN. Replaces the reason that is there. Where a name is unknown, Slurm may have
        drained the others before it refuses: read back. Raises as `read_nodes`, CredentialsRejected."""
        if not reason.strip():
            raise ConfigurationError("Slurm drains no node without a reason; give one")
        # scontrol takes one quote off each end, so a reason with quotes of its own stays whole
        for names in chunks(nodes):
            self._slurm.ask("scontrol", "update", f"NodeName={names}", "State=DRAIN", f'Reason="{reason}"')

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        """State=RESUME: ends DRAIN, FAIL and DOWN, since a reboot of ours may have left the node DOWN.

        A node reads not responding until the controller has pinged it again. A node that is open already
        is no error. Raises as `cordon`.
        """
        for names in chunks(nodes):
            change = ("scontrol", "update", f"NodeName={names}", "State=RESUME")
            result = self._slurm.run(*change)
            # Slurm resumes those that it can, and fails if one of them was open before
            settled = STATE_REFUSED.search(result.stderr) and self._all_open(names)
            if result.code != 0 and not settled:
                raise self._slurm.explain(change, result)

    def _all_open(self, names: str) -> bool:
        seen = self.read_nodes()
        return all(
            name in seen and not seen[name].cordoned and not seen[name].flags & {"DOWN", "FAIL"}
            for name in expand(names)
        )

    def requeue(self, job: str) -> None:
        """`scontrol requeue incomplete`: a job that ended by itself in the meantime is not run a second time.

        Slurm ends the job, and lets it wait about two minutes (its credential's life) before it may start again;
        `start_now` ends that wait where that is safe. Raises JobRefused with Slurm's words where the job is gone, has
        ended, waits already, is no batch job or was submitted with --no-requeue, or is a part (`7+1`) of a job that
        Slurm requeues only as a whole; otherwise as `cordon`.
        """
        state = self._state(job)
        if state not in _REQUEUEABLE:  # Slurm says nothing, and does nothing
            raise JobRefused(f"job {job} is not requeued: it is {state}", evidence=(state,))
        if "+" in job:
            raise JobRefused(f"job {job} is part of a heterogeneous job, which Slurm requeues only as a whole")
        self._slurm.ask("scontrol", "requeue", "incomplete", job)

    def start_now(self, job: str, former: tuple[str, ...]) -> bool:
        """End a requeued job's wait for its begin time; False where it does not wait for that (yet, or any more).

        Also False while one of its `former` nodes takes work: a node that saw the job end a moment ago refuses its new
        credential, and Slurm then kills the job (seen on 22.05: "Job credential revoked"). Cordoned nodes are no
        danger. Raises JobRefused where the job is gone; otherwise as `cordon`.
        """
        waits = self._slurm.ask("squeue", "-h", "-j", _known_id(job), "-o", "%T %r").stdout.split()
        if waits[:2] != ["PENDING", "BeginTime"]:
            return False
        nodes = self.read_nodes()
        if not all(nodes[name].cordoned for name in former if name in nodes):
            return False
        self._slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        return True

    def cancel(self, job: str) -> None:
        """`scancel`: the job ends for good. Raises JobRefused where it is gone; otherwise as `cordon`."""
        if self._state(job) == "GONE":
            raise JobRefused(f"job {job} is gone")
        self._slurm.ask("scancel", job)

    def signal(self, job: str, signal: str) -> None:
        """Send `signal` (USR1; `B:USR1` for the batch shell alone) to those of the job that wait for it; one try.

        Never to a batch shell that asked for nothing: it would die of the signal, and the job with it. The rule is
        `fleet.slurm_signals.signal_target`. Raises JobRefused where the job is gone, does not run, or has nobody that
        could take the signal; ConfigurationError where `signal` is none.

        Steps of an array's task are named one by one, and its shell gets no signal while other tasks wait: for
        `scancel --signal 5_3` Slurm 22.05 then sends it, but answers "try again later", and scancel sends it again, up
        to ten times.
        """
        asked = read_signal_option(signal)
        if asked is None:
            raise ConfigurationError(f"{signal!r} is no signal; write USR1, or B:USR1 for the batch shell")
        state = self._state(job)
        if state != "RUNNING":
            raise JobRefused(f"job {job} takes no signal: it is {state}", evidence=(state,))
        script = self._script(job)
        declared = self._submitted_signal(job) or (script_signal(script) if script is not None else None)
        steps = self._steps(job)
        target = signal_target(asked, declared, script, len(steps))
        if target is None:
            raise JobRefused(
                f"job {job} has no step that could take SIG{asked.name}, and its batch script has no trap for it: "
                f"the signal would end the job. Its owner can submit it with --signal=B:{asked.name}@60 and a trap"
            )
        named: tuple[str, ...] = ("--batch", job) if target is SignalTarget.BATCH else (job,)
        if "_" in job and target is not SignalTarget.BATCH:
            named = steps
        elif "_" in job and self._has_waiting_tasks(job):
            raise JobRefused(f"the batch shell of job {job} can be sent no signal while other tasks of its array wait")
        command = ("scancel", f"--signal={asked.name}", *named)
        result = self._slurm.run(*command)
        if result.code != 0 or result.stderr.strip():
            raise self._slurm.explain(command, result)

    def read_environment(self, job: str) -> dict[str, str] | None:
        """From `sacct --env-vars` (Slurm 21.08 on, with AccountingStoreFlags=job_env); None where it is not kept."""
        result = self._slurm.run("sacct", "-j", _known_id(job), "--env-vars")
        return read_job_environment(result.stdout) if result.code == 0 else None

    def _state(self, job: str) -> str:
        """Upper case; GONE for a job that Slurm still knows but that waits for nothing any more.

        Raises JobRefused for the id of a whole array: what is done to it would hit every task.
        """
        listed = self._slurm.ask("squeue", "-h", "--states=all", "-j", _known_id(job), "-o", "%i %T").stdout
        states = dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line.strip())
        if job in states or not states:
            return states.get(job, "GONE").strip()
        if job.isdigit():
            raise JobRefused(f"{job} names several jobs ({', '.join(states)}); name one of them")
        # a task that waits is listed as `5_[3-9]`, and a part of a heterogeneous job beside the other parts
        return next(iter(states.values())).strip()

    def _has_waiting_tasks(self, task: str) -> bool:
        array = task.partition("_")[0]
        return bool(self._slurm.ask("squeue", "-h", "--states=PENDING", "-j", array, "-o", "%i").stdout.strip())

    def _script(self, job: str) -> str | None:
        """The batch script; None for a job without one, or where this user may not read it."""
        result = self._slurm.run("scontrol", "write", "batch_script", job, "-")
        return result.stdout if result.code == 0 and result.stdout.startswith("#!") else None

    def _submitted_signal(self, job: str) -> str | None:
        result = self._slurm.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "SubmitLine")
        return command_signal(result.stdout.strip()) if result.code == 0 else None

    def _steps(self, job: str) -> tuple[str, ...]:
        """The ids of the steps that run tasks; the batch shell and the container step of the node are none."""
        listed = self._slurm.ask("squeue", "-h", "-s", "-j", job, "-o", "%i").stdout.split()
        return tuple(step for step in listed if step.rpartition(".")[2].isdigit())


def _known_id(job: str) -> str:
    if _JOB_ID.fullmatch(job) is None:
        raise JobRefused(f"{job!r} is no job of Slurm")
    return job

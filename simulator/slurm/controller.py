"""slurmctld: who may change what, and what follows from it. Source of the rules: node_mgr.c and job_mgr.c
of Slurm 22.05, compared with a running slurm-wlm 22.05.8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.machine import Machine
from simulator.slurm.features import fits_features
from simulator.slurm.programs import NoPrograms, Programs
from simulator.slurm.queue import Queue
from simulator.slurm.records import FINISHED, JobRequest, JobState, SlurmError, SlurmJob, SlurmNode
from simulator.slurm.reservations import Reservations
from simulator.timers import Action, Timers
from simulator.truth import TruthLog

NOT_RESPONDING = "Not responding"
REBOOTED = "Node unexpectedly rebooted"


@dataclass(frozen=True, slots=True)
class Settings:
    """slurm.conf, in simulated seconds. `return_to_service` is ReturnToService: with 1 a node that was
    rebooted stays DOWN until a person resumes it, with 2 it comes back when its slurmd registers.
    `accounting`: does sacct answer?"""

    slurmd_timeout: float = 300.0
    ping_interval: float = 100.0
    completing: float = 5.0
    requeue_delay: float = 120.0
    min_job_age: float = 300.0
    kill_wait: float = 30.0
    return_to_service: int = 2
    accounting: bool = True


class Controller:
    """The cluster's state. `reachable` False makes every command fail as if slurmctld had died."""

    def __init__(
        self,
        machines: Sequence[Machine],
        partitions: Sequence[str],
        timers: Timers,
        truth: TruthLog,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.timers = timers
        self.truth = truth
        self.programs: Programs = NoPrograms()
        self.reachable = True
        self.partitions = tuple(partitions)
        self.nodes = {machine.name: SlurmNode(machine, machine.pool) for machine in machines}
        self.jobs: dict[int, SlurmJob] = {}
        self.reservations = Reservations(self.nodes, self.jobs)
        self.queue = Queue(self)
        self._next_job = 1
        self._limits: dict[int, Action] = {}
        self._watches: dict[str, Action] = {}
        self._at_next_reservation: Action | None = None
        self._killed: set[int] = set()
        for machine in machines:
            machine.listeners.append(self._machine_changed)

    def find(self, text: str) -> SlurmJob | None:
        """The job of an id: `5`, or `5_3` for a task of an array."""
        if text.isdigit():
            return self.jobs.get(int(text))
        return next((job for job in self.jobs.values() if job.shown_id == text), None)

    def nodes_of(self, partition: str) -> list[SlurmNode]:
        return [node for node in self.nodes.values() if node.partition == partition]

    def reservations_changed(self) -> None:
        """Set the nodes' flags for the reservations of this moment, now and whenever one begins or ends."""
        now = self.timers.now()
        for job in self.reservations.overdue(now):
            self._time_out(job)
        self.reservations.expire(now)
        self.reservations.mark(now)
        due = [moment for found in self.reservations for moment in (found.start, found.end) if moment > now]
        if self._at_next_reservation is not None:
            self._at_next_reservation()
        self._at_next_reservation = self.timers.at(min(due), self._reservation_is_due) if due else None
        self.queue.look_again()

    def _reservation_is_due(self) -> None:
        self._at_next_reservation = None
        self.reservations_changed()

    def drain(self, names: Iterable[str], reason: str, by: str) -> None:
        """State=DRAIN. Raises SlurmError where there is no reason to be found."""
        for name in names:
            self._set_reason(self.nodes[name], reason, by)
            self.nodes[name].drain = True
            self._log(self.nodes[name], "cordon", by, reason)

    def set_down(self, names: Iterable[str], reason: str, by: str) -> None:
        """State=DOWN: jobs there are lost."""
        for name in names:
            node = self.nodes[name]
            self._set_reason(node, reason, by)
            self._log(node, "cordon", by, reason)
            self._make_down(node)

    def resume(self, names: Iterable[str], by: str) -> None:
        """State=RESUME. Raises SlurmError where a node is neither drained nor down, after all others
        have been resumed."""
        refused = False
        for name in names:
            node = self.nodes[name]
            if node.drain or node.down:
                self._open(node, by)
                self._await_ping(node)
            else:
                refused = True
        if refused:
            raise SlurmError("Invalid node state specified")

    def undrain(self, names: Iterable[str], by: str) -> None:
        """State=UNDRAIN: a node that is down stays down."""
        for name in names:
            node = self.nodes[name]
            if node.drain and node.down:
                node.drain = False
            elif node.drain:
                self._open(node, by)
                self._await_ping(node)

    def set_idle(self, names: Iterable[str], by: str) -> None:
        """State=IDLE: ends DOWN and DRAIN; nothing changes on a node that has neither."""
        for name in names:
            if self.nodes[name].drain or self.nodes[name].down:
                self._open(self.nodes[name], by)
        self.queue.look_again()

    def set_reason(self, names: Iterable[str], reason: str, by: str) -> None:
        """Reason= without a state; Slurm keeps it only for a node that is drained or down."""
        for name in names:
            if self.nodes[name].drain or self.nodes[name].down:
                self._set_reason(self.nodes[name], reason, by)

    def set_features(self, names: Iterable[str], features: tuple[str, ...]) -> None:
        for name in names:
            self.nodes[name].features = features
        self.queue.look_again()

    def _open(self, node: SlurmNode, by: str) -> None:
        reason = node.reason or ""
        node.drain = node.down = False
        node.reason = None
        self._log(node, "uncordon", by, reason)

    def _await_ping(self, node: SlurmNode) -> None:
        """A node that was resumed reads as not responding until it has answered."""
        node.not_responding = True
        self.timers.after(1.0, lambda: self._answer_ping(node))

    def submit(self, request: JobRequest) -> SlurmJob:
        """Raises SlurmError where no node of the partition could ever hold it."""
        if request.partition not in self.partitions:
            raise SlurmError("Invalid partition name specified")
        nodes = self.nodes_of(request.partition)
        if not any(fits_features(request.constraint, node) for node in self.nodes.values()):
            raise SlurmError("Invalid feature specification")
        if not any(node.machine.gpus >= request.gpus and fits_features(request.constraint, node) for node in nodes):
            raise SlurmError("Requested node configuration is not available")
        if request.reservation and self.reservations.find(request.reservation) is None:
            raise SlurmError("Requested reservation is invalid")
        now = self.timers.now()
        job = SlurmJob(self._next_job, request, submitted=now, eligible=now + request.begin_after)
        self._next_job += 1
        self.jobs[job.id] = job
        self.queue.add(job)
        return job

    def start(self, job: SlurmJob, nodes: tuple[str, ...], reservation: str = "") -> None:
        """Give the job its nodes, as a job of that reservation; the queue calls this."""
        now = self.timers.now()
        job.reservation = reservation
        job.state, job.reason, job.nodes = JobState.RUNNING, "None", nodes
        job.started, job.ended, job.exit_code = now, None, "0:0"
        for name in nodes:
            node = self.nodes[name]
            node.running[job.id] = job.request.gpus
            node.exclusive = job.request.exclusive
        self._killed.discard(job.id)
        if job.limit_seconds is not None:
            self._limits[job.id] = self.timers.after(job.limit_seconds, lambda: self._time_out(job))
        self.programs.started(job)

    def end(self, job: SlurmJob, code: int = 0) -> None:
        """The job's program has ended with exit status `code`."""
        if job.state is JobState.RUNNING:
            self.programs.ended(job)
            self._complete(job, JobState.FAILED if code else JobState.COMPLETED, f"{code}:0")

    def signal(self, job: SlurmJob, signal: str, *, batch: bool, steps: bool) -> None:
        """Send it to the batch shell, to the steps, or to both; the job's program is in one of them."""
        if job.state is JobState.RUNNING and (steps if job.request.has_steps else batch):
            self.programs.signalled(job, signal)

    def cancel(self, job: SlurmJob) -> None:
        if job.state is JobState.PENDING:
            self.queue.drop(job)
            job.ended = self.timers.now()
            self._finish(job, JobState.CANCELLED)
        elif job.state is JobState.RUNNING:
            self._kill(job, "cancelled")
            self._complete(job, JobState.CANCELLED, "0:15")
        elif job.state is JobState.COMPLETING:
            job.requeued = False

    def requeue(self, job: SlurmJob, *, running_only: bool = False) -> None:
        """Raises SlurmError for a job that does not allow it, or waits. `running_only`: others are left alone."""
        if running_only and job.state is not JobState.RUNNING:
            return
        if job.state is JobState.PENDING:
            raise SlurmError("Job is pending execution")
        if not job.request.requeue:
            raise SlurmError("Requested operation is presently disabled")
        if job.state is JobState.RUNNING:
            self._kill(job, "requeued")
            self._complete(job, JobState.CANCELLED, "0:0", requeue=True)
        elif job.state is JobState.COMPLETING:
            job.requeued = True
        elif job.state in FINISHED:
            self._queue_again(job)

    def _time_out(self, job: SlurmJob) -> None:
        if job.state is JobState.RUNNING:
            self._kill(job, "time limit")
            self._complete(job, JobState.TIMEOUT, "0:15")

    def _kill(self, job: SlurmJob, cause: str) -> None:
        if job.id not in self._killed:
            self._killed.add(job.id)
            self.programs.killed(job, cause)

    def _complete(self, job: SlurmJob, end: JobState, code: str, requeue: bool = False) -> None:
        """Running work is over; the nodes are cleaned up while the job is COMPLETING."""
        cancel_limit = self._limits.pop(job.id, None)
        if cancel_limit is not None:
            cancel_limit()
        job.state, job.end_state, job.exit_code = JobState.COMPLETING, end, code
        job.ended, job.requeued = self.timers.now(), requeue
        for name in job.nodes:
            node = self.nodes[name]
            node.completing[job.id] = node.running.pop(job.id, 0)
            node.last_busy = self.timers.now()
        self.timers.after(self.settings.completing, lambda: self._cleaned_up(job))

    def _cleaned_up(self, job: SlurmJob) -> None:
        for name in job.nodes:
            node = self.nodes[name]
            node.completing.pop(job.id, None)
            if not node.running:
                node.exclusive = False
        if job.requeued:
            self._queue_again(job)
        else:
            self._finish(job, job.end_state)
        if job.reservation:
            self.reservations_changed()
        self.queue.look_again()

    def _finish(self, job: SlurmJob, end: JobState) -> None:
        job.state = end
        self.timers.after(self.settings.min_job_age, lambda: self._forget(job))

    def _forget(self, job: SlurmJob) -> None:
        if job.state in FINISHED:
            self.jobs.pop(job.id, None)
            self._killed.discard(job.id)

    def _queue_again(self, job: SlurmJob) -> None:
        now = self.timers.now()
        job.state, job.reason, job.nodes, job.requeued = JobState.PENDING, "BeginTime", (), False
        job.reservation = job.asked_reservation
        job.submitted, job.eligible = now, now + self.settings.requeue_delay
        job.started, job.ended, job.restarts = None, None, job.restarts + 1
        job.exit_code, job.accrued = "0:0", None
        self.queue.add(job)

    def _machine_changed(self, machine: Machine) -> None:
        node = self.nodes[machine.name]
        watch = self._watches.pop(machine.name, None)
        if watch is not None:
            watch()
        if machine.up:
            self._register(node)
            return
        node.registered = False
        for id_ in [*node.running]:
            self._kill(self.jobs[id_], "node lost")
        wait = self.settings.ping_interval
        self._watches[machine.name] = self.timers.after(wait, lambda: self._missed_ping(node))

    def _missed_ping(self, node: SlurmNode) -> None:
        node.not_responding = True
        rest = self.settings.slurmd_timeout - self.settings.ping_interval
        self._watches[node.name] = self.timers.after(rest, lambda: self._lost(node))

    def _lost(self, node: SlurmNode) -> None:
        if node.reason is None:
            self._set_reason(node, NOT_RESPONDING, "root")
        self._make_down(node)

    def _register(self, node: SlurmNode) -> None:
        """slurmd on a freshly booted host says hello (validate_node_specs)."""
        node.registered, node.not_responding = True, False
        node.boot_at = node.slurmd_started = self.timers.now()
        if self.settings.return_to_service == 2:
            self._lose_jobs(node)
            if node.down and not node.drain and node.reason != NOT_RESPONDING:
                self._log(node, "uncordon", "slurmctld", node.reason or "")
            node.down = False
            if not node.drain:
                node.reason = None
        else:
            if node.reason is None or node.reason == NOT_RESPONDING:
                self._set_reason(node, REBOOTED, "root")
            self._make_down(node)
        self.queue.look_again()

    def _make_down(self, node: SlurmNode) -> None:
        node.down = True
        self._lose_jobs(node)

    def _lose_jobs(self, node: SlurmNode) -> None:
        for id_ in [*node.running]:
            job = self.jobs[id_]
            self._kill(job, "node lost")
            self._complete(job, JobState.NODE_FAIL, "0:0", requeue=job.request.requeue)

    def _answer_ping(self, node: SlurmNode) -> None:
        if node.registered:
            node.not_responding = False
            self.queue.look_again()

    def _set_reason(self, node: SlurmNode, reason: str, by: str) -> None:
        node.reason = reason or None
        node.reason_by, node.reason_at = by, self.timers.now()

    def _log(self, node: SlurmNode, event: str, by: str, reason: str) -> None:
        self.truth.write(event, node.name, node.machine.rack, by=by, reason=reason)

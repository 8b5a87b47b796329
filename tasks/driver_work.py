"""What the steps of one node's driver change share: the host, patience with it, and jobs that outlive us."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.driver_host import DriverHost
from adapters.packages import Packages, packages_of
from fleet.driver_jobs import HostJob, JobState, job_id
from fleet.driver_readback import Standing, standing
from fleet.driver_settings import DriverSettings
from fleet.driver_target import DriverTarget, FormerDriver, InstallKind
from fleet.errors import OutcomeUnknown, TransientError
from fleet.node_reading import NodeReading
from fleet.ports import CommandResult, FileHost
from ledger import Outcome
from tasks.visit import Visit

T = TypeVar("T")

_TAIL = 1500  # characters of a job's output that the journal keeps
_ONCE = "-cgi"  # MIG devices: asked for twice, they would be there twice
DRIVER, RESTORE = "driver", "restore"
"""Prefixes of the journal's steps: on the way to the target, and on the way back."""


class PatientHost:
    """A host that is asked again while it is out of reach; for commands that do no harm when they run twice."""

    def __init__(self, visit: Visit, host: FileHost, seconds: float) -> None:
        self._visit, self._host, self._seconds = visit, host, seconds

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> CommandResult:
        """Raises NodeUnreachable when the time is over, OutcomeUnknown at once for what may run only once."""
        if _ONCE in arguments:
            try:
                return self._host.run(arguments, timeout_seconds)
            except TransientError as error:
                raise OutcomeUnknown(
                    f"was cut off at {arguments[0]}: {error.message}", node=self._visit.name
                ) from error
        return insist(self._visit, self._seconds, lambda: self._host.run(arguments, timeout_seconds))

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        insist(self._visit, self._seconds, lambda: self._host.put(path, content, digest, timeout_seconds))

    def close(self) -> None:
        self._host.close()


def insist(visit: Visit, seconds: float, ask: Callable[[], T]) -> T:
    """Ask until it is answered, for `seconds`; then the last TransientError is raised."""
    clock, settings = visit.fleet.clock, settings_of_visit(visit)
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return ask()
        except TransientError as error:
            if clock.monotonic() >= deadline:
                raise
            visit.say(f"host does not answer: {error.message}")
            clock.sleep(settings.poll_seconds)


def settings_of_visit(visit: Visit) -> DriverSettings:
    return visit.fleet.spec().drivers


class DriverWork:
    """One node on its way to `target`. `name` prefixes its steps. Not a dataclass, as tasks/visit.py says.

    `former` is set once it is known; `notes` collects what is worth telling.
    """

    def __init__(self, visit: Visit, name: str, target: DriverTarget) -> None:
        self.visit = visit
        self.name = name
        self.target = target
        self.former = FormerDriver()
        self.notes: list[str] = []
        self.settings = settings_of_visit(visit)
        raw = visit.fleet.file_host(visit.node)
        self.raw = DriverHost(raw, visit.name, self.settings.sudo, self.settings.probe_seconds)
        patient = PatientHost(visit, raw, self.settings.reach_seconds)
        self.host = DriverHost(patient, visit.name, self.settings.sudo, self.settings.probe_seconds)
        self.packages: Packages | None = None
        if target.kind is not InstallKind.RUNFILE:
            self.packages = packages_of(target.kind, self.host.root, visit.name)

    def ask(self, ask: Callable[[], T]) -> T:
        """As `insist`, for answers that came and were of no use."""
        return insist(self.visit, self.settings.reach_seconds, ask)

    def read(self, *sections: str) -> NodeReading:
        return self.ask(lambda: self.host.read(sections))

    def installed(self) -> dict[str, str]:
        """Name → version of the packages that are installed whole."""
        packages = self.packages
        if packages is None:
            return {}
        return {package.name: package.version for package in self.ask(packages.installed) if package.whole}

    def look(self) -> Standing:
        """Where the node stands now."""
        reading = self.read("driver", "gpus", "pci")
        return standing(self.target, reading, self.installed())

    def happened(self, step: str) -> bool:
        """Whether this operation ever began the step here."""
        return self.visit.last(f"{self.name}:{step}") is not None


def run_job(work: DriverWork, step: str, command: tuple[str, ...], seconds: float) -> HostJob:
    """Run `command` as a job of the host, and wait for its end. The journal names the job before it starts.

    Raises OutcomeUnknown where it still runs after `seconds`.
    """
    visit = work.visit
    name = f"{work.name}:{step}"
    number = visit.ledger.journal.attempts(visit.operation, visit.name, name) + 1
    ident = job_id(visit.operation, visit.name, work.name, step, str(number))
    with visit.step(name, {"job": ident, "command": list(command)}) as evidence:
        work.ask(lambda: work.host.jobs.start(ident, command))
        job = await_job(work, ident, step, seconds)
        evidence |= _told(job)
    return job


def await_job(work: DriverWork, ident: str, doing: str, seconds: float) -> HostJob:
    """The job once it has ended. Raises OutcomeUnknown where it still runs after `seconds`."""
    clock = work.visit.fleet.clock
    deadline = clock.monotonic() + seconds
    while True:
        job = work.ask(lambda: work.host.jobs.read(ident))
        if job.state is not JobState.RUNNING:
            return job
        if clock.monotonic() >= deadline:
            text = f"{doing} still runs after {seconds:.0f} s as job {ident}"
            raise OutcomeUnknown(text, node=work.visit.name, evidence=(job.tail[-300:],))
        last = job.tail.strip().rpartition("\n")[2][:80]
        work.visit.say(f"{doing}: {last or 'runs on the host'}")
        clock.sleep(work.settings.poll_seconds)


def settle_jobs(work: DriverWork) -> None:
    """Find out what became of every job whose end nobody saw: two of them never run at once."""
    visit = work.visit
    for entry in visit.ledger.journal.entries(visit.operation, visit.name):
        ident = entry.intent.get("job")
        if not isinstance(ident, str) or entry.outcome in (Outcome.DONE, Outcome.FAILED):
            continue
        job = await_job(work, ident, entry.step.partition(":")[2], work.settings.install_seconds)
        outcome = Outcome.FAILED if job.state is JobState.ABSENT else Outcome.DONE
        visit.ledger.journal.finish(entry.id, outcome, {**_told(job), "found": "read afterwards"})


def _told(job: HostJob) -> dict[str, object]:
    return {"state": job.state.value, "code": job.code, "tail": job.tail[-_TAIL:]}

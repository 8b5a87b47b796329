"""Jobs of a package manager: one at a time, after whoever else holds its lock."""

from __future__ import annotations

from fleet.driver_jobs import HostJob
from fleet.driver_packages import JobFault, job_fault, lock_holder
from fleet.errors import DriverBlocked
from tasks.driver_work import DriverWork, run_job

RUNNING_UPGRADERS = (
    *("apt-daily.service", "apt-daily-upgrade.service"),
    *("dnf-automatic.service", "dnf-automatic-install.service"),
)
"""Units that are active only while they change packages."""
_LOOK_SECONDS = 30.0


def wait_until_free(work: DriverWork) -> None:
    """Wait until nobody else changes packages, while nothing of the node is disturbed yet.

    An automatic upgrade that is under way is let finish. Raises DriverBlocked naming who holds the package manager
    after `drivers.lock_seconds`. A lock that the host does not tell of is met by the job that needs it.
    """
    clock = work.visit.fleet.clock
    deadline = clock.monotonic() + work.settings.lock_seconds
    while True:
        holder = _lock_holder(work)
        who = holder or _upgrader(work)
        if who is None:
            return
        if clock.monotonic() >= deadline:
            if holder is not None:
                raise _locked(work, holder)
            return  # a unit that runs and holds no lock keeps nobody from anything
        work.visit.say(f"waits for the package manager: held by {who}")
        clock.sleep(max(work.settings.poll_seconds, _LOOK_SECONDS))


def run_unlocked(work: DriverWork, step: str, command: tuple[str, ...], seconds: float) -> HostJob:
    """Run a job; one that met a lock is run again once it is free. Raises DriverBlocked naming who holds it."""
    clock = work.visit.fleet.clock
    deadline = clock.monotonic() + work.settings.lock_seconds
    while True:
        job = run_job(work, step, command, seconds)
        if job.succeeded or job_fault(job.tail) is not JobFault.LOCKED:
            return job
        holder = lock_holder(job.tail) or "a process that is not named"
        if clock.monotonic() >= deadline:
            raise _locked(work, holder, (job.tail[-300:],))
        work.visit.say(f"waits for the package manager: held by {holder}")
        clock.sleep(max(work.settings.poll_seconds, _LOOK_SECONDS))


def running_upgraders(work: DriverWork) -> tuple[str, ...]:
    """Automatic upgrades of the fleet file's list that change packages now."""
    units = tuple(unit for unit in RUNNING_UPGRADERS if unit in work.settings.upgraders)
    return work.ask(lambda: work.host.active_units(units))


def _lock_holder(work: DriverWork) -> str | None:
    """Who holds the lock; None where nobody does, and where the host does not tell."""
    holders = None if work.packages is None else work.ask(work.packages.locks)
    return ", ".join(str(holder) for holder in holders[:4]) if holders else None


def _upgrader(work: DriverWork) -> str | None:
    active = running_upgraders(work)
    return f"{', '.join(active)}, which changes packages" if active else None


def _locked(work: DriverWork, holder: str, evidence: tuple[str, ...] = ()) -> DriverBlocked:
    text = f"the package manager's lock is held by {holder}, for {work.settings.lock_seconds:.0f} s now"
    return DriverBlocked(text, node=work.visit.name, evidence=evidence)

"""Jobs of a package manager: one at a time, after whoever else holds its lock."""

from __future__ import annotations

from fleet.driver_jobs import HostJob
from fleet.driver_packages import JobFault, job_fault, lock_holder
from fleet.errors import DriverBlocked
from tasks.driver_work import DriverWork, run_job

_LOOK_SECONDS = 30.0


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
            text = f"the package manager's lock is held by {holder}, for {work.settings.lock_seconds:.0f} s now"
            raise DriverBlocked(text, node=work.visit.name, evidence=(job.tail[-300:],))
        work.visit.say(f"waits for the package manager: held by {holder}")
        clock.sleep(max(work.settings.poll_seconds, _LOOK_SECONDS))

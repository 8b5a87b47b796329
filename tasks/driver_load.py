"""Bringing the installed driver to life: by loading its modules, or by one reboot."""

from __future__ import annotations

from fleet.driver_faults import LoadCause, load_cause, nvidia_lines
from fleet.driver_holders import UNLOAD_ORDER, loaded_modules
from fleet.driver_jobs import JobState, job_id
from fleet.driver_readback import Standing
from fleet.driver_target import RebootPolicy, same_release
from fleet.errors import DriverMismatch, HostLost, ResetIgnored, TransientError
from ledger import Entry, Outcome
from tasks.driver_work import DRIVER, RESTORE, DriverWork
from tasks.pace import Pace
from tasks.presets import DISRUPTS, step

_FIRST = ("nvidia", "nvidia_uvm")  # what every CUDA program needs


@step("load driver on {work.visit.name}", DISRUPTS)
def load_driver(work: DriverWork) -> None:
    """Load what is installed, or reboot where that is the policy or the only way; then read it back.

    Raises DriverMismatch with the cause where the node does not run the target afterwards, HostLost where it did
    not come back, and what `check_undisturbed` raises.
    """
    load_and_read_back(work)


def load_and_read_back(work: DriverWork) -> None:
    """As `load_driver`, also within another step."""
    settle_reboot(work)
    if work.target.reboot is RebootPolicy.ALWAYS and not rebooted_since_install(work) and not work.look().is_target:
        reboot(work, "the policy is to reboot for every driver")
    cause = _load(work)
    seen = _settled(work)
    if not seen.is_target:
        if not (_reboot_may_help(seen, cause, work) and not rebooted_since_install(work)):
            raise _mismatch(work, seen, cause)
        reboot(work, seen.said)
        cause = _load(work)
        seen = _settled(work)
        if not seen.is_target:
            raise _mismatch(work, seen, cause)
    _put_modules_back(work)


def _load(work: DriverWork) -> LoadCause | None:
    """Load nvidia and nvidia_uvm unless an nvidia module is there; the answer is why that failed, if it did."""
    reading = work.read("driver")
    loaded = loaded_modules(reading) or ()
    said: list[str] = []
    if "nvidia" not in loaded or same_release(reading.driver.loaded, work.target.version):
        work.visit.say("loads the driver")
        for module in _FIRST:
            if module in loaded:
                continue
            with work.visit.step(f"{work.name}:load", {"module": module}) as evidence:
                answer = work.host.load(module)
                evidence |= {"code": answer.code, "said": answer.stderr[-500:]}
            if answer.code:
                said.append(answer.stderr or f"modprobe {module} ended with {answer.code}")
                break
    if not said:
        return None
    log = work.read("kernel_log").kernel_log
    return load_cause([*said, *nvidia_lines(log.lines[-200:] if log else ())])


def _settled(work: DriverWork) -> Standing:
    """The first standing that is the target, or the last one in the fleet's settle time."""
    clock, seconds = work.visit.fleet.clock, work.visit.fleet.spec().bmc.settle_seconds
    deadline = clock.monotonic() + seconds
    while True:
        seen = work.look()
        if seen.is_target or seen.wrong or seen.mismatch or clock.monotonic() >= deadline:
            return seen
        work.visit.say(f"reads the driver back: {seen.said}")
        clock.sleep(work.settings.poll_seconds)


def _reboot_may_help(seen: Standing, cause: LoadCause | None, work: DriverWork) -> bool:
    """An old module that is still loaded, or two versions at work; not a module that is missing or refused."""
    stale = same_release(seen.parts.loaded, work.target.version) is False
    return seen.packages_there and (stale or seen.mismatch or (cause is not None and cause.reboot_helps))


def _mismatch(work: DriverWork, seen: Standing, cause: LoadCause | None) -> DriverMismatch:
    why = "" if cause is None else str(cause)
    text = "; ".join(part for part in (why, seen.said) if part)
    after = " after a reboot" if rebooted_since_install(work) else ""
    return DriverMismatch(f"driver {work.target.version} does not run{after}: {text}", node=work.visit.name)


def _put_modules_back(work: DriverWork) -> None:
    """Load the other modules that were loaded before. Without nvidia_peermem GPUs cannot reach the network directly."""
    loaded = loaded_modules(work.read("driver")) or ()
    for module in reversed(work.former.modules):
        if module in loaded:
            continue
        answer = work.host.load(module)
        if answer.code and module in UNLOAD_ORDER:
            cause = load_cause([answer.stderr])
            text = f"{module} was loaded before and does not load with {work.target.version}: {cause}"
            raise DriverMismatch(text, node=work.visit.name)
        if answer.code:
            work.notes.append(f"{module} was loaded before and does not load now: {answer.stderr.strip()[-120:]}")


def reboot(work: DriverWork, why: str) -> None:
    """Reboot the host once, and wait until it is back with another boot id.

    Raises DriverMismatch where the plan allows no reboot, HostLost or ResetIgnored.
    """
    visit = work.visit
    if work.target.reboot is RebootPolicy.NEVER:
        raise DriverMismatch(f"needs a reboot, and the plan allows none: {why}", node=visit.name)
    visit.check_undisturbed()
    before = work.ask(work.host.boot_id)
    name = f"{work.name}:reboot"
    number = visit.ledger.journal.attempts(visit.operation, visit.name, name) + 1
    ident = job_id(visit.operation, visit.name, work.name, "reboot", str(number))
    visit.say(f"reboots: {why}")
    with visit.step(name, {"boot_id": before, "why": why, "reboot_job": ident, **visit.registration()}) as evidence:
        work.ask(lambda: work.host.jobs.start(ident, ("systemctl", "reboot")))
        evidence["boot_id"] = _wait_for_boot(work, before)


def _wait_for_boot(work: DriverWork, before: str) -> str:
    """The new boot id."""
    clock, bmc = work.visit.fleet.clock, work.visit.fleet.spec().bmc
    begun = clock.monotonic()
    pace = Pace(clock, work.settings.poll_seconds, work.settings.expected_boot_seconds)
    while True:
        waited = clock.monotonic() - begun
        try:
            now: str | None = work.raw.boot_id()
            why = "it shuts down" if now == before else ""
        except TransientError as error:
            now, why = None, error.message
        if now is not None and now != before:
            return now
        if now is None and waited >= bmc.boot_timeout_seconds:
            raise HostLost(f"did not come back {waited:.0f} s after its reboot: {why}", node=work.visit.name)
        if now == before and waited >= max(bmc.settle_seconds, work.settings.expected_boot_seconds):
            raise ResetIgnored(f"was told to reboot and runs on after {waited:.0f} s", node=work.visit.name)
        work.visit.say(f"boots: {why}")
        pace.sleep()


def settle_reboot(work: DriverWork) -> None:
    """Find out what became of a reboot whose end nobody saw: the boot id tells."""
    visit = work.visit
    for prefix in (DRIVER, RESTORE):
        last = visit.last(f"{prefix}:reboot")
        if last is None or last.outcome in (Outcome.DONE, Outcome.FAILED):
            continue
        before = str(last.intent.get("boot_id"))
        job = work.ask(lambda last=last: work.host.jobs.read(str(last.intent.get("reboot_job"))))  # type: ignore[misc]
        if job.state is JobState.ABSENT and work.ask(work.host.boot_id) == before:
            visit.ledger.journal.finish(last.id, Outcome.FAILED, {"error": "the reboot was never asked for"})
            continue
        now = _wait_for_boot(work, before)
        visit.ledger.journal.finish(last.id, Outcome.DONE, {"boot_id": now, "found": "the boot id has changed"})


def rebooted_since_install(work: DriverWork) -> bool:
    """Whether this operation has rebooted the host after it last installed packages on this way."""
    reboots = _newest(work, "reboot")
    installs = _newest(work, "install")
    return reboots is not None and (installs is None or reboots.id > installs.id)


def _newest(work: DriverWork, step: str) -> Entry | None:
    found = work.visit.last(f"{work.name}:{step}")
    return found if found is not None and (step == "install" or found.outcome is Outcome.DONE) else None

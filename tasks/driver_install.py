"""Putting the driver's packages on the node: one job at a time, read back, finished where it was cut off."""

from __future__ import annotations

from adapters.runfile import install_command
from fleet.driver_facts import kernels_of
from fleet.driver_jobs import HostJob, JobState
from fleet.driver_names import candidate_names
from fleet.driver_packages import JobFault, job_fault, last_words
from fleet.driver_readback import unbuilt
from fleet.driver_target import InstallKind, is_driver_package, missing_pins
from fleet.drivers import is_newer, parse_driver
from fleet.errors import DriverInstallFailed, DriverMismatch, NotQualified
from ledger import Entry
from tasks.driver_found import held_names, nothing_changed
from tasks.driver_locks import run_unlocked
from tasks.driver_work import DRIVER, DriverWork, settle_jobs
from tasks.presets import DISRUPTS, step

_REFUSES = {
    JobFault.DIGEST: "a package is not what its digest says",
    JobFault.UNSIGNED: "a package or repository has no good signature",
    JobFault.NOT_OFFERED: "no repository offers it any more",
    JobFault.NO_SPACE: "there is no room for it",
    JobFault.CONFLICT: "its dependencies cannot be met",
}
"""Faults that another try does not mend, found before anything is unpacked."""
_FETCHES_AGAIN_SECONDS = 30.0


@step("install driver on {work.visit.name}", DISRUPTS)
def install_driver(work: DriverWork) -> None:
    """Bring the packages to the target's versions, and see the module of every installed kernel.

    Raises NotQualified where the package manager refuses, or cannot fetch them for `drivers.reach_seconds`, and
    nothing was changed; DriverInstallFailed where it failed as often as allowed, DriverMismatch where a kernel has no
    module, and what `check_undisturbed` raises.
    """
    settle_jobs(work)
    away_since: float | None = None
    while True:
        _repair(work)
        if _is_there(work):
            break
        away_since = _try_once(work, away_since)
    _hold_again(work)
    _check_modules(work)


def _is_there(work: DriverWork) -> bool:
    if work.target.kind is not InstallKind.RUNFILE:
        return not missing_pins(work.target.packages, work.installed())
    return work.look().packages_there


def _repair(work: DriverWork) -> None:
    """Finish an install that was cut off: by anybody, at any moment. Raises DriverInstallFailed where that fails."""
    packages = work.packages
    if packages is None:
        return
    said = ""
    for command in packages.repair_commands():
        broken = packages.audit()
        if not broken:
            return
        work.visit.say(f"finishes a cut-off install of {', '.join(broken[:4])}")
        job = run_unlocked(work, "repair", command, work.settings.install_seconds)
        said = last_words(job.tail) or said
    broken = packages.audit()
    if broken and not _only_ours(broken):
        text = f"{', '.join(broken[:6])} cannot be brought to a whole state: {said or 'no repair is known'}"
        raise DriverInstallFailed(text, node=work.visit.name)


def _only_ours(broken: tuple[str, ...]) -> bool:
    """The install that follows replaces them: that is a repair too."""
    return all(is_driver_package(name) for name in broken)


def _try_once(work: DriverWork, away_since: float | None) -> float | None:
    """One install; the answer is since when its packages cannot be fetched (monotonic), None where that is not so."""
    visit, target = work.visit, work.target
    step = f"{work.name}:install"
    tried = [e for e in visit.ledger.journal.entries(visit.operation, visit.name) if e.step == step]
    counted = [entry for entry in tried if _counts(entry)]
    if len(counted) >= work.settings.install_attempts:
        raise _failed(work, len(counted), str(counted[-1].result.get("tail", "")))
    visit.check_undisturbed()
    _release(work)
    visit.say(f"installs driver {target.version}")
    job = run_unlocked(work, "install", _command(work), work.settings.install_seconds)
    if job.succeeded:
        return None
    if job_fault(job.tail) is JobFault.NETWORK:
        return _wait_for_repositories(work, job, away_since)
    _judge(work, job)
    return None


def _counts(entry: Entry) -> bool:
    """Whether it was a try of the install itself: not one that met a lock, never began, or could not fetch."""
    if entry.result.get("state") == JobState.ABSENT.value:
        return False
    passes = job_fault(str(entry.result.get("tail", ""))) in (JobFault.LOCKED, JobFault.NETWORK)
    return entry.result.get("code") == 0 or not passes


def _wait_for_repositories(work: DriverWork, job: HostJob, away_since: float | None) -> float:
    """Let some time pass before the next try. Raises NotQualified or DriverInstallFailed once it was long enough."""
    clock, words = work.visit.fleet.clock, last_words(job.tail) or "the package manager said nothing"
    since = clock.monotonic() if away_since is None else away_since
    if clock.monotonic() - since >= work.settings.reach_seconds:
        text = f"{work.target.version} is not installed, its packages cannot be fetched: {words}"
        error = NotQualified if nothing_changed(work) else DriverInstallFailed
        raise error(text, node=work.visit.name, evidence=(job.tail[-500:],))
    work.visit.say(f"waits for its repositories: {words}")
    clock.sleep(max(work.settings.poll_seconds, _FETCHES_AGAIN_SECONDS))
    return since


def _failed(work: DriverWork, tries: int, tail: str) -> DriverInstallFailed:
    """The end of all tries."""
    fault = job_fault(tail)
    words = last_words(tail) or "the package manager said nothing"
    if fault is JobFault.MODULE_NOT_BUILT:
        words = f"DKMS could not build its module; {words}"
    text = f"{work.target.version} is not installed after {tries} tries: {words}"
    return DriverInstallFailed(text, node=work.visit.name)


def _judge(work: DriverWork, job: HostJob) -> None:
    """What a failed install means. A lost job (a reboot, or somebody ended it) is read back and repeated.

    A way back that is refused is a failure of the node: it does not pass by itself, and the node was to go back.
    """
    if job.state is JobState.LOST:
        return
    fault = job_fault(job.tail)
    if fault in _REFUSES and work.name == DRIVER and nothing_changed(work):
        text = f"{work.target.version} was not installed, {_REFUSES[fault]}: {last_words(job.tail)}"
        raise NotQualified(text, node=work.visit.name, evidence=(job.tail[-500:],))


def _command(work: DriverWork) -> tuple[str, ...]:
    target = work.target
    if work.packages is None:
        assert target.runfile is not None
        return install_command(target.runfile, target.version, target.flavour)
    installed = work.installed()
    older = [
        pin for pin in target.packages if pin.name in installed and is_newer(installed[pin.name], pin.version) is True
    ]
    return work.packages.install_command(target.packages, downgrade=len(older) == len(target.packages))


def _release(work: DriverWork) -> None:
    """Lift version locks, which dnf obeys; apt is told to go over holds, and keeps them in mind itself."""
    if work.target.kind is InstallKind.DNF and work.packages is not None:
        work.packages.release(held_names(work))


def _hold_again(work: DriverWork) -> None:
    """What was held stays held, under its name of now."""
    packages, former = work.packages, work.former
    now, then = parse_driver(former.version or ""), parse_driver(work.target.version)
    if packages is None or not former.held or now is None or then is None:
        return
    names = {pin.name for pin in work.target.packages}
    renamed = [candidate_names(name, now, then) for name in former.held] if now != then else [(n,) for n in former.held]
    wanted = {next((name for name in candidates if name in names), "") for candidates in renamed} - {""}
    missing = tuple(sorted(wanted - set(held_names(work))))
    if missing:
        with work.visit.step(f"{work.name}:hold", {"packages": list(missing)}):
            packages.hold(missing)


def _check_modules(work: DriverWork) -> None:
    """DKMS built the module, and it is seen, for every installed kernel that can have one."""
    kernels = kernels_of(work.read("driver"))
    found = [(kernel, work.host.module_version(kernel.version)) for kernel in kernels]
    missing = unbuilt(found, work.target.version)
    if missing:
        text = f"there is no nvidia module {work.target.version} for: {'; '.join(missing)}"
        raise DriverMismatch(f"{text}; see DKMS' make.log and the kernel's headers", node=work.visit.name)

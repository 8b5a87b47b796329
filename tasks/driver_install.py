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
from tasks.driver_locks import run_unlocked
from tasks.driver_preflight import RUNNING_UPGRADERS, held_names
from tasks.driver_work import DriverWork, settle_jobs
from tasks.presets import DISRUPTS, step

_REFUSES = {
    JobFault.DIGEST: "a package is not what its digest says",
    JobFault.UNSIGNED: "a package or repository has no good signature",
    JobFault.NOT_OFFERED: "no repository offers it any more",
    JobFault.NO_SPACE: "there is no room for it",
    JobFault.CONFLICT: "its dependencies cannot be met",
}
"""Faults that another try does not mend, found before anything is unpacked."""
_UPGRADER_LOOK_SECONDS = 15.0


@step("install driver on {work.visit.name}", DISRUPTS)
def install_driver(work: DriverWork) -> None:
    """Bring the packages to the target's versions, and see the module of every installed kernel.

    Raises NotQualified where the package manager refuses and nothing was changed, DriverInstallFailed where it
    failed as often as allowed, DriverMismatch where a kernel has no module, and what `check_undisturbed` raises.
    """
    settle_jobs(work)
    _wait_for_upgraders(work)
    while True:
        _repair(work)
        if _is_there(work):
            break
        _try_once(work)
    _hold_again(work)
    _check_modules(work)


def _is_there(work: DriverWork) -> bool:
    if work.target.kind is not InstallKind.RUNFILE:
        return not missing_pins(work.target.packages, work.installed())
    return work.look().packages_there


def _wait_for_upgraders(work: DriverWork) -> None:
    """An upgrade that is under way is let finish; the lock says who it is where it does not."""
    clock = work.visit.fleet.clock
    units = tuple(unit for unit in RUNNING_UPGRADERS if unit in work.settings.upgraders)
    deadline = clock.monotonic() + work.settings.lock_seconds
    while clock.monotonic() < deadline:
        active = work.ask(lambda: work.host.active_units(units))
        if not active:
            return
        work.visit.say(f"waits for {', '.join(active)}, which changes packages")
        clock.sleep(_UPGRADER_LOOK_SECONDS)


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


def _try_once(work: DriverWork) -> None:
    visit, target = work.visit, work.target
    step = f"{work.name}:install"
    tried = [e for e in visit.ledger.journal.entries(visit.operation, visit.name) if e.step == step]
    met_a_lock = sum(
        job_fault(str(e.result.get("tail", ""))) is JobFault.LOCKED and e.result.get("code") != 0 for e in tried
    )
    never_began = sum(e.result.get("state") == JobState.ABSENT.value for e in tried)
    if len(tried) - met_a_lock - never_began >= work.settings.install_attempts:
        raise _failed(work, len(tried), str(tried[-1].result.get("tail", "")))
    visit.check_undisturbed()
    _release(work)
    visit.say(f"installs driver {target.version}")
    job = run_unlocked(work, "install", _command(work), work.settings.install_seconds)
    if not job.succeeded:
        _judge(work, job)


def _failed(work: DriverWork, tries: int, tail: str) -> DriverInstallFailed | NotQualified:
    """The end of all tries: where the repositories could not be reached nothing was changed, and the node goes back."""
    fault = job_fault(tail)
    words = last_words(tail) or "the package manager said nothing"
    if fault is JobFault.MODULE_NOT_BUILT:
        words = f"DKMS could not build its module; {words}"
    text = f"{work.target.version} is not installed after {tries} tries: {words}"
    if fault is JobFault.NETWORK and _nothing_done(work):
        return NotQualified(text, node=work.visit.name)
    return DriverInstallFailed(text, node=work.visit.name)


def _nothing_done(work: DriverWork) -> bool:
    """Whether the packages are whole and still those of before: what failed was only the fetching."""
    former, packages = work.former.driver, work.packages
    if former is None or packages is None or packages.audit():
        return False
    return not missing_pins(former.packages, work.installed())


def _judge(work: DriverWork, job: HostJob) -> None:
    """What a failed install means. A lost job (a reboot, or somebody ended it) is read back and repeated."""
    if job.state is JobState.LOST:
        return
    fault = job_fault(job.tail)
    if fault in _REFUSES and _nothing_done(work):
        text = f"{work.target.version} was not installed, {_REFUSES[fault]}: {last_words(job.tail)}"
        raise NotQualified(text, node=work.visit.name, evidence=(job.tail[-500:],))
    if fault is JobFault.MODULE_NOT_BUILT and _is_there(work):
        return  # the packages are there; which kernels have no module is said next


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

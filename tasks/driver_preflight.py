"""Everything that may stand in the way of a driver change is looked at before anything is disturbed."""

from __future__ import annotations

from dataclasses import replace

from adapters.packages import Packages
from fleet.driver_facts import DriverFacts, PackageFacts, dpkg_or_rpm, kernels_that_matter
from fleet.driver_jobs import HostJob
from fleet.driver_names import kind_of
from fleet.driver_packages import last_words
from fleet.driver_preflight import Preflight, check_driver_change
from fleet.driver_target import PackagePin
from fleet.errors import DriverBlocked, NotQualified
from fleet.node_reading import NodeReading
from fleet.package_repositories import complaints, refresh_faults, sources_of
from tasks.driver_former import SECTIONS
from tasks.driver_locks import run_unlocked, running_upgraders, wait_until_free
from tasks.driver_work import DriverWork

_HELD = ("holder.foreign", "holder.container")
_ASKS_AGAIN_SECONDS = 30.0


def check_node(work: DriverWork) -> Preflight:
    """Judge the node. Raises NotQualified or DriverBlocked with everything that blocks.

    Another package manager at work is waited for first. A process that holds a GPU may be ending: it is looked at as
    often as unloading is tried.
    """
    visit = work.visit
    wait_until_free(work)
    visit.say("checks whether its driver can be changed")
    with visit.step("driver:preflight", {"target": work.target.version}) as evidence:
        facts = read_driver_facts(work)
        judged = check_driver_change(facts, work.settings)
        for _ in range(work.settings.unload_attempts - 1):
            if not judged.blocking or not _only_held(judged):
                break
            visit.say(f"waits for {judged.blocking[0].text}")
            visit.fleet.clock.sleep(work.settings.unload_pause_seconds)
            facts = replace(facts, holders=work.host.holders())
            judged = check_driver_change(facts, work.settings)
        evidence["findings"] = [{"code": one.code, "text": str(one), "blocks": one.blocking} for one in judged.findings]
        if not judged.passed:
            texts = tuple(str(finding) for finding in judged.blocking)
            error = DriverBlocked if _only_held(judged) else NotQualified
            raise error("; ".join(texts[:4]), node=visit.name, evidence=texts)
    work.notes += [str(finding) for finding in judged.findings]
    return judged


def _only_held(judged: Preflight) -> bool:
    return all(finding.code in _HELD for finding in judged.blocking)


def read_driver_facts(work: DriverWork) -> DriverFacts:
    """What the preflight judges, read from the node; the package indexes are brought up to date first."""
    visit = work.visit
    reading = work.read(*SECTIONS)
    host, seen = work.host, visit.look().nodes.get(visit.name)
    running = next((kernel.version for kernel in kernels_that_matter(reading) if kernel.running), reading.kernel)
    return DriverFacts(
        target=work.target,
        reading=reading,
        today=visit.fleet.clock.now().date(),
        packages=_packages(work, reading),
        former=work.former,
        free_mib=host.free_mib(),
        holders=host.holders(),
        active_upgraders=running_upgraders(work),
        signer=None if running is None else host.module_signer(running),
        driver_refusal=None if seen is None else seen.driver_refusal,
        kubernetes=visit.fleet.spec().scheduler.kind == "kubernetes",
    )


def _packages(work: DriverWork, reading: NodeReading) -> PackageFacts:
    target, packages = work.target, work.packages
    manager = dpkg_or_rpm(reading)
    if packages is None:
        path = target.runfile.path if target.runfile else "/"
        return PackageFacts(target.kind, manager, runfile_sha256=work.host.sha256(path))
    pins = (*target.packages, *(work.former.driver.packages if work.former.driver else ()))
    told = _refreshed(work, packages, pins)
    installed = work.ask(packages.installed)
    simulation = packages.simulate(target.packages)
    comes = simulation.installs if simulation is not None else {}
    return PackageFacts(
        kind=kind_of(reading, installed, manager),
        manager=manager,
        installed=installed,
        audit=packages.audit(),
        held=work.ask(packages.held),
        offered=packages.offered(tuple(dict.fromkeys((*(pin.name for pin in pins), *comes)))),
        records=packages.records(target.packages),
        simulation=simulation,
        refresh=told,
    )


def _refreshed(work: DriverWork, packages: Packages, pins: tuple[PackagePin, ...]) -> str:
    """Bring the indexes up to date; the answer is what that complained of, "" where of nothing.

    A repository of these packages that does not answer is asked again for `drivers.reach_seconds`.
    """
    command, clock = packages.refresh_command(), work.visit.fleet.clock
    deadline = clock.monotonic() + work.settings.reach_seconds
    wanted = {(pin.name, pin.version) for pin in pins}
    needed = {(pin.name, pin.version) for pin in work.target.packages}
    while command is not None:
        told = _complaints(run_unlocked(work, "refresh", command, work.settings.lock_seconds))
        sources = sources_of(packages.offered(tuple(dict.fromkeys(pin.name for pin in pins))), wanted, needed)
        away = [fault for fault in refresh_faults(told) if fault.passes and fault.concerns(sources)]
        if not away or clock.monotonic() >= deadline:
            return told
        work.visit.say(f"waits for a repository: {away[0].line[:120]}")
        clock.sleep(max(work.settings.poll_seconds, _ASKS_AGAIN_SECONDS))
    return ""


def _complaints(job: HostJob) -> str:
    """apt-get update ends with 0 also where it goes on with an old index, or takes one without a signature."""
    told = "\n".join(complaints(job.tail))
    return told if told or job.succeeded else last_words(job.tail) or f"it ended with {job.code}"

"""Everything that may stand in the way of a driver change is looked at before anything is disturbed."""

from __future__ import annotations

from dataclasses import replace

from fleet.driver_facts import DriverFacts, PackageFacts, dpkg_or_rpm, kernels_that_matter
from fleet.driver_names import kind_of
from fleet.driver_packages import fault_line
from fleet.driver_preflight import Preflight, check_driver_change
from fleet.driver_target import is_driver_package
from fleet.errors import DriverBlocked, NotQualified
from fleet.node_reading import NodeReading
from tasks.driver_former import SECTIONS
from tasks.driver_locks import run_unlocked
from tasks.driver_work import DriverWork

RUNNING_UPGRADERS = (
    *("apt-daily.service", "apt-daily-upgrade.service"),
    *("dnf-automatic.service", "dnf-automatic-install.service"),
)
"""Units that are active only while they change packages."""
_HELD = ("holder.foreign", "holder.container")


def check_node(work: DriverWork) -> Preflight:
    """Judge the node. Raises NotQualified or DriverBlocked with everything that blocks.

    A process that holds a GPU may be ending: it is looked at as often as unloading is tried.
    """
    visit = work.visit
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
    reading = work.read(*SECTIONS)
    host, target = work.host, work.target
    upgraders = tuple(unit for unit in RUNNING_UPGRADERS if unit in work.settings.upgraders)
    running = next((kernel.version for kernel in kernels_that_matter(reading) if kernel.running), reading.kernel)
    return DriverFacts(
        target=target,
        reading=reading,
        today=work.visit.fleet.clock.now().date(),
        packages=_packages(work, reading),
        former=work.former,
        free_mib=host.free_mib(),
        holders=host.holders(),
        active_upgraders=work.ask(lambda: host.active_units(upgraders)),
        signer=None if running is None else host.module_signer(running),
        kubernetes=work.visit.fleet.spec().scheduler.kind == "kubernetes",
    )


def _packages(work: DriverWork, reading: NodeReading) -> PackageFacts:
    target, packages = work.target, work.packages
    manager = dpkg_or_rpm(reading)
    if packages is None:
        path = target.runfile.path if target.runfile else "/"
        return PackageFacts(target.kind, manager, runfile_sha256=work.host.sha256(path))
    refresh = packages.refresh_command()
    told = ""
    if refresh is not None:
        job = run_unlocked(work, "refresh", refresh, work.settings.lock_seconds)
        told = "" if job.succeeded and not _warns(job.tail) else fault_line(job.tail) or f"ended with {job.code}"
    installed = work.ask(packages.installed)
    former = work.former.driver.packages if work.former.driver else ()
    names = dict.fromkeys(pin.name for pin in (*target.packages, *former))
    return PackageFacts(
        kind=kind_of(reading, installed, manager),
        manager=manager,
        installed=installed,
        audit=packages.audit(),
        held=work.ask(packages.held),
        offered=packages.offered(tuple(names)),
        records=packages.records(target.packages),
        simulation=packages.simulate(target.packages),
        refresh=told,
    )


def _warns(text: str) -> bool:
    """apt-get update ends with 0 also where it goes on with an old index, or takes one without a signature."""
    return any(line.startswith(("E:", "Err:", "W: GPG", "W: Failed", "W: An error")) for line in text.splitlines())


def held_names(work: DriverWork) -> tuple[str, ...]:
    """The driver's packages that are held now."""
    packages = work.packages
    return () if packages is None else tuple(n for n in work.ask(packages.held) if is_driver_package(n))

"""The part of a driver change's preflight that looks at packages: state, holds, signatures, digests, the way back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.driver_facts import DriverFacts
from fleet.driver_names import kind_of
from fleet.driver_packages import JobFault
from fleet.driver_preflight_shape import PreflightFinding, blocks, notes
from fleet.driver_settings import DriverSettings
from fleet.driver_target import DriverTarget, InstallKind, is_driver_package, missing_pins
from fleet.package_repositories import refresh_faults, sources_of

_PULLS_DRIVER = re.compile(r"^cuda(?:-runtime|-demo-suite)?(?:-[0-9]+-[0-9]+)?$")
_KERNEL = re.compile(
    r"^(?:linux-(?:image|headers|modules)-|linux-(?:generic|virtual|kvm|aws|azure|gcp|oracle|nvidia)|kernel)"
)


def package_findings(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    yield from _installer(facts)
    yield from _bundled(facts)
    if facts.target.kind is InstallKind.RUNFILE:
        yield from _runfile(facts, settings)
        return
    yield from _state(facts)
    yield from _repository(facts)
    yield from _digests(facts, settings)
    yield from _simulated(facts)
    yield from _way_back(facts, settings)


def _installer(facts: DriverFacts) -> Iterator[PreflightFinding]:
    now = kind_of(facts.reading, facts.packages.installed, facts.packages.manager)
    if now is InstallKind.UNKNOWN and facts.reading.driver.loaded is None and facts.reading.driver.on_disk is None:
        yield notes("driver.absent", "the node has no driver now", "there is nothing to go back to")
    elif now is not facts.target.kind:
        text = f"the node's driver came by {now.value}, the target comes by {facts.target.kind.value}"
        advice = "uninstall it by its own installer first (nvidia-uninstall), or plan the same kind"
        yield blocks("installer.other", text, advice)


def _bundled(facts: DriverFacts) -> Iterator[PreflightFinding]:
    installers = facts.reading.sections.get("driver", {}).get("installers")
    if isinstance(installers, dict) and installers.get("cuda_runfile") is True:
        text = "a CUDA toolkit's runfile was run on this node: its driver may lie over the packages' one"
        yield notes("cuda.runfile", text, "install toolkits with --toolkit alone")
    for package in facts.packages.installed:
        if _PULLS_DRIVER.match(package.name):
            text = f"{package.name} {package.version} brings a driver of its own with the CUDA toolkit"
            yield notes("cuda.pulls_driver", text, "install cuda-toolkit-X-Y in its place")


def _state(facts: DriverFacts) -> Iterator[PreflightFinding]:
    packages = facts.packages
    if packages.audit is None:
        yield blocks("packages.unknown", "the state of the installed packages could not be read", "see dpkg --audit")
    for name in packages.audit or ():
        text = f"{name} is not installed whole"
        if is_driver_package(name):
            yield notes("packages.driver_broken", text, "it is finished first (dpkg --configure -a)")
        else:
            yield blocks("packages.broken", text, "finish it: dpkg --configure -a, apt-get install -f")
    for unit in facts.active_upgraders:
        yield notes("upgrades.running", f"{unit} changes packages now", "it is waited for")
    held = [name for name in packages.held if is_driver_package(name)]
    if held:
        yield notes("packages.held", f"held: {', '.join(held[:10])}", "the hold is lifted and set again")


def _repository(facts: DriverFacts) -> Iterator[PreflightFinding]:
    packages = facts.packages
    sources = _sources(facts)
    for fault in refresh_faults(packages.refresh):
        if not fault.concerns(sources):
            text = f"a repository that nothing of this comes from has a fault: {fault.line}"
            yield notes("repository.other", text, "the driver does not need it")
        elif fault.fault is JobFault.UNSIGNED:
            yield blocks("repository.unsigned", f"a repository has no good signature: {fault.line}", "mend its key")
        elif fault.fault is JobFault.DIGEST:
            text = f"a repository's index is not what its signature says: {fault.line}"
            yield blocks("repository.digest", text, "its mirror is stale or was tampered with: use another")
        else:
            yield blocks("repository.unreachable", f"its repositories do not answer: {fault.line}", "try again")
    for pin in facts.target.packages:
        fits = [one for one in packages.offered if (one.name, one.version) == (pin.name, pin.version)]
        if packages.versions.get(pin.name) != pin.version and not any(one.sources for one in fits):
            others = sorted({one.version for one in packages.offered if one.name == pin.name and one.sources})
            near = f"; it has {', '.join(others[-3:])}" if others else ""
            yield blocks("package.not_offered", f"no repository offers {pin.name} {pin.version}{near}", "plan again")


def _sources(facts: DriverFacts) -> tuple[str, ...]:
    """The repositories of all that the install would bring, and of what the way back needs."""
    former = facts.former.driver.packages if facts.former and facts.former.driver else ()
    packages = facts.packages
    wanted = {(pin.name, pin.version) for pin in (*facts.target.packages, *former)}
    if packages.simulation is not None:
        wanted |= set(packages.simulation.installs.items())
    needed = {(pin.name, pin.version) for pin in missing_pins(facts.target.packages, packages.versions)}
    return sources_of(packages.offered, wanted, needed)


def _digests(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    records = {(record.name, record.version): record for record in facts.packages.records}
    for pin in facts.target.packages:
        record = records.get((pin.name, pin.version))
        have = None if record is None else record.sha256
        if pin.sha256 is None:
            if facts.target.kind is InstallKind.APT:
                make = blocks if settings.require_digests else notes
                yield make("package.no_digest", f"the plan has no SHA-256 of {pin.name} {pin.version}", "plan again")
        elif have is not None and have != pin.sha256:
            text = f"{pin.name} {pin.version} has SHA-256 {have[:16]}…, the plan says {pin.sha256[:16]}…"
            yield blocks("package.digest", text, "somebody replaced the package: find out who, do not install it")
        elif have is None and facts.packages.versions.get(pin.name) != pin.version:
            yield blocks("package.digest_unknown", f"the index gives no SHA-256 of {pin.name} {pin.version}", "")


def _simulated(facts: DriverFacts) -> Iterator[PreflightFinding]:
    simulation = facts.packages.simulation
    if simulation is None:
        if facts.target.kind is InstallKind.APT and not _there(facts.target, facts.packages.versions):
            yield blocks("install.not_simulated", "the install could not be tried out", "see the node's apt")
        return
    if simulation.refusal:
        others = [name for name in facts.packages.held if not is_driver_package(name)]
        named = f" (held: {', '.join(others[:6])})" if others else ""
        text = f"the install would be refused: {simulation.refusal}{named}"
        yield blocks("install.refused", text, "ask who holds them" if others else "mend it by hand")
    if simulation.unauthenticated:
        yield blocks("package.unsigned", "a package comes from a repository without a signature", "sign it")
    for name in simulation.removes:
        if not is_driver_package(name) and not _PULLS_DRIVER.match(name):
            yield blocks("install.removes", f"the install would remove {name}", "see what it needs; plan again")
        elif _PULLS_DRIVER.match(name):
            yield notes("install.removes_cuda", f"the install removes the metapackage {name}", "the toolkit stays")
    held = set(facts.packages.held)
    for name in sorted(simulation.installs):
        if name in held and not is_driver_package(name):
            yield blocks("install.changes_held", f"the install would change {name}, which is held", "ask who holds it")
        elif _KERNEL.match(name) and not is_driver_package(name):
            yield blocks(
                "install.changes_kernel", f"the install would bring the kernel package {name}", "plan it apart"
            )


def _there(target: DriverTarget, versions: dict[str, str]) -> bool:
    return all(versions.get(pin.name) == pin.version for pin in target.packages)


def _way_back(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    make = blocks if settings.require_way_back else notes
    advice = "put the former packages into a repository, or set drivers.require_way_back to false"
    if facts.former is None or facts.former.driver is None:
        why = facts.former.why_not if facts.former else "what is on the node is not known"
        yield make("way_back.none", f"there is no way back: {why}", advice)
        return
    for pin in facts.former.driver.packages:
        fits = [one for one in facts.packages.offered if (one.name, one.version) == (pin.name, pin.version)]
        if not any(one.sources for one in fits):
            text = f"no repository offers the former {pin.name} {pin.version} any more"
            yield make("way_back.not_offered", text, advice)


def _runfile(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    pin, have = facts.target.runfile, facts.packages.runfile_sha256
    if pin is None:
        return
    if have is None:
        yield blocks("runfile.absent", f"{pin.path} is not on the node", "copy it there")
    elif pin.sha256 is None:
        make = blocks if settings.require_digests else notes
        yield make("runfile.no_digest", f"the plan has no SHA-256 of {pin.path}", "plan again")
    elif have != pin.sha256:
        text = f"{pin.path} has SHA-256 {have[:16]}…, the plan says {pin.sha256[:16]}…"
        yield blocks("runfile.digest", text, "fetch it again from its source")
    former = facts.former
    if former is None or former.driver is None:
        make = blocks if settings.require_way_back else notes
        why = former.why_not if former else "what is on the node is not known"
        yield make("way_back.none", f"there is no way back: {why}", "put the former runfile on the node")

"""One node's driver, changed or put back. Both may be called again after a crash at any step: they look first.

Between them lie the journal's `driver:former` (what was there), and the node itself, which says what is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from adapters.driver_host import DriverHost
from adapters.packages import packages_of
from fleet.driver_facts import dpkg_or_rpm
from fleet.driver_names import driver_target_for, installed_version, kind_of, names_to_ask
from fleet.driver_readback import DriverOutcome, DriverParts, Standing, parts_of
from fleet.driver_target import DriverTarget, FormerDriver, InstallKind, PackagePin, RebootPolicy, RunfilePin
from fleet.errors import (
    DriverInstallFailed,
    DriverMismatch,
    FleetError,
    HardwareFault,
    LeaseLost,
    NotQualified,
    PreconditionError,
    TransientError,
)
from fleet.gpu_settings import lost, settings_of, unknown_since
from ledger import Outcome
from tasks.driver_former import SECTIONS, ensure_former, recorded_former
from tasks.driver_found import ensure_found, nothing_changed, recorded_found
from tasks.driver_holders import mask_upgrades, not_running, start_holders, stop_holders, unload, unmask_upgrades
from tasks.driver_install import install_driver
from tasks.driver_load import load_driver, settle_reboot
from tasks.driver_locks import wait_until_free
from tasks.driver_preflight import check_node
from tasks.driver_settings import ensure_settings, remembered
from tasks.driver_work import DRIVER, RESTORE, DriverWork, PatientHost, settings_of_visit, settle_jobs
from tasks.presets import READS, step
from tasks.visit import Visit


class DriverSteps(NamedTuple):
    """The parts that are seen in the Prefect UI; a test runs the functions behind them."""

    install: Callable[[DriverWork], None]
    load: Callable[[DriverWork], None]
    validate: Callable[[DriverWork], None]


@step("validate driver of {work.visit.name}", READS)
def validate_driver(work: DriverWork) -> None:
    """See that the node is whole: one driver in all parts, its GPUs, settings and services as before.

    Raises DriverMismatch with everything that is not so. What cannot be read is not so.
    """
    visit = work.visit
    visit.say("validates the driver")
    with visit.step(f"{work.name}:validate", {"version": work.target.version}) as evidence:
        faults = _faults(work)
        clock = visit.fleet.clock
        deadline = clock.monotonic() + visit.fleet.spec().bmc.settle_seconds
        while faults and clock.monotonic() < deadline:
            visit.say(f"validates the driver: {faults[0]}")
            clock.sleep(work.settings.poll_seconds)
            faults = _faults(work)
        evidence["faults"] = list(faults)
        if faults:
            raise DriverMismatch("; ".join(faults[:6]), node=visit.name, evidence=faults)


OBSERVED = DriverSteps(install_driver, load_driver, validate_driver)


def change_driver(visit: Visit, target: DriverTarget, steps: DriverSteps = OBSERVED) -> DriverOutcome:
    """Bring the node, which is drained, to `target`.

    Raises NotQualified and DriverBlocked where the driver was not changed and runs as before; DriverMismatch,
    DriverInstallFailed, HostLost and ResetIgnored where the node needs `restore_driver` or a person; OutcomeUnknown
    where a job still runs on the host; LeaseLost, NotDrained, NodeUnreachable.
    """
    work = DriverWork(visit, DRIVER, target)
    settle_jobs(work)
    settle_reboot(work)
    work.former = ensure_former(work)
    if not _begun(visit) and not work.look().is_target:
        check_node(work)
    return _converge(work, steps)


def restore_driver(visit: Visit, steps: DriverSteps = OBSERVED, former: FormerDriver | None = None) -> DriverOutcome:
    """Bring the node back to `former` and its settings, from whatever is there now.

    Without it, to what this operation found on the node. Raises what `change_driver` raises, and NotQualified where
    the former driver cannot be installed again.
    """
    former = former or recorded_former(visit)
    if former is None:
        parts = parts_now(visit)
        return DriverOutcome(False, parts.loaded or "", parts, notes=("nothing was begun on this node",))
    if former.driver is None:
        raise NotQualified(f"there is no way back: {former.why_not}", node=visit.name)
    work = DriverWork(visit, RESTORE, former.driver)
    work.former = former
    settle_jobs(work)
    settle_reboot(work)
    return _converge(work, steps)


def read_driver_target(
    host: DriverHost,
    node: str,
    wanted: str,
    runfile: RunfilePin | None = None,
    reboot: RebootPolicy = RebootPolicy.WHEN_NEEDED,
) -> DriverTarget:
    """What would bring this node to `wanted`, as its own package manager offers it now. Nothing is changed.

    Raises NotQualified with what is nearest, and what the host raises.
    """
    reading = host.read(SECTIONS)
    manager = dpkg_or_rpm(reading)
    guess = {"dpkg": InstallKind.APT, "rpm": InstallKind.DNF}.get(manager or "")
    if guess is None:
        return driver_target_for(reading, wanted, runfile=runfile, reboot=reboot)
    packages = packages_of(guess, host.root, node)
    installed = packages.installed()
    if kind_of(reading, installed, manager) is not guess:
        return driver_target_for(reading, wanted, installed, manager=manager, runfile=runfile, reboot=reboot)
    release = installed_version(reading)
    offered = packages.offered(names_to_ask(installed, release, wanted)) if release else ()
    pins = driver_target_for(reading, wanted, installed, offered, manager=manager, reboot=reboot).packages
    records = packages.records(tuple(PackagePin(name=pin.name, version=pin.version) for pin in pins))
    return driver_target_for(reading, wanted, installed, offered, records, manager=manager, reboot=reboot)


def _begun(visit: Visit) -> bool:
    """Whether an earlier run began to change the node, and did not come to its last step, forwards or back."""
    begun, over = visit.last("driver:mask"), visit.last("driver:unmask")
    if begun is None:
        return False
    return over is None or over.outcome is not Outcome.DONE or over.id < begun.id


def _converge(work: DriverWork, steps: DriverSteps) -> DriverOutcome:
    before = work.look()
    if not before.is_target:
        ensure_found(work)
        mask_upgrades(work)
        try:
            wait_until_free(work)
            _bring(work, steps)
        except LeaseLost:
            raise
        except (PreconditionError, DriverInstallFailed) as error:
            _put_back(work, error)
            raise
    ensure_settings(work)
    start_holders(work)
    unmask_upgrades(work)
    steps.validate(work)
    return _outcome(work, work.look())


def _bring(work: DriverWork, steps: DriverSteps) -> None:
    stop_holders(work)
    if work.target.reboot is not RebootPolicy.ALWAYS:
        unload(work)
    steps.install(work)
    steps.load(work)


def _put_back(work: DriverWork, why: FleetError) -> None:
    """Leave the node as this way found it: for where it ended before any package was changed.

    Raises DriverMismatch with both reasons where that does not succeed.
    """
    if not nothing_changed(work):
        return
    work.visit.say("puts back what was stopped")
    with work.visit.step(f"{work.name}:put_back", {"modules": list(work.former.modules)}) as evidence:
        loaded = work.read("driver").driver.modules or frozenset()
        missing = [module for module in reversed(work.former.modules) if module not in loaded]
        evidence["refused"] = [module for module in missing if work.host.load(module).code]
    found = recorded_found(work)
    if work.packages is not None and found is not None and found.held:
        work.packages.hold(found.held)  # an install that was refused had lifted them
    try:
        ensure_settings(work)
        start_holders(work)
        unmask_upgrades(work)
    except LeaseLost:
        raise
    except (PreconditionError, HardwareFault, TransientError) as second:
        text = f"{why.message}; and what was stopped could not be put back: {second.message}"
        raise DriverMismatch(text, node=work.visit.name) from second


def _faults(work: DriverWork) -> tuple[str, ...]:
    seen = work.look()
    reading = work.read("gpus")
    settings = settings_of(reading.gpus)
    found = [] if seen.is_target else [seen.said]
    uuids = {gpu.uuid for gpu in settings.gpus}
    found += [f"GPU {uuid} is not seen" for uuid in work.former.gpus if uuid not in uuids]
    found += [str(one) for one in lost(work.former.settings, settings) if one.setting != "gpu"]
    found += [f"{name} cannot be read" for name in unknown_since(work.former.settings, settings)]
    found += [f"gpu {gpu.index} is lost" for gpu in reading.gpus or () if gpu.lost]
    found += [f"{unit} ran before and does not run" for unit in not_running(work)]
    return tuple(found)


def _outcome(work: DriverWork, seen: Standing) -> DriverOutcome:
    journal = work.visit.ledger.journal
    entries = [e for e in journal.entries(work.visit.operation, work.visit.name) if e.step.startswith(f"{work.name}:")]
    held: dict[str, None] = {}
    for entry in entries:
        told = entry.result.get("held_by")
        held |= dict.fromkeys(str(one) for one in told) if isinstance(told, list) else {}
    return DriverOutcome(
        changed=any(entry.step in (f"{work.name}:install", f"{work.name}:load") for entry in entries),
        version=work.target.version,
        parts=seen.parts,
        settings_lost=remembered(work) or (),
        rebooted=any(e.step == f"{work.name}:reboot" and e.outcome is Outcome.DONE for e in entries),
        held_by=tuple(held),
        notes=tuple(dict.fromkeys(work.notes)),
    )


def _host(visit: Visit) -> DriverHost:
    settings = settings_of_visit(visit)
    patient = PatientHost(visit, visit.fleet.file_host(visit.node), settings.reach_seconds)
    return DriverHost(patient, visit.name, settings.sudo, settings.probe_seconds)


def parts_now(visit: Visit) -> DriverParts:
    """The releases of the driver's parts as they are on the node."""
    return parts_of(_host(visit).read(("driver",)))

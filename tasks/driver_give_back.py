"""A node that is given up on its way to a driver, or back: what was stopped there is started, as far as it goes."""

from __future__ import annotations

from adapters.driver_host import DriverHost
from fleet.driver_packages import last_words
from fleet.errors import FleetError, HostLost, LeaseLost, OutcomeUnknown, TransientError
from fleet.ports import FileHost
from ledger import Entry, Outcome
from tasks.driver_work import PatientHost, settings_of_visit
from tasks.visit import Visit


def give_back_services(visit: Visit, error: FleetError) -> str:
    """Start the services that this operation stopped on the node and has not started since; lift its masks too.

    `error` is why the node is given up. The answer is what stays stopped and why, "" where nothing does; the journal
    has it under `driver:give_back`. Raises LeaseLost alone.
    """
    entries = visit.ledger.journal.entries(visit.operation, visit.name)
    units, masked = _left_stopped(entries), _left(entries, ("mask",), ("unmask",))
    if not units and not masked:
        return ""
    if isinstance(error, OutcomeUnknown):  # nothing is begun beside a job whose end nobody knows
        return f"left stopped: {', '.join(units)}" if units else ""
    visit.say("starts what was stopped")
    try:
        return _give_back(visit, _host(visit, error), units, masked)
    except LeaseLost:
        raise
    except FleetError as second:
        return f"{', '.join(units) or 'masked upgrades'} could not be started again: {second.message}"


def _give_back(visit: Visit, host: DriverHost, units: tuple[str, ...], masked: tuple[str, ...]) -> str:
    with visit.step("driver:give_back", {"units": list(units), "masked": list(masked)}) as evidence:
        for unit in masked:
            host.unmask(unit)
        active = set(host.active_units(units))
        results = {unit: host.start(unit) for unit in units if unit not in active}
        evidence["started"] = [unit for unit, result in results.items() if not result.code]
        refused = [f"{unit}: {last_words(result.stderr, 1)}" for unit, result in results.items() if result.code]
        evidence["refused"] = refused
    return f"not started again: {'; '.join(refused)}" if refused else ""


def _host(visit: Visit, error: FleetError) -> DriverHost:
    """A host that has gone is asked once; else with the patience of the driver's steps."""
    settings, raw = settings_of_visit(visit), visit.fleet.file_host(visit.node)
    away = isinstance(error, TransientError | HostLost)
    host: FileHost = raw if away else PatientHost(visit, raw, settings.reach_seconds)
    return DriverHost(host, visit.name, settings.sudo, settings.probe_seconds)


def _left_stopped(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Units in the order to start them: the opposite of the stopping, then those that were met holding a GPU."""
    ordinary = _left(entries, ("stop",), ("start", "give_back"))
    met = _left(entries, ("stop_holding",), ("start", "give_back"))
    return (*reversed(ordinary), *(unit for unit in met if unit not in ordinary))


def _left(entries: tuple[Entry, ...], taken: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, ...]:
    """Units of steps `taken` that no later step `given` gave back. What such a step could not start is still taken."""
    found: dict[str, None] = {}
    for entry in entries:
        step = entry.step.partition(":")[2]
        if step in taken:
            found |= dict.fromkeys(_texts(entry.intent.get("units")))
        elif step in given and entry.outcome is Outcome.DONE:
            refused = {text.partition(": ")[0] for text in _texts(entry.result.get("refused"))}
            for unit in _texts(entry.intent.get("units")):
                if unit not in refused:
                    found.pop(unit, None)
    return tuple(found)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()

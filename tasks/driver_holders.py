"""Taking a driver out of use and giving it back: upgrades masked, services stopped in order, modules unloaded."""

from __future__ import annotations

from fleet.driver_facts import has_nvswitch
from fleet.driver_holders import Holder, atop_of, blocked_text, foreign, loaded_modules, unit_of
from fleet.driver_packages import last_words
from fleet.errors import DriverBlocked
from tasks.driver_work import DRIVER, DriverWork


def mask_upgrades(work: DriverWork) -> None:
    """Keep what changes packages by itself from beginning."""
    work.visit.say("masks automatic upgrades")
    with work.visit.step(f"{work.name}:mask", {"units": list(work.former.maskable)}) as evidence:
        results = {unit: work.host.mask(unit).code for unit in work.former.maskable}
        evidence["refused"] = [unit for unit, code in results.items() if code]


def unmask_upgrades(work: DriverWork) -> None:
    """On the way back also where another operation had masked them."""
    if work.name == DRIVER and not work.happened("mask"):
        return
    with work.visit.step(f"{work.name}:unmask", {"units": list(work.former.maskable)}):
        for unit in work.former.maskable:
            work.host.unmask(unit)


def stop_holders(work: DriverWork) -> None:
    """Stop the services that hold GPUs, in order; those that do not stop are met again when it is unloaded."""
    active = work.ask(lambda: work.host.active_units(work.settings.holders))
    if not active:
        return
    work.visit.check_undisturbed()
    work.visit.say(f"stops {', '.join(active)}")
    with work.visit.step(f"{work.name}:stop", {"units": list(active)}) as evidence:
        results = {unit: work.host.stop(unit) for unit in active}
        evidence["refused"] = [f"{u}: {last_words(r.stderr, 1)}" for u, r in results.items() if r.code]


def start_holders(work: DriverWork) -> None:
    """Start what was active before, in the opposite order, and what had to be stopped because it held a GPU."""
    wanted = tuple(reversed((*stopped_besides(work), *work.former.services)))
    active = set(work.ask(lambda: work.host.active_units(wanted)))
    missing = tuple(unit for unit in wanted if unit not in active)
    if not missing:
        return
    work.visit.say(f"starts {', '.join(missing)}")
    with work.visit.step(f"{work.name}:start", {"units": list(missing)}) as evidence:
        results = {unit: work.host.start(unit) for unit in missing}
        evidence["refused"] = [f"{u}: {last_words(r.stderr, 1)}" for u, r in results.items() if r.code]


def not_running(work: DriverWork) -> tuple[str, ...]:
    """Services that ran before and do not run now. Without an NVSwitch the fabric manager has nothing to do."""
    wanted = (*work.former.services, *stopped_besides(work))
    active = set(work.ask(lambda: work.host.active_units(wanted)))
    missing = [unit for unit in wanted if unit not in active]
    if "nvidia-fabricmanager" in missing and has_nvswitch(work.read("pci")) is False:
        missing.remove("nvidia-fabricmanager")
        work.notes.append("the board has no NVSwitch: its fabric manager has nothing to do and does not run")
    return tuple(missing)


def stopped_besides(work: DriverWork) -> tuple[str, ...]:
    """Services that this operation stopped only because they were seen to hold a GPU."""
    journal = work.visit.ledger.journal
    found: dict[str, None] = {}
    for entry in journal.entries(work.visit.operation, work.visit.name):
        if entry.step.endswith(":stop_holding"):
            units = entry.intent.get("units")
            found |= dict.fromkeys(str(unit) for unit in units) if isinstance(units, list) else {}
    return tuple(unit for unit in found if unit not in work.former.services)


def unload(work: DriverWork) -> None:
    """Unload the driver, with bounded retries. Raises DriverBlocked naming pid, command and owner of who is in the way.

    Nothing unknown is ended, and no GPU is reset by force.
    """
    if not _loaded(work):
        return
    work.visit.check_undisturbed()
    with work.visit.step(f"{work.name}:unload", {"modules": list(_loaded(work))}) as evidence:
        said, met = "", dict[str, None]()
        for attempt in range(work.settings.unload_attempts):
            modules = _loaded(work)
            if not modules:
                break
            work.visit.say(f"unloads the driver, attempt {attempt + 1} of {work.settings.unload_attempts}")
            answer = work.host.unload(modules)
            if answer.code == 0 and not _loaded(work):
                break
            said = last_words(answer.stderr, 1) or said
            holders = work.host.holders() or ()
            met |= dict.fromkeys(str(holder) for holder in holders)
            evidence["held_by"] = list(met)
            _stop_known(work, holders)
            work.visit.fleet.clock.sleep(work.settings.unload_pause_seconds)
        if _loaded(work):
            raise _blocked(work, said)


def _loaded(work: DriverWork) -> tuple[str, ...]:
    return loaded_modules(work.read("driver")) or ()


def _stop_known(work: DriverWork, holders: tuple[Holder, ...]) -> None:
    """Stop what came back, and what is stopped only where it holds a GPU; that is remembered."""
    settings = work.settings
    units = [unit_of(holder, (*settings.holders, *settings.stop_if_holding)) for holder in holders]
    found = tuple(dict.fromkeys(unit for unit in units if unit is not None))
    if not found:
        return
    with work.visit.step(f"{work.name}:stop_holding", {"units": list(found)}):
        for unit in found:
            work.host.stop(unit)


def _blocked(work: DriverWork, said: str) -> DriverBlocked:
    holders = work.host.holders() or ()
    strangers = foreign(holders, (*work.settings.holders, *work.settings.stop_if_holding)) or holders
    reading = work.read("driver")
    text = blocked_text(said, strangers, atop_of(reading), work.host.module_uses())
    return DriverBlocked(text, node=work.visit.name, evidence=tuple(str(one) for one in strangers))

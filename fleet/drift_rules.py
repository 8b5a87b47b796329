"""What a baseline wants of one node and of each of its GPUs, item by item, and how a fact is held against it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial

from fleet.baseline import SAME_AS_DRIVER, Forbidden, GpuSettings, PoolBaseline, matches_version
from fleet.drivers import fabric_manager_matches
from fleet.facts import NodeFacts

Agrees = Callable[[str], bool | None]
"""Is this value as it should be? None where that cannot be told from it."""

ABSENT = "absent"


class Mend(StrEnum):
    """Which operation would mend a drift."""

    FIRMWARE_ROLLOUT = "firmware_rollout"
    DRIVER_CANARY = "driver_canary"
    DRIVER_SETTINGS = "driver_settings"  # the driver step, which sets them again after every installation
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is wanted.

    `pending` names the fact that shows the wanted value where it is written and only waits. `find` reads the value
    from all facts where it does not stand under the item's own name. `doubt` says why nothing can be told.
    """

    fact: str
    wanted: str
    agrees: Agrees
    mend: Mend
    pending: tuple[str, str] | None = None
    find: Callable[[Mapping[str, str]], str | None] | None = None
    doubt: str = ""


_AFTER_LOAD = ("driver.on_disk", "the wanted driver is installed; it runs after a reload or a reboot")
_AFTER_RESET = "it is set, and takes effect at the next GPU reset"
_AT_NEXT_START = "it is written, and takes effect at the host's next start"
_STAGED = "the wanted version is written, and waits for its reset"


def node_items(pool: PoolBaseline, model: str, node: NodeFacts) -> Iterator[Item]:
    """What is wanted of the node itself; firmware is written out by the components that were read."""
    yield from _driver_items(pool, node.facts)
    if pool.kernel is not None:
        yield Item("kernel.running", pool.kernel, partial(_fits, pool.kernel), Mend.PERSON)
    if pool.os is not None:
        yield Item("os.release", pool.os, partial(_fits, pool.os), Mend.PERSON)
    if pool.secure_boot is not None:
        yield _switch_item("secure_boot", pool.secure_boot, Mend.PERSON)
    count = pool.gpu_count(model)
    if count is not None:
        yield Item("gpu.count", str(count), partial(_counts, count), Mend.PERSON)
    yield from _firmware_items(pool, model, node)
    for attribute, value in pool.bios.items():
        pending = (f"bios_waiting.{attribute}", _AT_NEXT_START)
        yield Item(f"bios.{attribute}", value, partial(_same_setting, value), Mend.PERSON, pending)
    for unit, state in pool.services.items():
        name = unit.removesuffix(".service")
        mend = Mend.DRIVER_SETTINGS if name.startswith("nvidia-") else Mend.PERSON
        yield Item(f"service.{name}", state, partial(_in_state, state), mend)
    yield from _forbidden_items(pool.forbidden)


def gpu_items(settings: GpuSettings) -> Iterator[Item]:
    """What is wanted of every GPU of a node."""
    for name, wanted in (("ecc", settings.ecc), ("mig", settings.mig)):
        if wanted is not None:
            pending = (f"{name}_mode_pending", _AFTER_RESET)
            yield _switch_item(f"{name}_mode", wanted, Mend.DRIVER_SETTINGS, pending)
    if settings.persistence is not None:
        yield _switch_item("persistence", settings.persistence, Mend.DRIVER_SETTINGS)
    if settings.compute_mode is not None:
        agrees = partial(_in_compute_mode, settings.compute_mode)
        yield Item("compute_mode", settings.compute_mode, agrees, Mend.DRIVER_SETTINGS)
    if settings.power_limit_watts is not None:
        watts, tolerance = settings.power_limit_watts, settings.power_limit_tolerance_watts
        text = f"{watts:g} ± {tolerance:g}" if tolerance else f"{watts:g}"
        yield Item("power_limit_watts", text, partial(_near, watts, tolerance), Mend.DRIVER_SETTINGS)
    for name, version in (("vbios", settings.vbios), ("inforom", settings.inforom)):
        if version is not None:
            yield Item(name, version, partial(matches_version, version), Mend.FIRMWARE_ROLLOUT)


def _driver_items(pool: PoolBaseline, facts: Mapping[str, str]) -> Iterator[Item]:
    if pool.driver is not None:
        for part in ("loaded", "on_disk", "user_space"):
            agrees = partial(matches_version, pool.driver)
            pending = _AFTER_LOAD if part == "loaded" else None
            yield Item(f"driver.{part}", pool.driver, agrees, Mend.DRIVER_CANARY, pending)
    manager = pool.fabric_manager_wanted
    if manager == SAME_AS_DRIVER:
        loaded = facts.get("driver.loaded")
        wanted = SAME_AS_DRIVER if loaded is None else f"{loaded}, as the driver"
        same: Agrees = partial(fabric_manager_matches, loaded or "")
        doubt = "" if loaded else "the loaded driver is not known"
        yield Item("fabric_manager.version", wanted, same, Mend.DRIVER_CANARY, doubt=doubt)
    elif manager is not None:
        yield Item("fabric_manager.version", manager, partial(matches_version, manager), Mend.DRIVER_CANARY)
    if pool.container_toolkit is not None:
        agrees = partial(matches_version, pool.container_toolkit)
        yield Item("container_toolkit.version", pool.container_toolkit, agrees, Mend.DRIVER_CANARY)


def _firmware_items(pool: PoolBaseline, model: str, node: NodeFacts) -> Iterator[Item]:
    names = {name for name in (*node.facts, *node.unknown) if name.startswith("firmware.") and not name.endswith("*")}
    known = sorted((name.removeprefix("firmware.") for name in names), key=natural)
    for wish in pool.firmware.values():
        if wish.models and model not in wish.models:
            continue
        ids = [part for part in known if any(fnmatchcase(part, pattern) for pattern in wish.match)]
        for part in ids or (wish.match[:1] if wish.required else ()):
            yield Item(
                f"firmware.{part}",
                wish.version,
                partial(matches_version, wish.version),
                Mend.FIRMWARE_ROLLOUT,
                (f"firmware_staged.{part}", _STAGED),
            )


def _forbidden_items(forbidden: Forbidden) -> Iterator[Item]:
    for pattern in forbidden.packages:
        doubt = "the node's list of packages does not cover it"
        yield Item(f"package.{pattern}", ABSENT, _is_absent, Mend.PERSON, None, partial(_installed, pattern), doubt)
    for way in forbidden.egress:
        yield _switch_item(f"egress.{way}", False, Mend.PERSON)
    if forbidden.unattended_upgrades:
        yield _switch_item("updates.unattended", False, Mend.PERSON)


def _switch_item(fact: str, wanted: bool, mend: Mend, pending: tuple[str, str] | None = None) -> Item:
    return Item(fact, "on" if wanted else "off", partial(_switched, wanted, fact.startswith("egress.")), mend, pending)


_ON = frozenset({"on", "true", "yes", "1", "enabled", "enable", "active"})
_OFF = frozenset({"off", "false", "no", "0", "disabled", "disable", "inactive", ABSENT, "none", "never"})


def _switched(wanted: bool, any_value: bool, found: str) -> bool | None:
    """`any_value`: whatever is not off is on, as an interface's name is for a default route."""
    word = found.strip().lower()
    if word in _OFF:
        return not wanted
    return wanted if word in _ON or any_value else None


def _fits(pattern: str, found: str) -> bool:
    return fnmatchcase(found.strip(), pattern)


def _counts(wanted: int, found: str) -> bool | None:
    return int(found) == wanted if re.fullmatch(r"\s*[0-9]{1,4}\s*", found, re.ASCII) else None


def _same_setting(wanted: str, found: str) -> bool:
    ours, theirs = wanted.casefold(), found.strip().casefold()
    return ours == theirs or any(ours in words and theirs in words for words in (_ON, _OFF))


def _in_state(wanted: str, found: str) -> bool | None:
    """Source of the states: systemd's unit_active_state; one in transition tells nothing."""
    word = found.strip().lower()
    if word == "active":
        return wanted == "active"
    if word in ("inactive", ABSENT, "not-found"):
        return wanted == "inactive"
    return False if word == "failed" else None


def _in_compute_mode(wanted: str, found: str) -> bool | None:
    """Spellings of NVML and nvidia-smi: "Exclusive_Process", "Exclusive Process", "E. Process"."""
    word = re.sub(r"[^a-z]+", "_", found.strip().lower()).strip("_")
    word = {"e_process": "exclusive_process"}.get(word, word)
    return word == wanted if word in ("default", "exclusive_process", "prohibited", "exclusive_thread") else None


def _near(wanted: float, tolerance: float, found: str) -> bool | None:
    try:
        watts = float(re.sub(r"\s*(?:W|watts?)$", "", found.strip(), flags=re.IGNORECASE))
    except ValueError:
        return None
    return abs(watts - wanted) <= tolerance + 1e-9 if math.isfinite(watts) else None


def _is_absent(found: str) -> bool:
    return found == ABSENT


def _installed(pattern: str, facts: Mapping[str, str]) -> str | None:
    """The packages of the pattern; ABSENT only where the node's list is known to cover it, else None."""
    packages = {name.removeprefix("package."): text for name, text in facts.items() if name.startswith("package.")}
    found = [f"{name} {packages[name]}" for name in sorted(packages) if fnmatchcase(name, pattern)]
    if found:
        return ", ".join(found)
    listed = facts.get("packages.listed", "").split()
    return ABSENT if any(_covers(wide, pattern) for wide in listed) else None


def _covers(wide: str, pattern: str) -> bool:
    """Is every name of `pattern` also one of `wide`? A `?` or `[` in `wide` says nothing about a pattern."""
    plain = not any(mark in pattern for mark in "*?[")
    return fnmatchcase(pattern, wide) and (plain or not any(mark in wide for mark in "?["))


def natural(text: str) -> tuple[tuple[bool, int, str], ...]:
    """A key that sorts gpu-9 before gpu-10."""
    parts = re.split(r"([0-9]{1,18})", text)
    return tuple((index % 2 == 1, int(part) if index % 2 else 0, part) for index, part in enumerate(parts))

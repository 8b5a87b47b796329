"""Slurm's node states: words, flags and suffix marks of versions 16.05 to 25.11.

Sources: `man sinfo` (NODE STATE CODES), slurm_protocol_defs.c of 22.05 (node_state_string,
node_state_string_compact, node_state_flag_string).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from fleet.model import SchedulerState

_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_SHORT = {
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "COMP": "COMPLETING",
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "MAINT": "MAINTENANCE",
    "RESV": "RESERVED",
    "PLND": "PLANNED",
    "UNK": "UNKNOWN",
    "FUTR": "FUTURE",
    "ERR": "ERROR",
    "BOOT": "REBOOT_ISSUED",
    "NPC": "PERFCTRS",
    "INVAL": "INVALID_REG",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
    "NO_RESPOND": "NOT_RESPONDING",
    "MAINT_FLAG": "MAINTENANCE",
}
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "DRAINING", "FAILING"})
# sinfo prints these words alone for an idle node
_IDLE = frozenset({"IDLE", "DRAINED", "MAINTENANCE", "RESERVED", "PLANNED", "BLOCKED"})
_DOWN = frozenset({"DOWN", "FAIL", "ERROR"})
_CORDONED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
_OTHER_WORDS = (
    "CLOUD DRAIN DYNAMIC_FUTURE DYNAMIC_NORM EXTERNAL FUTURE INVALID_REG NET NOT_RESPONDING PERFCTRS POWER "
    "POWER_DOWN POWER_DRAIN POWER_UP POWERED_DOWN POWERING_DOWN POWERING_UP REBOOT REBOOT_CANCEL "
    "REBOOT_ISSUED REBOOT_REQUESTED RES RESUME UNDRAIN UNKNOWN"
)
_KNOWN = _BUSY | _IDLE | _DOWN | frozenset(_OTHER_WORDS.split())
_CLOSED = (
    _CORDONED
    | _DOWN
    | {
        "FAILING",
        "FUTURE",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWER_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "REBOOT_ISSUED",
        "RESERVED",
        "UNKNOWN",
    }
)


@dataclass(frozen=True, slots=True)
class StateReading:
    """What a node's state words mean.

    `flags` holds every word, long and upper case, marks as words. `accepts_work`: may an ordinary job
    start there now? `quiet`: is it sure that no job runs there? None is "cannot be told".
    """

    state: SchedulerState
    flags: frozenset[str]
    cordoned: bool
    accepts_work: bool | None
    quiet: bool | None


def read_state(words: str | Iterable[str]) -> StateReading:
    """Read `DOWN*+DRAIN`, `drained$`, `mix#`, or the state and flag lists of Slurm's JSON.

    A word that is not known makes an idle node's state UNKNOWN: it may mean work.
    """
    return _read(words if isinstance(words, str) else "+".join(words))


@lru_cache(maxsize=1024)
def _read(words: str) -> StateReading:
    flags: set[str] = set()
    for part in re.split(r"[+,\s]+", words.upper()):
        name = part.rstrip("".join(_MARKS))
        flags.update(_MARKS[mark] for mark in part[len(name) :])
        if name:
            flags.add(_SHORT.get(name, name))
    lone = flags - set(_MARKS.values())
    if lone == {"DRAIN"}:  # sinfo's short word for a drained node; elsewhere DRAIN comes with a base state
        flags = flags - {"DRAIN"} | {"DRAINED"}
    frozen = frozenset(flags)
    known = bool(frozen) and frozen <= _KNOWN and "UNKNOWN" not in frozen
    state = _state(frozen, known)
    return StateReading(
        state=state,
        flags=frozen,
        cordoned=bool(frozen & _CORDONED),
        accepts_work=False if frozen & _CLOSED else (True if known and _has_base(frozen) else None),
        quiet=_quiet(frozen, state, known),
    )


def _has_base(flags: frozenset[str]) -> bool:
    return bool(flags & (_BUSY | _IDLE | _DOWN))


def _state(flags: frozenset[str], known: bool) -> SchedulerState:
    if flags & _BUSY:
        return SchedulerState.BUSY
    if flags & _DOWN:
        return SchedulerState.DOWN
    if known and flags & _IDLE and "NOT_RESPONDING" not in flags:
        return SchedulerState.IDLE
    return SchedulerState.UNKNOWN


def _quiet(flags: frozenset[str], state: SchedulerState, known: bool) -> bool | None:
    if state is SchedulerState.BUSY:
        return False
    if state is SchedulerState.IDLE:
        return True
    # Slurm ends all work before it issues a reboot, and the reboot ends the rest
    rebooting = state is SchedulerState.DOWN and "REBOOT_ISSUED" in flags and "NOT_RESPONDING" not in flags
    return True if known and rebooting else None

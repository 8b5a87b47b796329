"""scontrol's create, update, delete and show of reservations."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from fleet.errors import ConfigurationError
from fleet.hostlist import compress, expand
from simulator.clock import SimClock
from simulator.slurm.controller import Controller
from simulator.slurm.records import CPUS, SlurmError
from simulator.slurm.reply import UNREACHABLE, Reply, failure
from simulator.slurm.reservations import FLAGS, YEAR_SECONDS, SlurmReservation
from simulator.slurm.words import clock_text, long_duration, parse_limit

_KEYS = ("reservationname", "starttime", "endtime", "duration", "nodes", "users", "accounts", "flags", "partitionname")
_NOT_CREATED, _NOT_UPDATED = "No reservation created.", "No reservation update."
_NOTE = (
    "Note, unless nodes are directly requested a reservation must exist in a single partition.\n"
    "If no partition is requested the default partition is assumed.\n"
)
_SHORTEST = {"starttime": 1, "endtime": 1, "duration": 1, "nodes": 5, "users": 1, "accounts": 1, "flags": 2}
_INPUT_FLAGS = {flag: flag for flag in FLAGS} | {"IGNORE_RUNNING": "IGNORE_JOBS"}
_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_RELATIVE = re.compile(r"now(?:\+(\d+)\s*([a-z]*?)s?)?", re.IGNORECASE)


def create_reservation(controller: Controller, words: list[str]) -> Reply:
    """`words`: what follows `scontrol create`."""
    words = words[1:] if words[0].lower() == "reservation" else words
    given = _read(words, _NOT_CREATED)
    if isinstance(given, Reply):
        return given
    clock, now = controller.timers.clock, controller.timers.now()
    missing = _missing(given)
    if missing is not None:
        return failure(f"scontrol: error: {missing}  {_NOT_CREATED}\n")
    start = _moment(given["starttime"][1], clock, now)
    if start is None:
        text = given["starttime"][1]
        return failure(
            f"Invalid time specification (pos=0): {text}\n"
            f"scontrol: error: Invalid start time StartTime={text}.  {_NOT_CREATED}\n"
        )
    end = _end(given, start, clock, now)
    if end is None:
        return failure(f"scontrol: error: Invalid end time or duration.  {_NOT_CREATED}\n")
    flags = _flags(given.get("flags", ("", ""))[1])
    if flags is None:
        return failure(f"scontrol: error: Error parsing flags {given['flags'][1]}.  {_NOT_CREATED}\n")
    if not controller.reachable:
        return failure(f"Error creating the reservation: {UNREACHABLE}\n")
    name = given.get("reservationname", ("", ""))[1] or f"root_{sum(1 for _ in controller.reservations) + 1}"
    accounts, users = (given.get(key, ("", ""))[1] for key in ("accounts", "users"))
    try:
        nodes = _nodes(controller, given["nodes"][1])
        controller.reservations.create(
            SlurmReservation(name, nodes, start, end, flags | {"SPEC_NODES"}, users, accounts)
        )
    except SlurmError as error:
        note = _NOTE if "busy" in str(error) else ""
        return Reply(1, note, f"Error creating the reservation: {error}\n")
    controller.reservations_changed()
    return Reply(0, f"Reservation created: {name}\n")


def update_reservation(controller: Controller, words: list[str]) -> Reply:
    """`words`: what follows `scontrol update`."""
    given = _read(words, _NOT_UPDATED)
    if isinstance(given, Reply):
        return Reply(1, "", given.stderr + "slurm_update error: No error\n")
    if given.get("nodes", ("", ""))[0]:
        return failure(
            f"scontrol: error: The +=/-= notation is not supported when updating Nodes.  {_NOT_UPDATED}\n"
            "slurm_update error: No error\n"
        )
    if not controller.reachable:
        return _refused(UNREACHABLE)
    old = controller.reservations.find(given["reservationname"][1])
    if old is None:
        return _refused("Requested reservation is invalid")
    try:
        controller.reservations.update(_changed(controller, old, given))
    except SlurmError as error:
        return _refused(str(error))
    controller.reservations_changed()
    return Reply(0, "Reservation updated.\n")


def _refused(why: str) -> Reply:
    return failure(f"Error updating the reservation: {why}\nslurm_update error: {why}\n")


def delete_reservation(controller: Controller, word: str) -> Reply:
    """`word`: `ReservationName=…`, as it was given."""
    name = word.partition("=")[2]
    if not controller.reachable:
        return failure(f"delete_reservation {word}: {UNREACHABLE}\n")
    try:
        controller.reservations.delete(name)
    except SlurmError as error:
        return failure(f"delete_reservation {word}: {error}\n")
    controller.reservations_changed()
    return Reply(0)


def show_reservations(controller: Controller, name: str | None, oneliner: bool) -> Reply:
    if not controller.reachable:
        return failure(f"slurm_load_reservations error: {UNREACHABLE}\n")
    clock, now = controller.timers.clock, controller.timers.now()
    chosen = [found for found in controller.reservations if name is None or found.name == name]
    if not chosen:
        if name is None:
            return Reply(0, "No reservations in the system\n")
        return Reply(1, f"Reservation {name} not found\n")
    return Reply(0, "".join(_show(found, clock, now, oneliner) for found in chosen))


def _show(found: SlurmReservation, clock: SimClock, now: float, oneliner: bool) -> str:
    flags = ",".join(flag for flag in FLAGS if flag in found.flags)
    state = "ACTIVE" if found.start <= now < found.end else "INACTIVE"
    count = len(found.nodes)
    lines = [
        f"ReservationName={found.name} StartTime={clock_text(clock, found.start)} "
        f"EndTime={clock_text(clock, found.end)} Duration={long_duration(found.end - found.start)}",
        f"Nodes={compress(found.nodes)} NodeCnt={count} CoreCnt={CPUS // 2 * count} Features=(null) "
        f"PartitionName=(null) Flags={flags}",
        f"TRES=cpu={CPUS * count}",
        f"Users={found.users or '(null)'} Groups=(null) Accounts={found.accounts or '(null)'} Licenses=(null) "
        f"State={state} BurstBuffer=(null) Watts=n/a",
        "MaxStartDelay=(null)",
    ]
    return " ".join(lines) + "\n" if oneliner else "\n   ".join(lines) + "\n\n"


def _read(words: list[str], outcome: str) -> dict[str, tuple[str, str]] | Reply:
    """Key → how it was given ("", "+" or "-") and its value."""
    given: dict[str, tuple[str, str]] = {}
    for word in words:
        tag, equals, value = word.partition("=")
        sign = tag[-1:] if tag[-1:] in {"+", "-"} else ""
        key = tag.removesuffix(sign).lower() if sign else tag.lower()
        full = next((k for k in _KEYS if k.startswith(key) and len(key) >= _SHORTEST.get(k, 3)), None)
        if full is None or not equals:
            return failure(f"scontrol: error: Unknown parameter {word}.  {outcome}\n")
        given[full] = (sign, value)
    return given


def _missing(given: dict[str, tuple[str, str]]) -> str | None:
    if "starttime" not in given:
        return "A start time must be given."
    if "endtime" not in given and "duration" not in given:
        return "An end time or duration must be given."
    if "nodes" not in given:
        return "CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified."
    if "users" not in given and "accounts" not in given:
        return "Either Users/Groups and/or Accounts must be specified."
    return None


def _flags(text: str) -> frozenset[str] | None:
    """None where a word is no flag."""
    found = set()
    for word in (part.strip().upper() for part in text.split(",")):
        if not word:
            continue
        full = next((flag for name, flag in _INPUT_FLAGS.items() if len(word) > 3 and name.startswith(word)), None)
        if full is None:
            return None
        found.add(full)
    return frozenset(found)


def _changed(controller: Controller, old: SlurmReservation, given: dict[str, tuple[str, str]]) -> SlurmReservation:
    """Raises SlurmError."""
    clock, now = controller.timers.clock, controller.timers.now()
    new = old
    if "flags" in given:
        sign, text = given["flags"]
        flags = _flags(text)
        if flags is None:
            raise SlurmError("Requested reservation is invalid")
        new = replace(new, flags=new.flags - flags if sign == "-" else new.flags | flags)
    if "users" in given:
        new = replace(new, users=given["users"][1])
    if "accounts" in given:
        new = replace(new, accounts=given["accounts"][1])
    if "nodes" in given:
        new = replace(new, nodes=_nodes(controller, given["nodes"][1]), flags=new.flags | {"SPEC_NODES"})
    if "starttime" in given and old.start <= now:
        raise SlurmError("Reservation already started")
    if "endtime" in given or "duration" in given:
        end = _end(given, old.start, clock, now)
        if end is None or end <= old.start:
            raise SlurmError("Requested time is invalid")
        new = replace(new, end=end)
    return new


def _nodes(controller: Controller, text: str) -> tuple[str, ...]:
    """In the cluster's order. Raises SlurmError for a name that is not known."""
    try:
        names = tuple(controller.nodes) if text.upper() == "ALL" else expand(text)
    except ConfigurationError as error:
        raise SlurmError("Invalid node name specified") from error
    if not names or any(name not in controller.nodes for name in names):
        raise SlurmError("Invalid node name specified")
    return tuple(name for name in controller.nodes if name in set(names))


def _end(given: dict[str, tuple[str, str]], start: float, clock: SimClock, now: float) -> float | None:
    if "endtime" in given:
        return _moment(given["endtime"][1], clock, now)
    text = given["duration"][1]
    try:
        seconds = parse_limit(text)
    except ValueError:
        return None
    return start + (YEAR_SECONDS if seconds is None else seconds)


def _moment(text: str, clock: SimClock, now: float) -> float | None:
    """Simulated seconds of `now`, `now+2hours`, `2026-12-01T10:00:00`; None for anything else."""
    found = _RELATIVE.fullmatch(text)
    if found is not None:
        unit = _UNITS.get((found[2] or "").lower())
        return None if unit is None else now + int(found[1] or 0) * unit
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    zero = clock.wall(0.0)
    return (when.replace(tzinfo=zero.tzinfo) - zero).total_seconds()

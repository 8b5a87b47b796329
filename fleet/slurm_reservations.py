"""Readers for `scontrol show reservation`, of Slurm 21.08 to 25.11.

Source of the fields: slurm_sprint_reservation_info of Slurm 22.05, read back from a real one. Later versions add
fields and a comment that may hold anything; a field is read where it first stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.hostlist import expand

_START = re.compile(r"^ReservationName=(?=\S+\s)", re.MULTILINE)
_NOTHING = frozenset({"", "(null)", "n/a", "none"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation. `users` and `accounts` are Slurm's texts; a name with `-` in front is shut out.

    `start` and `end` are Slurm's local times (`2026-11-30T16:00:00`), compared as text. `active`: it has begun and
    not ended. `flags` holds Slurm's words, upper case (MAGNETIC, SPEC_NODES, MAINT …).
    """

    name: str
    nodes: tuple[str, ...]
    flags: frozenset[str]
    active: bool
    users: str
    accounts: str
    start: str
    end: str

    @property
    def yields(self) -> bool:
        """May another reservation hold the same nodes at the same time?"""
        return bool(self.flags & {"MAINT", "OVERLAP"})


def read_reservations(text: str) -> dict[str, Reservation]:
    """Every reservation of the text, with or without `-o`; none where Slurm says that there is none.

    Raises SchedulerUnreachable where the text is neither records nor Slurm's word for none, or is cut off.
    """
    marks = [match.start() for match in _START.finditer(text)]
    if not marks:
        if re.match(r"No reservations in the system", text.strip()):
            return {}
        raise SchedulerUnreachable("scontrol's answer names no reservation, nor says that there is none; ask again")
    records = [text[begin:end] for begin, end in pairwise([*marks, len(text)])]
    found = (_read(record) for record in records)
    return {reservation.name: reservation for reservation in found}


def _read(record: str) -> Reservation:
    def field(name: str) -> str:
        match = re.search(rf"(?:^|\s){name}=(\S*)", record)
        return match[1] if match and match[1].lower() not in _NOTHING else ""

    name, state = field("ReservationName"), field("State")
    if not state:
        raise SchedulerUnreachable(f"scontrol's answer is cut off inside reservation {name}; ask again")
    try:
        nodes = expand(field("Nodes"))
    except ConfigurationError as error:
        raise SchedulerUnreachable(f"the nodes of reservation {name} are named in an unknown way: {error}") from error
    return Reservation(
        name=name,
        nodes=nodes,
        flags=frozenset(word for word in field("Flags").upper().split(",") if word),
        active=state.upper() == "ACTIVE",
        users=field("Users"),
        accounts=field("Accounts"),
        start=field("StartTime"),
        end=field("EndTime"),
    )

"""Fences as Slurm reservations: nodes of a new kind are reserved for everybody, and draw jobs in.

A MAGNETIC reservation that admits every user lets the scheduler try each waiting job twice: on the reserved nodes
alone, and on all others alone. So a job runs wholly inside or wholly outside; see docs/fence.md for the proof on a
real Slurm, and for the limits.
"""

from __future__ import annotations

import re

from adapters.slurm_commands import SlurmCommands, chunks, words_of
from fleet.errors import ConfigurationError, FleetError, SchedulerUnreachable
from fleet.ports import CommandResult, Host
from fleet.slurm_reservations import Reservation, read_reservations

_FLAGS = "MAGNETIC,IGNORE_JOBS,NO_HOLD_JOBS_AFTER"
"""MAGNETIC draws jobs in; IGNORE_JOBS lets a node in while others' jobs run there; the last one keeps jobs that named
the fence themselves from being held when it goes."""
_NEEDED = frozenset({"MAGNETIC", "IGNORE_JOBS", "SPEC_NODES"})
"""As Slurm shows them. It adds SPEC_NODES to a reservation of named nodes; without that it would exchange them."""

_PREFIX = "gpufleet."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,63}")
_GONE = re.compile(r"requested reservation is invalid|reservation not found|invalid reservation", re.I)
_IN_USE = re.compile(r"reservation is in use|reservation.*busy", re.I)
_OVERLAP = re.compile(r"overlap", re.I)
_NO_SUCH_USER = re.compile(r"invalid user|invalid account|user.*missing", re.I)
_SHUT_OUT = ("nobody", "root")
"""A reservation open to all must shut one user out. Where accounting is on, that user must have an association; root
has one by default, and then root's own jobs stay outside of the fence."""
_TRIES = 3
_BATCH = 500  # jobs in one command


class SlurmFences:
    """The Fences port over Slurm; tested on Slurm 22.05, needs 20.02 or later and operator rights."""

    def __init__(self, host: Host, timeout_seconds: float = 60.0) -> None:
        self._slurm = SlurmCommands(host, timeout_seconds)

    def read_fences(self) -> dict[str, tuple[str, ...]]:
        """The nodes of every fence of ours, by name. Raises SchedulerUnreachable, ConfigurationError."""
        ours = {name.removeprefix(_PREFIX): found for name, found in self._read().items() if name.startswith(_PREFIX)}
        return {name: found.nodes for name, found in ours.items()}

    def ensure_fence(self, name: str, nodes: tuple[str, ...]) -> bool:
        """Make the fence hold exactly `nodes`, whatever runs there; without nodes it goes. True: something changed.

        A node in another fence leaves that one. A node in an active reservation of somebody else is left out: only that
        reservation's jobs run there. Raises ConfigurationError where such a reservation is still to begin;
        SchedulerUnreachable where jobs kept starting while the fence was to go; otherwise as the scheduler does.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(f"{name!r} can name no fence; use letters, digits and _ . : @ + - (at most 64)")
        known = self._read()
        mine = known.get(_PREFIX + name)
        wanted = set(nodes) - _reserved_by_others(set(nodes), known)
        if not wanted:
            return mine is not None and self._remove(mine.name)
        if mine is not None and set(mine.nodes) == wanted and mine.flags >= _NEEDED:
            return False
        for other in known.values():
            if other.name.startswith(_PREFIX) and other.name != _PREFIX + name and wanted & set(other.nodes):
                self._shrink(other, wanted)
        self._set(_PREFIX + name, wanted, mine)
        return True

    def _read(self) -> dict[str, Reservation]:
        return read_reservations(self._slurm.ask("scontrol", "show", "reservation", "-o").stdout)

    def _shrink(self, fence: Reservation, lost: set[str]) -> None:
        rest = set(fence.nodes) - lost
        if rest:
            self._set(fence.name, rest, fence)
        else:
            self._remove(fence.name)

    def _set(self, name: str, nodes: set[str], old: Reservation | None) -> None:
        listed = chunks(tuple(nodes))
        if len(listed) > 1:  # Slurm takes no list in parts before 23.02
            raise ConfigurationError(f"the names of the {len(nodes)} nodes of fence {name} fit into no command line")
        if old is None:
            self._create(name, listed[0])
        else:
            self._change(("scontrol", "update", f"ReservationName={name}", f"Nodes={listed[0]}", f"Flags+={_FLAGS}"))

    def _create(self, name: str, nodes: str) -> None:
        """`Duration=UNLIMITED` is one year in Slurm."""
        begin = ("scontrol", "create", f"ReservationName={name}", "StartTime=now", "Duration=UNLIMITED")
        for user in _SHUT_OUT:
            command = (*begin, f"Nodes={nodes}", f"Users=-{user}", f"Flags={_FLAGS}")
            result = self._slurm.run(*command)
            if result.code == 0:
                return
            if not _NO_SUCH_USER.search(words_of(result)):
                break
        raise self._explain(command, result)

    def _change(self, command: tuple[str, ...]) -> None:
        result = self._slurm.run(*command)
        if result.code != 0:
            raise self._explain(command, result)

    def _remove(self, name: str) -> bool:
        """Slurm deletes no reservation that running jobs belong to: they are taken out of it first, and run on."""
        command = ("scontrol", "delete", f"ReservationName={name}")
        for _ in range(_TRIES):
            result = self._slurm.run(*command)
            if result.code == 0:
                return True
            if _GONE.search(words_of(result)):
                return True
            if not _IN_USE.search(words_of(result)):
                raise self._explain(command, result)
            self._release_jobs(name)
        raise SchedulerUnreachable(f"jobs kept starting in reservation {name}; ask again", evidence=(words_of(result),))

    def _release_jobs(self, name: str) -> None:
        jobs = self._slurm.ask("squeue", "-h", "-R", name, "-o", "%i").stdout.split()
        for at in range(0, len(jobs), _BATCH):
            # one that has ended meanwhile is no matter: the next try to delete tells
            self._slurm.run("scontrol", "update", f"JobId={','.join(jobs[at : at + _BATCH])}", "ReservationName=")

    def _explain(self, command: tuple[str, ...], result: CommandResult) -> FleetError:
        said = words_of(result)
        if _OVERLAP.search(said):
            return ConfigurationError(f"another reservation holds a node of the fence: {said}", evidence=(said,))
        return self._slurm.explain(command, result)


def _reserved_by_others(nodes: set[str], known: dict[str, Reservation]) -> set[str]:
    """Those of `nodes` that an active reservation of somebody else holds."""
    taken: set[str] = set()
    for other in known.values():
        shared = nodes & set(other.nodes)
        if other.name.startswith(_PREFIX) or other.yields or not shared:
            continue
        if not other.active:
            raise ConfigurationError(
                f"reservation {other.name} holds {len(shared)} nodes of the fence, from {other.start} on "
                f"({', '.join(sorted(shared)[:5])}); give it the flag OVERLAP, or end it"
            )
        taken |= shared
    return taken

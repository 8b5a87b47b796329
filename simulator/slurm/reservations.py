"""Advance reservations: who may start where. Source of the rules: reservation.c of Slurm, compared with a running
slurm-wlm 22.05.8. Reservations here are of whole nodes that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simulator.slurm.records import FINISHED, JobState, SlurmError, SlurmJob, SlurmNode

YEAR_SECONDS = 365 * 86400.0
FLAGS = ("MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES", "NO_HOLD_JOBS_AFTER_END", "MAGNETIC")
"""In the order in which scontrol prints them."""


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """Times are simulated seconds. `users` and `accounts` are as they were given; `-name` is shut out."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float
    flags: frozenset[str]
    users: str = ""
    accounts: str = ""

    def holds(self, begin: float, end: float) -> bool:
        """Does it hold its nodes at some moment from `begin` to `end`?"""
        return self.start < end and self.end > begin

    def admits(self, job: SlurmJob) -> bool:
        return _admits(self.users, job.request.user) and _admits(self.accounts, job.request.account)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job may start: on these nodes, as a job of this reservation, or of none ("")."""

    reservation: str
    nodes: list[SlurmNode]


def _admits(names: str, name: str) -> bool:
    listed = [word for word in names.split(",") if word]
    if not listed:
        return True
    return f"-{name}" not in listed if listed[0].startswith("-") else name in listed


class Reservations:
    """Every reservation of the cluster, in the order of their creation."""

    def __init__(self, nodes: Mapping[str, SlurmNode], jobs: Mapping[int, SlurmJob]) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._by_name: dict[str, SlurmReservation] = {}

    def __iter__(self) -> Iterator[SlurmReservation]:
        return iter(self._by_name.values())

    def find(self, name: str) -> SlurmReservation | None:
        return self._by_name.get(name)

    def active(self, now: float) -> list[SlurmReservation]:
        return [found for found in self if found.start <= now < found.end]

    def create(self, new: SlurmReservation) -> None:
        """Raises SlurmError, in Slurm's words and order."""
        if not (new.users or new.accounts):
            raise SlurmError("Reservation request lacks users, groups or accounts")
        self._check_names(new)
        self._check_overlap(new)
        if "IGNORE_JOBS" not in new.flags and self._job_overlaps(new):
            raise SlurmError("Requested nodes are busy")
        if new.name in self._by_name:
            raise SlurmError("Duplicate reservation name")
        self._by_name[new.name] = new

    def update(self, changed: SlurmReservation) -> None:
        """Put `changed` in the place of the one with its name. Raises SlurmError; the old one then stays."""
        if changed.name not in self._by_name:
            raise SlurmError("Requested reservation is invalid")
        if not (changed.users or changed.accounts):
            raise SlurmError("Reservation request lacks users, groups or accounts")
        self._check_names(changed)
        self._check_overlap(changed)
        if "IGNORE_JOBS" not in changed.flags and self._job_overlaps(changed):
            raise SlurmError("Requested nodes are busy")
        self._by_name[changed.name] = changed

    def delete(self, name: str) -> None:
        """Raises SlurmError where it is not there, or a job of it has not ended."""
        if name not in self._by_name:
            raise SlurmError("Requested reservation is invalid")
        jobs = [job for job in self._jobs.values() if job.reservation == name]
        if any(job.state in (JobState.RUNNING, JobState.PENDING) for job in jobs):
            raise SlurmError("Requested reservation is in use")
        del self._by_name[name]
        for job in jobs:
            job.reservation = job.asked_reservation = ""

    def places(self, job: SlurmJob, nodes: list[SlurmNode], now: float) -> list[Place]:
        """Where the scheduler tries the job: its own reservation, else each magnetic one, and then the open nodes."""
        end = now + (job.limit_seconds if job.limit_seconds is not None else YEAR_SECONDS)
        taken = [found for found in self if found.holds(now, end)]
        if job.asked_reservation:
            wanted = [found for found in self.active(now) if found.name == job.asked_reservation]
            return [self._inside(found, nodes, taken) for found in wanted if found.admits(job)]
        drawn = [found for found in self.active(now) if "MAGNETIC" in found.flags and found.admits(job)]
        shut = {name for found in taken for name in found.nodes}
        outside = Place("", [node for node in nodes if node.name not in shut] if shut else nodes)
        return [*(self._inside(found, nodes, taken) for found in drawn), outside]

    def _inside(self, own: SlurmReservation, nodes: list[SlurmNode], taken: list[SlurmReservation]) -> Place:
        others = [
            other
            for other in taken
            if other is not own
            and "MAINT" not in own.flags
            and not ("OVERLAP" in own.flags and "MAINT" not in other.flags)
        ]
        free = set(own.nodes).difference(*(other.nodes for other in others))
        return Place(own.name, [node for node in nodes if node.name in free])

    def _check_names(self, wanted: SlurmReservation) -> None:
        if not wanted.nodes or any(name not in self._nodes for name in wanted.nodes):
            raise SlurmError("Invalid node name specified")

    def _check_overlap(self, wanted: SlurmReservation) -> None:
        if wanted.flags & {"MAINT", "OVERLAP"}:
            return
        for other in self:
            if other.name == wanted.name or other.flags & {"MAINT", "OVERLAP"}:
                continue
            if set(other.nodes) & set(wanted.nodes) and other.holds(wanted.start, wanted.end):
                raise SlurmError("Requested reservation overlaps with another reservation")

    def _job_overlaps(self, wanted: SlurmReservation) -> bool:
        """Does a job run there, of another reservation or none, past the reservation's start?"""
        for job in self._jobs.values():
            if job.state is not JobState.RUNNING or job.reservation == wanted.name:
                continue
            limit = job.limit_seconds if job.limit_seconds is not None else YEAR_SECONDS
            if (job.started or 0.0) + limit > wanted.start and set(job.nodes) & set(wanted.nodes):
                return True
        return False

    def overdue(self, now: float) -> list[SlurmJob]:
        """Running jobs of a reservation that has ended: slurmctld ends them as at their time limit, but for FLEX.

        Source: job_time_limit in job_mgr.c of Slurm 22.05, with ResvOverRun at its default of 0.
        """
        ended = {found.name for found in self if found.end <= now and "FLEX" not in found.flags}
        return [job for job in self._jobs.values() if job.state is JobState.RUNNING and job.reservation in ended]

    def expire(self, now: float) -> None:
        """Reservations whose end has come go, once no job of theirs runs."""
        for found in [found for found in self if found.end <= now]:
            if all(job.state in FINISHED for job in self._jobs.values() if job.reservation == found.name):
                del self._by_name[found.name]

    def mark(self, now: float) -> None:
        """Give each node the flags that active reservations mean."""
        reserved: dict[str, frozenset[str]] = {}
        for found in self.active(now):
            reserved |= dict.fromkeys(found.nodes, found.flags)
        for node in self._nodes.values():
            node.reserved = node.name in reserved
            node.maintenance = "MAINT" in reserved.get(node.name, ())

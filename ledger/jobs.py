"""What operations said and did to jobs, written down before it is done.

A job is named by the scheduler's id. One that was requeued keeps its id and runs anew: each of its runs that an
operation meets has an entry of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from fleet.canonical import canonical_json
from fleet.model import Job
from ledger.database import Database
from ledger.fencing import check_token
from ledger.job_schema import job_asks, job_consents, job_disturbances
from ledger.schema import TableRow

_AT_ONCE = 500  # names in one query
_SAME_RUN = timedelta(seconds=30)  # schedulers round start times, and clocks differ


@dataclass(frozen=True, slots=True)
class JobAsk:
    """What one operation said to one run of a job. `before` is the newest checkpoint then, as it was written.

    `released` is how it was about to be stopped at `released_at`; `confirmed_at` is when the scheduler had taken that.
    """

    id: int
    operation: str
    job: str
    announced_at: datetime
    before: Mapping[str, object]
    signalled_at: datetime | None
    signal: str | None
    released_at: datetime | None
    released: str | None
    confirmed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A job was stopped by an operation; `how` is "requeued", "saved and ended" or "stopped"."""

    job: str
    owner: str
    name: str
    operation: str
    at: datetime
    how: str
    gpus: int | None
    lost_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class ConsentGiven:
    job: str
    consent: bool
    actor: str
    reason: str
    at: datetime


_newest = (
    sa.select(job_asks)
    .where(job_asks.c.operation == sa.bindparam("operation_id"), job_asks.c.job == sa.bindparam("job_id"))
    .order_by(job_asks.c.id.desc())
    .limit(1)
)


class Jobs:
    """Entries are per operation; disturbances and consents are of the whole fleet."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def meet(
        self, operation: str, token: int, job: str, before: Mapping[str, object], began: datetime | None
    ) -> JobAsk:
        """The operation's entry for the run of `job` that began at `began`; made now where there is none.

        `before` is kept only then. Raises LeaseLost where another runner has taken over.
        """
        where = {"operation_id": operation, "job_id": job}
        with self._db.read() as connection:
            row = connection.execute(_newest, where).one_or_none()
        if row is not None and _is_this_run(row, began):
            return _ask(row)
        with self._db.write() as tx:
            check_token(tx.connection, operation, token)
            values = {"operation": operation, "job": job, "announced_at": tx.now, "before": canonical_json(before)}
            tx.connection.execute(sa.insert(job_asks), values)
            tx.record(f"{operation}#{token}", "job.meet", job, {"operation": operation, "before": before})
            return _ask(tx.connection.execute(_newest, where).one())

    def note_signal(self, ask: JobAsk, token: int, signal: str) -> bool:
        """Write down that the job is about to be signalled; False where it has been already."""
        change = (
            sa.update(job_asks).where(job_asks.c.id == ask.id, job_asks.c.signalled_at.is_(None)).values(signal=signal)
        )
        with self._db.write() as tx:
            check_token(tx.connection, ask.operation, token)
            if not tx.connection.execute(change.values(signalled_at=tx.now)).rowcount:
                return False
            tx.record(f"{ask.operation}#{token}", "job.signal", ask.job, {"signal": signal})
            return True

    def forget_signal(self, ask: JobAsk, token: int, why: str) -> None:
        """The scheduler refused to send it: it counts as not asked."""
        change = sa.update(job_asks).where(job_asks.c.id == ask.id).values(signalled_at=None, signal=None)
        with self._db.write() as tx:
            check_token(tx.connection, ask.operation, token)
            tx.connection.execute(change)
            tx.record(f"{ask.operation}#{token}", "job.signal_refused", ask.job, {"why": why})

    def note_release(self, ask: JobAsk, token: int, job: Job, how: str, lost_gpu_hours: float | None) -> bool:
        """Write down that the job is about to be stopped, and what it loses; False where it has been already."""
        change = sa.update(job_asks).where(job_asks.c.id == ask.id, job_asks.c.released_at.is_(None))
        with self._db.write() as tx:
            check_token(tx.connection, ask.operation, token)
            if not tx.connection.execute(change.values(released_at=tx.now, released=how)).rowcount:
                return False
            values = {
                "ask": ask.id,
                "job": job.id,
                "owner": job.user,
                "name": job.name,
                "operation": ask.operation,
                "at": tx.now,
                "how": how,
                "gpus": job.gpus,
                "lost_gpu_hours": lost_gpu_hours,
            }
            tx.connection.execute(sa.insert(job_disturbances), values)
            detail = {"how": how, "gpus": job.gpus, "lost_gpu_hours": lost_gpu_hours, "nodes": len(job.nodes)}
            tx.record(f"{ask.operation}#{token}", "job.release", job.id, detail)
            return True

    def confirm_release(self, ask: JobAsk, token: int) -> None:
        """The scheduler took it: it is not asked again for this run."""
        with self._db.write() as tx:
            check_token(tx.connection, ask.operation, token)
            tx.connection.execute(sa.update(job_asks).where(job_asks.c.id == ask.id).values(confirmed_at=tx.now))

    def forget_release(self, ask: JobAsk, token: int, why: str) -> None:
        """The scheduler refused to stop the job: it was not disturbed."""
        change = sa.update(job_asks).where(job_asks.c.id == ask.id).values(released_at=None, released=None)
        with self._db.write() as tx:
            check_token(tx.connection, ask.operation, token)
            tx.connection.execute(change)
            tx.connection.execute(sa.delete(job_disturbances).where(job_disturbances.c.ask == ask.id))
            tx.record(f"{ask.operation}#{token}", "job.release_refused", ask.job, {"why": why})

    def disturbances(self, operation: str | None = None, since: datetime | None = None) -> tuple[Disturbance, ...]:
        """Of one operation or of all, oldest first."""
        query = sa.select(job_disturbances).order_by(job_disturbances.c.id)
        if operation is not None:
            query = query.where(job_disturbances.c.operation == operation)
        if since is not None:
            query = query.where(job_disturbances.c.at >= since)
        with self._db.read() as connection:
            return tuple(_disturbance(row) for row in connection.execute(query))

    def last_disturbed(self, jobs: Iterable[str], since: datetime) -> dict[str, datetime]:
        """When each of `jobs` was last stopped by any operation, where that was after `since`."""
        wanted = list(jobs)
        found: dict[str, datetime] = {}
        columns = (job_disturbances.c.job, sa.func.max(job_disturbances.c.at).label("at"))
        with self._db.read() as connection:
            for begin in range(0, len(wanted), _AT_ONCE):
                some = job_disturbances.c.job.in_(wanted[begin : begin + _AT_ONCE])
                query = sa.select(*columns).where(some, job_disturbances.c.at >= since).group_by(job_disturbances.c.job)
                found |= {row.job: row.at for row in connection.execute(query)}
        return found

    def set_consent(self, job: str, consent: bool, actor: str, reason: str) -> None:
        """The owner's word, or somebody's for him, for as long as the job has this id."""
        with self._db.write() as tx:
            values = {"job": job, "consent": consent, "actor": actor, "reason": reason, "at": tx.now}
            tx.connection.execute(sa.insert(job_consents), values)
            tx.record(actor, "job.consent", job, {"consent": consent, "reason": reason})

    def consent(self, job: str) -> ConsentGiven | None:
        """The newest word on this job, None where nobody gave one."""
        query = sa.select(job_consents).where(job_consents.c.job == job).order_by(job_consents.c.id.desc()).limit(1)
        with self._db.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else ConsentGiven(row.job, row.consent, row.actor, row.reason, row.at)


def _is_this_run(row: TableRow, began: datetime | None) -> bool:
    return began is None or row.announced_at >= began - _SAME_RUN


def _ask(row: TableRow) -> JobAsk:
    before: Mapping[str, object] = json.loads(row.before)
    return JobAsk(
        row.id,
        row.operation,
        row.job,
        row.announced_at,
        before,
        row.signalled_at,
        row.signal,
        row.released_at,
        row.released,
        row.confirmed_at,
    )


def _disturbance(row: TableRow) -> Disturbance:
    return Disturbance(row.job, row.owner, row.name, row.operation, row.at, row.how, row.gpus, row.lost_gpu_hours)

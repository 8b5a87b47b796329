"""The tables of what operations said and did to jobs. They belong to `ledger.schema`."""

from __future__ import annotations

import sqlalchemy as sa

from ledger.schema import Time, Words, metadata

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# One row for each run of a job that an operation met; a requeued job that is met again is another run.
job_asks = sa.Table(
    "job_asks",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), nullable=False),
    sa.Column("job", Words, nullable=False),
    sa.Column("announced_at", Time, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("signalled_at", Time),
    sa.Column("signal", sa.Text),
    sa.Column("released_at", Time),
    sa.Column("released", sa.Text),
    sa.Column("confirmed_at", Time),
    sa.Index("job_asks_by_job", "operation", "job"),
)

# Every time an operation stopped a job: the same job is not to be hit again for some days, whatever the operation.
job_disturbances = sa.Table(
    "job_disturbances",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("job", Words, nullable=False),
    sa.Column("owner", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("operation", sa.Text, sa.ForeignKey("operations.id"), nullable=False),
    sa.Column("ask", _Id, sa.ForeignKey("job_asks.id"), nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("how", sa.Text, nullable=False),
    sa.Column("gpus", sa.Integer),
    sa.Column("lost_gpu_hours", sa.Float),
    sa.Index("job_disturbances_by_job", "job", "at"),
)

# What an owner, or somebody for him, answered to `gpufleet consent`; the newest of a job counts.
job_consents = sa.Table(
    "job_consents",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("job", Words, nullable=False),
    sa.Column("consent", sa.Boolean, nullable=False),
    sa.Column("actor", Words, nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Index("job_consents_by_job", "job", "id"),
)

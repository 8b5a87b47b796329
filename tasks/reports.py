"""What a person sees of an operation in the Prefect UI."""

from __future__ import annotations

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from fleet.describe import describe_plan
from fleet.drain_plan import DrainPlan, describe_drain
from fleet.plan import FirmwarePlan, Wave
from ledger import NodeRow
from tasks.dispatch import Stopped
from tasks.operations import AnyRun, OperationRun


def publish_plan(run: OperationRun[FirmwarePlan]) -> None:
    """The plan as the run's first artifact."""
    create_markdown_artifact(
        describe_plan(run.plan, run.operation), key=f"plan-{run.operation}", description="What was planned"
    )


def publish_drain_plan(run: OperationRun[DrainPlan]) -> None:
    """The plan of a drain as the run's first artifact: one line for each job."""
    lines = [f"# {run.operation}: drain", "", *(f"- {line}" for line in describe_drain(run.plan))]
    create_markdown_artifact("\n".join(lines), key=f"plan-{run.operation}", description="What was planned")


def publish_wave(run: AnyRun, wave: Wave, stopped: Stopped | None) -> None:
    """One table: what became of each node of the wave."""
    rows = run.ledger.operations.node_rows(run.operation, wave.number)
    ended = "done" if stopped is None else f"stopped: {stopped.text}"
    create_table_artifact(
        [_row(run, row) for row in rows],
        key=f"wave-{wave.number}-{run.operation}",
        description=f"{run.operation} {wave.name}: {ended}",
    )


def _row(run: AnyRun, row: NodeRow) -> dict[str, object]:
    minutes = (row.finished - row.started).total_seconds() / 60 if row.started and row.finished else None
    return {
        "node": row.node,
        "rack": run.plan.nodes[row.node].rack,
        "status": row.status.value,
        "reason": row.reason,
        "visits": row.attempts,
        "minutes": None if minutes is None else round(minutes, 1),
        "components": len(run.plan.nodes[row.node].changes),
    }

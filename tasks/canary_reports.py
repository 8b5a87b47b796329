"""What a person sees of a driver rollout in the Prefect UI: the plan, each wave's verdict, the way back."""

from __future__ import annotations

from prefect.artifacts import create_markdown_artifact

from blocks.fleet import Fleet
from fleet.canary_reading import ReportAbout
from fleet.canary_report import report_html, report_markdown
from fleet.canary_verdict import CanaryVerdict, ReturnVerdict
from fleet.driver_describe import describe_driver_plan
from fleet.driver_rollback import RollbackPlan, describe_rollback
from fleet.driver_rollout import DriverPlan
from ledger import VerdictRecord
from tasks.canary import ROLLBACK, judge_return
from tasks.canary_planning import read_driver_plan
from tasks.children import child_of
from tasks.operations import OperationRun


def publish_driver_plan(run: OperationRun[DriverPlan]) -> None:
    """The plan as the run's first artifact."""
    text = describe_driver_plan(run.plan, run.operation)
    create_markdown_artifact(text, key=f"plan-{run.operation}", description="What was planned")


def publish_rollback_plan(run: OperationRun[RollbackPlan]) -> None:
    """The plan of the way back as the run's first artifact."""
    lines = [f"# {run.operation}: driver back", "", *(f"- {line}" for line in describe_rollback(run.plan))]
    create_markdown_artifact("\n".join(lines), key=f"plan-{run.operation}", description="What was planned")


def publish_verdicts(run: OperationRun[DriverPlan]) -> None:
    """The newest verdict of each wave as an artifact."""
    for record in newest_verdicts(run.ledger.verdicts.of(run.operation)):
        verdict = CanaryVerdict.from_json(record.verdict_json)
        text = report_markdown(verdict, about(run.fleet, run.operation, run.plan, record, returned(run, record)))
        key = f"verdict-{record.wave}-{run.operation}"
        create_markdown_artifact(text, key=key, description=f"wave {record.wave}: {verdict.text}"[:200])


def newest_verdicts(records: tuple[VerdictRecord, ...]) -> tuple[VerdictRecord, ...]:
    """The last look of each wave, by wave."""
    last = {record.wave: record for record in sorted(records, key=lambda record: record.look)}
    return tuple(last[wave] for wave in sorted(last))


def returned(run: OperationRun[DriverPlan], record: VerdictRecord) -> ReturnVerdict | None:
    """The verdict on the way back, where one was gone because of this wave."""
    wave = next(wave for wave in run.plan.waves if wave.number == record.wave)
    if child_of(run, wave, ROLLBACK) is None:
        return None
    return judge_return(run, wave, CanaryVerdict.from_json(record.verdict_json))


def about(
    fleet: Fleet, operation: str, plan: DriverPlan, record: VerdictRecord, back: ReturnVerdict | None
) -> ReportAbout:
    """What the report says beside the verdict."""
    wave = next(wave for wave in plan.waves if wave.number == record.wave)
    former = sorted({node.changes[0].current for name, node in plan.nodes.items() if name in wave.nodes})
    return ReportAbout(
        operation=operation,
        change=f"driver {', '.join(former)} to {plan.to}",
        pool=wave.pool,
        at=record.at,
        traits=plan.traits,
        returned=back,
        evidence=f"raw output by digest beside the ledger in {fleet.folder()}",
    )


def verdict_page(fleet: Fleet, operation: str, wave: int | None) -> tuple[CanaryVerdict, str]:
    """The newest verdict (of `wave`, if given) and its page. Raises PreconditionError where none was given yet."""
    from fleet.errors import PreconditionError

    record = fleet.ledger().verdicts.newest(operation, wave)
    if record is None:
        raise PreconditionError(f"{operation} has no verdict yet; `gpufleet status {operation}` says where it stands")
    plan = read_driver_plan(fleet.ledger().operations.get(operation))
    run = OperationRun(fleet, operation, 0, plan)
    verdict = CanaryVerdict.from_json(record.verdict_json)
    return verdict, report_html(verdict, about(fleet, operation, plan, record, returned(run, record)))

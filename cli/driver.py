"""Commands of driver rollouts: plan driver, run driver, verdict, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from cli.exit_codes import FAILED, PROBLEMS, REFUSED
from cli.filters import check_known
from cli.operate import OperationArgument, PoolOption, ReasonOption, SeedOption, plan_app, run_app
from cli.session import (
    FleetOption,
    JsonOption,
    actor,
    console,
    counted,
    errors,
    exits,
    open_fleet,
    print_json,
    use_server,
)

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.canary_verdict import CanaryVerdict
    from fleet.driver_rollout import DriverPlan
    from ledger import Operation

ToOption = Annotated[str, typer.Option("--to", metavar="RELEASE", help="Driver release in full: 580.95.05.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask after showing the plan.")]


@plan_app.command("driver")
@exits
def plan_driver(
    to: ToOption,
    pool: PoolOption = None,
    seed: SeedOption = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the plan of a driver rollout: cohorts, measures, what they can find, waves, nodes left out.

    Example: gpufleet plan driver --to 580.95.05 --pool train

    Exit codes: 0 planned; 2 fleet file or release wrong; 4 scheduler unreachable; 6 no such pool.
    """
    plan = make_plan(open_fleet(fleet), to, pool, seed, quiet=as_json)
    if as_json:
        print_json(plan.model_dump(mode="json") | {"digest": plan.digest})
    else:
        show_plan(plan)


@run_app.command("driver")
@exits
def run_driver(
    to: ToOption,
    pool: PoolOption = None,
    seed: SeedOption = None,
    yes: YesOption = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a driver rollout, show it, and have the worker carry it out. Every wave waits for its gate.

    Example: gpufleet run driver --to 580.95.05 --pool dev

    Exit codes: 0 begun (or nothing to do); 2 fleet file or release wrong, or nothing runs (`gpufleet up`);
    4 unreachable; 6 no such pool; 8 you said no.
    """
    opened = open_fleet(fleet)
    use_server(Path(opened.fleet_file), required=True)
    plan = make_plan(opened, to, pool, seed, quiet=as_json)
    if not as_json:
        show_plan(plan)
    if not plan.nodes:
        console.print("Nothing to do.") if not as_json else print_json({"operation": None, "nodes": 0})
        return
    if not yes and not typer.confirm(
        f"Change the driver of {counted(len(plan.nodes), 'node')} in {counted(len(plan.waves), 'wave')}?", err=as_json
    ):
        raise typer.Exit(REFUSED)
    operation = begin_driver(opened, plan)
    if as_json:
        print_json({"operation": operation.id, "digest": plan.digest, "nodes": len(plan.nodes)})
    else:
        console.print(f"begun: {operation.id}; approve its first wave:")
        console.print(f"  gpufleet approve {operation.id} --wave 1 --key KEY", highlight=False, soft_wrap=True)


@exits
def verdict(
    operation: OperationArgument,
    wave: Annotated[int | None, typer.Option("--wave", min=1, help="Of this wave; default: the newest.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one page to this file.")] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a driver rollout's newest verdict is, how sure it is, and what would have changed it.

    Example: gpufleet verdict dr-20261130-7k3q --html report.html

    Exit codes: 0 pass; 1 fail; 3 inconclusive; 6 no such operation, or no verdict yet.
    """
    opened = open_fleet(fleet)
    from fleet.canary_verdict import Outcome
    from tasks.canary_reports import verdict_page

    found, page = verdict_page(opened, operation, wave)
    if html is not None:
        html.write_text(page, encoding="utf-8")
    if as_json:
        typer.echo(found.to_json())
    else:
        _show_verdict(found)
        if html is not None:
            console.print(f"report: {html}", highlight=False)
    code = {Outcome.PASS: 0, Outcome.FAIL: FAILED, Outcome.INCONCLUSIVE: PROBLEMS}[found.outcome]
    if code:
        raise typer.Exit(code)


@exits
def rollback(
    operation: OperationArgument,
    reason: ReasonOption = "",
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done; change nothing.")] = False,
    yes: YesOption = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the former driver and settings back on every node that a driver rollout has changed.

    Example: gpufleet rollback dr-20261130-7k3q --plan

    Exit codes: 0 begun (or planned); 2 nothing runs (`gpufleet up`); 4 unreachable; 6 no such operation, it is not
    over, nothing was changed, or another rollback of it is under way; 8 you said no.
    """
    opened = open_fleet(fleet)
    if not plan:
        use_server(Path(opened.fleet_file), required=True)
    from fleet.driver_rollback import describe_rollback
    from tasks.canary_planning import check_may_go_back, keep_rollback, make_rollback_plan

    check_may_go_back(opened, operation)
    made = make_rollback_plan(opened, operation, reason)
    if not as_json:
        for line in describe_rollback(made):
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
        _show_left_out(made.left_out)
    elif plan:
        print_json(made.model_dump(mode="json") | {"digest": made.digest})
    if plan:
        return
    if not yes and not typer.confirm(f"Put {counted(len(made.nodes), 'node')} back?", err=as_json):
        raise typer.Exit(REFUSED)
    begun = keep_rollback(opened, made, actor())
    _start(opened, begun)
    if as_json:
        print_json({"operation": begun.id, "digest": made.digest, "nodes": len(made.nodes)})
    else:
        console.print(f"begun: {begun.id}; `gpufleet status {begun.id} --watch` follows it", highlight=False)


def make_plan(fleet: Fleet, to: str, pools: list[str] | None, seed: int | None, quiet: bool) -> DriverPlan:
    """Read the nodes with a bar, and plan."""
    from tasks.canary_planning import make_driver_plan

    check_known("pool", pools or (), fleet.spec().pools)
    with Progress(console=errors, transient=True, disable=quiet) as progress:
        total = sum(not pools or node.pool in pools for node in fleet.spec().nodes)
        bar = progress.add_task("reads drivers", total=total)
        return make_driver_plan(fleet, to, tuple(pools or ()), seed, lambda n: progress.update(bar, completed=n))


def begin_driver(fleet: Fleet, plan: DriverPlan) -> Operation:
    """Keep the plan as an operation and start its flow run."""
    from tasks.canary_planning import keep_driver_plan

    operation = keep_driver_plan(fleet, plan, actor())
    _start(fleet, operation)
    return operation


def show_plan(plan: DriverPlan) -> None:
    """The plan as a table that a person can read."""
    from fleet.driver_describe import COHORT_COLUMNS, cohort_rows, driver_facts

    for fact in driver_facts(plan):
        console.print(f"  {fact}", highlight=False, markup=False, soft_wrap=True)
    table = Table(*COHORT_COLUMNS, title="Waves", padding=(0, 0, 0, 1))
    for row in cohort_rows(plan):
        table.add_row(*row)
    console.print(table)
    for number, cohort in plan.cohorts.items():
        for note in cohort.notes:
            console.print(f"  wave {number}: {note}", highlight=False, markup=False, soft_wrap=True)
    _show_left_out(plan.left_out)


def _show_left_out(left_out: dict[str, str]) -> None:
    for node, why in sorted(left_out.items()):
        console.print(f"  left out: {node}: {why}", highlight=False, markup=False, soft_wrap=True)


def _show_verdict(found: CanaryVerdict) -> None:
    from fleet.canary_reading import would_change_all
    from fleet.canary_report import MEASURE_HEADING, measure_rows

    console.print(found.text, highlight=False, markup=False, soft_wrap=True)
    table = Table(*MEASURE_HEADING, padding=(0, 0, 0, 1))
    for row in measure_rows(found):
        table.add_row(*row)
    console.print(table)
    for line in (*found.notes, *would_change_all(found)):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def _start(fleet: Fleet, operation: Operation) -> None:
    from blocks.fleet import block_name
    from tasks.runs import start_run

    run = start_run(block_name(fleet.spec().fleet), operation)
    fleet.ledger().operations.bind_flow_run(operation.id, run)

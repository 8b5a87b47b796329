"""Commands that take nodes out of service by themselves, and give them back: drain, undrain, consent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import REFUSED
from cli.session import (
    FleetOption,
    JsonOption,
    actor,
    console,
    counted,
    exits,
    open_fleet,
    print_json,
    use_server,
)
from fleet.errors import ConfigurationError, PreconditionError
from fleet.hostlist import compress, expand

if TYPE_CHECKING:
    from fleet.drain_plan import DrainPlan

NodesArgument = Annotated[str, typer.Argument(metavar="NODES", help="A node, or a hostlist like 'gpu-[0001-0016]'.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask after showing the plan.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="Only say what would be done; change nothing.")]


@exits
def drain(
    nodes: NodesArgument,
    deadline: Annotated[str, typer.Option("--deadline", help="From each node's cordon: 6h, 90m, 2d.")] = "6h",
    until_checkpoint: Annotated[
        bool,
        typer.Option("--until-checkpoint", help="Refuse where the fleet file names no storage of checkpoints."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Stop the jobs at once; needs an approval that shows what they lose.")
    ] = False,
    reason: ReasonOption = "",
    plan: PlanOption = False,
    yes: YesOption = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take nodes out of service once their jobs have a checkpoint, and keep them drained.

    Example: gpufleet drain 'gpu-[0001-0016]' --until-checkpoint --deadline 6h --plan

    Exit codes: 0 begun (or planned); 2 fleet file wrong, or nothing runs (`gpufleet up`); 4 scheduler
    unreachable; 6 no such node, or none of them is in service; 8 you said no.
    """
    seconds = _deadline_seconds(deadline)
    opened = open_fleet(fleet)
    if not plan:
        use_server(Path(opened.fleet_file), required=True)
    if until_checkpoint and opened.spec().drain.checkpoints is None:
        raise ConfigurationError("no storage of checkpoints is named: set drain.checkpoints in the fleet file")
    from tasks.draining import keep_drain, make_drain_plan

    made = make_drain_plan(opened, expand(nodes), seconds, reason, force)
    if not as_json:
        show_drain(made)
    elif plan:
        print_json(made.model_dump(mode="json") | {"digest": made.digest})
    if plan:
        return
    if not yes and not typer.confirm(f"Drain {counted(len(made.nodes), 'node')}?", err=as_json):
        raise typer.Exit(REFUSED)
    operation = keep_drain(opened, made, actor())
    from blocks.fleet import block_name
    from tasks.runs import start_run

    run = start_run(block_name(opened.spec().fleet), operation)
    opened.ledger().operations.bind_flow_run(operation.id, run)
    if as_json:
        print_json({"operation": operation.id, "digest": made.digest, "nodes": len(made.nodes)})
        return
    console.print(f"begun: {operation.id}; `gpufleet why NODE` says what each node waits for", highlight=False)
    for wave in made.waves if force else ():
        console.print(f"  gpufleet approve {operation.id} --wave {wave.number} --key KEY", highlight=False)


def show_drain(plan: DrainPlan) -> None:
    """The plan, a line for each job."""
    from fleet.drain_plan import describe_drain

    for line in describe_drain(plan):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    for node, why in sorted(plan.left_out.items()):
        console.print(f"  left out: {node}: {why}", highlight=False, markup=False, soft_wrap=True)


@exits
def undrain(
    nodes: NodesArgument,
    reason: ReasonOption = "",
    plan: PlanOption = False,
    yes: YesOption = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give drained nodes back. A cordon that somebody else has set stays, with its reason.

    Example: gpufleet undrain 'gpu-[0001-0016]'

    Exit codes: 0 back in service (or planned); 4 scheduler unreachable; 6 no such node, or one of them is not
    drained: then none is touched; 8 you said no.
    """
    opened = open_fleet(fleet)  # before anything imports Prefect: it reads its settings once
    from tasks.draining import plan_undrain, undrain_nodes

    found = plan_undrain(opened, expand(nodes))
    refused = [f"{one.node} {one.why_not}" for one in found if one.why_not is not None]
    if refused:
        raise PreconditionError("not drained, so nothing is done: " + "; ".join(refused))
    if not as_json:
        console.print(f"back into service: {compress([one.node for one in found])}", highlight=False)
        for one in found:
            if one.keeps_cordon is not None:
                console.print(
                    f"  {one.node} stays cordoned, not by us: {one.keeps_cordon}", highlight=False, markup=False
                )
    if not plan:
        if not yes and not typer.confirm(f"Give {counted(len(found), 'node')} back?", err=as_json):
            raise typer.Exit(REFUSED)
        undrain_nodes(opened, found, actor(), reason)
    if as_json:
        print_json({"nodes": [{"node": one.node, "keeps_cordon": one.keeps_cordon} for one in found], "done": not plan})


@exits
def consent(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The scheduler's job id.")],
    no: Annotated[bool, typer.Option("--no", help="Do not disturb it before the deadline.")] = False,
    reason: ReasonOption = "",
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer for a job: it may be asked for a checkpoint and stopped at once, or (--no) is to be left alone.

    Goes before what the job's comment says; a rule of the site that denies it goes before both.

    Example: gpufleet consent 4711

    Exit codes: 0 recorded; 4 scheduler unreachable; 6 the scheduler knows no such job.
    """
    opened = open_fleet(fleet)
    found = next((one for one in opened.scheduler().read_jobs() if one.id == job), None)
    if found is None:
        raise PreconditionError(f"no job {job} holds nodes now; `squeue` lists them")
    opened.ledger().jobs.set_consent(job, not no, actor(), reason)
    if as_json:
        print_json({"job": job, "owner": found.user, "consent": not no})
    else:
        told = "is to be left alone until the deadline" if no else "may be asked and stopped at once"
        console.print(f"job {job} of {found.user} {told}", highlight=False, markup=False)


def _deadline_seconds(text: str) -> float:
    from fleet.job_consent import read_duration

    span = read_duration(text)
    if span is None or not span:
        raise ConfigurationError(f"--deadline {text!r} is no length of time; write 6h, 90m or 2d")
    return span.total_seconds()

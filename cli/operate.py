"""Commands that change something: plan, run, approve, halt, resume, abort."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from cli.exit_codes import REFUSED
from cli.filters import check_known
from cli.session import FleetOption, JsonOption, actor, console, errors, exits, open_fleet, print_json, use_server
from fleet.errors import PreconditionError

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.plan import FirmwarePlan
    from ledger import Operation

plan_app = typer.Typer(help="Say what an operation would do, to how many; change nothing.", no_args_is_help=True)
run_app = typer.Typer(help="Begin an operation after showing its plan.", no_args_is_help=True)

BundleOption = Annotated[Path, typer.Option("--bundle", help="Bundle folder, or its bundle.yaml.")]
PoolOption = Annotated[list[str] | None, typer.Option("--pool", help="Only this pool; may be repeated.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of the order; drawn where not given.")
]
OperationArgument = Annotated[str, typer.Argument(metavar="OP", help="Operation id, as `gpufleet status` shows it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.")]


@plan_app.command("firmware")
@exits
def plan_firmware(
    bundle: BundleOption,
    pool: PoolOption = None,
    seed: SeedOption = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the plan of a firmware rollout: waves, limits, one-way components, nodes left out.

    Example: gpufleet plan firmware --bundle bundles/hgx-24.09 --pool train

    Exit codes: 0 planned; 2 fleet file wrong; 4 scheduler unreachable; 6 no such pool; 8 bundle not trusted.
    """
    plan = _make_plan(open_fleet(fleet), bundle, pool, seed, quiet=as_json)
    if as_json:
        print_json(plan.model_dump(mode="json") | {"digest": plan.digest})
    else:
        show_plan(plan)


@run_app.command("firmware")
@exits
def run_firmware(
    bundle: BundleOption,
    pool: PoolOption = None,
    seed: SeedOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask after showing the plan.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a firmware rollout, show it, and have the worker carry it out. Every wave waits for its gate.

    Example: gpufleet run firmware --bundle bundles/hgx-24.09 --pool dev

    Exit codes: 0 begun (or nothing to do); 2 fleet file wrong or nothing runs (`gpufleet up`);
    4 unreachable; 6 no such pool; 8 bundle not trusted, or you said no.
    """
    opened = open_fleet(fleet)
    use_server(Path(opened.fleet_file), required=True)
    plan = _make_plan(opened, bundle, pool, seed, quiet=as_json)
    if not as_json:
        show_plan(plan)
    if not plan.nodes:
        console.print("Nothing to do.") if not as_json else print_json({"operation": None, "nodes": 0})
        return
    if not yes and not typer.confirm(f"Change {len(plan.nodes)} nodes in {len(plan.waves)} waves?", err=as_json):
        raise typer.Exit(REFUSED)
    operation = begin(opened, plan)
    if as_json:
        print_json({"operation": operation.id, "digest": plan.digest, "nodes": len(plan.nodes)})
    else:
        console.print(f"begun: {operation.id}; approve its first wave:")
        console.print(f"  gpufleet approve {operation.id} --wave 1 --key KEY", highlight=False, soft_wrap=True)


def begin(fleet: Fleet, plan: FirmwarePlan) -> Operation:
    """Keep the plan as an operation and start its flow run."""
    from tasks.planning import open_operation

    operation = open_operation(fleet, plan, actor())
    _start(fleet, operation)
    return operation


def _start(fleet: Fleet, operation: Operation) -> None:
    from blocks.fleet import block_name
    from tasks.runs import start_run

    run = start_run(block_name(fleet.spec().fleet), operation)
    fleet.ledger().operations.bind_flow_run(operation.id, run)


@exits
def approve(
    operation: OperationArgument,
    wave: Annotated[int, typer.Option("--wave", min=1, max=100_000, help="Number of the wave.")],
    key: Annotated[Path, typer.Option("--key", help="Your SSH key; ssh-keygen signs with it.")],
    reject: Annotated[bool, typer.Option("--reject", help="Reject the wave instead.")] = False,
    comment: Annotated[str, typer.Option("--comment", help="Why; kept in the audit chain.")] = "",
    only_print: Annotated[
        bool, typer.Option("--print", help="Only print the signature, for the form in the Prefect UI.")
    ] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign this wave of this plan with your SSH key.

    Example: gpufleet approve fw-20261130-7k3q --wave 1 --key ~/.ssh/id_ed25519

    Exit codes: 0 recorded; 2 key or policy wrong; 6 no such operation or gate; 8 the approval is refused.
    """
    opened = open_fleet(fleet)  # before anything imports Prefect: it reads its settings once
    from cli.approving import give_approval, sign_approval

    if only_print:
        typer.echo(sign_approval(opened, operation, wave, key, reject))
        return
    status = give_approval(opened, operation, wave, key, reject, comment)
    if as_json:
        print_json({"operation": operation, "wave": wave, "gate": status.value})
    else:
        console.print(f"{operation} wave {wave}: gate is {status.value}")


@exits
def halt(
    operation: OperationArgument, reason: ReasonOption = "", fleet: FleetOption = None, as_json: JsonOption = False
) -> None:
    """Touch no further node; nodes in hand are finished. `gpufleet resume` goes on.

    Example: gpufleet halt fw-20261130-7k3q --reason "storage maintenance"

    Exit codes: 0 asked for; 6 no such operation, or it is over.
    """
    _ask_to_stop(operation, "halt", reason, fleet, as_json)


@exits
def abort(
    operation: OperationArgument, reason: ReasonOption = "", fleet: FleetOption = None, as_json: JsonOption = False
) -> None:
    """End the operation for good: nodes in hand are finished, no new one is touched.

    Example: gpufleet abort fw-20261130-7k3q --reason "bad release"

    Exit codes: 0 asked for; 6 no such operation, or it is over.
    """
    _ask_to_stop(operation, "abort", reason, fleet, as_json)


def _ask_to_stop(operation: str, verb: str, reason: str, fleet: Path | None, as_json: bool) -> None:
    from ledger import ControlVerb

    opened = open_fleet(fleet)
    opened.ledger().operations.request(operation, ControlVerb(verb), actor(), reason)
    _nudge(opened)
    if as_json:
        print_json({"operation": operation, "asked": verb})
    else:
        console.print(f"{operation}: nodes in hand are finished, then it {verb}s")


@exits
def resume(
    operation: OperationArgument,
    wave: Annotated[
        int | None, typer.Option("--wave", min=1, max=100_000, help="The wave that you expect it to go on with.")
    ] = None,
    reason: ReasonOption = "",
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a halted operation up again where it stood; a rejected or timed-out gate is asked anew.

    Example: gpufleet resume fw-20261130-7k3q --wave 3

    Exit codes: 0 taken up; 2 nothing runs (`gpufleet up`); 6 no such operation, or not that wave.
    """
    from ledger import ControlVerb, OperationState

    opened = open_fleet(fleet)
    use_server(Path(opened.fleet_file), required=True)
    kept = opened.ledger().operations.get(operation)
    stands_at = _next_wave(opened, operation)
    if wave is not None and wave != stands_at:
        raise PreconditionError(f"{operation} would go on with wave {stands_at}, not {wave}")
    if kept.state not in (OperationState.HALTED, OperationState.PLANNED):
        raise PreconditionError(f"{operation} is {kept.state.value}: there is nothing to resume")
    opened.ledger().operations.request(operation, ControlVerb.RESUME, actor(), reason, stands_at)
    _start(opened, opened.ledger().operations.get(operation))
    if as_json:
        print_json({"operation": operation, "asked": "resume", "wave": stands_at})
    else:
        console.print(f"{operation}: goes on with wave {stands_at}")


def _next_wave(fleet: Fleet, operation: str) -> int:
    from tasks.taking_up import read_outline

    kept = fleet.ledger().operations.get(operation)
    waves = read_outline(kept).waves
    over = {w.number for w in waves if fleet.ledger().waves.marked(operation, w.number, "judged") is not None}
    return next((w.number for w in waves if w.number not in over), len(waves))


def _nudge(fleet: Fleet) -> None:
    """Let an operation that nobody runs hear the request now rather than at the next reconciliation."""
    from blocks.fleet import block_name
    from fleet.errors import TransientError
    from tasks.reconciliation import reconcile_operations

    try:
        for line in reconcile_operations(fleet, block_name(fleet.spec().fleet)):
            errors.print(line, highlight=False)
    except TransientError as error:
        errors.print(f"heard at the next `gpufleet up`: {error.message}", highlight=False)


def _make_plan(fleet: Fleet, bundle: Path, pools: list[str] | None, seed: int | None, quiet: bool) -> FirmwarePlan:
    from tasks.planning import make_plan

    check_known("pool", pools or (), fleet.spec().pools)
    with Progress(console=errors, transient=True, disable=quiet) as progress:
        total = sum(not pools or node.pool in pools for node in fleet.spec().nodes)
        bar = progress.add_task("reads firmware", total=total)
        return make_plan(fleet, bundle, tuple(pools or ()), seed, lambda n: progress.update(bar, completed=n))


def show_plan(plan: FirmwarePlan) -> None:
    """The plan as a table that a person can read."""
    from rich.table import Table

    from fleet.describe import WAVE_COLUMNS, plan_facts, wave_rows

    for fact in plan_facts(plan):
        console.print(f"  {fact}", highlight=False)
    table = Table(*WAVE_COLUMNS, title="Waves", padding=(0, 0, 0, 1))  # 80 columns hold its longest words
    for row in wave_rows(plan):
        table.add_row(*row)
    console.print(table)
    for node, why in sorted(plan.left_out.items()):
        console.print(f"  left out: {node}: {why}", highlight=False)

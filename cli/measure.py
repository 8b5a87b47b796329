"""`gpufleet measure`: benchmarks on drained nodes, and what they found."""

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
    plain_table,
    print_json,
    use_server,
)
from fleet.hostlist import expand
from fleet.measurement_results import MeasuredRow, measured_rows, missing_words
from fleet.measures import Phase

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.measurement_plan import MeasurementPlan

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[NODES]...", help="Nodes, or hostlists like 'gpu-[0001-0016]'.")
]


@exits
def measure(
    nodes: NodesArgument = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=50, help="Of each benchmark, on each node.")] = 3,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.")] = "",
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done; change nothing.")] = False,
    show: Annotated[
        str | None, typer.Option("--show", metavar="OP", help="What OP has measured so far; nothing is begun.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask after showing the plan.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drain nodes, run benchmarks on them, and give them back; or show what was measured.

    Nothing is changed on a node, and no job is stopped without a checkpoint.

    Example: gpufleet measure 'gpu-[0001-0004]' --runs 3 --reason "slow since Monday"

    Exit codes: 0 begun (or planned, or shown); 2 no nodes given, fleet file wrong, or nothing runs (`gpufleet up`);
    4 scheduler unreachable; 6 no such node or operation, or none of the nodes can be measured; 8 you said no.
    """
    if bool(nodes) == (show is not None):
        raise typer.BadParameter("give nodes to measure, or --show OP")
    opened = open_fleet(fleet)
    if show is not None:
        _show(opened, show, as_json)
        return
    if not plan:
        use_server(Path(opened.fleet_file), required=True)
    from tasks.measurement import make_measurement_plan

    names = [name for given in nodes or () for name in expand(given)]
    made = make_measurement_plan(opened, names, Phase.BEFORE, runs, reason)
    if not as_json:
        _show_plan(made)
    elif plan:
        print_json(made.model_dump(mode="json") | {"digest": made.digest})
    if not plan:
        if not yes and not typer.confirm(f"Measure {counted(len(made.nodes), 'node')}?", err=as_json):
            raise typer.Exit(REFUSED)
        _begin(opened, made, as_json)


def _begin(fleet: Fleet, plan: MeasurementPlan, as_json: bool) -> None:
    from blocks.fleet import block_name
    from tasks.measurement import keep_measurement
    from tasks.runs import start_run

    operation = keep_measurement(fleet, plan, actor())
    fleet.ledger().operations.bind_flow_run(operation.id, start_run(block_name(fleet.spec().fleet), operation))
    if as_json:
        print_json({"operation": operation.id, "digest": plan.digest, "nodes": len(plan.nodes)})
        return
    console.print(f"begun: {operation.id}; `gpufleet why NODE` says what each node waits for", highlight=False)
    console.print(f"  gpufleet status {operation.id} --watch", highlight=False)
    console.print(f"  gpufleet measure --show {operation.id}", highlight=False)


def _show_plan(plan: MeasurementPlan) -> None:
    from fleet.measurement_plan import describe_measurement

    for line in describe_measurement(plan):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    for node, why in sorted(plan.left_out.items()):
        console.print(f"  left out: {node}: {why}", highlight=False, markup=False, soft_wrap=True)


def _show(fleet: Fleet, operation: str, as_json: bool) -> None:
    from tasks.measured import measured_samples
    from tasks.measurement import measure_units

    kept = fleet.ledger().operations.get(operation)
    units = measure_units(fleet)
    rows = measured_rows(measured_samples(fleet.ledger(), operation))
    if as_json:
        shown = [_row_json(row, units.get(row.measure, "")) for row in rows]
        print_json({"operation": kept.id, "kind": kept.kind, "state": kept.state.value, "measured": shown})
        return
    console.print(f"{kept.id} {kept.kind}, {kept.state.value}", highlight=False, markup=False)
    columns = ("node", "measure", "when", "median", "spread", "unit", "values", "notes")
    table = plain_table(columns, (_cells(row, units.get(row.measure, "")) for row in rows))
    console.print(table if rows else f"nothing measured yet; `gpufleet status {kept.id}` says why")


def _cells(row: MeasuredRow, unit: str) -> tuple[str, ...]:
    median = "-" if row.median is None else f"{row.median:.5g}"
    spread = "-" if row.spread is None else f"{row.spread:.2%}"
    slowed = f"slowed by {', '.join(row.slowed)}" if row.slowed else ""
    notes = "; ".join(note for note in (slowed, missing_words(row.missing)) if note)
    return (row.node, row.measure, row.phase.value, median, spread, unit, str(row.values), notes)


def _row_json(row: MeasuredRow, unit: str) -> dict[str, object]:
    return {
        "node": row.node,
        "measure": row.measure,
        "phase": row.phase.value,
        "median": row.median,
        "spread": row.spread,
        "unit": unit,
        "values": row.values,
        "missing": [{"reason": reason, "values": count} for reason, count in row.missing],
        "slowed_by": list(row.slowed),
    }

"""Commands that only look: status, why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import HALTED
from cli.runtime.files import RunFolder
from cli.runtime.lifecycle import runtime_status
from cli.serve import status_json
from cli.session import FleetOption, JsonOption, console, exits, open_fleet, plain_table, print_json

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from ledger import NodeRow, Operation


@exits
def status(
    operation: Annotated[str | None, typer.Argument(metavar="[OP]", help="One operation, with its nodes.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show OP as it goes, until it ends or halts.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """What runs, what every operation waits for; with OP also each of its nodes.

    With --watch the state is drawn until the operation ends or halts, then printed as without it. Ctrl-C
    ends only the watching.

    Example: gpufleet status fw-20261130-7k3q --watch

    Exit codes: 0; 2 no such fleet, or --watch without OP; 6 no such operation; 7 (with OP) the operation
    is halted.
    """
    if watch and operation is None:
        raise typer.BadParameter("--watch needs an operation: gpufleet status OP --watch")
    opened = open_fleet(fleet)
    if operation is None:
        _show_fleet(opened, as_json)
        return
    if watch:
        from cli.watch import watch_operation

        watch_operation(opened, operation, quiet=as_json)
    _show_operation(opened, operation, as_json)


def _show_fleet(fleet: Fleet, as_json: bool) -> None:
    runtime = runtime_status(RunFolder(Path(fleet.fleet_file)))
    operations = fleet.ledger().operations.list()
    warnings = _unsafe(fleet)
    tripped = fleet.ledger().leases.tripped()
    if as_json:
        print_json(
            {
                "fleet": fleet.spec().fleet,
                "runtime": status_json(runtime),
                "warnings": warnings,
                "breakers": tripped,
                "operations": [_operation_json(op) for op in operations],
            }
        )
        return
    console.print(
        f"[bold]{fleet.spec().fleet}[/bold]: {len(fleet.spec().nodes)} nodes, {len(fleet.spec().racks)} racks"
    )
    console.print(
        f"server {runtime.server.state}, worker {runtime.worker.state}" + (f", UI {runtime.url}" if runtime.url else "")
    )
    for line in [*runtime.problems, *warnings, *(f"breaker of {pool}: {why}" for pool, why in tripped.items())]:
        console.print(line, style="yellow", highlight=False, markup=False)
    listed = ((op.id, op.kind, op.state.value, f"{op.since:%F %H:%M}", op.reason) for op in operations)
    table = plain_table(("operation", "kind", "state", "since (UTC)", "why"), listed)
    console.print(table if operations else "no operations yet")


def _unsafe(fleet: Fleet) -> list[str]:
    spec = fleet.spec()
    warnings = []
    if not spec.ssh.verify_host_keys:
        warnings.append("SSH host keys are NOT verified (ssh.verify_host_keys: false)")
    if not spec.bmc.tls.verify:
        warnings.append("BMC certificates are NOT verified (bmc.tls.verify: false)")
    if spec.metrics is not None and not spec.metrics.tls.verify:
        warnings.append("the metrics server's certificate is NOT verified (metrics.tls.verify: false)")
    plain = sum(entry.bmc.startswith("http:") for entry in spec.nodes)
    if plain:
        warnings.append(f"{plain} BMCs are spoken to over plain http")
    if any(spec.gate_for(pool).unsigned for pool in spec.pools):
        warnings.append("unsigned approvals are accepted (gate.unsigned: true)")
    return warnings


def _operation_json(operation: Operation) -> dict[str, object]:
    return {
        "id": operation.id,
        "kind": operation.kind,
        "state": operation.state.value,
        "reason_kind": operation.reason_kind.value,
        "reason": operation.reason,
        "since": operation.since.isoformat(),
        "created": operation.created.isoformat(),
        "by": operation.actor,
        "digest": operation.digest,
        "flow_run": operation.flow_run_id,
    }


def _show_operation(fleet: Fleet, operation: str, as_json: bool) -> None:
    from ledger import OperationState

    kept = fleet.ledger().operations.get(operation)
    rows = fleet.ledger().operations.node_rows(operation)
    if as_json:
        print_json(_operation_json(kept) | {"nodes": [_row_json(row) for row in rows]})
    else:
        why = f": {kept.reason}" if kept.reason else ""
        console.print(f"{kept.id} {kept.kind}, {kept.state.value}{why}", highlight=False, markup=False)
        columns = ("node", "wave", "status", "visits", "waits for / reason")
        console.print(plain_table(columns, (_row_cells(row) for row in rows)))
    if kept.state is OperationState.HALTED:
        raise typer.Exit(HALTED)


def _row_cells(row: NodeRow) -> tuple[str, ...]:
    return (row.node, str(row.wave), row.status.value, str(row.attempts), row.reason or row.waiting_for or "")


def _row_json(row: NodeRow) -> dict[str, object]:
    return {
        "node": row.node,
        "wave": row.wave,
        "status": row.status.value,
        "reason": row.reason,
        "visits": row.attempts,
        "waiting_for": row.waiting_for,
    }


@exits
def why(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node name.")],
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why this node is where it is, what it waits for, and for whom.

    Example: gpufleet why gpu-0012

    Exit codes: 0; 2 no such fleet; 6 no such node.
    """
    lines = open_fleet(fleet).ledger().leases.explain(node)
    if as_json:
        print_json({"node": node, "why": lines})
    else:
        console.print("\n".join(lines), highlight=False, markup=False)

"""`gpufleet audit`: the record of every change, shown and verified."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import FAILED
from cli.session import FleetOption, JsonOption, console, exits, open_fleet, print_json

if TYPE_CHECKING:
    from ledger.audit import AuditRecord

audit_app = typer.Typer(help="The hash-chained record of every change.", no_args_is_help=True)


@audit_app.command("verify")
@exits
def audit_verify(fleet: FleetOption = None, as_json: JsonOption = False) -> None:
    """Check the audit chain for changed, missing or reordered records.

    Example: gpufleet audit verify

    Exit codes: 0 whole; 1 damaged; 2 no such fleet.
    """
    audit = open_fleet(fleet).ledger().audit
    faults = audit.verify()
    head = audit.head()
    if as_json:
        print_json({"records": head.seq, "head": head.hash, "faults": [fault.text for fault in faults]})
    elif faults:
        console.print("\n".join(fault.text for fault in faults), highlight=False, markup=False)
    else:
        console.print(f"whole: {head.seq} records, head {head.hash}", highlight=False)
    if faults:
        raise typer.Exit(FAILED)


@audit_app.command("tail")
@exits
def audit_tail(
    count: Annotated[int, typer.Option("-n", min=1, max=1_000_000, help="How many records.")] = 20,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only about this node, operation, pool, or `fleet`.")
    ] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """The newest records, a line each, oldest first: number, time (UTC), who, what, to what, evidence.

    Example: gpufleet audit tail -n 50 --subject gpu-0012

    Exit codes: 0, also where there is no record; 2 no such fleet.
    """
    records = open_fleet(fleet).ledger().audit.tail(count, subject)
    if as_json:
        print_json({"records": [_record_json(record) for record in records]})
        return
    for record in records:
        line = f"{record.seq} {record.at:%F %T} {record.actor} {record.action} {record.subject} {record.payload}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not records:
        console.print("no such records")


def _record_json(record: AuditRecord) -> dict[str, object]:
    return {
        "seq": record.seq,
        "at": record.at.isoformat(),
        "actor": record.actor,
        "action": record.action,
        "subject": record.subject,
        "evidence": json.loads(record.payload),
        "hash": record.hash,
    }

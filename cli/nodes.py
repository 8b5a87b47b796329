"""`gpufleet nodes`: the ledger's inventory as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.session import FleetOption, JsonOption, console, exits, open_fleet, plain_table, print_json
from fleet.errors import PreconditionError
from fleet.model import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger import NodeRecord


@exits
def nodes(
    pool: Annotated[str | None, typer.Option("--pool", help="Only nodes of this pool.")] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="Only nodes of this rack.")] = None,
    state: Annotated[NodeState | None, typer.Option("--state", help="Only nodes in this state.")] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every node as the ledger knows it: where it is, its state, who holds it, and why.

    Example: gpufleet nodes --pool train --state quarantined

    Exit codes: 0, also where no node fits; 2 no such fleet or state; 6 no such pool or rack.
    """
    opened = open_fleet(fleet)
    _check("pool", pool, opened.spec().pools)
    _check("rack", rack, opened.spec().racks)
    found = opened.ledger().inventory.nodes(pool, rack, state)
    if as_json:
        print_json({"nodes": [_node_json(record) for record in found]})
        return
    if not found:
        empty = not opened.ledger().inventory.nodes()
        console.print("no nodes yet: the first operation takes them from the fleet file" if empty else "no such nodes")
        return
    columns = ("node", "pool", "rack", "state", "since (UTC)", "held by", "why")
    console.print(plain_table(columns, (_cells(record) for record in found)))


def _check(what: str, name: str | None, known: Iterable[str]) -> None:
    names = sorted(known)
    if name is not None and name not in names:
        raise PreconditionError(f"no {what} {name!r}; the fleet file has {', '.join(names[:8])}")


def _cells(record: NodeRecord) -> tuple[str, ...]:
    place = (record.name, record.node.pool, record.node.rack, record.state.value)
    return (*place, f"{record.since:%F %H:%M}", record.operation or "", _why(record))


def _why(record: NodeRecord) -> str:
    cordon = None if record.cordoned is None else f"cordoned: {record.cordoned}"
    return "; ".join(text for text in (record.reason, cordon) if text)


def _node_json(record: NodeRecord) -> dict[str, object]:
    return {
        "node": record.name,
        "pool": record.node.pool,
        "rack": record.node.rack,
        "model": record.node.model,
        "state": record.state.value,
        "reason": record.reason,
        "since": record.since.isoformat(),
        "operation": record.operation,
        "cordoned": record.cordoned,
    }

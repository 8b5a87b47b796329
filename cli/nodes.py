"""`gpufleet nodes`: the ledger's inventory as a table."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from cli.drifted import drifted
from cli.filters import check_known
from cli.session import (
    FleetOption,
    JsonOption,
    console,
    counted,
    exits,
    open_fleet,
    plain_table,
    print_csv,
    print_json,
)
from fleet.drivers import is_of
from fleet.hostlist import compress
from fleet.model import NodeState
from fleet.node_health import OK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ledger import NodeRecord

_CSV_COLUMNS = (
    "node",
    "pool",
    "rack",
    "model",
    "driver",
    "health",
    "state",
    "reason",
    "since",
    "operation",
    "cordoned",
)


@exits
def nodes(
    pool: Annotated[str | None, typer.Option("--pool", help="Only nodes of this pool.")] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="Only nodes of this rack.")] = None,
    state: Annotated[NodeState | None, typer.Option("--state", help="Only nodes in this state.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Only models with this text: H100.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Only with this driver or branch: 570.")] = None,
    only_drifted: Annotated[bool, typer.Option("--drifted", help="Only nodes that differ from the baseline.")] = False,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only nodes whose health is not known to be ok.")
    ] = False,
    names_only: Annotated[bool, typer.Option("--hostlist", help="Print only the names, as one hostlist.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
) -> None:
    """Every node as the ledger knows it: where it is, its state, its driver, who holds it, and why.

    A node whose driver was never read fits no --driver.

    Example: gpufleet nodes --pool train --state quarantined

    Example: scontrol show node "$(gpufleet nodes --drifted --hostlist)"

    Exit codes: 0, also where no node fits; 2 no such fleet or state, or no baseline for --drifted; 6 no such
    pool or rack.
    """
    if as_json + as_csv + names_only > 1:
        raise typer.BadParameter("give one of --json, --csv and --hostlist")
    opened = open_fleet(fleet)
    check_known("pool", [pool], opened.spec().pools)
    check_known("rack", [rack], opened.spec().racks)
    known = {now.node: now.known.facts for now in opened.ledger().facts.current(kinds=())}  # without the parts
    drivers, health = ({node: facts.get(name) for node, facts in known.items()} for name in ("driver.loaded", "health"))
    differing = drifted(opened) if only_drifted else None
    found = [
        record
        for record in opened.ledger().inventory.nodes(pool, rack, state)
        if (model is None or model.casefold() in record.node.model.casefold())
        and (driver is None or is_of(drivers.get(record.name), driver))
        and (differing is None or record.name in differing)
        and not (unhealthy and health.get(record.name) == OK)
    ]
    rows = [_node_json(record, drivers.get(record.name), health.get(record.name)) for record in found]
    if as_json:
        print_json({"nodes": rows, "hostlist": compress(record.name for record in found)})
        return
    if as_csv:
        print_csv(rows, _CSV_COLUMNS)
        return
    if names_only:
        typer.echo(compress(record.name for record in found))
        return
    if not found:
        empty = not opened.ledger().inventory.nodes()
        console.print("no nodes yet: the first operation takes them from the fleet file" if empty else "no such nodes")
        return
    columns = ("node", "pool", "rack", "driver", "state", "health", "since (UTC)", "held by", "why")
    cells = (_cells(record, drivers.get(record.name), health.get(record.name)) for record in found)
    console.print(plain_table(columns, cells))
    console.print(_count(found, known), highlight=False)


def _count(found: Collection[NodeRecord], known: Mapping[str, Mapping[str, str]]) -> str:
    """`39 nodes: 38 in_service, 1 quarantined; 304 GPUs`, as their drivers count them."""
    states = Counter(record.state.value for record in found)
    told = [known.get(record.name, {}).get("gpu.count", "") for record in found]
    counts = [int(text) for text in told if re.fullmatch("[0-9]{1,4}", text)]
    silent = f", those of {counted(len(told) - len(counts), 'node')} not known" if len(counts) < len(told) else ""
    listed = ", ".join(f"{number} {state}" for state, number in states.most_common())
    return f"{counted(len(told), 'node')}: {listed}; {counted(sum(counts), 'GPU')}{silent}"


def _cells(record: NodeRecord, driver: str | None, health: str | None) -> tuple[str, ...]:
    place = (record.name, record.node.pool, record.node.rack, driver or "?", record.state.value, health or "?")
    return (*place, f"{record.since:%F %H:%M}", record.operation or "", _why(record))


def _why(record: NodeRecord) -> str:
    cordon = None if record.cordoned is None else f"cordoned: {record.cordoned}"
    return "; ".join(text for text in (record.reason, cordon) if text)


def _node_json(record: NodeRecord, driver: str | None, health: str | None) -> dict[str, object]:
    return {
        "node": record.name,
        "pool": record.node.pool,
        "rack": record.node.rack,
        "model": record.node.model,
        "driver": driver,
        "health": health,
        "state": record.state.value,
        "reason": record.reason,
        "since": record.since.isoformat(),
        "operation": record.operation,
        "cordoned": record.cordoned,
    }

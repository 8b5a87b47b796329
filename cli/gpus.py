"""`gpufleet gpus`: every GPU as it was last read, and those that are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.drifted import drifted
from cli.filters import check_known
from cli.session import (
    FleetOption,
    JsonOption,
    console,
    counted,
    errors,
    exits,
    open_fleet,
    plain_table,
    print_csv,
    print_json,
)
from fleet.drivers import is_of
from fleet.hostlist import compress, expand
from fleet.model import NodeState
from fleet.node_health import OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocks.fleet import Fleet
    from ledger import NodeNow, NodeRecord, PartNow

_Gpu = dict[str, str | None]
_FACTS = {"model": "model", "vbios": "vbios", "ecc": "ecc_mode", "mig": "mig_mode", "health": "health"}
_CSV_COLUMNS = ("node", "pool", "rack", "slot", "serial", "uuid", "driver", *_FACTS, "state", "seen", "missing")
_TABLE = ("node", "slot", "model", "serial", "driver", "vbios", "ecc", "mig", "state", "health")


@exits
def gpus(
    pool: Annotated[str | None, typer.Option("--pool", help="Only in nodes of this pool.")] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="Only in this rack.")] = None,
    nodes: Annotated[str | None, typer.Option("--nodes", help="Only in these nodes: gpu-[001-016].")] = None,
    state: Annotated[NodeState | None, typer.Option("--state", help="Only in nodes in this state.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Only models with this text: H100.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Only with this driver or branch: 570.")] = None,
    only_drifted: Annotated[bool, typer.Option("--drifted", help="Only GPUs that differ from the baseline.")] = False,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only GPUs whose health is not known to be ok.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="Instead, the slots that should hold a GPU and showed none.")
    ] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
) -> None:
    """Every GPU as it was last read: where it sits, what it is, and when it was last seen there.

    A ? stands for what could not be read (JSON: null, CSV: empty). A GPU that the newest reading of its node does
    not list is missing: nobody saw it leave, and the rest of its row is of when it was last seen. A GPU whose
    model or driver is not known fits no filter for it; how many those are is said on standard error.

    --missing lists the GPUs that a node had before, or should have: by the baseline's gpu_count, its own PCI bus, or
    most nodes of its model. Nodes that could not be read are named apart; what they have is not known.

    Example: gpufleet gpus --pool train --driver 570

    Example: gpufleet gpus --missing --rack r07

    Exit codes: 0, also where no GPU fits or none is missing; 2 no such fleet or state, a wrong hostlist, no baseline
    for --drifted, or options that do not go together; 6 no such pool, rack or node.
    """
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    if missing and (model is not None or driver is not None or only_drifted or unhealthy):
        raise typer.BadParameter("--missing goes with --pool, --rack, --nodes and --state only")
    opened = open_fleet(fleet)
    spec, records = opened.spec(), {record.name: record for record in opened.ledger().inventory.nodes()}
    check_known("pool", [pool], spec.pools)
    check_known("rack", [rack], spec.racks)
    wanted = {"pool": pool, "rack": rack, "state": None if state is None else state.value}
    names = None if nodes is None else set(expand(nodes))
    if missing:
        from cli.missing import show_missing

        show_missing(opened, records, names, wanted, as_json, as_csv)
        return
    found = _read(opened, records, names)
    rows = [_gpu(now, part, records.get(now.node)) for now, part in _parts(opened, found, only_drifted)]
    rows = [row for row in rows if all(value in (None, row[key]) for key, value in wanted.items())]
    rows = [row for row in _fitting(rows, model, driver) if not unhealthy or row["health"] != OK]
    if as_json:
        print_json({"gpus": rows, "nodes": compress(str(row["node"]) for row in rows)})
    elif as_csv:
        print_csv(rows, _CSV_COLUMNS)
    elif rows:
        console.print(plain_table((*_TABLE, "seen (UTC)"), (_cells(row) for row in rows)))
        console.print(_count(rows, {now.node for now in found if not gpus_read(now)}), highlight=False)
    else:
        console.print("no such GPUs; a sweep reads them")


def gpus_read(now: NodeNow) -> bool:
    """Whether the node's newest reading could tell its GPUs, so that one it does not list is missing."""
    return now.known.facts.get("probe.state") == "read" and "gpus" not in now.known.unknown


def _read(fleet: Fleet, records: Mapping[str, NodeRecord], names: set[str] | None) -> list[NodeNow]:
    found = fleet.ledger().facts.current(names, kinds=("gpu",))
    known = {*(entry.name for entry in fleet.spec().nodes), *records, *(now.node for now in found)}
    check_known("node", sorted(names or ()), known)
    return found


def _parts(fleet: Fleet, found: list[NodeNow], only_drifted: bool) -> list[tuple[NodeNow, PartNow]]:
    if not only_drifted:
        return [(now, part) for now in found for part in now.parts]
    from ledger.present import drift_key

    differing = drifted(fleet)
    return [(now, part) for now in found for part in now.parts if drift_key(part) in differing.get(now.node, set())]


def _gpu(node_now: NodeNow, part: PartNow, record: NodeRecord | None) -> _Gpu:
    facts = part.known.facts
    return {
        "node": node_now.node,
        "pool": None if record is None else record.node.pool,
        "rack": None if record is None else record.node.rack,
        "slot": part.slot,
        "serial": part.serial,
        "uuid": part.uuid,
        "driver": node_now.known.facts.get("driver.loaded"),
        **{column: facts.get(fact) for column, fact in _FACTS.items()},
        "state": None if record is None else record.state.value,
        "seen": part.seen.isoformat(timespec="seconds"),
        "missing": "yes" if part.missing else "no",
    }


def _fitting(rows: list[_Gpu], model: str | None, driver: str | None) -> list[_Gpu]:
    for what, wanted in (("model", model), ("driver", driver)):
        if wanted is None:
            continue
        silent = sum(row[what] is None for row in rows)
        if silent:
            errors.print(f"{silent} GPUs are left out: their {what} is not known", highlight=False)
        rows = [row for row in rows if _fits(what, wanted, row[what])]
    return rows


def _fits(what: str, wanted: str, value: str | None) -> bool:
    if value is None:
        return False
    if what == "driver":
        return is_of(value, wanted)
    return wanted.lower() in value.lower()


def _cells(row: _Gpu) -> tuple[str, ...]:
    seen = str(row["seen"])[:16].replace("T", " ")
    return (*(row[key] or "?" for key in _TABLE), f"{seen}, missing" if row["missing"] == "yes" else seen)


def _count(rows: list[_Gpu], not_read: set[str]) -> str:
    """`312 GPUs on 39 nodes; 2 missing`; those of nodes that could not be read are neither here nor missing."""
    silent = sum(row["missing"] == "yes" and row["node"] in not_read for row in rows)
    missing = sum(row["missing"] == "yes" for row in rows) - silent
    there = [row["node"] for row in rows if row["missing"] == "no"]
    text = f"{counted(len(there), 'GPU')} on {counted(len(set(there)), 'node')}; {missing} missing"
    return text if not silent else f"{text}; {silent} not known, as their nodes could not be read"

"""`gpufleet node` and `gpufleet gpus`: what is known of one node, now or at a date, and of all GPUs."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.drifted import drifted
from cli.session import FleetOption, JsonOption, console, errors, exits, open_fleet, plain_table, print_csv, print_json
from fleet.drivers import is_of
from fleet.errors import PreconditionError
from fleet.hostlist import compress, expand
from fleet.model import NodeState
from fleet.node_health import OK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger import Fact, Ledger, NodeNow, NodeRecord, NodeThen, PartNow, PartThen

_NOT_READ = "nothing was ever read of this node: a sweep reads it"
_FACT_COLUMNS = ("fact", "value", "since (UTC)", "seen (UTC)")
_Gpu = dict[str, str | None]
_COLUMNS = {
    "model": "model",
    "vbios": "vbios",
    "ecc": "ecc_mode",
    "mig": "mig_mode",
    "health": "health",
}  # and the facts they show
_CSV_COLUMNS = ("node", "pool", "rack", "slot", "serial", "uuid", "driver", *_COLUMNS, "state", "seen", "missing")


@exits
def node(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Node name.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="DATE", help="2026-11-01, or 2026-11-01T13:30 (UTC, or with +01:00).")
    ] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Everything known of a node: its state, its facts and since when, the parts in its slots.

    With --at, what was known then; a day alone means its end. What could not be read is shown as unknown, with
    the reason and its last value.

    Example: gpufleet node gpu-0012 --at 2026-11-01

    Exit codes: 0; 2 no such fleet, or no such date; 6 no such node.
    """
    opened = open_fleet(fleet)
    ledger, now = opened.ledger(), opened.clock.now()
    when = None if at is None else _moment(at, now)
    record = _record(ledger, name)
    then = _known(ledger, name, when, record is not None)
    if as_json:
        print_json(_node_json(name, when or now, record if when is None else None, then))
        return
    _show(name, when, record, then)


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
    fleet: FleetOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
) -> None:
    """Every GPU as it was last read: where it sits, what it is, and when it was last seen there.

    A ? stands for what could not be read (JSON: null, CSV: empty). A GPU that the newest reading of its node does
    not list is missing: nobody saw it leave, and the rest of its row is of when it was last seen. A GPU whose
    model or driver is not known fits no filter for it; how many those are is said on standard error.

    Example: gpufleet gpus --pool train --driver 570

    Exit codes: 0, also where no GPU fits; 2 no such fleet or state, a wrong hostlist, no baseline for --drifted,
    or --json with --csv.
    """
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    opened = open_fleet(fleet)
    keys = {key for of_node in drifted(opened).values() for key in of_node} if only_drifted else None
    rows = _gpus(opened.ledger(), None if nodes is None else set(expand(nodes)), keys)
    wanted = {"pool": pool, "rack": rack, "state": None if state is None else state.value}
    rows = [row for row in rows if all(value in (None, row[key]) for key, value in wanted.items())]
    rows = [row for row in _fitting(rows, model, driver) if not unhealthy or row["health"] != OK]
    if as_json:
        print_json({"gpus": rows, "nodes": compress(str(row["node"]) for row in rows)})
    elif as_csv:
        print_csv(rows, _CSV_COLUMNS)
    elif rows:
        columns = ("node", "slot", "model", "serial", "driver", "vbios", "ecc", "mig", "state", "health", "seen (UTC)")
        console.print(plain_table(columns, (_gpu_cells(row) for row in rows)))
    else:
        console.print("no such GPUs; a sweep reads them")


def _moment(text: str, now: datetime) -> datetime:
    """The time that --at means. A day alone is its end, for today that is now."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise typer.BadParameter(f"--at {text!r} is no date; write 2026-11-01 or 2026-11-01T13:30") from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if len(text.strip()) <= len("2026-11-01"):
        moment = min(datetime.combine(moment.date(), time.max, UTC), max(now, moment))
    if moment > now:
        raise typer.BadParameter(f"--at {text!r} is yet to come; now is {now:%F %T} UTC")
    return moment


def _record(ledger: Ledger, name: str) -> NodeRecord | None:
    try:
        return ledger.inventory.node(name)
    except PreconditionError:  # a node that a sweep found and no file names
        return None


def _known(ledger: Ledger, name: str, when: datetime | None, in_file: bool) -> NodeThen | None:
    try:
        return ledger.facts.at(name, when)
    except PreconditionError:
        if in_file:
            return None
        raise


def _node_json(name: str, at: datetime, record: NodeRecord | None, then: NodeThen | None) -> dict[str, object]:
    place: dict[str, object] = {}
    if record is not None:
        place = {"pool": record.node.pool, "rack": record.node.rack, "model": record.node.model}
        place |= {"reason": record.reason, "operation": record.operation, "cordoned": record.cordoned}
    state = record.state if record is not None else None if then is None else then.state
    return {
        "node": name,
        "at": at.isoformat(),
        "state": None if state is None else state.value,
        **place,
        "first_seen": None if then is None else then.first_seen.isoformat(),
        "facts": {} if then is None else _facts_json(then.facts),
        "parts": [] if then is None else [_part_json(part) for part in then.parts],
        "unknown": [_NOT_READ] if then is None else [],
    }


def _facts_json(facts: Mapping[str, Fact]) -> dict[str, object]:
    return {name: _fact_json(fact) for name, fact in facts.items()}


def _fact_json(fact: Fact) -> dict[str, object]:
    return {
        "value": fact.value,
        "unknown": fact.reason,
        "last_value": fact.last_value,
        "since": fact.since.isoformat(),
        "until": None if fact.until is None else fact.until.isoformat(),
        "last_seen": fact.last_seen.isoformat(),
        "source": fact.source,
    }


def _part_json(part: PartThen) -> dict[str, object]:
    return {
        "kind": part.kind,
        "key": part.key,
        "serial": part.serial,
        "uuid": part.uuid,
        "slot": part.slot,
        "facts": _facts_json(part.facts),
    }


def _show(name: str, when: datetime | None, record: NodeRecord | None, then: NodeThen | None) -> None:
    lines = [name if when is None else f"{name} at {when:%F %T} UTC"]
    if record is not None and when is None:
        why = f": {record.reason}" if record.reason else ""
        held = f", held by {record.operation}" if record.operation else ""
        lines.append(f"{record.state.value} since {record.since:%F %T} UTC{held}{why}")
        lines.append(f"pool {record.node.pool}, rack {record.node.rack}, {record.node.model}")
    elif then is not None and then.state is not None:
        lines.append(then.state.value)
    else:
        lines.append("state unknown: the audit does not tell it")
    if then is None:
        lines.append(_NOT_READ)
    elif not then.facts and not then.parts:
        lines.append(f"nothing was read yet: first seen {then.first_seen:%F %T} UTC")
    console.print("\n".join(lines), highlight=False, markup=False)
    if then is None or not (then.facts or then.parts):
        return
    console.print(plain_table(_FACT_COLUMNS, _fact_cells(then.facts)))
    for part in then.parts:
        title = f"\n{part.kind} in {part.slot}: {part.key.partition(':')[2]}"
        console.print(title, highlight=False, markup=False)
        console.print(plain_table(_FACT_COLUMNS, _fact_cells(part.facts)))


def _fact_cells(facts: Mapping[str, Fact]) -> Iterable[tuple[str, ...]]:
    for name, fact in facts.items():
        text = fact.value
        if text is None:
            last = "" if fact.last_value is None else f"; was {fact.last_value}"
            text = f"unknown: {fact.reason}{last}"
        yield name, text, f"{fact.since:%F %H:%M}", f"{fact.last_seen:%F %H:%M}"


def _gpus(ledger: Ledger, names: set[str] | None, keys: set[str | None] | None) -> list[_Gpu]:
    """`keys`: only these parts."""
    records = {record.name: record for record in ledger.inventory.nodes()}
    found = ledger.facts.current(names, kinds=("gpu",))
    shown = ((now, part) for now in found for part in now.parts if keys is None or part.key in keys)
    return [_gpu(now, part, records.get(now.node)) for now, part in shown]


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
        **{column: facts.get(fact) for column, fact in _COLUMNS.items()},
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


def _gpu_cells(row: _Gpu) -> tuple[str, ...]:
    keys = ("node", "slot", "model", "serial", "driver", "vbios", "ecc", "mig", "state", "health")
    seen = str(row["seen"])[:16].replace("T", " ")
    return (*(row[key] or "?" for key in keys), f"{seen}, missing" if row["missing"] == "yes" else seen)

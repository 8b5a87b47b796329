"""`gpufleet node`: what is known of one node and its parts, now or at a date."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.node_history import history_json, read_history, show_history
from cli.node_parts import LISTED, former_json, show_former, show_parts
from cli.session import FleetOption, JsonOption, console, exits, open_fleet, plain_table, print_json
from fleet.errors import PreconditionError
from fleet.part_history import By

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger import Fact, Ledger, NodeRecord, NodeThen, PartThen

_NOT_READ = "nothing was ever read of this node: a sweep reads it"
_FACT_COLUMNS = ("fact", "value", "since (UTC)", "seen (UTC)")


@exits
def node(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Node name.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="DATE", help="2026-11-01, or 2026-11-01T13:30 (UTC, or with +01:00).")
    ] = None,
    by: Annotated[
        By, typer.Option("--by", help="Heat and errors of 7 days, of 400 days by month, or of 30 days in one.")
    ] = By.TOTAL,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Everything known of a node: its state, its facts and since when, the parts in its slots, heat and errors.

    Parts are GPUs, NICs, disks and memory modules. With --at, what was known then; a day alone means its end. What
    could not be read is shown as unknown, with the reason and its last value. Heat and errors are of the GPUs that
    sit in the node, whatever node they were in.

    Example: gpufleet node gpu-0012 --at 2026-11-01

    Example: gpufleet node gpu-0012 --by day

    Exit codes: 0; 2 no such fleet, or no such date; 6 no such node.
    """
    opened = open_fleet(fleet)
    ledger, now = opened.ledger(), opened.clock.now()
    when = None if at is None else _moment(at, now)
    record = _record(ledger, name)
    then = _known(ledger, name, when, record is not None)
    places = ledger.parts.in_node(name)
    history = read_history(ledger, () if then is None else then.parts, when or now, by)
    if as_json:
        document = _node_json(name, when or now, record if when is None else None, then)
        former = former_json(places, when or now)
        print_json(document | {"former_parts": former, "history": history_json(history)})
        return
    _show(name, when, record, then)
    if then is not None:
        show_parts(then.parts, places, when or now)
        show_former(places, when or now)
        show_history(history)


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
    for part in (part for part in then.parts if part.kind not in LISTED):
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

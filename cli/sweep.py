"""`gpufleet sweep`: read nodes now and keep what they tell."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import Progress

from cli.exit_codes import PROBLEMS
from cli.filters import check_known
from cli.session import FleetOption, JsonOption, console, errors, exits, open_fleet, plain_table, print_json
from fleet.errors import PreconditionError
from fleet.hostlist import expand

_SHOWN = 60


@exits
def sweep(
    nodes: Annotated[
        str | None, typer.Argument(metavar="[NODES]", help="A hostlist. Default: the whole fleet.")
    ] = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read hosts and BMCs once, now, and keep what they tell in the ledger. Nothing is changed on any node.

    The deployment `sweep` does the same all day. What changed since the last reading is listed.

    Example: gpufleet sweep 'gpu-[0001-0016]'

    Exit codes: 0 all were read; 2 fleet file wrong; 3 some could not be read, or two nodes tell of the same part:
    they are listed; 6 no such node.
    """
    opened = open_fleet(fleet)  # before anything imports Prefect: it reads its settings once
    from tasks.sweeping import Sweeper

    known = {node.name: node for node in opened.spec().inventory()}
    names = expand(nodes) if nodes is not None else tuple(known)
    if not names and known:
        raise PreconditionError("no node is named; leave NODES out to read the whole fleet")
    check_known("node", names, known)
    opened.sync_inventory()
    sweeper = Sweeper(opened, [known[name] for name in names])
    with Progress(console=errors, transient=True, disable=as_json) as progress:
        bar = progress.add_task("reads hosts and BMCs", total=2 * len(names))
        swept = sweeper.round(lambda number: progress.update(bar, completed=number))
    if as_json:
        changes = [{"node": c.node, "part": c.part, "fact": c.name, "old": c.old, "new": c.new} for c in swept.changes]
        print_json(
            {
                "read": swept.read,
                "failed": swept.failed,
                "arrived": swept.arrived,
                "changes": changes,
                "conflicts": swept.conflicts,
                "seconds": round(swept.seconds, 1),
            }
        )
    else:
        _show([(c.node, c.part or "node", c.name, c.old or "?", c.new or "?") for c in swept.changes])
        for name, why in sorted(swept.failed.items()):
            errors.print(f"{name}: {why}", highlight=False, markup=False, soft_wrap=True)
        for conflict in swept.conflicts:
            errors.print(conflict, highlight=False, markup=False, soft_wrap=True)
        console.print(
            f"{swept.read} readings of {len(names)} nodes in {swept.seconds:.1f} s, {len(swept.arrived)} seen for the "
            f"first time, {len(swept.changes)} facts changed, {len(swept.failed)} not read",
            highlight=False,
        )
    if swept.failed or swept.conflicts:
        raise typer.Exit(PROBLEMS)


def _show(changes: list[tuple[str, ...]]) -> None:
    if changes:
        console.print(plain_table(("node", "part", "fact", "was", "is"), changes[:_SHOWN]))
    if len(changes) > _SHOWN:
        console.print(f"and {len(changes) - _SHOWN} more; --json has them all")

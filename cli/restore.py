"""Commands with which a person lets things go on: breaker reset, clear."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exit_codes import FAILED, REFUSED
from cli.session import FleetOption, JsonOption, actor, console, errors, exits, open_fleet, print_json
from fleet.errors import ConfigurationError

breaker_app = typer.Typer(help="A pool's breaker: it stops operations that lose nodes too fast.", no_args_is_help=True)

WhyOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.")]


@breaker_app.callback()
def _breaker() -> None:
    """A pool's breaker."""


@breaker_app.command("reset")
@exits
def breaker_reset(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Pool, as `gpufleet status` names it.")],
    reason: WhyOption,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let operations on this pool go on. Nodes lost before now no longer count.

    Example: gpufleet breaker reset train --reason "rack r07's power is back"

    Exit codes: 0 reset; 2 no reason, or no such fleet; 6 no such pool.
    """
    _check_reason(reason)
    leases = open_fleet(fleet).ledger().leases
    was = leases.tripped().get(pool)
    leases.reset_breaker(pool, actor(), reason)
    if as_json:
        print_json({"pool": pool, "was": was, "reset": True})
    else:
        before = "it was not tripped" if was is None else f"it was tripped: {was}"
        console.print(f"breaker of {pool} is reset; {before}", highlight=False, markup=False, soft_wrap=True)


@exits
def clear(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A quarantined node.")],
    reason: WhyOption,
    accept_firmware: Annotated[
        bool, typer.Option("--accept-firmware", help="Pass other firmware than the last operation wanted.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask after showing what will be done.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return a quarantined node to service, if it passes validation now. A cordon that is not ours stays.

    Example: gpufleet clear gpu-0012 --reason "GPU 3 replaced, ticket 4711"

    Exit codes: 0 in service; 1 validation failed, it stays quarantined; 2 no reason, or no such fleet;
    4 scheduler unreachable; 6 no such node, or it is not quarantined, or an operation holds it; 8 you said no.
    """
    _check_reason(reason)
    opened = open_fleet(fleet)  # before anything imports Prefect: it reads its settings once
    from fleet.clearing import describe_clearing
    from tasks.clearing import clear_node, read_clear_plan

    plan = read_clear_plan(opened, node, accept_firmware)
    if not as_json:
        for line in (f"{node}:", *(f"  {line}" for line in describe_clearing(plan))):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not yes and not typer.confirm(f"Return {node} to service if all of it passes?", err=as_json):
        raise typer.Exit(REFUSED)
    verdict = clear_node(opened, plan, reason, actor())
    if as_json:
        state = opened.ledger().inventory.node(node).state.value
        found = {"findings": list(verdict.findings), "accepted": list(verdict.accepted)}
        print_json({"node": node, "cleared": verdict.passed, "state": state, **found})
    for line in verdict.accepted if not as_json else ():
        console.print(f"accepted: {line}", highlight=False, markup=False)
    if not verdict.passed:
        errors.print(
            f"{node} stays quarantined: {'; '.join(verdict.findings)}", highlight=False, markup=False, soft_wrap=True
        )
        raise typer.Exit(FAILED)
    if not as_json:
        console.print(f"{node} is in service", highlight=False)


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise ConfigurationError('--reason is empty: say why, e.g. --reason "power is back"')

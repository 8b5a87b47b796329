"""`gpufleet up` and `gpufleet down`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.runtime.files import RunFolder, find_fleet_file
from cli.runtime.lifecycle import RuntimeStatus, bring_up, take_down
from fleet.errors import ConfigurationError

FleetOption = Annotated[
    Path | None, typer.Option("--fleet", help="Fleet file. Default: $GPUFLEET_FLEET, else ./fleet.yaml.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def up(
    fleet: FleetOption = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the server. Default: 4200.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the Prefect server and a worker for a fleet, and deploy every flow.

    What runs already stays. Example: gpufleet up --fleet /etc/gpufleet/fleet.yaml

    Exit codes: 0 everything runs; 2 a person must mend something first.
    """
    try:
        status = bring_up(find_fleet_file(fleet), port, lambda line: typer.echo(line, err=as_json))
    except ConfigurationError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps(status_json(status)))
    elif not status.ready:
        typer.echo("\n".join(status.problems) or "not everything runs yet; see `gpufleet status`", err=True)


def down(fleet: FleetOption = None, as_json: JsonOption = False) -> None:
    """Stop the worker, its flow runs and the Prefect server of a fleet.

    Operations keep their place: the next `gpufleet up` takes them up again. Example: gpufleet down

    Exit codes: 0 nothing runs any more; 2 no such fleet.
    """
    try:
        stopped = take_down(RunFolder(find_fleet_file(fleet)), lambda line: typer.echo(line, err=as_json))
    except ConfigurationError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    elif not stopped:
        typer.echo("nothing ran")


def status_json(status: RuntimeStatus) -> dict[str, object]:
    """The runtime part of `gpufleet status --json`. Times are ISO 8601 in UTC."""
    parts = {
        name: {
            "state": part.state,
            "pid": part.pid,
            "since": part.since.isoformat() if part.since else None,
            "port": part.port,
        }
        for name, part in (("server", status.server), ("worker", status.worker))
    }
    return {**parts, "url": status.url, "flow_runs": status.flow_runs, "problems": list(status.problems)}

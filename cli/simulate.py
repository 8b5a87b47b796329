"""`gpufleet simulate`: a fleet without hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exit_codes import FAILED, NOT_FOUND, USAGE
from fleet.errors import ConfigurationError


def simulate(
    folder: Annotated[Path, typer.Option("--dir", help="Where the fleet's files go; truth.jsonl is renewed.")],
    nodes: Annotated[int, typer.Option(min=1, help="GPU hosts.")] = 32,
    racks: Annotated[int, typer.Option(min=1, help="Racks of equal size.")] = 4,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=8, help="GPUs in each host.")] = 8,
    seed: Annotated[int, typer.Option(help="Same seed, same fleet, firmware, faults and jobs.")] = 7,
    time_scale: Annotated[float, typer.Option(min=0.1, help="Simulated seconds in one second.")] = 60.0,
    faults: Annotated[Path | None, typer.Option(help="Which nodes misbehave, and how (simulator/faults.py).")] = None,
    jobs: Annotated[bool, typer.Option("--jobs/--no-jobs", help="Run training jobs.")] = True,
    tls: Annotated[bool, typer.Option("--tls", help="BMCs speak https; trust DIR/ca.pem.")] = False,
    base_port: Annotated[int | None, typer.Option(min=1024, max=60000, help="First port; default: a free one.")] = None,
    return_to_service: Annotated[
        int, typer.Option(min=1, max=2, help="Slurm's ReturnToService: with 1 a rebooted node stays DOWN.")
    ] = 2,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Every node the same age, no jitter: for measuring.")
    ] = False,
) -> None:
    """Run a simulated fleet: Redfish BMCs, SSH hosts and Slurm with jobs, on loopback, until SIGTERM or Ctrl-C.

    Writes DIR/fleet.yaml, keys, a signed firmware bundle and DIR/truth.jsonl (what really happened).

    Example: gpufleet simulate --nodes 32 --racks 4 --time-scale 60 --dir .gpufleet/demo

    Exit codes: 0 stopped when told to; 1 no free addresses or ports; 2 the faults file, or a folder in use;
    6 no such faults file.
    """
    if racks > nodes:
        raise typer.BadParameter(f"{racks} racks for {nodes} nodes; give at most one rack a node")
    from simulator.serve import serve
    from simulator.world import WorldOptions

    try:
        text = faults.read_text(encoding="utf-8") if faults else None
    except OSError as error:
        typer.echo(f"cannot read {faults}: {error.strerror}", err=True)
        raise typer.Exit(NOT_FOUND) from error
    options = WorldOptions(
        folder=folder,
        nodes=nodes,
        racks=racks,
        gpus_per_node=gpus_per_node,
        seed=seed,
        time_scale=time_scale,
        faults=text,
        faults_name=str(faults),
        jobs=jobs,
        tls=tls,
        base_port=base_port,
        return_to_service=return_to_service,
        uniform=uniform,
    )
    try:
        serve(options, typer.echo)
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(USAGE) from error
    except OSError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error

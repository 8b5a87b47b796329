"""`gpufleet simulate`: a fleet without hardware."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.exit_codes import FAILED, NOT_FOUND, USAGE
from fleet.errors import ConfigurationError


class SlurmKind(StrEnum):
    SIMULATED = "simulated"
    REAL = "real"


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
    slurm: Annotated[
        SlurmKind, typer.Option(help="real: a slurmctld, and a slurmd that lives and dies with its node; needs root.")
    ] = SlurmKind.SIMULATED,
    return_to_service: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2,
            help="Slurm's ReturnToService: with 1 a rebooted node stays DOWN. Default: 2; 1 with a real Slurm.",
        ),
    ] = None,
    slurmd_timeout: Annotated[int, typer.Option(min=3, help="Real Slurm: SlurmdTimeout, in real seconds.")] = 30,
    job_count: Annotated[
        int | None, typer.Option(min=1, help="Real Slurm: submit so many jobs in all; default: without end.")
    ] = None,
    job_seconds: Annotated[
        float, typer.Option(min=10.0, help="Real Slurm: a job's mean work, in real seconds; its time is not scaled.")
    ] = 120.0,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Every node the same age, no jitter: for measuring.")
    ] = False,
) -> None:
    """Run a simulated fleet: Redfish BMCs, SSH hosts and Slurm with jobs, on loopback, until SIGTERM or Ctrl-C.

    Writes DIR/fleet.yaml, keys, a signed firmware bundle and DIR/truth.jsonl (what really happened).

    With --slurm real, Slurm's own daemons and commands are used, and jobs are real batch scripts that write
    checkpoints in DIR/storage.

    Example: gpufleet simulate --nodes 32 --racks 4 --time-scale 60 --dir .gpufleet/demo

    Exit codes: 0 stopped when told to; 1 no free addresses or ports, or a real Slurm that does not start or cannot be
    followed any more; 2 the faults file, a folder in use, or no real Slurm on this machine; 6 no such faults file.
    """
    if racks > nodes:
        raise typer.BadParameter(f"{racks} racks for {nodes} nodes; give at most one rack a node")
    from adapters.operator_files import NoSuchFile, read_operator_text
    from simulator.real_jobs import JobLoad
    from simulator.real_site import RealOptions
    from simulator.serve import serve
    from simulator.world import WorldOptions

    try:
        text = read_operator_text(faults, "the faults file") if faults else None
    except ConfigurationError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(NOT_FOUND if isinstance(error, NoSuchFile) else USAGE) from error
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
        return_to_service=return_to_service or (1 if slurm is SlurmKind.REAL else 2),
        uniform=uniform,
        real=RealOptions(slurmd_timeout, JobLoad(job_count, job_seconds)) if slurm is SlurmKind.REAL else None,
    )
    try:
        serve(options, typer.echo)
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(USAGE) from error
    except OSError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error

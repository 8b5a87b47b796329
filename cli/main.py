"""The `gpufleet` command.

Exit codes are documented in cli/exit_codes.py and in each command's help.
"""

from __future__ import annotations

import io
import sys

import typer

from cli.audit import audit_app
from cli.bmc import app as bmc_app
from cli.compat import compat, lifecycle
from cli.demo import demo
from cli.drain import consent, drain, undrain
from cli.drift import drift
from cli.driver import rollback, verdict
from cli.explain import explain
from cli.gpus import gpus
from cli.inventory import inventory_app
from cli.jobs import jobs
from cli.look import status, why
from cli.measure import measure
from cli.node import node
from cli.nodes import nodes
from cli.operate import abort, approve, halt, plan_app, resume, run_app
from cli.restore import breaker_app, clear
from cli.serve import down, up
from cli.simulate import simulate
from cli.sweep import sweep

app = typer.Typer(
    name="gpufleet",
    help="Lifecycle operations for large GPU fleets: planned, approved, carried out, verified, recorded.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(plan_app, name="plan")
app.add_typer(run_app, name="run")
app.add_typer(bmc_app, name="bmc")
app.add_typer(audit_app, name="audit")
app.add_typer(inventory_app, name="inventory")
app.add_typer(breaker_app, name="breaker")
for command in (
    *(status, nodes, node, gpus, jobs, why, sweep, drift, explain, compat, lifecycle),
    *(drain, undrain, consent, measure, verdict, rollback),
    *(approve, halt, resume, abort, clear, up, down, simulate, demo),
):
    app.command()(command)


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a terminal that is not UTF-8 a letter is lost, not the answer
            stream.reconfigure(errors="replace")
    app()

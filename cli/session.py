"""What every command about a fleet shares: finding it, its ledger, its Prefect server, and how errors end it."""

from __future__ import annotations

import csv
import getpass
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.exit_codes import CREDENTIALS, FAILED, HALTED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, ExitCode
from cli.runtime.files import RunFolder, find_fleet_file
from fleet.errors import (
    BundleRejected,
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    LeaseLost,
    PreconditionError,
    RolloutHalted,
    TransientError,
)
from fleet.json_values import printable

if TYPE_CHECKING:
    from blocks.fleet import Fleet

FleetOption = Annotated[
    Path | None, typer.Option("--fleet", help="Fleet file. Default: $GPUFLEET_FLEET, else ./fleet.yaml.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]

P = ParamSpec("P")
R = TypeVar("R")

_WIDE = 240  # columns where there is no terminal: what goes into a file or a pipe is not folded

console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE)
errors = Console(stderr=True)


def open_fleet(given: Path | None) -> Fleet:
    """The fleet of the fleet file, with this process set up for its Prefect server where one runs."""
    path = find_fleet_file(given)
    use_server(path, required=False)
    from blocks.fleet import Fleet

    return Fleet(fleet_file=str(path))


def use_server(fleet_file: Path, required: bool) -> None:
    """Point Prefect's client at the fleet's server, before Prefect is imported.

    Raises ConfigurationError where none runs and one is `required`.
    """
    from cli.runtime.lifecycle import client_env

    os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"  # a server that dies with this command helps nobody
    try:
        os.environ.update(client_env(RunFolder(fleet_file)))
    except ConfigurationError:
        if required:
            raise


def actor() -> str:
    """Who acts, as the audit chain names people on this machine."""
    return getpass.getuser()


def plain_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """A table without frames. However narrow the terminal, nothing is cut, and the first column stays on one line."""
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
        table.columns[0].min_width = max(table.columns[0].min_width or 0, len(row[0]))
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True
    return table


def counted(number: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def print_csv(rows: Iterable[Mapping[str, object]], columns: tuple[str, ...]) -> None:
    """A header and a line for each row; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({column: csv_cell(row.get(column)) for column in columns} for row in rows)
    typer.echo(text.getvalue(), nl=False)


def csv_cell(value: object) -> object:
    """The value; a text that a spreadsheet would run as a formula gets an apostrophe, as nodes name their parts."""
    text = str(value)
    formula = text[:1] in set("=+-@\t\r") and not re.fullmatch(r"[+-]?[0-9.]+", text)
    return f"'{text}" if formula else value


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def exits(function: Callable[P, R]) -> Callable[P, R]:
    """End a command with the documented exit code and one clear message instead of a traceback."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _ended():
            return function(*args, **kwargs)

    return run


@contextmanager
def _ended() -> Iterator[None]:
    try:
        yield
    except typer.Abort as error:
        errors.print("not confirmed, nothing was done; where nobody can answer, give --yes")
        raise typer.Exit(REFUSED) from error
    except FleetError as error:
        errors.print(f"[red]error:[/red] {_escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(exit_code(error)) from error
    except OSError as error:  # a full disk, a folder of somebody else
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if error.filename else ""
        errors.print(f"[red]error:[/red] {_escape(f'{where}{error.strerror or error}')}", highlight=False)
        raise typer.Exit(FAILED) from error


def exit_code(error: FleetError) -> ExitCode:
    """The exit code that an error of ours ends the command with."""
    from adapters.signatures import SignatureRefused
    from ledger.database import LedgerUnusable

    kinds: tuple[tuple[type[FleetError], ExitCode], ...] = (
        (CredentialsRejected, CREDENTIALS),
        (BundleRejected, REFUSED),
        (SignatureRefused, REFUSED),
        (LedgerUnusable, FAILED),
        (ConfigurationError, USAGE),
        (TransientError, UNREACHABLE),
        (LeaseLost, REFUSED),
        (PreconditionError, NOT_FOUND),
        (RolloutHalted, HALTED),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), FAILED)


def _escape(text: str) -> str:
    return str(printable(text)).replace("[", "\\[")

"""`gpufleet bmc`: look at one BMC."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from adapters.redfish import BmcLogin, BmcTls, RedfishBmc
from adapters.redfish.bmc import BmcSurvey
from cli.exit_codes import ExitCode
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, TransientError
from fleet.firmware import staged_in_own_entry
from fleet.model import FirmwareComponent, FirmwareRole

app = typer.Typer(help="Look at one BMC.", no_args_is_help=True)
_ROLE_STYLE = {"staged": "yellow", "backup": "dim", "absent": "dim", "unknown": "red"}


@app.callback()
def _bmc() -> None:
    """Look at one BMC."""


@app.command(
    epilog="Example: gpufleet bmc read https://10.0.3.17 --user admin --password-env BMC_PASSWORD. "
    "Exit codes: 0 read, 1 failed, 2 usage, 3 read with problems, 4 unreachable, 5 credentials refused."
)
def read(
    url: Annotated[str, typer.Argument(help="https://HOST[:PORT]; plain http is used only where written so")],
    user: Annotated[str | None, typer.Option(help="account of the BMC; without it the BMC is read anonymously")] = None,
    password_env: Annotated[str | None, typer.Option(help="environment variable that holds the password")] = None,
    ca: Annotated[str | None, typer.Option(help="PEM file to check the BMC's certificate with")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="do not check the BMC's certificate")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=3600.0, help="seconds for one answer")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Read one BMC: system, power, GPUs, firmware, tasks. Nothing is changed."""
    errors = Console(stderr=True)
    login = _login(user, password_env)
    if ca is not None and insecure:
        raise typer.BadParameter("give --ca or --insecure, not both")
    if insecure:
        errors.print("[bold red]WARNING: the certificate is not checked; anyone on the path can read the login[/]")
    try:
        bmc = RedfishBmc(url, login, BmcTls(verify=not insecure, ca=ca), timeout_seconds=timeout)
    except ConfigurationError as error:
        raise typer.BadParameter(error.message) from error
    try:
        try:
            survey = bmc.survey()
        finally:
            bmc.close()
    except FleetError as error:
        errors.print(f"{url}: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_exit_code(error)) from error
    if as_json:
        typer.echo(json.dumps(survey_document(url, survey), indent=2, ensure_ascii=False))
    else:
        _print_survey(Console(markup=False, highlight=False), url, survey)
    raise typer.Exit(ExitCode.PROBLEMS if survey.problems else ExitCode.OK)


def survey_document(url: str, survey: BmcSurvey) -> dict[str, object]:
    """The JSON of `bmc read`: url, system, power, gpus, firmware, tasks, problems."""
    system = survey.system
    return {
        "url": url,
        "system": {
            "vendor": system.vendor,
            "model": system.model,
            "serial": system.serial,
            "bios_version": system.bios_version,
        },
        "power": system.power.value,
        "gpus": [asdict(gpu) for gpu in system.gpus],
        "firmware": firmware_rows(survey.firmware),
        "tasks": [{**asdict(task), "outcome": task.outcome.value} for task in survey.tasks],
        "problems": list(survey.problems),
    }


def firmware_rows(inventory: tuple[FirmwareComponent, ...]) -> list[dict[str, object]]:
    """One row an entry, and one more for a version that waits inside the entry of the running one."""
    rows: list[dict[str, object]] = []
    for component in inventory:
        rows.append(_row(component, component.version, component.role))
        if staged_in_own_entry(component, inventory):
            rows.append(_row(component, component.staged, FirmwareRole.STAGED))
    return rows


def _row(component: FirmwareComponent, version: str | None, role: FirmwareRole) -> dict[str, object]:
    return {
        "id": component.id,
        "version": version,
        "state": component.state,
        "role": role.value,
        "updateable": component.updateable,
    }


def _login(user: str | None, password_env: str | None) -> BmcLogin | None:
    if user is None and password_env is None:
        return None
    if user is None or password_env is None:
        raise typer.BadParameter("--user and --password-env belong together")
    password = os.environ.get(password_env)
    if password is None:
        raise typer.BadParameter(f"the environment variable {password_env} is not set")
    return BmcLogin(user, password)


def _exit_code(error: FleetError) -> ExitCode:
    if isinstance(error, CredentialsRejected):
        return ExitCode.CREDENTIALS
    return ExitCode.UNREACHABLE if isinstance(error, TransientError) else ExitCode.FAILED


def _print_survey(console: Console, url: str, survey: BmcSurvey) -> None:
    system = survey.system
    named = " ".join(part for part in (system.vendor, system.model) if part) or "unknown system"
    console.print(named, style="bold")
    console.print(f"serial {system.serial or '?'}  BIOS {system.bios_version or '?'}  {url}", soft_wrap=True)
    console.print(f"power {system.power.value}")
    gpus = _table(f"GPUs ({len(system.gpus)})", "id", "model", "serial", "uuid", "state", "health")
    for gpu in system.gpus:
        gpus.add_row(gpu.id, gpu.model or "?", gpu.serial or "?", gpu.uuid or "?", gpu.state, gpu.health or "?")
    console.print(gpus)
    rows = firmware_rows(survey.firmware)
    firmware = _table(f"Firmware ({len(survey.firmware)} entries)", "id", "version", "state", "role", "updateable")
    for row in rows:
        can = {True: "yes", False: "no"}.get(bool(row["updateable"]), "?") if row["updateable"] is not None else "?"
        style = _ROLE_STYLE.get(str(row["role"]))
        firmware.add_row(
            str(row["id"]), str(row["version"] or "?"), str(row["state"]), str(row["role"]), can, style=style
        )
    console.print(firmware)
    if survey.tasks:
        tasks = _table(f"Tasks ({len(survey.tasks)})", "id", "state", "percent", "outcome", "last message")
        for task in survey.tasks:
            percent = "?" if task.percent is None else f"{task.percent} %"
            tasks.add_row(task.id, task.state, percent, task.outcome.value, task.messages[-1] if task.messages else "")
        console.print(tasks)
    for problem in survey.problems:
        console.print(f"problem: {problem}", style="red", soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table

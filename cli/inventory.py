"""`gpufleet inventory`: nodes from a CSV file or NetBox into the fleet file, BMCs in a range, and the way out."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from adapters.announced import read_announced
from adapters.bmc_discovery import discover_bmcs, resolve_bmcs
from adapters.clock import SystemClock
from adapters.fleet_file import read_fleet_file
from adapters.netbox import NetBox
from adapters.operator_files import NoSuchFile, read_operator_bytes
from cli.exit_codes import PROBLEMS, REFUSED
from cli.inventory_show import show_announcement, show_discovery, show_plan
from cli.runtime.files import RunFolder, find_fleet_file
from cli.session import FleetOption, JsonOption, errors, exits, open_fleet, print_json, use_server
from fleet.address_ranges import addresses_in
from fleet.arrival import ArrivalSource, compare
from fleet.config import FleetSpec, parse_fleet
from fleet.errors import ConfigurationError, PreconditionError, TransientError
from fleet.fleet_file_edit import edit_fleet, places
from fleet.hardware import Hardware, hardware_of_entry, hardware_of_row
from fleet.inventory_csv import decode_csv, read_csv, write_csv
from fleet.inventory_import import ImportPlan, Known, plan_import
from fleet.inventory_rows import Fault, Rows
from fleet.netbox_devices import NetBoxFields, read_devices
from fleet.netbox_webhook import LARGEST_BODY, read_webhook

inventory_app = typer.Typer(help="Nodes from other inventories, and BMCs that nobody knows yet.", no_args_is_help=True)

_FIELDS = NetBoxFields()
_MOST_ROWS = 50_000  # an import is held against itself and the fleet as a whole; more takes minutes


@inventory_app.callback()
def _inventory() -> None:
    """Nodes from other inventories, and BMCs that nobody knows yet."""


@inventory_app.command("import")
@exits
def import_nodes(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.csv", help="CSV file; its first line names columns.")
    ] = None,
    netbox: Annotated[
        str | None, typer.Option("--netbox", metavar="URL", help="Read NetBox instead of a file.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option("--token-env", metavar="VAR", help="Environment variable with its token.")
    ] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", metavar="KEY=VALUE", help="NetBox's filter, e.g. role=gpu-node.")
    ] = None,
    bmc_field: Annotated[str, typer.Option("--bmc-field", help="Custom field; else oob_ip.")] = _FIELDS.bmc,
    ssh_field: Annotated[str, typer.Option("--ssh-field", help="Custom field; else primary_ip.")] = _FIELDS.ssh,
    pool_field: Annotated[str, typer.Option("--pool-field", help="Custom field; else a tag pool:NAME.")] = _FIELDS.pool,
    model_field: Annotated[str, typer.Option("--model-field", help="Custom field; else the type.")] = _FIELDS.model,
    ca: Annotated[str | None, typer.Option("--ca", help="PEM file to check NetBox's certificate with.")] = None,
    new_model: Annotated[
        list[str] | None, typer.Option("--new-model", metavar="MODEL", help="Let a model in that no node has yet.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the fleet file; the old one is kept beside it.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an inventory would add to and change in the fleet file; with --yes, write it. It removes nothing.

    Example: gpufleet inventory import rack7.csv

    At most 50000 rows at once: split a longer file.

    Exit codes: 0 shown or written; 1 the file cannot be written; 2 faults, each listed, and nothing is written;
    4 NetBox or the ledger does not answer; 5 it refuses the token; 6 no such CSV file; 8 the fleet file changed in the
    meantime.
    """
    path = find_fleet_file(fleet)
    if (file is None) == (netbox is None):
        raise ConfigurationError("give a CSV file or --netbox URL, one of them")
    if netbox is not None:
        fields = NetBoxFields(bmc=bmc_field, ssh=ssh_field, pool=pool_field, model=model_field)
        rows = _read_netbox(netbox, token_env, filters or [], ca, fields)
    else:
        rows = _read_rows(Path(file or ""))
    text = decode_fleet(path)
    spec = parse_fleet(text, str(path))
    known = Known(places(text, path.name), _read_serials(path, spec), frozenset(new_model or ()))
    plan, faults = plan_import(rows, spec, known)
    if plan is None:
        _refuse(faults, as_json)
        return
    kept = _write(path, text, plan) if yes and not plan.empty else None
    show_plan(plan, path, kept, as_json)


@inventory_app.command()
@exits
def discover(
    ranges: Annotated[str, typer.Argument(metavar="RANGE", help="10.0.0.0/24, 10.0.0.1-99, 10.0.0.[1-9], bmc[01-16].")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 443,
    plain_http: Annotated[bool, typer.Option("--http", help="Ask over plain http.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Addresses asked at once.")] = 64,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=60.0, help="Seconds for one address.")] = 3.0,
    announce: Annotated[
        bool, typer.Option("--announce", help="Emit gpufleet.hardware.arrived for what is new, once each.")
    ] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find BMCs by their Redfish service root, without a login, and say which of them the fleet does not know.

    Example: gpufleet inventory discover 10.0.3.0/24

    Exit codes: 0 looked; 2 no such range or fleet, or no runtime to announce to; 3 something answered that could not
    be read as a BMC; 4 the Prefect server does not answer.
    """
    path = find_fleet_file(fleet)
    spec = read_fleet_file(path)
    addresses = addresses_in(ranges)
    if announce:
        use_server(path, required=True)
    record = RunFolder(path).path / "arrivals.jsonl"
    before, known, at = read_announced(record), _known(spec, announce), SystemClock().now()
    seen = discover_bmcs(addresses, port, "http" if plain_http else "https", concurrency, timeout)
    if announce:
        from adapters.arrivals import announce_new

        comparison = announce_new(record, spec.fleet, seen.found, known, ArrivalSource.DISCOVERY, at)
    else:
        announced = [arrival.hardware for arrival in before]
        comparison = compare(seen.found, [*announced, *known], ArrivalSource.DISCOVERY, at)
    show_discovery(seen, comparison, announce, as_json)
    if seen.unclear:
        raise typer.Exit(PROBLEMS)


@inventory_app.command("announce")
@exits
def announce_device(
    from_netbox: Annotated[
        str, typer.Option("--from-netbox", metavar="FILE", help="Body of NetBox's webhook; - is standard input.")
    ],
    bmc_field: Annotated[str, typer.Option("--bmc-field", help="Custom field; else oob_ip.")] = _FIELDS.bmc,
    model_field: Annotated[str, typer.Option("--model-field", help="Custom field; else the type.")] = _FIELDS.model,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Emit gpufleet.hardware.arrived for a device that NetBox tells of, once, where the fleet does not know it.

    This is no server: whatever receives NetBox's webhook checks its signature and hands its body over.

    Example: gpufleet inventory announce --from-netbox -

    Exit codes: 0 announced, or there was nothing to announce, and it says why; 2 another body, no such fleet, or no
    runtime to announce to; 4 the Prefect server does not answer, or a BMC's name in the fleet file cannot be resolved
    now: send it again; 6 no such file.
    """
    path = find_fleet_file(fleet)
    content = sys.stdin.buffer.read(LARGEST_BODY + 1) if from_netbox == "-" else _read(Path(from_netbox), "the body")
    change = read_webhook(content, NetBoxFields(bmc=bmc_field, model=model_field))
    spec = read_fleet_file(path)
    comparison = None
    if not change.why_not:
        use_server(path, required=True)
        from adapters.arrivals import announce_new

        record, at = RunFolder(path).path / "arrivals.jsonl", SystemClock().now()
        hardware = hardware_of_row(change.row)
        comparison = announce_new(record, spec.fleet, [hardware], _known(spec, True), ArrivalSource.NETBOX, at)
    show_announcement(change, comparison, as_json)


@inventory_app.command()
@exits
def export(fleet: FleetOption = None, as_json: JsonOption = False) -> None:
    """Print the fleet file's nodes as CSV, in the columns that `inventory import` reads.

    Example: gpufleet inventory export

    Exit codes: 0 printed; 2 no such fleet.
    """
    entries = read_fleet_file(find_fleet_file(fleet)).nodes
    if as_json:
        print_json({"nodes": [entry.model_dump() for entry in entries]})
    else:
        typer.echo(write_csv(entries), nl=False)


def _read_serials(path: Path, spec: FleetSpec) -> dict[str, str]:
    """Nodes by the system serial that a sweep read on them; none where the fleet has no ledger yet."""
    opened = open_fleet(path)  # before anything imports Prefect: it reads its settings once
    from blocks.clients import ledger_url

    url = ledger_url(spec.ledger, path.parent)
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return {}
    current = opened.ledger().facts.current(kinds=())
    read = {now.node: now.known.facts.get("system.serial") for now in current}
    return {serial: node for node, serial in read.items() if serial is not None}


def _known(spec: FleetSpec, announce: bool) -> list[Hardware]:
    """The fleet file's nodes at their addresses, also where the file gives names.

    Raises TransientError where a name cannot be resolved now and its node could be announced as new.
    """
    urls = resolve_bmcs([entry.bmc for entry in spec.nodes])
    lost = [entry.name for entry in spec.nodes if not urls[entry.bmc]]
    if lost:
        text = f"the BMC's name of {', '.join(lost[:8])} cannot be resolved ({len(lost)} of {len(spec.nodes)})"
        if announce:
            raise TransientError(f"{text}; a known node could be announced as new, so nothing is")
        errors.print(f"[yellow]{text}; it may show as new[/]", highlight=False, soft_wrap=True)
    entries = [hardware_of_entry(entry, spec.site) for entry in spec.nodes]
    return [replace(entry, bmc=url) for entry in entries for url in (*urls[entry.bmc or ""], entry.bmc)]


def _read(file: Path, what: str) -> bytes:
    """Raises PreconditionError where there is no such file, ConfigurationError where it cannot be read."""
    try:
        return read_operator_bytes(file, what)
    except NoSuchFile as error:
        raise PreconditionError(error.message) from error


def _read_rows(file: Path) -> Rows:
    """Raises as `_read`, and ConfigurationError for too long a file."""
    text = decode_csv(_read(file, "the CSV file"))
    _check_length(file, max(text.count("\n"), text.count("\r")), "lines", _MOST_ROWS + 1)  # one names the columns
    rows = read_csv(text, str(file))
    _check_length(file, len(rows.rows), "nodes", _MOST_ROWS)
    return rows


def _check_length(file: Path, number: int, of: str, most: int) -> None:
    if number > most:
        raise ConfigurationError(f"{file} has {number} {of}; at most {_MOST_ROWS} rows at once: split the file")


def decode_fleet(path: Path) -> str:
    """The fleet file letter by letter, line ends and all. Raises ConfigurationError where it is no UTF-8 text."""
    try:
        return read_operator_bytes(path, "the fleet file").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the fleet file {path} is not UTF-8 text: {error}") from error


def _read_netbox(url: str, token_env: str | None, filters: list[str], ca: str | None, fields: NetBoxFields) -> Rows:
    if token_env is None:
        raise ConfigurationError("--netbox needs --token-env VAR, the environment variable that holds its token")
    token = os.environ.get(token_env)
    if token is None:
        raise ConfigurationError(f"the environment variable {token_env} is not set; it holds NetBox's token")
    pairs = [text.partition("=") for text in filters]
    if wrong := [text for text, (key, _, value) in zip(filters, pairs, strict=True) if not key or not value]:
        raise ConfigurationError(f"--filter {wrong[0]!r}: write KEY=VALUE")
    if url.startswith("http://"):
        errors.print("[bold red]WARNING: plain http; anyone on the path can read the token[/]")
    client = NetBox(url, token, SystemClock(), ca)
    try:
        devices = client.read_devices([(key, value) for key, _, value in pairs])
    finally:
        client.close()
    return read_devices(devices, fields, client.url)


def _refuse(faults: tuple[Fault, ...], as_json: bool) -> None:
    """Every fault, and the end of the command."""
    if as_json:
        print_json({"imported": False, "faults": [asdict(fault) for fault in faults]})
    text = "\n".join(str(fault) for fault in faults)
    raise ConfigurationError(f"nothing is imported, {len(faults)} {'fault' if len(faults) == 1 else 'faults'}:\n{text}")


def _write(path: Path, text: str, plan: ImportPlan) -> Path:
    """Write the new fleet file in one step, where a link leads to as well; the old one's new place."""
    path = path.resolve()
    changed = {name: {change.field: change.new for change in fields} for name, fields in plan.changed.items()}
    new = edit_fleet(text, str(path), plan.added, changed)
    if decode_fleet(path) != text:
        errors.print(f"{path} changed while the plan was made; nothing is written, run it again", markup=False)
        raise typer.Exit(REFUSED)
    kept = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}.old")
    mode = path.stat().st_mode & 0o777
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        for target, content in ((kept, text), (fresh, new)):
            target.touch(mode)
            target.write_bytes(content.encode())
        fresh.replace(path)
    except OSError as error:  # a full disk: half a copy helps nobody
        for target in (kept, fresh):
            with suppress(OSError):
                target.unlink(missing_ok=True)
        raise OSError(error.errno, f"{error.strerror}; the fleet file is as it was", str(path)) from error
    return kept

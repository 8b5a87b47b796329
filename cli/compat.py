"""`gpufleet compat` and `gpufleet lifecycle`: what runs on what, and what ends when."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import FAILED, PROBLEMS
from cli.session import FleetOption, JsonOption, console, exits, open_fleet, plain_table, print_json
from fleet.catalog_data import Catalog, load_catalog
from fleet.compat_arguments import cuda_argument, day_argument, driver_argument, name_argument
from fleet.compat_rules import AppliedRule, Effect, KernelModules, MemoryMode, Platform
from fleet.compatibility import CompatibilityVerdict, Verdict, judge
from fleet.end_of_life import (
    ArchitectureEnd,
    BranchEnd,
    LifecycleRow,
    NodeSoftware,
    Support,
    architecture_end,
    branch_end,
    catalog_ends,
    lifecycle_rows,
)
from fleet.errors import PreconditionError
from fleet.hostlist import compress
from fleet.operator_catalog import extend

if TYPE_CHECKING:
    from collections.abc import Iterable

CatalogOption = Annotated[
    Path | None,
    typer.Option("--catalog", help="Your own facts (YAML), laid over the catalogue: docs/compatibility.md."),
]


@exits
def compat(
    gpu: Annotated[str, typer.Option("--gpu", help='Model, architecture or capability: V100, "H100 SXM5", sm_90.')],
    driver: Annotated[str | None, typer.Option("--driver", help="Branch or version: 580, 535.104.05.")] = None,
    cuda: Annotated[str | None, typer.Option("--cuda", help="Toolkit: 13, 12.2, 12.2.140.")] = None,
    kubernetes: Annotated[bool | None, typer.Option("--kubernetes/--no-kubernetes", help="Who runs the work.")] = None,
    memory_mode: Annotated[MemoryMode | None, typer.Option("--memory-mode", help="Of coherent GPUs (Grace).")] = None,
    modules: Annotated[KernelModules | None, typer.Option("--kernel-modules", help="Which are installed.")] = None,
    fabric_manager: Annotated[str | None, typer.Option("--fabric-manager", help="Its version.")] = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether a GPU, a driver and a CUDA toolkit fit, by which rule, and from which source.

    Give --driver, --cuda or both. The verdict is ok, "ok only with cuda-compat", refused or unknown.

    Example: gpufleet compat --gpu V100 --driver 590 --cuda 13.0 --json

    Exit codes: 0 ok, also only with cuda-compat; 1 refused; 2 the command line (a version like 12,2) or the catalogue
    file is wrong; 3 unknown; 6 no such catalogue file.
    """
    facts = _catalog(catalog)
    release = None if driver is None else driver_argument("--driver", driver, facts)
    toolkit = None if cuda is None else cuda_argument("--cuda", cuda, facts)
    manager = None if fabric_manager is None else driver_argument("--fabric-manager", fabric_manager, facts)
    platform = Platform(kubernetes, memory_mode, modules, manager)
    verdict = judge(name_argument("--gpu", gpu), release, toolkit, platform, facts)
    if as_json:
        print_json(_verdict_json(verdict))
    else:
        for line in _verdict_lines(verdict):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if verdict.verdict is Verdict.REFUSED:
        raise typer.Exit(FAILED)
    if verdict.verdict is Verdict.UNKNOWN:
        raise typer.Exit(PROBLEMS)


def _catalog(path: Path | None) -> Catalog:
    if path is None:
        return load_catalog()
    from adapters.operator_files import NoSuchFile, read_operator_text

    try:
        text = read_operator_text(path, "the catalogue file")
    except NoSuchFile as error:
        raise PreconditionError(error.message) from error
    return extend(load_catalog(), text, str(path))


def _verdict_lines(verdict: CompatibilityVerdict) -> Iterable[str]:
    with_package = f": {verdict.package}" if verdict.verdict is Verdict.NEEDS_CUDA_COMPAT else ""
    without = verdict.verdict is Verdict.REFUSED and verdict.package
    yield f"{verdict.verdict}{with_package}" + (f" without {verdict.package}" if without else "")
    for rule in verdict.rules:
        if rule.effect is Effect.ALLOWS and verdict.verdict is not Verdict.OK:
            continue
        yield f"  {rule.effect:<13} {rule.text}"
        yield f"  {'':<13} rule {rule.name}, {_source(rule.source, rule.as_of)}"


def _source(source: str, as_of: str | None) -> str:
    return f"{source} ({as_of})" if as_of else f"{source} (undated)"


def _verdict_json(verdict: CompatibilityVerdict) -> dict[str, object]:
    return {
        "gpu": verdict.gpu,
        "driver": verdict.driver,
        "cuda": verdict.cuda,
        "verdict": verdict.verdict,
        "package": verdict.package,
        "rules": [_rule_json(rule) for rule in verdict.rules if rule.effect is not Effect.NOTES],
        "notes": [_rule_json(rule) for rule in verdict.rules if rule.effect is Effect.NOTES],
        "unknown": list(verdict.unknown),
    }


def _rule_json(rule: AppliedRule) -> dict[str, object]:
    return {
        "name": rule.name,
        "effect": rule.effect,
        "text": rule.text,
        "source": rule.source,
        "as_of": rule.as_of,
    }


@exits
def lifecycle(
    driver: Annotated[str | None, typer.Option("--driver", help="Only these branches: 470,535.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="Only these GPUs: V100,H100.")] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="DATE", help="As of YYYY-MM-DD. Default: today.")] = None,
    catalog: CatalogOption = None,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
) -> None:
    """What ends when: driver branches, architectures, and with --fleet the nodes on them and what to do.

    Without --fleet the catalogue's ends are printed, all or those of --driver and --gpu. With --fleet models and
    drivers are those that the last sweep read; a driver that was never read is unknown.

    Example: gpufleet lifecycle --driver 470,535 --gpu V100

    Exit codes: 0; 2 the command line, the fleet file or the catalogue file is wrong; 3 the catalogue does not know
    a branch or a GPU that was named; 6 no such catalogue file.
    """
    facts, today = _catalog(catalog), _day(on)
    if fleet is not None:
        if driver is not None or gpu is not None:
            raise typer.BadParameter("--fleet shows all nodes: give it without --driver and --gpu")
        _show_nodes(lifecycle_rows(_nodes(fleet), today, facts), today, as_json)
        return
    branches, architectures = _ends(driver, gpu, today, facts)
    if as_json:
        print_json(
            {
                "on": today.isoformat(),
                "branches": [_branch_json(end) for end in branches],
                "architectures": [_architecture_json(end) for end in architectures],
            }
        )
    else:
        _show_ends(branches, architectures)
    if any(end.kind is None for end in branches) or any(_not_found(end) for end in architectures):
        raise typer.Exit(PROBLEMS)


def _not_found(end: ArchitectureEnd) -> bool:
    return end.support is Support.UNKNOWN and end.last_branch is None


def _day(text: str | None) -> date:
    return datetime.now(UTC).date() if text is None else day_argument("--on", text)


def _nodes(fleet: Path) -> list[NodeSoftware]:
    """Every node of the fleet file, with the GPU model and the driver that the last sweep read."""
    opened = open_fleet(fleet)
    known = {now.node: now for now in opened.ledger().facts.current(kinds=("gpu",))}
    found = []
    for entry in opened.spec().nodes:
        now = known.get(entry.name)
        models = [part.known.facts.get("model") for part in now.parts] if now is not None else []
        driver = now.known.facts.get("driver.loaded") if now is not None else None
        found.append(NodeSoftware(entry.name, entry.pool, next((m for m in models if m), entry.model), driver))
    return found


def _ends(
    driver: str | None, gpu: str | None, today: date, facts: Catalog
) -> tuple[tuple[BranchEnd, ...], tuple[ArchitectureEnd, ...]]:
    if driver is None and gpu is None:
        return catalog_ends(today, facts)
    releases = [driver_argument("--driver", name, facts) for name in _listed(driver)]
    branches = tuple(branch_end(name, today, facts) for name in releases)
    models = [name_argument("--gpu: a name between two commas", name) for name in _listed(gpu)]
    architectures = tuple(end for name in models for end in architecture_end(name, today, facts))
    return branches, architectures


def _listed(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def _show_ends(branches: tuple[BranchEnd, ...], architectures: tuple[ArchitectureEnd, ...]) -> None:
    if branches:
        columns = ("branch", "kind", "support", "ends", "retention ends", "note")
        console.print(plain_table(columns, (_branch_cells(end) for end in branches)))
    if branches and architectures:
        console.print()
    if architectures:
        names = ("architecture", "last branch", "last CUDA", "support", "ends")
        console.print(plain_table(names, (_architecture_cells(end) for end in architectures)))
    for end in architectures:
        if _not_found(end):
            console.print(end.text, highlight=False, markup=False, soft_wrap=True)


def _branch_cells(end: BranchEnd) -> tuple[str, ...]:
    retention = "" if end.retention_ends is None else end.retention_ends.isoformat()
    return (end.name, end.kind or "", end.support, _or_unknown(end.ends), retention, end.note)


def _architecture_cells(end: ArchitectureEnd) -> tuple[str, ...]:
    if end.last_branch is None:
        return (end.name, "", "", end.support, "unknown" if end.support is Support.UNKNOWN else "not announced")
    return (end.name, end.last_branch, end.last_cuda or "", end.support, _or_unknown(end.ends))


def _or_unknown(day: date | None) -> str:
    return "unknown" if day is None else day.isoformat()


def _show_nodes(rows: tuple[LifecycleRow, ...], today: date, as_json: bool) -> None:
    if as_json:
        print_json({"on": today.isoformat(), "rows": [_row_json(row) for row in rows]})
        return
    columns = ("nodes", "pool", "what", "support", "due", "what to do")
    cells = (
        (compress(row.nodes), row.pool, row.item, row.support, _or_unknown(row.due), row.what_to_do) for row in rows
    )
    console.print(plain_table(columns, cells) if rows else "no nodes")


def _branch_json(end: BranchEnd) -> dict[str, object]:
    return {
        "branch": end.name,
        "kind": end.kind,
        "support": end.support,
        "ends": _or_null(end.ends),
        "retention_ends": _or_null(end.retention_ends),
        "over_retention": end.over_retention,
        "text": end.text,
        "source": end.source,
        "as_of": end.as_of,
    }


def _architecture_json(end: ArchitectureEnd) -> dict[str, object]:
    return {
        "architecture": end.name,
        "last_branch": end.last_branch,
        "last_cuda": end.last_cuda,
        "support": end.support,
        "ends": _or_null(end.ends),
        "text": end.text,
        "source": end.source,
        "as_of": end.as_of,
    }


def _row_json(row: LifecycleRow) -> dict[str, object]:
    return {
        "item": row.item,
        "pool": row.pool,
        "nodes": list(row.nodes),
        "support": row.support,
        "ends": _or_null(row.ends),
        "due": _or_null(row.due),
        "action": row.action,
        "what_to_do": row.what_to_do,
        "why": row.why,
        "source": row.source,
    }


def _or_null(day: date | None) -> str | None:
    return None if day is None else day.isoformat()

"""`gpufleet drift`: what differs from the baseline, since when, and what would mend it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adapters.baseline_file import BASELINE, read_baseline_file
from cli.drift_tables import DriftAnswer, document, hostlist_of, show, to_csv
from cli.exit_codes import FAILED, PROBLEMS
from cli.filters import check_known
from cli.session import FleetOption, JsonOption, exits, open_fleet, print_json
from fleet.baseline import BaselineSpec, disagreements
from fleet.drift import DriftVerdict, judge_drift
from fleet.errors import FleetError, PreconditionError
from fleet.findings import Finding, Severity
from fleet.homogeneity import judge_homogeneity
from fleet.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blocks.fleet import Fleet
    from fleet.config import FleetSpec
    from fleet.model import Job

FIRMWARE = "firmware"


class Only(StrEnum):
    DRIFTED = "drifted"
    UNKNOWN = "unknown"


@exits
def drift(
    pool: Annotated[str | None, typer.Option("--pool", help="Only nodes of this pool.")] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="Only nodes of this rack.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only these nodes; a hostlist.")] = None,
    fact: Annotated[str | None, typer.Option("--fact", help='Only these facts: "ecc_mode", "firmware.*".')] = None,
    only: Annotated[Only | None, typer.Option("--only", help="Show only these; the exit code stays.")] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Baseline file. Default: baseline.yaml beside the fleet file.")
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="A line for each item, even where nodes are alike.")] = False,
    fleet: FleetOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line per item, all columns.")] = False,
) -> None:
    """Hold what was last read of every node against the pools' baseline; changes nothing.

    Each item is ok, drifted or unknown; nodes that differ alike share a line. Mixed versions inside one NVLink
    domain, rack or running job are listed besides, whatever the baseline says.

    Example: gpufleet drift --pool train --only drifted

    Example: gpufleet drift --node 'gpu-[0001-0016]' --fact 'firmware.*' --csv

    Exit codes: 0 as it should be; 1 something drifted, or versions are mixed in a domain or a job; 2 the baseline
    or the fleet file is wrong; 3 something is unknown and nothing drifted; 6 no such pool, rack or node.
    """
    if as_json and as_csv:
        raise typer.BadParameter("give one of --json and --csv")
    opened = open_fleet(fleet)
    chosen = _chosen(opened.spec(), pool, rack, node)
    wanted = read_baseline_file(baseline or opened.folder() / BASELINE, opened.spec())
    answer = _answer(opened, wanted, chosen, fact)
    shown = answer.report.rows if only is None else answer.report.of(DriftVerdict(only.value))
    if as_json:
        print_json(document(answer, shown))
    elif as_csv:
        typer.echo(to_csv(shown), nl=False)
    else:
        show(answer, shown, each)
    _exit(answer)


def _chosen(spec: FleetSpec, pool: str | None, rack: str | None, hostlist: str | None) -> frozenset[str]:
    """Names of the nodes that are asked for. Raises PreconditionError for a name that the fleet file does not have."""
    names = tuple(dict.fromkeys(expand(hostlist))) if hostlist is not None else None
    check_known("pool", [pool], spec.pools)
    check_known("rack", [rack], spec.racks)
    check_known("node", names or (), {entry.name for entry in spec.nodes})
    chosen = frozenset(
        entry.name
        for entry in spec.nodes
        if pool in (None, entry.pool) and rack in (None, entry.rack) and (names is None or entry.name in names)
    )
    if not chosen and spec.nodes:  # nothing judged would look like everything in order
        raise PreconditionError("no node fits --pool, --rack and --node together; nothing was judged")
    return chosen


def _answer(fleet: Fleet, baseline: BaselineSpec, chosen: frozenset[str], fact: str | None) -> DriftAnswer:
    """Mixed versions are looked for in the whole fleet and shown where a chosen node is among them."""
    from ledger.present import present_facts

    nodes = fleet.spec().inventory()
    facts, since = present_facts(fleet.ledger().facts.current(kinds=("gpu",)), fleet.clock.now())
    jobs, silent = _jobs(fleet)
    report = judge_drift(baseline, nodes, facts, fleet.clock.now().date(), since)
    wants = _fact_filter(fact)
    judged = [row for row in report.rows if row.node in chosen]
    rows = tuple(row for row in judged if wants(row.fact))
    mixed = judge_homogeneity(nodes, facts, jobs)
    groups = tuple(group for group in mixed.mixed if group.nodes & chosen and wants(group.fact))
    pools = {node.pool for node in nodes if node.name in chosen}
    notes = [
        *(f"pool {pool} has no baseline: {n} not judged" for pool, n in report.not_judged.items() if pool in pools),
        *((f"the baseline judges no fact {fact!r}",) if judged and not rows else ()),
        *((f"read, and not in the fleet file: {hostlist_of(report.strangers)}",) if report.strangers else ()),
        *silent,
    ]
    return DriftAnswer(
        replace(report, rows=rows),
        replace(mixed, mixed=groups),
        tuple(_disagreements(fleet, baseline, pools)),
        tuple(notes),
    )


def _fact_filter(pattern: str | None) -> Callable[[str], bool]:
    return lambda name: pattern is None or fnmatchcase(name, pattern)


def _jobs(fleet: Fleet) -> tuple[tuple[Job, ...], list[str]]:
    """The jobs, and why they are not known where the scheduler does not tell."""
    try:
        return fleet.scheduler().read_jobs(), []
    except FleetError as error:
        return (), [f"mixed versions inside jobs are not known: {error}"]


def _disagreements(fleet: Fleet, baseline: BaselineSpec, pools: Iterable[str]) -> Iterable[Finding]:
    for pool in sorted(pools):
        wanted = baseline.pools.get(pool)
        recorded = _recorded(fleet, pool) if wanted is not None else {}
        if wanted is not None and recorded:
            yield from disagreements(pool, wanted, recorded)


def _recorded(fleet: Fleet, pool: str) -> dict[str, str]:
    """Firmware by bundle entry, as the pool's last rollout left it; empty where there was none."""
    try:
        kept = fleet.ledger().baselines.current(pool, FIRMWARE)
    except PreconditionError:
        return {}
    versions = kept.document.get("versions") if kept is not None else None
    return {str(name): str(text) for name, text in versions.items()} if isinstance(versions, dict) else {}


def _exit(answer: DriftAnswer) -> None:
    together = any(finding.severity is not Severity.WARNING for finding in answer.findings)
    if answer.report.of(DriftVerdict.DRIFTED) or together:
        raise typer.Exit(FAILED)
    if answer.report.of(DriftVerdict.UNKNOWN):
        raise typer.Exit(PROBLEMS)

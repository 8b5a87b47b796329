"""How `gpufleet inventory` shows a plan and a discovery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from adapters.bmc_discovery import Discovery
from cli.session import console, print_json
from fleet.arrival import Comparison, payload_of
from fleet.config import NodeEntry
from fleet.inventory_import import ImportPlan
from fleet.netbox_webhook import DeviceChange


def show_plan(plan: ImportPlan, path: Path, kept: Path | None, as_json: bool) -> None:
    """What an import does to the fleet file at `path`; `kept` is the old one, None where nothing was written."""
    if as_json:
        document: dict[str, object] = {
            "imported": kept is not None,
            "added": [_added(plan, entry) for entry in plan.added],
            "changed": {name: [asdict(change) for change in fields] for name, fields in plan.changed.items()},
            "unchanged": list(plan.unchanged),
            "absent": list(plan.absent),
            "old_file": None if kept is None else str(kept),
        }
        print_json(document)
        return
    for line in _plan_lines(plan):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    counts = f"{len(plan.added)} added, {len(plan.changed)} changed, {len(plan.unchanged)} unchanged"
    console.print(f"{counts}, {len(plan.absent)} only in the fleet file", highlight=False)
    if plan.empty:
        console.print("nothing to do", highlight=False)
    elif kept is not None:
        console.print(f"written to {path}; the old one is {kept}", highlight=False, markup=False, soft_wrap=True)
    else:
        console.print("nothing is written; give --yes to write it", highlight=False)


def _added(plan: ImportPlan, entry: NodeEntry) -> dict[str, object]:
    return {**entry.model_dump(), "origin": plan.origins[entry.name]}


def _plan_lines(plan: ImportPlan) -> Iterator[str]:
    for entry in plan.added:
        unit = "" if entry.unit is None else f" U{entry.unit}"
        serial = "" if entry.serial is None else f", serial {entry.serial}"
        what = f"{entry.model}, {entry.pool}, {entry.rack}{unit}, {entry.bmc}, {entry.ssh}{serial}"
        yield f"{entry.name}  added    {what}  ({plan.origins[entry.name]})"
    for name, fields in plan.changed.items():
        changes = (f"{f.field}: {'none' if f.old is None else f.old} → {f.new}" for f in fields)
        yield f"{name}  changed  {'; '.join(changes)}  ({plan.origins[name]})"


def show_announcement(change: DeviceChange, comparison: Comparison | None, as_json: bool) -> None:
    """What became of a device that NetBox told of; `comparison` is None where it was not even compared."""
    found = comparison or Comparison()
    said = [f"{moved.hardware.label} is {moved.known.label}, known at {moved.known.bmc}" for moved in found.moved]
    said += [doubt.text for doubt in found.doubts]
    result = "announced" if found.arrivals else "doubt" if found.doubts else "moved" if found.moved else "known"
    if comparison is None:
        result, said = "not announced", [change.why_not]
    if as_json:
        arrivals = [payload_of(arrival) for arrival in found.arrivals]
        print_json({"result": result, "device": dict(change.row.values), "arrivals": arrivals, "why": said})
        return
    why = f": {'; '.join(said)}" if said else ""
    name = change.row.values.get("name", "?")
    console.print(f"{name}  {result}{why}", highlight=False, markup=False, soft_wrap=True)


def show_discovery(seen: Discovery, comparison: Comparison, announce: bool, as_json: bool) -> None:
    """What a range of addresses holds, against what is known."""
    if as_json:
        document: dict[str, object] = {
            "arrivals": [payload_of(arrival) for arrival in comparison.arrivals],
            "announced": announce,
            "known": comparison.recognised,
            "moved": [{"bmc": moved.hardware.bmc, "known": moved.known.label} for moved in comparison.moved],
            "doubts": [doubt.text for doubt in comparison.doubts],
            "unclear": [{"bmc": url, "what": what} for url, what in seen.unclear],
            "silent": seen.silent,
        }
        print_json(document)
        return
    for line in _discovery_lines(seen, comparison):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    counts = f"{len(comparison.arrivals)} new, {comparison.recognised} known, {len(seen.unclear)} unclear"
    console.print(f"{counts}, {seen.silent} silent", highlight=False)
    if comparison.arrivals:
        said = "announced" if announce else "nothing is announced; give --announce to start their intake"
        console.print(said, highlight=False)


def _discovery_lines(seen: Discovery, comparison: Comparison) -> Iterator[str]:
    for arrival in comparison.arrivals:
        hardware = arrival.hardware
        told = [hardware.vendor, hardware.model, f"serial {hardware.serial}" if hardware.serial else None]
        told.append(f"in the place of {arrival.replaces}" if arrival.replaces else None)
        yield f"{hardware.bmc}  new      {', '.join(text for text in told if text) or 'tells nothing of itself'}"
    for moved in comparison.moved:
        yield f"{moved.hardware.bmc}  moved    is {moved.known.label}, known at {moved.known.bmc}"
    for doubt in comparison.doubts:
        yield f"{doubt.hardware.bmc}  doubt    {doubt.text}"
    for url, what in seen.unclear:
        yield f"{url}  unclear  {what}"

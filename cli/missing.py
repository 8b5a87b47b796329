"""`gpufleet gpus --missing`: what should be there and was not seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from adapters.baseline_file import BASELINE, read_baseline_file
from cli.filters import check_known
from cli.gpus import gpus_read
from cli.session import console, counted, plain_table, print_csv, print_json
from fleet.hostlist import compress
from fleet.missing_gpus import GpuSlots, MissingGpu, MissingGpus, missing_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blocks.fleet import Fleet
    from fleet.model import Node
    from ledger import NodeNow, NodeRecord, PartNow

_COLUMNS = ("node", "pool", "rack", "slot", "serial", "seen", "why")


def show_missing(
    fleet: Fleet,
    records: Mapping[str, NodeRecord],
    names: set[str] | None,
    wanted: Mapping[str, str | None],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print what is missing in the nodes that are asked for; all nodes of a model are looked at to tell."""
    found = {now.node: now for now in fleet.ledger().facts.current(kinds=("gpu",))}
    places = {node.name: node for node in fleet.spec().inventory()}
    every = {*places, *found}
    check_known("node", sorted(names or ()), every)
    counts = _wanted_counts(fleet, places)
    answer = missing_gpus(_slots(name, found.get(name), places.get(name), counts.get(name)) for name in every)
    asked = {name for name in every if names is None or name in names} & _placed(every, places, records, wanted)
    rows = [_row(gpu, found.get(gpu.node), places.get(gpu.node)) for gpu in answer.gpus if gpu.node in asked]
    not_read = [name for name in answer.not_read if name in asked]
    not_known = [name for name in answer.not_known if name in asked]
    if as_json:
        print_json({"missing": rows, "not_read": compress(not_read), "not_known": compress(not_known)})
    elif as_csv:
        print_csv(rows, _COLUMNS)
    else:
        _show(rows, asked, MissingGpus((), tuple(not_read), tuple(not_known)))


def _slots(name: str, now: NodeNow | None, place: Node | None, wanted: int | None) -> GpuSlots:
    parts = now.parts if now is not None else ()
    bus = now.known.facts.get("gpu.on_bus", "") if now is not None else ""
    return GpuSlots(
        node=name,
        model=None if place is None else place.model,
        read=now is not None and gpus_read(now),
        seen=frozenset(part.slot for part in parts if not part.missing),
        lost=frozenset(part.slot for part in parts if part.missing),
        wanted=wanted,
        on_bus=int(bus) if re.fullmatch("[0-9]{1,4}", bus) else None,
    )


def _wanted_counts(fleet: Fleet, places: Mapping[str, Node]) -> dict[str, int | None]:
    """The baseline's gpu_count by node; nothing where there is no baseline."""
    path = fleet.folder() / BASELINE
    pools = read_baseline_file(path, fleet.spec()).pools if path.exists() else {}
    return {name: pools[node.pool].gpu_count(node.model) for name, node in places.items() if node.pool in pools}


def _placed(
    names: Iterable[str],
    places: Mapping[str, Node],
    records: Mapping[str, NodeRecord],
    wanted: Mapping[str, str | None],
) -> set[str]:
    """Names of the nodes in the pool, rack and state that are asked for."""

    def told(name: str) -> dict[str, str | None]:
        place, record = places.get(name), records.get(name)
        where = {"pool": None, "rack": None} if place is None else {"pool": place.pool, "rack": place.rack}
        return {**where, "state": None if record is None else record.state.value}

    asked = {(key, value) for key, value in wanted.items() if value is not None}
    return {name for name in names if asked <= told(name).items()}


def _row(gpu: MissingGpu, now: NodeNow | None, place: Node | None) -> dict[str, str | None]:
    part = _part_in(now, gpu.slot)
    return {
        "node": gpu.node,
        "pool": None if place is None else place.pool,
        "rack": None if place is None else place.rack,
        "slot": gpu.slot,
        "serial": None if part is None else part.serial,
        "seen": None if part is None else part.seen.isoformat(timespec="seconds"),
        "why": gpu.why,
    }


def _part_in(now: NodeNow | None, slot: str | None) -> PartNow | None:
    return next((part for part in now.parts if part.slot == slot), None) if now is not None else None


def _show(rows: list[dict[str, str | None]], asked: set[str], silent: MissingGpus) -> None:
    if rows:
        columns = ("node", "slot", "serial", "last seen (UTC)", "why")
        console.print(plain_table(columns, (_cells(row) for row in rows)))
    for names, why in ((silent.not_read, "not read"), (silent.not_known, "nothing says how many they need")):
        if names:
            console.print(
                f"not known: {counted(len(names), 'node')}, {compress(names)}: {why}",
                style="cyan",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    holders = len({row["node"] for row in rows})
    console.print(f"{len(rows)} missing on {holders} of {counted(len(asked), 'node')}", highlight=False)


def _cells(row: dict[str, str | None]) -> tuple[str, ...]:
    seen = (row["seen"] or "")[:16].replace("T", " ")
    return (row["node"] or "", row["slot"] or "?", row["serial"] or "", seen, row["why"] or "")

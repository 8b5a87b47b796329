"""When driver branches and architectures end, which nodes are on them, and what their owners must do.

Two dates bind a branch: the vendor's end of support, and the operator's retention, which is how many months after
its release a branch may stay on nodes (18 unless an operator's file says otherwise; None: no such policy).
Today is always a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import NamedTuple

from fleet.catalog_data import Architecture, BranchKind, Catalog, DriverBranch, load_catalog, month_end
from fleet.drivers import parse_driver
from fleet.findings import Action
from fleet.gpu_names import Gpu, identify, nearest


class Support(StrEnum):
    """Whether the vendor still supports it. UNKNOWN is never to be read as supported."""

    SUPPORTED = "supported"
    END_OF_LIFE = "eol"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """A branch on one day. `ends` is the last day of support, `retention_ends` the last day of the policy.

    `kind` is LTSB, PB or NFB. What is None is not known; `text` says it all in words, `note` only what is uncertain.
    """

    name: str
    kind: BranchKind | None
    support: Support
    ends: date | None
    retention_ends: date | None
    over_retention: bool
    text: str
    note: str
    source: str
    as_of: str | None


@dataclass(frozen=True, slots=True)
class ArchitectureEnd:
    """An architecture on one day. `last_branch` and `last_cuda` are None while none is announced.

    `ends` is the end of the last branch: after it no supported driver is left.
    """

    name: str
    last_branch: str | None
    last_cuda: str | None
    support: Support
    ends: date | None
    text: str
    source: str
    as_of: str | None


class NodeSoftware(NamedTuple):
    """What a node has. None: not known yet."""

    node: str
    pool: str
    gpu: str | None
    driver: str | None


@dataclass(frozen=True, slots=True)
class LifecycleRow:
    """What some nodes of a pool are on: `item` ("driver R535 on Volta"), and what its owners must do.

    `due` is the earlier of end of support and of retention; None where neither is known.
    """

    item: str
    pool: str
    nodes: tuple[str, ...]
    support: Support
    ends: date | None
    due: date | None
    action: Action
    what_to_do: str
    why: str
    source: str


def branch_end(driver: str, today: date, catalog: Catalog | None = None) -> BranchEnd:
    """Where the branch of `driver` ("R535", "535.54.03") stands on `today`."""
    facts = catalog or load_catalog()
    release = parse_driver(driver)
    if release is None:
        return _unknown_branch(repr(driver[:60]), f"{driver[:60]!r} is no driver branch or version.")
    branch = facts.branches.get(release.branch)
    if branch is None:
        name = f"R{release.branch}"
        return _unknown_branch(name, f"The catalogue has no branch {name}; its newest is R{max(facts.branches)}.")
    retention = _retention(branch, facts.retention_months)
    over = retention is not None and today > retention
    support, text = _support(branch, today)
    if retention is not None:
        text += (
            f" Retention ({facts.retention_months} months from its release) {'ended' if over else 'ends'} {retention}."
        )
    text += f" Note: {branch.note}." if branch.note else ""
    name, origin = f"R{branch.number}", branch.origin
    return BranchEnd(
        name=name,
        kind=branch.kind,
        support=support,
        ends=branch.ends,
        retention_ends=retention,
        over_retention=over,
        text=f"{name} {text}",
        note=branch.note,
        source=origin.source,
        as_of=origin.as_of,
    )


def _unknown_branch(name: str, text: str) -> BranchEnd:
    return BranchEnd(name, None, Support.UNKNOWN, None, None, False, text, text, "gpufleet catalogue", None)


def _retention(branch: DriverBranch, months: int | None) -> date | None:
    """The last day of the month that is `months` after the release's."""
    if branch.released is None or not months:
        return None
    years, month = divmod(branch.released.month - 1 + months, 12)
    return month_end(branch.released.year + years, month + 1)


def _support(branch: DriverBranch, today: date) -> tuple[Support, str]:
    if branch.ends is not None:
        ended = today > branch.ends
        word = "was supported until" if ended else "is supported until"
        return Support.END_OF_LIFE if ended else Support.SUPPORTED, f"({branch.kind}) {word} {branch.ends}."
    if branch.ended_by is not None and today > branch.ended_by:
        return Support.END_OF_LIFE, f"({branch.kind}) had ended by {branch.ended_by}."
    return Support.UNKNOWN, f"({branch.kind}) has no known end of support."


def architecture_end(gpu: str, today: date, catalog: Catalog | None = None) -> tuple[ArchitectureEnd, ...]:
    """Where the architecture of `gpu` (any spelling) stands: one entry, or one for each range that the name covers."""
    facts = catalog or load_catalog()
    kind = identify(gpu, facts)
    if kind is None:
        near = nearest(gpu, facts)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        text = f"{gpu[:60]!r} names no one kind of GPU in the catalogue{hint}."
        unknown = ArchitectureEnd(repr(gpu[:60]), None, None, Support.UNKNOWN, None, text, "gpufleet catalogue", None)
        return (unknown,)
    return tuple(_row_end(row, today, facts) for row in kind.rows)


def _row_end(row: Architecture, today: date, facts: Catalog) -> ArchitectureEnd:
    name, last_cuda = f"{row.name} ({', '.join(row.capabilities)})", row.last_cuda.text if row.last_cuda else None
    if row.last_driver is None:
        text = f"{name}: no last branch is announced."
        return ArchitectureEnd(
            name, None, last_cuda, Support.SUPPORTED, None, text, row.origin.source, row.origin.as_of
        )
    last = branch_end(f"R{row.last_driver}", today, facts)
    toolkit = f"CUDA {last_cuda}" if last_cuda else "not announced"
    text = f"{name}: last branch {last.name}, last toolkit {toolkit}. {last.text}"
    return ArchitectureEnd(
        name, last.name, last_cuda, last.support, last.ends, text, row.origin.source, row.origin.as_of
    )


def catalog_ends(
    today: date, catalog: Catalog | None = None
) -> tuple[tuple[BranchEnd, ...], tuple[ArchitectureEnd, ...]]:
    """Every branch, oldest first, and every architecture of the catalogue on `today`."""
    facts = catalog or load_catalog()
    branches = tuple(branch_end(f"R{number}", today, facts) for number in sorted(facts.branches))
    return branches, tuple(_row_end(row, today, facts) for row in facts.architectures)


def lifecycle_rows(
    nodes: Iterable[NodeSoftware | tuple[str, str, str | None, str | None]],
    today: date,
    catalog: Catalog | None = None,
) -> tuple[LifecycleRow, ...]:
    """What ends for which nodes, the earliest first, then what is unknown.

    Nodes of one pool with the same branch and architecture share a row. An architecture has a row of its own once
    its last branch is announced.
    """
    facts = catalog or load_catalog()
    groups: dict[tuple[str, str | None, str | None], list[str]] = {}
    for node, pool, gpu, driver in nodes:
        release = None if driver is None else parse_driver(driver)
        groups.setdefault((pool, gpu, f"R{release.branch}" if release else driver), []).append(node)
    merged: dict[LifecycleRow, set[str]] = {}
    for (pool, gpu, driver), names in groups.items():
        for row in _rows_of(pool, gpu, driver, today, facts):
            merged.setdefault(row, set()).update(names)
    rows = [_with_nodes(row, names) for row, names in merged.items()]
    return tuple(sorted(rows, key=lambda row: (row.due is None, row.due or today, row.pool, row.item)))


def _with_nodes(row: LifecycleRow, names: set[str]) -> LifecycleRow:
    return replace(row, nodes=tuple(sorted(names)))


def _rows_of(pool: str, gpu: str | None, driver: str | None, today: date, facts: Catalog) -> Iterator[LifecycleRow]:
    kind = None if gpu is None else identify(gpu, facts)
    if kind is None:
        yield _unknown_gpu(pool, gpu, today, facts)
    else:
        for row in kind.rows:
            if row.last_driver is not None:
                yield _architecture_row(pool, row, today, facts)
    yield _driver_row(pool, kind, driver, today, facts)


def _unknown_gpu(pool: str, gpu: str | None, today: date, facts: Catalog) -> LifecycleRow:
    if gpu is None:
        item, why, what = "GPU unknown", "The GPU model is not known.", "Read the GPU model with a sweep."
    else:
        item, why = f"GPU {gpu[:60]!r}", architecture_end(gpu, today, facts)[0].text
        what = "Name the model as it is sold, or describe it in a catalogue file."
    return _unknown_row(item, pool, what, why)


def _unknown_row(item: str, pool: str, what: str, why: str) -> LifecycleRow:
    source = "gpufleet catalogue"
    return LifecycleRow(item, pool, (), Support.UNKNOWN, None, None, Action.INVESTIGATE, what, why, source)


def _architecture_row(pool: str, row: Architecture, today: date, facts: Catalog) -> LifecycleRow:
    end = _row_end(row, today, facts)
    images = f" Images stay at CUDA {end.last_cuda} or before." if end.last_cuda else ""
    if end.support is Support.END_OF_LIFE:
        action, what = Action.REPLACE_PART, "Replace these GPUs: no supported driver is left for them."
    elif end.support is Support.UNKNOWN:
        action, what = Action.INVESTIGATE, f"Find out when {end.last_branch} ends, and put it into a catalogue file."
    else:
        action, what = Action.WATCH, f"Plan the replacement of these GPUs before {end.ends}.{images}"
    item = f"GPU {row.name}"
    return LifecycleRow(item, pool, (), end.support, end.ends, end.ends, action, what, end.text, end.source)


def _driver_row(pool: str, kind: Gpu | None, driver: str | None, today: date, facts: Catalog) -> LifecycleRow:
    if driver is None:
        why = "The driver of these nodes has not been read."
        return _unknown_row("driver unknown", pool, "Read the driver with a sweep.", why)
    end = branch_end(driver, today, facts)
    item = f"driver {end.name}" + (f" on {kind.architecture}" if kind else "")
    due = min((day for day in (end.ends, end.retention_ends) if day is not None), default=None)
    action, what = _advice(end, kind, today, facts)
    return LifecycleRow(item, pool, (), end.support, end.ends, due, action, what, end.text, end.source)


def _advice(end: BranchEnd, kind: Gpu | None, today: date, facts: Catalog) -> tuple[Action, str]:
    """What the owners of nodes on this branch do."""
    best = _best_branch(end, kind, today, facts)
    later = f"move to {best.name} ({best.kind}, supported until {best.ends})" if best else ""
    who = kind.architecture if kind else "a GPU that is not known"
    if end.support is Support.UNKNOWN:
        what = f"Find out when {end.name} ends, and put it into a catalogue file"
        return Action.INVESTIGATE, f"{what}; or {later}." if later else f"{what}."
    if end.support is Support.SUPPORTED and not end.over_retention:
        return Action.WATCH, f"Before the day it is due, {later}." if later else f"No later branch is known for {who}."
    if later:
        return Action.UPDATE_SOFTWARE, f"{later[0].upper()}{later[1:]}."
    if end.support is Support.SUPPORTED:
        return Action.WATCH, f"Keep it until its support ends: no later branch is known for {who}."
    if kind is None:
        return Action.INVESTIGATE, "Name the GPU: without it no branch can be recommended."
    return Action.REPLACE_PART, f"No supported branch is known for {who}: replace these GPUs."


def _best_branch(end: BranchEnd, kind: Gpu | None, today: date, facts: Catalog) -> BranchEnd | None:
    """The later branch with the longest support that drives all of `kind`, within retention where one is."""
    now = parse_driver(end.name)
    if kind is None or now is None:
        return None
    lowest = max((facts.first_branch(row) or 0 for row in kind.rows), default=0)
    highest = min(row.last_driver or max(facts.branches) for row in kind.rows)
    fitting = (number for number in facts.branches if max(now.branch + 1, lowest) <= number <= highest)
    ends = [branch_end(f"R{number}", today, facts) for number in fitting]
    good = [e for e in ends if e.support is Support.SUPPORTED and e.kind is not BranchKind.NEW_FEATURE and e.ends]
    return max(good, key=lambda e: (not e.over_retention, e.ends or today), default=None)

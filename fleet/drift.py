"""Drift: what differs from the baseline, since when, and which operation would mend it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

from fleet.baseline import Acceptance, BaselineSpec, PoolBaseline
from fleet.drift_rules import Item, Mend, gpu_items, natural, node_items
from fleet.facts import NodeFacts, PartFacts
from fleet.merged_facts import merge_facts, told
from fleet.model import Node

NODE = "node"
_NEVER = datetime.min.replace(tzinfo=UTC)
Since = Mapping[tuple[str, str, str], datetime]
"""(node, "node" or the part's key, fact) → since when it has its value or is unknown, UTC."""


class DriftVerdict(StrEnum):
    """The three answers to "is it as it should be?"."""

    OK = "ok"
    DRIFTED = "drifted"
    UNKNOWN = "unknown"


_VERDICTS = {True: DriftVerdict.OK, False: DriftVerdict.DRIFTED, None: DriftVerdict.UNKNOWN}


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One item of one node or part.

    `subject` is "node" or "gpu 0000:3b:00.0", `part` the part's key, which its history follows (None for the node).
    `found` is None where nothing was read; `why` says it then, and for a drift what is known of it. `accepted` is
    the reason of the exception that makes a deviation ok, with its last day. `read_at` is when the node was read.
    """

    node: str
    pool: str
    rack: str
    subject: str
    part: str | None
    fact: str
    verdict: DriftVerdict
    wanted: str
    found: str | None
    why: str
    mend: Mend
    since: datetime | None = None
    accepted: str | None = None
    read_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What one row is found by in another report."""
        return (self.node, self.part or self.subject, self.fact)


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Rows by node in the fleet file's order, the node itself before its GPUs, items in the baseline's order.

    `not_judged` are pools without a baseline with their number of nodes; `strangers` are nodes that were read and
    are not in the fleet file.
    """

    rows: tuple[DriftRow, ...]
    not_judged: Mapping[str, int]
    strangers: tuple[str, ...]

    def of(self, verdict: DriftVerdict) -> tuple[DriftRow, ...]:
        return tuple(row for row in self.rows if row.verdict is verdict)


def judge_drift(
    baseline: BaselineSpec, nodes: Iterable[Node], facts: Iterable[NodeFacts], today: date, since: Since | None = None
) -> DriftReport:
    """Hold what was read of `nodes` against their pools' baseline. A node that was never read is unknown throughout."""
    known = merge_facts(facts)
    rows: list[DriftRow] = []
    not_judged: dict[str, int] = {}
    names = set()
    for node in nodes:
        names.add(node.name)
        pool = baseline.pools.get(node.pool)
        if pool is None:
            not_judged[node.pool] = not_judged.get(node.pool, 0) + 1
            continue
        found = (_accepted(row, pool.accept, today) for row in _judge_node(pool, node, known.get(node.name)))
        rows += [replace(row, since=since.get(row.key)) for row in found] if since else found
    return DriftReport(tuple(rows), not_judged, tuple(sorted(known.keys() - names, key=natural)))


def _judge_node(pool: PoolBaseline, node: Node, reading: NodeFacts | None) -> Iterator[DriftRow]:
    seen = reading or NodeFacts(node.name, _NEVER, "", {}, {})
    never = "the node was never read" if reading is None else ""
    blank = DriftRow(
        node=node.name,
        pool=node.pool,
        rack=node.rack,
        subject=NODE,
        part=None,
        fact="",
        verdict=DriftVerdict.UNKNOWN,
        wanted="",
        found=None,
        why=never,
        mend=Mend.PERSON,
        read_at=None if reading is None else reading.at,
    )
    for item in node_items(pool, node.model, seen):
        yield _judge(blank, item, seen.facts, seen.unknown, seen.source)
    yield from _judge_gpus(pool, node, seen, blank)


def _judge_gpus(pool: PoolBaseline, node: Node, seen: NodeFacts, blank: DriftRow) -> Iterator[DriftRow]:
    items = tuple(gpu_items(pool.gpu_for(node.model)))
    gpus = _gpus(seen, items)
    for gpu in gpus:
        row = replace(blank, subject=f"gpu {gpu.slot}", part=gpu.key)
        for item in items:
            yield _judge(row, item, gpu.facts, {**seen.unknown, **gpu.unknown}, seen.source)
    why = _gpus_not_read(pool, node, seen, len(gpus))
    for item in items if why else ():
        reason = blank.why or why
        yield replace(blank, subject="gpu ?", fact=item.fact, wanted=item.wanted, why=reason, mend=item.mend)


def _gpus(seen: NodeFacts, items: tuple[Item, ...]) -> list[PartFacts]:
    """The GPUs by slot; where the host tells the settings, without what only the BMC calls a GPU (no PCI address)."""
    gpus = sorted((part for part in seen.parts if part.kind == "gpu"), key=lambda part: (natural(part.slot), part.key))
    names = {item.fact for item in items}
    telling = [gpu for gpu in gpus if ":" in gpu.slot or names & (gpu.facts.keys() | gpu.unknown.keys())]
    return telling or gpus


def _gpus_not_read(pool: PoolBaseline, node: Node, seen: NodeFacts, read: int) -> str:
    """Why the settings of some GPUs are not known; empty where all were read."""
    counted = (told(seen.facts, "gpu.count") or "").strip()
    wanted = int(counted) if re.fullmatch("[0-9]{1,4}", counted) else pool.gpu_count(node.model)
    if wanted is None or not read:
        nothing = seen.unknown.get("gpus") or "no GPU was read"
        return "" if read or wanted == 0 else nothing
    return f"{wanted - read} of {wanted} GPUs were not read" if wanted > read else ""


def _judge(row: DriftRow, item: Item, facts: Mapping[str, str], unknown: Mapping[str, str], source: str) -> DriftRow:
    found = told(facts, item.fact) if item.find is None else item.find(facts)
    agrees = None if found is None else item.agrees(found)
    if found is None:
        why = row.why or _why_not_read(item, facts, unknown, source)
    elif agrees is None:
        why = item.doubt or f"cannot be told from {found!r}"
    else:
        why = "" if agrees else _pending(item, facts)
    verdict = _VERDICTS[agrees]
    return replace(row, fact=item.fact, verdict=verdict, wanted=item.wanted, found=found, why=why, mend=item.mend)


def _why_not_read(item: Item, facts: Mapping[str, str], unknown: Mapping[str, str], source: str) -> str:
    """The reason that the reading gives for the fact, for all of its family, or for all (`*`, `probe`)."""
    family = item.fact.split(".")[0]
    wide = (name for name in unknown if name.endswith("*") and item.fact.startswith(name[:-1]))
    for name in (item.fact, family, f"{family}s", *wide, *source.split(", ")):
        if unknown.get(name):
            return unknown[name]
    if item.fact in facts:
        return f"the {source} gave {facts[item.fact]!r}"
    return item.doubt or f"not told by the {source}"


def _pending(item: Item, facts: Mapping[str, str]) -> str:
    if item.pending is None:
        return ""
    name, text = item.pending
    waiting = told(facts, name)
    return text if waiting is not None and item.agrees(waiting) else ""


def _accepted(row: DriftRow, exceptions: tuple[Acceptance, ...], today: date) -> DriftRow:
    """A drift that the baseline allows is ok until its last day is over; what is unknown stays unknown."""
    if row.verdict is not DriftVerdict.DRIFTED:
        return row
    covering = [exception for exception in exceptions if exception.covers(row.node, row.fact)]
    if not covering:
        return row
    last = max(covering, key=lambda exception: exception.until)
    if last.until < today:
        ended = f"its exception ended on {last.until}"
        return replace(row, why="; ".join(text for text in (row.why, ended) if text))
    return replace(row, verdict=DriftVerdict.OK, accepted=f"until {last.until}: {last.why}")

"""How `gpufleet drift` prints its answer: a table, one JSON object, or CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from rich.text import Text

from cli.session import console, csv_cell, plain_table
from fleet.drift import DriftReport, DriftRow, DriftVerdict
from fleet.errors import ConfigurationError
from fleet.findings import Finding
from fleet.homogeneity import Homogeneity
from fleet.hostlist import compress

COLUMNS = (
    "node",
    "pool",
    "rack",
    "subject",
    "part",
    "fact",
    "verdict",
    "wanted",
    "found",
    "why",
    "since",
    "mend",
    "accepted",
    "read_at",
)


@dataclass(frozen=True, slots=True)
class DriftAnswer:
    """What is shown: the report and the mixed versions of the chosen nodes, and what else a person must know."""

    report: DriftReport
    mixed: Homogeneity
    disagreements: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(group.finding() for group in self.mixed.mixed), *self.disagreements)


def document(answer: DriftAnswer, shown: Iterable[DriftRow]) -> dict[str, object]:
    """The JSON of an answer; `rows` are what is shown, `counts` are of everything that was asked for."""
    return {
        "counts": {verdict.value: len(answer.report.of(verdict)) for verdict in DriftVerdict},
        "rows": [_cells(row) for row in shown],
        "mixed": [
            {
                "kind": group.kind.value,
                "name": group.name,
                "fact": group.fact,
                "versions": [{"version": version, "nodes": list(nodes)} for version, nodes in group.versions],
            }
            for group in answer.mixed.mixed
        ],
        "findings": [asdict(finding) for finding in answer.findings],
        "unknown": list(answer.mixed.unknown),
        "notes": list(answer.notes),
    }


def _cells(row: DriftRow) -> dict[str, str | None]:
    cells = {name: getattr(row, name) for name in COLUMNS}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in cells.items()}


def to_csv(rows: Iterable[DriftRow]) -> str:
    """A header and a line per row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(cell) for name, cell in _cells(row).items()} for row in rows)
    return text.getvalue()


def show(answer: DriftAnswer, shown: tuple[DriftRow, ...], each: bool) -> None:
    """Everything but what is ok without an exception; what is alike shares a line unless `each` is given."""
    drifted = [row for row in shown if row.verdict is DriftVerdict.DRIFTED]
    unknown = [row for row in shown if row.verdict is DriftVerdict.UNKNOWN]
    accepted = [row for row in shown if row.accepted is not None]
    if each:
        lines = [_drift_cells(row) for row in (*drifted, *unknown, *accepted)]
    else:
        lines = [*_alike_cells(drifted), *_unknown_cells(unknown), *_alike_cells(accepted)]
    if lines:
        columns = ("node", "subject", "fact", "answer", "wanted", "found", "since (UTC)", "mend", "why")
        console.print(plain_table(columns, lines))
    for finding in answer.findings:
        console.print(Text(f"{finding.subject}: {finding.code}  {finding.evidence}"), style="yellow", soft_wrap=True)
    for line in (*answer.mixed.unknown, *answer.notes):
        console.print(line, style="cyan", highlight=False, markup=False, soft_wrap=True)
    counts = Counter(row.verdict for row in answer.report.rows)
    excepted = sum(row.accepted is not None for row in answer.report.rows)
    console.print(
        f"{counts[DriftVerdict.OK]} items ok ({excepted} by exception), {counts[DriftVerdict.DRIFTED]} drifted on "
        f"{len({row.node for row in answer.report.of(DriftVerdict.DRIFTED)})} nodes, "
        f"{counts[DriftVerdict.UNKNOWN]} unknown",
        highlight=False,
        soft_wrap=True,
    )


def _drift_cells(row: DriftRow) -> tuple[str, ...]:
    since = f"{row.since:%F %H:%M}" if row.since is not None else ""
    why = f"allowed {row.accepted}" if row.accepted is not None else row.why
    mend = row.mend.value.replace("_", " ")
    return (row.node, row.subject, row.fact, row.verdict.value, row.wanted, row.found or "", since, mend, why)


def _alike_cells(rows: Iterable[DriftRow]) -> list[tuple[str, ...]]:
    """One line for the nodes that differ alike in the same parts, and since when the first and the last of them do."""
    of_node: defaultdict[tuple[str, ...], list[DriftRow]] = defaultdict(list)
    for row in rows:
        cells = _drift_cells(row)
        of_node[row.node, *cells[2:6], *cells[7:]].append(row)
    alike: defaultdict[tuple[str, ...], list[DriftRow]] = defaultdict(list)
    for (_, *told), group in of_node.items():
        alike[_subjects(group), *told].extend(group)
    return [_alike(cells, group) for cells, group in alike.items()]


def _alike(cells: tuple[str, ...], group: Sequence[DriftRow]) -> tuple[str, ...]:
    nodes = list(dict.fromkeys(row.node for row in group))
    times = sorted(row.since for row in group if row.since is not None)
    since = " to ".join(dict.fromkeys(f"{at:%F %H:%M}" for at in (*times[:1], *times[-1:])))
    return (hostlist_of(nodes), *cells[:5], since, *cells[5:])


def _subjects(group: Iterable[DriftRow]) -> str:
    subjects = list(dict.fromkeys(row.subject for row in group))
    return ", ".join(subjects) if len(subjects) < 3 else f"{len(subjects)} parts"


def _unknown_cells(rows: Iterable[DriftRow]) -> list[tuple[str, ...]]:
    """One line per cause: nodes that were never read are one line together, and not one for each of their items."""
    by_cause: defaultdict[tuple[str, str], list[DriftRow]] = defaultdict(list)
    for row in rows:
        by_cause[row.node, row.why].append(row)
    alike: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for (node, why), group in by_cause.items():
        only = group[0] if len(group) == 1 else None
        fact = f"{len(group)} items" if only is None else only.fact
        shown = ("", "", "") if only is None else _drift_cells(only)[4:7]
        alike[_subjects(group), fact, DriftVerdict.UNKNOWN.value, *shown, "", why].append(node)
    return [(hostlist_of(nodes), *cells) for cells, nodes in alike.items()]


def hostlist_of(nodes: Sequence[str]) -> str:
    """The names as a hostlist; one by one where a name fits into none."""
    try:
        return compress(nodes)
    except ConfigurationError:
        return ", ".join(nodes)

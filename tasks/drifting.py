"""What the ledger knows against the pools' baseline: the table in the Prefect UI, and an event for each new drift."""

from __future__ import annotations

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event
from prefect.logging import get_run_logger

from adapters.baseline_file import BASELINE, read_baseline_file
from adapters.kept_json import keep, read_kept
from blocks.fleet import Fleet
from fleet.drift import DriftReport, DriftRow, DriftVerdict, judge_drift
from fleet.errors import ConfigurationError
from ledger.present import present_facts

DRIFTED = "gpufleet.drift.found"
_ROWS_SHOWN = 500


class DriftWatch:
    """Compares each round with what was told last; that is kept in a file, so that no drift is told twice or never."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._file = fleet.folder() / "run" / "drift_told.json"
        self._told = {key: str(value) for key, value in (read_kept(self._file) or {}).items()}

    def publish_new(self) -> tuple[DriftRow, ...]:
        """An event for each item that drifted and was not told of as it is now; the table of all as an artifact."""
        report = self._report()
        if report is None:
            return ()
        drifted = {_key(row): row for row in report.of(DriftVerdict.DRIFTED)}
        new = tuple(row for key, row in drifted.items() if self._told.get(key) != _deviation(row))
        for row in new:
            self._emit(row)
        unread = {_key(row) for row in report.of(DriftVerdict.UNKNOWN)}  # it may still be as it was told
        told = {key: text for key, text in self._told.items() if key in unread}
        told |= {key: _deviation(row) for key, row in drifted.items()}
        if told != self._told:
            self._publish_table(report)
            keep(self._file, told)
            self._told = told
        return new

    def _report(self) -> DriftReport | None:
        """None where the fleet has no baseline, or it cannot be read now: a person is told, and the sweep goes on."""
        path = self._fleet.folder() / BASELINE
        if not path.is_file():
            return None
        spec = self._fleet.spec()
        try:
            baseline = read_baseline_file(path, spec)
        except ConfigurationError as error:
            get_run_logger().warning("drift is not judged: %s", error.message)
            return None
        facts, since = present_facts(self._fleet.ledger().facts.current(kinds=("gpu",)), self._fleet.clock.now())
        return judge_drift(baseline, spec.inventory(), facts, self._fleet.clock.now().date(), since)

    def _publish_table(self, report: DriftReport) -> None:
        drifted = report.of(DriftVerdict.DRIFTED)
        rows = [
            {
                "node": row.node,
                "part": row.subject,
                "what": row.fact,
                "wanted": row.wanted,
                "found": row.found or "unknown",
                "since": f"{row.since:%F %T}" if row.since else "unknown",
                "mended by": row.mend.value,
            }
            for row in drifted[:_ROWS_SHOWN]
        ]
        unknown = len(report.of(DriftVerdict.UNKNOWN))
        create_table_artifact(
            table=rows,
            key=f"drift-{self._fleet.spec().fleet}".casefold().replace("_", "-").replace(".", "-"),
            description=f"{len(drifted)} items drifted, {unknown} unknown; all of them: gpufleet drift",
        )

    def _emit(self, row: DriftRow) -> None:
        name = self._fleet.spec().fleet
        emit_event(
            event=DRIFTED,
            resource={
                "prefect.resource.id": f"gpufleet.node.{row.node}",
                "prefect.resource.name": f"{row.node} {row.subject} {row.fact}",
            },
            related=[{"prefect.resource.id": f"gpufleet.fleet.{name}", "prefect.resource.role": "fleet"}],
            payload={
                "node": row.node,
                "pool": row.pool,
                "subject": row.subject,
                "fact": row.fact,
                "wanted": row.wanted,
                "found": row.found,
                "since": row.since.isoformat() if row.since else None,
                "mended_by": row.mend.value,
            },
        )


def _key(row: DriftRow) -> str:
    return " ".join(row.key)


def _deviation(row: DriftRow) -> str:
    return f"{row.found} instead of {row.wanted}"

"""What the ledger knows against the pools' baseline: the table in the Prefect UI, and an event for each new drift."""

from __future__ import annotations

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event
from prefect.logging import get_run_logger

from adapters.baseline_file import BASELINE, read_baseline_file
from blocks.fleet import Fleet
from fleet.drift import DriftReport, DriftRow, DriftVerdict, judge_drift, new_drift
from fleet.errors import ConfigurationError
from ledger.present import present_facts

DRIFTED = "gpufleet.drift.found"
_ROWS_SHOWN = 500


class DriftWatch:
    """Compares each round with the one before. The first comparison is with what the ledger knew at the start."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._before = self._report()

    def publish_new(self) -> tuple[DriftRow, ...]:
        """An event for each item that drifted since the last call; the table of all drift as an artifact."""
        after = self._report()
        if after is None:
            return ()
        new = new_drift(self._before, after)
        if new or self._before is None or after.of(DriftVerdict.DRIFTED) != self._before.of(DriftVerdict.DRIFTED):
            self._publish_table(after)
        for row in new:
            self._emit(row)
        self._before = after
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
        facts, since = present_facts(self._fleet.ledger().facts.current(kinds=("gpu",)))
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

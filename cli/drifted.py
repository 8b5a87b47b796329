"""Which nodes and GPUs differ from their pool's baseline now, for the filters of `nodes` and `gpus`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.baseline_file import BASELINE, read_baseline_file
from fleet.drift import DriftVerdict, judge_drift
from fleet.errors import ConfigurationError

if TYPE_CHECKING:
    from blocks.fleet import Fleet


def drifted(fleet: Fleet) -> dict[str, set[str | None]]:
    """Node → the keys of its drifted parts, None among them where the node itself drifted.

    Raises ConfigurationError where the fleet has no baseline, or a wrong one.
    """
    from ledger.present import present_facts

    path, spec = fleet.folder() / BASELINE, fleet.spec()
    if not path.is_file():
        raise ConfigurationError(f"--drifted needs a baseline: write {path}, see docs/baseline.md")
    facts, _ = present_facts(fleet.ledger().facts.current(kinds=("gpu",)), fleet.clock.now())
    report = judge_drift(read_baseline_file(path, spec), spec.inventory(), facts, fleet.clock.now().date())
    found: dict[str, set[str | None]] = {}
    for row in report.of(DriftVerdict.DRIFTED):
        found.setdefault(row.node, set()).add(row.part)
    return found

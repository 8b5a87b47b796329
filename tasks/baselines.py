"""What a rollout leaves behind for its pools: the baseline that drift is measured against."""

from __future__ import annotations

from fleet.plan import FirmwarePlan
from tasks.operations import OperationRun

FIRMWARE = "firmware"


def record_baselines(run: OperationRun[FirmwarePlan]) -> None:
    """Make the operation's bundle the firmware baseline of each of its pools; once more changes nothing.

    Nodes that were left out or failed do not hold it back: they drift from it until they are mended.
    Raises LeaseLost where another runner has taken over.
    """
    run.ledger.operations.check(run.operation, run.token)
    document = _document(run.plan)
    for pool in sorted(run.plan.policy.pools):
        run.ledger.baselines.set(pool, FIRMWARE, document, run.plan.bundle_digest, run.operation)


def _document(plan: FirmwarePlan) -> dict[str, object]:
    return {
        "bundle": plan.bundle_name,
        "release": plan.bundle_release,
        "digest": plan.bundle_digest,
        "versions": plan.bundle_versions,
    }

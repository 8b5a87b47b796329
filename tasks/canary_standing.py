"""Whether a driver rollout may still do what was approved, and what it leaves behind for its pools."""

from __future__ import annotations

from fleet.canonical import digest
from fleet.driver_rollout import DriverPlan, check_driver_unchanged
from tasks.operations import OperationRun

DRIVER = "driver"


def check_driver_plan(run: OperationRun[DriverPlan]) -> None:
    """Raise PlanChanged where policy or settings are not what was planned and approved."""
    check_driver_unchanged(run.plan, run.fleet.spec())


def record_driver_baselines(run: OperationRun[DriverPlan]) -> None:
    """Make the release the driver baseline of each of the plan's pools; once more changes nothing.

    Raises LeaseLost where another runner has taken over.
    """
    run.ledger.operations.check(run.operation, run.token)
    document: dict[str, object] = {"version": run.plan.to}
    for pool in sorted(run.plan.policy.pools):
        run.ledger.baselines.set(pool, DRIVER, document, digest(document), run.operation)

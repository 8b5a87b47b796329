"""Take up operations whose run has died."""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from blocks.fleet import load_fleet
from tasks.fencing import lift_fences
from tasks.reconciliation import mend_rack_slots, reconcile_operations


@flow(name="reconcile", persist_result=False)
def reconcile(fleet: str) -> None:
    """Find open operations that no live process runs, and have each taken up where it was.

    `fleet` is the name of a saved Fleet block. Operations that wait for a person are left alone.
    """
    known = load_fleet(fleet)
    for line in (*reconcile_operations(known, fleet), *mend_rack_slots(known), *lift_fences(known)):
        get_run_logger().warning(line)

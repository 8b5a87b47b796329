"""Take up operations whose run has died."""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from blocks.fleet import load_fleet
from tasks.reconciliation import reconcile_operations


@flow(name="reconcile", persist_result=False)
def reconcile(fleet: str) -> None:
    """Find open operations that no live process runs, and have each taken up where it was.

    `fleet` is the name of a saved Fleet block. Operations that wait for a person are left alone.
    """
    for line in reconcile_operations(load_fleet(fleet), fleet):
        get_run_logger().warning(line)

"""Read every host and BMC in turns: inventory, health, history, arrivals and drift."""

from __future__ import annotations

from prefect import flow

from blocks.fleet import load_fleet
from tasks.drifting import DriftWatch
from tasks.sweeping import announce_arrivals, begin_sweep, read_nodes, report_health, rounds, thin_numbers


@flow(name="sweep", flow_run_name="sweep for {minutes} minutes", persist_result=False)
def sweep(fleet: str, minutes: float = 60.0) -> None:
    """Read the hosts and BMCs of `fleet` on their intervals for `minutes`, over kept connections.

    `fleet` is the name of a saved Fleet block. Nothing is changed on any node. What a kernel says, a GPU that falls
    sick, hardware that arrives and what differs from the baseline are events; the table of drift is an artifact.
    """
    opened = load_fleet(fleet)
    sweeper = begin_sweep(opened)
    drift = DriftWatch(opened)
    for number in rounds(sweeper, minutes * 60.0):
        swept = read_nodes(sweeper, number)
        report_health(opened, sweeper, swept)
        announce_arrivals(opened)
        drift.publish_new()
    thin_numbers(opened)

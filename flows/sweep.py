"""Read every host and BMC in turns: inventory, history, arrivals and drift."""

from __future__ import annotations

from prefect import flow

from blocks.fleet import load_fleet
from tasks.drifting import DriftWatch
from tasks.sweeping import Sweeper, announce_arrivals, read_nodes, rounds, thin_numbers


@flow(name="sweep", flow_run_name="sweep for {minutes} minutes", persist_result=False)
def sweep(fleet: str, minutes: float = 60.0) -> None:
    """Read the hosts and BMCs of `fleet` on their intervals for `minutes`, over kept connections.

    `fleet` is the name of a saved Fleet block. Nothing is changed on any node. What differs from the baseline since
    the round before is an event each, and the table of drift an artifact.
    """
    opened = load_fleet(fleet)
    sweeper = Sweeper(opened, opened.spec().inventory())
    drift = DriftWatch(opened)
    for number in rounds(sweeper, minutes * 60.0):
        swept = read_nodes(sweeper, number)
        announce_arrivals(opened, swept)
        drift.publish_new()
    thin_numbers(opened)

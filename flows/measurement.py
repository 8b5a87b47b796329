"""Run benchmarks on drained nodes, keep what was measured, and give the nodes back as they were."""

from __future__ import annotations

from prefect import State, flow

from blocks.fleet import load_fleet
from fleet.measurement_plan import MeasurementPlan
from fleet.plan import Wave
from flows.waves import visit_nodes, wave_flow
from tasks.dispatch import Stopped
from tasks.measurement import (
    measure_and_return,
    measuring_of,
    open_or_take_up_measurement,
    publish_measurement_plan,
    publish_measurements,
)
from tasks.operations import OperationRun, recorded_end
from tasks.waves import is_over, note, stop_on

RUNS = 3


@flow(name="measurement", flow_run_name="measurement {operation}", persist_result=False)
def measurement(
    fleet: str,
    operation: str | None = None,
    nodes: list[str] | None = None,
    runs: int = RUNS,
    reason: str = "",
) -> State[None]:
    """Drain `nodes` of `fleet`, run every benchmark `runs` times on each, and return them.

    `fleet` is the name of a saved Fleet block. Without `operation` a plan for `nodes` is made and becomes a new
    operation. Nothing is changed on a node, so no gate is asked. Cancelling the run halts the operation: nodes that
    only wait for their work go back, those that are measured are finished.
    """
    run = open_or_take_up_measurement(load_fleet(fleet), operation, nodes, runs, reason)
    with recorded_end(run) as end:
        publish_measurement_plan(run)
        for wave in run.plan.waves:
            if not is_over(run, wave):
                stop_on(measure_wave(run, wave))
                note(run, wave, "judged")
        publish_measurements(run)
    return end.state()


@wave_flow("measure-wave")
def measure_wave(run: OperationRun[MeasurementPlan], wave: Wave) -> Stopped | None:
    """Measure every node of one wave and give each back; as `visit_nodes`."""
    measuring = measuring_of(run)
    return visit_nodes(run, wave, lambda visit: measure_and_return.submit(visit, measuring))

"""Take nodes out of service once their jobs have a checkpoint, and keep them so."""

from __future__ import annotations

from prefect import State, flow

from blocks.fleet import load_fleet
from fleet.drain_plan import DrainPlan
from fleet.plan import Wave
from flows.waves import visit_nodes, wave_flow
from tasks.dispatch import Stopped
from tasks.draining import drain_and_keep, open_or_take_up_drain
from tasks.gate import pass_gate
from tasks.operations import OperationRun, recorded_end
from tasks.reports import publish_drain_plan
from tasks.waves import is_over, note, stop_on

SIX_HOURS = 6 * 3600.0


@flow(name="drain", flow_run_name="drain {operation}", persist_result=False)
def drain(
    fleet: str,
    operation: str | None = None,
    nodes: list[str] | None = None,
    deadline_seconds: float = SIX_HOURS,
    reason: str = "",
) -> State[None]:
    """Cordon `nodes` of `fleet`, wait for each job's checkpoint or end, and leave them drained.

    `fleet` is the name of a saved Fleet block. Without `operation` a plan for `nodes` is made and becomes a new
    operation. A node that is not empty `deadline_seconds` after its cordon goes back, and says which job held it.
    `gpufleet undrain` gives drained nodes back. Cancelling the run halts the operation: nodes that only wait go back.
    """
    run = open_or_take_up_drain(load_fleet(fleet), operation, nodes, deadline_seconds, reason)
    with recorded_end(run) as end:
        publish_drain_plan(run)
        for wave in run.plan.waves:
            if not is_over(run, wave):
                drain_pool(run, wave)
    return end.state()


def drain_pool(run: OperationRun[DrainPlan], wave: Wave) -> None:
    """One pool's nodes. Only where jobs may be stopped against their policy people have to approve the loss."""
    if run.plan.forced:
        pass_gate(run, wave)
    stop_on(drain_wave(run, wave))
    note(run, wave, "judged")


@wave_flow("drain-wave")
def drain_wave(run: OperationRun[DrainPlan], wave: Wave) -> Stopped | None:
    """Drain every node of one wave and keep them drained; as `visit_nodes`."""
    return visit_nodes(run, wave, drain_and_keep.submit)

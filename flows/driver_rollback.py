"""Put the former driver and settings back on every node that a driver rollout changed."""

from __future__ import annotations

from prefect import State, flow

from blocks.fleet import load_fleet
from fleet.driver_rollback import RollbackPlan
from fleet.plan import Wave
from flows.waves import visit_nodes, wave_flow
from tasks.canary_planning import take_up_rollback
from tasks.canary_reports import publish_rollback_plan
from tasks.canary_visit import BackWork, put_back_node
from tasks.dispatch import Stopped
from tasks.fencing import lift_fences
from tasks.operations import OperationRun, recorded_end
from tasks.waves import has_nodes_in_hand, is_over, note, stop_on


@flow(name="driver-rollback", flow_run_name="driver back {operation}", persist_result=False)
def driver_rollback(fleet: str, operation: str) -> State[None]:
    """Carry out the rollback `operation` on `fleet`, which is the name of a saved Fleet block.

    A driver rollout begins it where a verdict fails; `gpufleet rollback` begins it by hand. Nobody is asked again, and
    no maintenance window is waited for. A node whose former driver cannot be put back is quarantined.
    """
    run = take_up_rollback(load_fleet(fleet), operation)
    with recorded_end(run) as end:
        publish_rollback_plan(run)
        for wave in run.plan.waves:
            if has_nodes_in_hand(run):
                rollback_wave(run, wave, only_in_hand=True)
            if not is_over(run, wave):
                stop_on(rollback_wave(run, wave))
                note(run, wave, "judged")
    lift_fences(run.fleet)
    return end.state()


@wave_flow("rollback-wave")
def rollback_wave(run: OperationRun[RollbackPlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Put the former driver back on every node of one wave; as `visit_nodes`."""
    work = BackWork(run.plan.former, frozenset(run.plan.measured), run.plan.canary, run.plan.parent, run.plan.released)
    return visit_nodes(run, wave, lambda visit: put_back_node.submit(visit, work), only_in_hand)

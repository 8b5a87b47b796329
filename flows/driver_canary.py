"""Bring a fleet's nodes to another driver release: a canary with a statistical verdict, then growing waves, or back."""

from __future__ import annotations

from prefect import State, flow

from blocks.fleet import load_fleet
from fleet.driver_rollout import DriverPlan
from fleet.plan import Wave
from flows.waves import visit_nodes, wave_flow
from tasks.canary import AFTER_CHANGE, BEFORE_CHANGE, bake_and_judge, check_driver_plan, measure_controls
from tasks.canary_planning import open_or_take_up_canary
from tasks.canary_reports import publish_driver_plan, publish_verdicts
from tasks.canary_visit import canary_work, change_node
from tasks.dispatch import Stopped
from tasks.fencing import PoolFence, lift_fences
from tasks.gate import pass_gate
from tasks.judge import check_pool_before, judge_wave
from tasks.operations import OperationRun, recorded_end
from tasks.waves import has_nodes_in_hand, hold_for_window, is_changed, is_over, note, stop_on


@flow(name="driver-canary", flow_run_name="driver {operation}", persist_result=False)
def driver_canary(
    fleet: str, operation: str | None = None, to: str | None = None, pools: list[str] | None = None
) -> State[None]:
    """Bring the nodes of `fleet` to driver release `to` in approved waves, or take `operation` up again.

    `fleet` is the name of a saved Fleet block. Each pool's first wave is its canary: its nodes are measured before and
    after, and so are controls that are not changed. A wave that made nodes slower or sicker ends the rollout, and
    every changed node gets its former driver and settings back. Cancelling the run halts the operation.
    """
    run = open_or_take_up_canary(load_fleet(fleet), operation, to, pools)
    with recorded_end(run) as end:
        publish_driver_plan(run)
        for wave in run.plan.waves:
            if not is_over(run, wave):
                roll_out(run, wave)
    publish_verdicts(run)
    lift_fences(run.fleet)
    return end.state()


def roll_out(run: OperationRun[DriverPlan], wave: Wave) -> None:
    """One wave: gate, controls, change, controls again, bake with looks, judge. A failed verdict goes back.

    What was changed is judged, whatever has become of the plan or the pool since.
    """
    if has_nodes_in_hand(run):
        driver_wave(run, wave, only_in_hand=True)
    if not is_changed(run, wave):
        check_driver_plan(run)
        pass_gate(run, wave)
        hold_for_window(run, wave)
        check_pool_before(run, wave)
        note(run, wave, "began")
        measure_controls(run, wave, BEFORE_CHANGE)
        stop_on(driver_wave(run, wave))
        note(run, wave, "changed")
    measure_controls(run, wave, AFTER_CHANGE)
    bake_and_judge(run, wave)
    judge_wave(run, wave)
    note(run, wave, "judged")


@wave_flow("driver-wave")
def driver_wave(run: OperationRun[DriverPlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Change the driver of every node of one wave; as `visit_nodes`."""
    work = canary_work(run, wave, PoolFence(run, wave).take_in)
    return visit_nodes(run, wave, lambda visit: change_node.submit(visit, work), only_in_hand)

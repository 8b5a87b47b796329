"""Bring a fleet's firmware to a signed bundle, in approved waves."""

from __future__ import annotations

from prefect import State, flow

from blocks.fleet import load_fleet
from fleet.plan import FirmwarePlan, Wave
from flows.waves import visit_nodes, wave_flow
from tasks.baselines import record_baselines
from tasks.bundles import firmware_of
from tasks.dispatch import Stopped
from tasks.fencing import PoolFence, lift_fences
from tasks.gate import pass_gate
from tasks.judge import check_pool_before, judge_wave
from tasks.node import update_node
from tasks.operations import OperationRun, recorded_end
from tasks.planning import check_plan, open_or_take_up
from tasks.reports import publish_plan
from tasks.waves import bake, has_nodes_in_hand, hold_for_window, is_over, note, stop_on


@flow(name="firmware-rollout", flow_run_name="firmware {operation}", persist_result=False)
def firmware_rollout(
    fleet: str, operation: str | None = None, bundle: str | None = None, pools: list[str] | None = None
) -> State[None]:
    """Bring the firmware of `fleet` to `bundle` in approved waves, or take `operation` up again.

    `fleet` is the name of a saved Fleet block. Without `operation` a plan for `bundle` over `pools`
    (default: all) is made and becomes a new operation. The run suspends at every gate; approve with
    `gpufleet approve` or with Resume. Cancelling the run halts the operation: nodes in hand are finished.
    """
    run = open_or_take_up(load_fleet(fleet), operation, bundle, pools)
    with recorded_end(run) as end:
        publish_plan(run)
        for wave in run.plan.waves:
            if not is_over(run, wave):
                roll_out(run, wave)
        record_baselines(run)
    lift_fences(run.fleet)
    return end.state()


def roll_out(run: OperationRun[FirmwarePlan], wave: Wave) -> None:
    """One wave: what a dead runner left, gate, look at the pool, change, bake, judge."""
    if has_nodes_in_hand(run):
        firmware_wave(run, wave, only_in_hand=True)
    check_plan(run)
    pass_gate(run, wave)
    hold_for_window(run, wave)
    check_pool_before(run, wave)
    stop_on(firmware_wave(run, wave))
    bake(run, wave)
    judge_wave(run, wave)
    note(run, wave, "judged")


@wave_flow("firmware-wave")
def firmware_wave(run: OperationRun[FirmwarePlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Update every node of one wave; as `visit_nodes`."""
    firmware = firmware_of(run, PoolFence(run, wave).take_in)
    return visit_nodes(run, wave, lambda visit: update_node.submit(visit, firmware), only_in_hand)

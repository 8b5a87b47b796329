"""One wave, as every rollout runs it: hand out, watch, judge. The parent flow owns the gates between waves."""

from __future__ import annotations

from typing import Any, cast

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from fleet.drain_plan import DrainPlan
from fleet.driver_rollback import RollbackPlan
from fleet.driver_rollout import DriverPlan
from fleet.measurement_plan import MeasurementPlan
from fleet.plan import FirmwarePlan, Wave
from tasks.bundles import firmware_of
from tasks.canary_visit import BackWork, canary_work, change_node, put_back_node
from tasks.dispatch import Dispatcher, Stopped
from tasks.draining import drain_and_keep
from tasks.fencing import PoolFence
from tasks.measurement import measure_and_return, measuring_of
from tasks.node import update_node
from tasks.operations import OperationRun
from tasks.reports import publish_wave
from tasks.slots import RackSlots

MAX_NODES_AT_ONCE = 256

_at_once = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=MAX_NODES_AT_ONCE))


@flow(
    name="firmware-wave",
    flow_run_name="{wave.name}",
    task_runner=_at_once,
    validate_parameters=False,
    persist_result=False,
)
def firmware_wave(run: OperationRun[FirmwarePlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Update every node of one wave, as many at once as the disruption budget allows.

    `only_in_hand`: those alone that an earlier runner had taken out of service.
    """
    firmware = firmware_of(run, PoolFence(run, wave).take_in)
    with RackSlots(run.fleet.clock) as slots:
        dispatcher = Dispatcher(run, wave, lambda visit: update_node.submit(visit, firmware), slots)
        stopped = dispatcher.work(only_in_hand)
    publish_wave(run, wave, stopped)
    return stopped


@flow(
    name="drain-wave",
    flow_run_name="{wave.name}",
    task_runner=_at_once,
    validate_parameters=False,
    persist_result=False,
)
def drain_wave(run: OperationRun[DrainPlan], wave: Wave) -> Stopped | None:
    """Drain every node of one wave, as many at once as the disruption budget allows, and keep them drained."""
    with RackSlots(run.fleet.clock) as slots:
        dispatcher = Dispatcher(run, wave, drain_and_keep.submit, slots)
        stopped = dispatcher.work()
    publish_wave(run, wave, stopped)
    return stopped


@flow(
    name="measure-wave",
    flow_run_name="{wave.name}",
    task_runner=_at_once,
    validate_parameters=False,
    persist_result=False,
)
def measure_wave(run: OperationRun[MeasurementPlan], wave: Wave) -> Stopped | None:
    """Measure every node of one wave, as many at once as the disruption budget allows, and give each back."""
    measuring = measuring_of(run)
    with RackSlots(run.fleet.clock) as slots:
        dispatcher = Dispatcher(run, wave, lambda visit: measure_and_return.submit(visit, measuring), slots)
        stopped = dispatcher.work()
    publish_wave(run, wave, stopped)
    return stopped


@flow(
    name="driver-wave",
    flow_run_name="{wave.name}",
    task_runner=_at_once,
    validate_parameters=False,
    persist_result=False,
)
def driver_wave(run: OperationRun[DriverPlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Change the driver of every node of one wave, as many at once as the disruption budget allows.

    `only_in_hand`: those alone that an earlier runner had taken out of service.
    """
    work = canary_work(run, wave, PoolFence(run, wave).take_in)
    with RackSlots(run.fleet.clock) as slots:
        dispatcher = Dispatcher(run, wave, lambda visit: change_node.submit(visit, work), slots)
        stopped = dispatcher.work(only_in_hand)
    publish_wave(run, wave, stopped)
    return stopped


@flow(
    name="rollback-wave",
    flow_run_name="{wave.name}",
    task_runner=_at_once,
    validate_parameters=False,
    persist_result=False,
)
def rollback_wave(run: OperationRun[RollbackPlan], wave: Wave, only_in_hand: bool = False) -> Stopped | None:
    """Put the former driver back on every node of one wave, as many at once as the disruption budget allows."""
    work = BackWork(run.plan.former, frozenset(run.plan.measured), run.plan.canary, run.plan.parent, run.plan.released)
    with RackSlots(run.fleet.clock) as slots:
        dispatcher = Dispatcher(run, wave, lambda visit: put_back_node.submit(visit, work), slots)
        stopped = dispatcher.work(only_in_hand)
    publish_wave(run, wave, stopped)
    return stopped

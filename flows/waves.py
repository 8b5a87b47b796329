"""One wave, as every rollout runs it: hand out, visit, publish. The parent flow owns the gates between waves.

Each kind of wave stands beside its flow: a flow process imports nothing that its own work does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, flow
from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from fleet.plan import Wave
from tasks.dispatch import Dispatcher, Stopped, Submit
from tasks.operations import AnyRun
from tasks.reports import publish_wave
from tasks.slots import RackSlots

P = ParamSpec("P")
R = TypeVar("R")

MAX_NODES_AT_ONCE = 256

_at_once = cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=MAX_NODES_AT_ONCE))


def wave_flow(name: str) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """A flow over one wave, given as its parameter `wave`, of at most MAX_NODES_AT_ONCE visits at once."""
    return flow(
        name=name,
        flow_run_name="{wave.name}",
        task_runner=_at_once,
        validate_parameters=False,
        persist_result=False,
    )


def visit_nodes(run: AnyRun, wave: Wave, submit: Submit, only_in_hand: bool = False) -> Stopped | None:
    """Visit every node of one wave, as many at once as the disruption budget allows; why it stopped, or None.

    `only_in_hand`: those alone that an earlier runner had taken out of service.
    """
    with RackSlots(run.fleet.clock) as slots:
        stopped = Dispatcher(run, wave, submit, slots).work(only_in_hand)
    publish_wave(run, wave, stopped)
    return stopped

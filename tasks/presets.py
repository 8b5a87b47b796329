"""How our tasks are set up: names an operator understands, no result kept, nothing retried blindly."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

P = ParamSpec("P")
R = TypeVar("R")

READS = "reads"
DISRUPTS = "disrupts"


def step(run_name: str, tag: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task whose run is called `run_name` (a template over its parameters), tagged READS or DISRUPTS.

    Steps are made idempotent by what they observe, so Prefect neither caches nor retries them.
    """

    return task(
        task_run_name=run_name,
        tags=[tag],
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=0,
        retry_delay_seconds=0,
    )

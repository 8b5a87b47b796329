"""The work pool: flow runs as processes beside the worker."""

from __future__ import annotations

import sys

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.utilities.processutils import command_to_string
from prefect.workers.process import ProcessWorker

NAME = "gpufleet"


def base_job_template() -> dict[str, object]:
    """Prefect's template for processes with its command set.

    With a command the worker starts the flow's process itself. Without one it puts a supervisor and a
    workspace resolver before it, and each imports Prefect anew: twice the time until a flow begins.
    """
    template: dict[str, object] = ProcessWorker.get_default_base_job_template()
    variables = template["variables"]
    assert isinstance(variables, dict)
    variables["properties"]["command"]["default"] = command_to_string([sys.executable, "-m", "prefect.engine"])
    return template


async def ensure_pool(client: PrefectClient) -> str:
    """Create the pool or bring its template up to date. Returns created, updated or unchanged."""
    template = base_job_template()
    try:
        pool = await client.read_work_pool(NAME)
    except ObjectNotFound:
        await client.create_work_pool(WorkPoolCreate(name=NAME, type="process", base_job_template=template))
        return "created"
    if pool.base_job_template == template:
        return "unchanged"
    await client.update_work_pool(NAME, WorkPoolUpdate(base_job_template=template))
    return "updated"

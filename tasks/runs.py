"""Flow runs of operations, as Prefect knows them: start one, resume a suspended one, look at one."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from fleet.errors import ConfigurationError, TransientError
from ledger import Operation

_CLAIMS_WITHIN_SECONDS = 120.0  # after a worker took it up; on a busy machine it takes 20 s

_NOT_OVER = frozenset({StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING})


def start_run(fleet: str, operation: Operation, after: str = "") -> str:
    """Have the worker carry out the operation; the flow run's id.

    Asking twice for the same claim of the same operation gives the same run; `after` is one that is over
    without ever having claimed it, so that another is wanted. Raises TransientError where
    the server does not answer, ConfigurationError where the flow is not deployed.
    """
    flow = operation.kind.replace("_", "-")
    try:
        with _client() as client:
            deployment = client.read_deployment_by_name(f"{flow}/{flow}")
            run = client.create_flow_run_from_deployment(
                deployment.id,
                parameters={"fleet": fleet, "operation": operation.id},
                name=f"{flow} {operation.id}",
                idempotency_key=f"{operation.id}-{operation.token}-{operation.since.timestamp():.6f}-{after}",
            )
    except ObjectNotFound as error:
        raise ConfigurationError(f"{flow} is not deployed; run `gpufleet up`") from error
    except httpx.HTTPError as error:
        raise TransientError(f"the Prefect server does not answer ({error}); run `gpufleet up`") from error
    return str(run.id)


def resume_run(flow_run_id: str, form: dict[str, str]) -> bool:
    """Resume a suspended run with a filled form; False where it is not suspended, or not ready for a form yet.

    Raises TransientError where the server does not answer.
    """
    try:
        with _client() as client:
            if not _is_suspended(client, flow_run_id):
                return False
            answer = client.resume_flow_run(UUID(flow_run_id), run_input=form)
    except httpx.HTTPError as error:
        raise TransientError(f"the Prefect server does not answer ({error}); run `gpufleet up`") from error
    return answer.status is SetStateStatus.ACCEPT


def run_condition(flow_run_id: str | None, now: datetime) -> str:
    """ "suspended", "under_way" (scheduled, pending, running), "stuck", "cancelled", "over" or "unknown".

    A stuck run is pending or running for long. To be asked only where no living process has claimed the operation:
    then its process died before it could, and Prefect, which never had a heartbeat of it, waits for ever.
    """
    if flow_run_id is None:
        return "unknown"
    try:
        with _client() as client:
            state = client.read_flow_run(UUID(flow_run_id)).state
    except ObjectNotFound:
        return "over"
    except httpx.HTTPError as error:
        raise TransientError(f"the Prefect server does not answer ({error}); run `gpufleet up`") from error
    if state is None:
        return "unknown"
    if state.is_paused():
        return "suspended"
    if state.is_cancelled() or state.is_cancelling():
        return "cancelled"
    begun = state.type in (StateType.PENDING, StateType.RUNNING)
    if begun and (now - state.timestamp).total_seconds() > _CLAIMS_WITHIN_SECONDS:
        return "stuck"
    return "under_way" if state.type in _NOT_OVER else "over"


def crash_run(flow_run_id: str, why: str) -> None:
    """Say of a run that it is over; should its process appear after all, Prefect does not let it begin.

    Raises TransientError where the server does not answer.
    """
    try:
        with _client() as client:
            client.set_flow_run_state(UUID(flow_run_id), Crashed(message=why))
    except httpx.HTTPError as error:
        raise TransientError(f"the Prefect server does not answer ({error}); run `gpufleet up`") from error


def _client() -> SyncPrefectClient:
    """Raises TransientError where this process knows of no server; a temporary one is never started."""
    try:
        return get_client(sync_client=True)
    except ValueError as error:
        raise TransientError("no Prefect server runs for this fleet; run `gpufleet up`") from error


def _is_suspended(client: SyncPrefectClient, flow_run_id: str) -> bool:
    state = client.read_flow_run(UUID(flow_run_id)).state
    return state is not None and state.is_paused()

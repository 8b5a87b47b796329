"""The few questions to the Prefect API that must be answered without importing Prefect (it costs 2 s)."""

from __future__ import annotations

import base64
import http.client
import json
from datetime import UTC, datetime

from cli.runtime.settings import HOST, POOL, WORKER


def healthy(port: int, timeout_seconds: float = 2.0) -> bool:
    """Does a Prefect server answer on this port? This path needs no auth string."""
    return _ask("GET", "/api/health", port, timeout_seconds) is True


def worker_online(port: int, auth: str, since: float, timeout_seconds: float = 5.0) -> bool:
    """Has our worker sent a heartbeat after `since` (seconds since 1970)?"""
    answer = _ask("POST", f"/api/work_pools/{POOL}/workers/filter", port, timeout_seconds, auth)
    for worker in answer if isinstance(answer, list) else []:
        if not isinstance(worker, dict) or worker.get("name") != WORKER:
            continue
        try:
            beat = datetime.fromisoformat(str(worker.get("last_heartbeat_time")))
        except ValueError:
            continue
        if beat.tzinfo is None:
            beat = beat.replace(tzinfo=UTC)
        if beat.timestamp() >= since and worker.get("status") == "ONLINE":
            return True
    return False


def start_deployment(port: int, auth: str, name: str, timeout_seconds: float = 10.0) -> bool:
    """Ask for a run of the deployment `flow/deployment` now. False where the server did not accept it."""
    deployment = _ask("GET", f"/api/deployments/name/{name}", port, timeout_seconds, auth)
    if not isinstance(deployment, dict):
        return False
    path = f"/api/deployments/{deployment.get('id')}/create_flow_run"
    run = _ask("POST", path, port, timeout_seconds, auth, '{"state": {"type": "SCHEDULED"}}')
    return isinstance(run, dict)


def pending_runs(port: int, auth: str, timeout_seconds: float = 10.0) -> list[str] | None:
    """Ids of the flow runs that a worker took up and that have not begun. None where the server did not answer."""
    wanted = {
        "flow_runs": {"state": {"type": {"any_": ["PENDING"]}}},
        "work_pools": {"name": {"any_": [POOL]}},
    }
    answer = _ask("POST", "/api/flow_runs/filter", port, timeout_seconds, auth, json.dumps(wanted))
    if not isinstance(answer, list):
        return None
    return [str(run.get("id")) for run in answer if isinstance(run, dict)]


def crash_run(port: int, auth: str, run: str, message: str, timeout_seconds: float = 10.0) -> bool:
    """Set a flow run to Crashed. False where the server did not accept it."""
    state = {"state": {"type": "CRASHED", "message": message}}
    path = f"/api/flow_runs/{run}/set_state"
    answer = _ask("POST", path, port, timeout_seconds, auth, json.dumps(state))
    return isinstance(answer, dict) and answer.get("status") == "ACCEPT"


def _ask(
    method: str, path: str, port: int, timeout_seconds: float, auth: str | None = None, body: str = "{}"
) -> object:
    """The decoded answer; None where there is no answer or not a good one."""
    headers = {"Content-Type": "application/json"}
    if auth is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_seconds)
    try:
        connection.request(method, path, body=body if method == "POST" else None, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        value: object = json.loads(text) if answer.status in (200, 201) else None
        return value
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()

"""The environment of the server, the worker and every command: how Prefect is set up for a fleet.

Secrets travel in the environment only; arguments and logs are readable by more people.
"""

from __future__ import annotations

import os
from pathlib import Path

from cli.runtime.files import RunFolder
from fleet.errors import ConfigurationError

HOST = "127.0.0.1"
DEFAULT_PORT = 4200
POOL = "gpufleet"
WORKER = "gpufleet-1"
WORKER_LIMIT = 64  # flow runs at once on one worker

SERVER_SETTINGS = {
    # One database transaction for many task runs: 60 ms of server CPU a task run becomes about 20 ms.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "500",
    # Leases in memory leave a slot taken for ever when the server is killed.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_CONCURRENCY_MAXIMUM_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
    # An interval schedule is written an hour ahead by default: 60 rows for a flow that runs each minute.
    "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME": "PT5M",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
}

CLIENT_SETTINGS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "DO_NOT_TRACK": "1",
}


def home() -> Path:
    """The folder that has prefect.yaml. Raises ConfigurationError where this is not a checkout."""
    path = Path(__file__).resolve().parents[2]
    if not (path / "prefect.yaml").is_file():
        raise ConfigurationError(
            f"no prefect.yaml in {path}: install gpufleet from its checkout with `pip install -e .`"
        )
    return path


def api_url(port: int) -> str:
    return f"http://{HOST}:{port}/api"


def client_environment(folder: RunFolder, port: int) -> dict[str, str]:
    """What a process needs to speak with the fleet's Prefect server."""
    return {
        **CLIENT_SETTINGS,
        "PREFECT_HOME": str(folder.prefect_home),
        "PREFECT_API_URL": api_url(port),
        "PREFECT_API_AUTH_STRING": folder.auth(),
        "GPUFLEET_FLEET": str(folder.fleet_file),
        "GPUFLEET_HOME": str(home()),
        "GPUFLEET_RUN": str(folder.path),
    }


def server_environment(folder: RunFolder, port: int) -> dict[str, str]:
    return {
        **_inherited(),
        **client_environment(folder, port),
        **SERVER_SETTINGS,
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder.database}",
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_API_AUTH_STRING": folder.auth(),
        "PREFECT_SERVER_UI_API_URL": api_url(port),
    }


def worker_environment(folder: RunFolder, port: int) -> dict[str, str]:
    # The worker and its flow runs import this checkout's flows, whatever else is installed.
    paths = [str(home()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**_inherited(), **client_environment(folder, port), "PYTHONPATH": os.pathsep.join(paths)}


def _inherited() -> dict[str, str]:
    """Our own environment without a Prefect profile that the person has set up for something else."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}

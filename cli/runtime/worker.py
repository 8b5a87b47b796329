"""The worker that runs the flows of a fleet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cli.runtime import api
from cli.runtime.files import RunFolder
from cli.runtime.process import ProcessRecord, read_record, start_detached
from cli.runtime.settings import POOL, WORKER, WORKER_LIMIT, worker_environment
from fleet.errors import ConfigurationError

ONLINE_SECONDS = 60.0

Say = Callable[[str], None]


def ensure_worker(folder: RunFolder, port: int, say: Say) -> tuple[ProcessRecord, bool]:
    """A worker process of this fleet and whether it was started now; it may not be online yet."""
    record = read_record(folder.record("worker"))
    if record is not None and record.process() is not None:
        return record, False
    if folder.record("worker").exists():
        said = f"pid {record.pid}" if record else "an unreadable record"
        say(f"worker: {said} is not running any more; starting a new one")
        folder.record("worker").unlink()
    pool = ("--pool", POOL, "--type", "process", "--name", WORKER, "--limit", str(WORKER_LIMIT))
    command = (sys.executable, "-m", "prefect", "worker", "start", *pool, "--install-policy", "never")
    environment = worker_environment(folder, port)
    return start_detached(command, environment, folder.path, folder.logs / "worker.log", folder.record("worker")), True


def wait_until_online(folder: RunFolder, port: int, record: ProcessRecord) -> None:
    """Wait for the worker's first heartbeat. Raises ConfigurationError where none comes."""
    deadline = time.monotonic() + ONLINE_SECONDS
    while time.monotonic() < deadline and record.process() is not None:
        if api.worker_online(port, folder.auth(), record.started - 1):
            return
        time.sleep(0.2)
    log = folder.logs / "worker.log"
    raise ConfigurationError(f"the worker did not come online; its last words are at the end of {log}")

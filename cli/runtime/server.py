"""The Prefect server of a fleet: started once, found again, replaced where it hangs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from cli.runtime import api
from cli.runtime.database import copy_template
from cli.runtime.files import RunFolder
from cli.runtime.port import next_free_port, port_free, port_owner
from cli.runtime.process import ProcessRecord, read_record, start_detached, stop
from cli.runtime.settings import DEFAULT_PORT, HOST, server_environment
from fleet.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server may be silent, in seconds."""

    start_seconds: float = 120.0  # after its start: a first one may have to migrate its database
    silence_seconds: float = 30.0  # later, when it is busy
    grace_seconds: float = 10.0  # between SIGTERM and SIGKILL


PATIENCE = Patience()

Say = Callable[[str], None]


def ensure_server(folder: RunFolder, port: int | None, say: Say) -> tuple[ProcessRecord, bool]:
    """A server process of this fleet and whether it was started now; it may not be healthy yet.

    Raises ConfigurationError where the port is taken, or the fleet's server runs on another port.
    """
    record = read_record(folder.record("server"))
    if record is not None and record.process() is not None:
        if port is not None and port != record.port:
            raise ConfigurationError(
                f"this fleet's server runs on port {record.port}: `gpufleet down` first, or leave --port out"
            )
        return record, False
    if folder.record("server").exists():
        said = f"pid {record.pid}" if record else "an unreadable record"
        say(f"server: {said} is not running any more; starting a new one")
        folder.record("server").unlink()
    return _start(folder, port or (record.port if record else 0) or DEFAULT_PORT), True


def wait_until_healthy(
    folder: RunFolder, record: ProcessRecord, say: Say, patience: Patience = PATIENCE
) -> ProcessRecord:
    """Wait for the server; one that stays dumb is stopped by pid and started once more."""
    if _wait(record, patience):
        return record
    process = record.process()
    if process is not None:
        say(f"server: pid {record.pid} does not answer on port {record.port}; replacing it")
        stop([process], patience.grace_seconds)
        record = _start(folder, record.port)
        if _wait(record, patience):
            return record
    log = folder.logs / "server.log"
    raise ConfigurationError(f"the Prefect server did not start; its last words are at the end of {log}")


def _wait(record: ProcessRecord, patience: Patience) -> bool:
    age = time.time() - record.started
    deadline = time.monotonic() + max(patience.start_seconds - age, patience.silence_seconds)
    while time.monotonic() < deadline:
        if api.healthy(record.port):
            return record.process() is not None
        if record.process() is None:
            return False
        time.sleep(0.1)
    return False


def _start(folder: RunFolder, port: int) -> ProcessRecord:
    if not port_free(port):
        free = next_free_port(port)
        raise ConfigurationError(f"port {port} is in use by {port_owner(port)}: stop that, or try `--port {free}`")
    copy_template(folder.database)
    command = (sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port))
    environment = server_environment(folder, port)
    return start_detached(command, environment, folder.path, folder.logs / "server.log", folder.record("server"), port)

"""The embedded runtime of a fleet: Prefect server, worker, and everything that is registered with them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from adapters.fleet_file import read_fleet_file
from adapters.kept_json import keep, read_kept
from adapters.references import check_references
from cli.runtime import api
from cli.runtime.files import RunFolder
from cli.runtime.process import flow_processes, flow_runs_with_process, read_record, stop
from cli.runtime.server import ensure_server, wait_until_healthy
from cli.runtime.settings import DEFAULT_PORT, HOST, client_environment, home
from cli.runtime.worker import ensure_worker, wait_until_online
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError

RECONCILE = "reconcile/reconcile"
FLOW_GRACE_SECONDS = 5.0
COMPONENT_GRACE_SECONDS = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One process. `starting` is alive without an answer; `gone` has a record but no process."""

    state: Literal["running", "starting", "gone", "stopped"]
    pid: int | None = None
    since: datetime | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """What runs for a fleet. `url` is the Prefect UI, None where no server runs."""

    server: ComponentStatus
    worker: ComponentStatus
    url: str | None
    flow_runs: int
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        return self.server.state == "running" and self.worker.state == "running"


def bring_up(fleet_file: Path, port: int | None, say: Say) -> RuntimeStatus:
    """Start what does not run, and bring Prefect in step with prefect.yaml and the fleet file.

    `fleet_file` is absolute. Safe to repeat. Raises ConfigurationError that says what to do.
    """
    spec = read_fleet_file(fleet_file)
    check_references(spec, fleet_file.parent)
    folder = RunFolder(fleet_file)
    folder.create()
    server, new_server = ensure_server(folder, port, say)
    os.environ.update(client_environment(folder, server.port))
    fingerprint = _fingerprint(fleet_file)
    applied = read_kept(folder.record("applied")) or {}
    stale = applied.get("fingerprint") != fingerprint
    with ThreadPoolExecutor(max_workers=1) as pool:
        if stale:
            pool.submit(_import_prefect)  # while the server starts on the other core
        server = wait_until_healthy(folder, server, say)
    say(f"server: {'started' if new_server else 'runs already'}, pid {server.pid}, http://{HOST}:{server.port}")
    doubtful: set[str] = set()
    if _status(folder, "worker").state != "running":
        doubtful = _end_stillborn_runs(folder, server.port, say)
    worker, new_worker = ensure_worker(folder, server.port, say)
    if stale:
        _register(spec, folder, fingerprint, applied, say)
    if new_worker:
        wait_until_online(folder, server.port, worker)
    if doubtful:
        _end_stillborn_runs(folder, server.port, say, doubtful)
    say(f"worker: {'online' if new_worker else 'runs already'}, pid {worker.pid}")
    if applied:  # a flow process may have died alone, while server and worker run
        _reconcile_now(folder, server.port, say)
    return runtime_status(folder)


def take_down(folder: RunFolder, say: Say) -> bool:
    """Stop the worker, its flow runs and the server. True if something ran. Safe to repeat."""
    stopped = _stop_component(folder, "worker", say)
    runs = flow_processes(folder.path)
    if runs:
        say(f"flow runs: stopping {len(runs)}")
        stop(runs, FLOW_GRACE_SECONDS)
    return _stop_component(folder, "server", say) or stopped or bool(runs)


def runtime_status(folder: RunFolder) -> RuntimeStatus:
    """What runs now, without importing Prefect."""
    server = _status(folder, "server")
    if server.state == "running" and not api.healthy(server.port or DEFAULT_PORT):
        server = ComponentStatus("starting", server.pid, server.since, server.port)
    worker = _status(folder, "worker")
    problems = [
        f"{name}: its process is gone; `gpufleet up` starts it again"
        for name, component in (("server", server), ("worker", worker))
        if component.state == "gone"
    ]
    if server.state == "starting":
        problems.append(f"server: pid {server.pid} does not answer yet; see {folder.logs / 'server.log'}")
    url = f"http://{HOST}:{server.port}" if server.state in ("running", "starting") else None
    return RuntimeStatus(server, worker, url, len(flow_processes(folder.path)), tuple(problems))


def client_env(folder: RunFolder) -> dict[str, str]:
    """Set these in os.environ before Prefect is imported. Raises ConfigurationError where no server runs."""
    record = read_record(folder.record("server"))
    if record is None or record.process() is None:
        raise ConfigurationError(f"no Prefect server runs for {folder.fleet_file}: start it with `gpufleet up`")
    return client_environment(folder, record.port)


def _status(folder: RunFolder, component: str) -> ComponentStatus:
    path = folder.record(component)
    record = read_record(path)
    if record is None:
        return ComponentStatus("gone" if path.exists() else "stopped")
    since = datetime.fromtimestamp(record.started, UTC)
    state: Literal["running", "gone"] = "running" if record.process() is not None else "gone"
    return ComponentStatus(state, record.pid, since, record.port or None)


def _stop_component(folder: RunFolder, component: str, say: Say) -> bool:
    record = read_record(folder.record(component))
    process = record.process() if record is not None else None
    if process is not None:
        killed = stop([process, *process.children(recursive=True)], COMPONENT_GRACE_SECONDS)
        say(f"{component}: stopped pid {process.pid}" + (" (had to be killed)" if killed else ""))
    elif folder.record(component).exists():
        say(f"{component}: was not running any more")
    folder.record(component).unlink(missing_ok=True)
    return process is not None


def _reconcile_now(folder: RunFolder, port: int, say: Say) -> None:
    """Have `reconcile` run at once; its schedule would do it a little later."""
    for _ in range(10):  # right after its start the server has its database locked at times
        if api.start_deployment(port, folder.auth(), RECONCILE):
            say("reconcile: started, to take up operations whose run has died")
            return
        time.sleep(0.5)
    say("reconcile: could not be started now; its schedule does it a little later")


def _end_stillborn_runs(folder: RunFolder, port: int, say: Say, doubtful: set[str] | None = None) -> set[str]:
    """End flow runs that a dead worker had taken up without starting them: no worker would ever run them.

    They hold their concurrency slots, and their operations would wait for them. Returns those that still have a
    process: it may begin, or die at its first output, which went to the worker. Asked again with these as
    `doubtful`, only they are looked at: others may be a new worker's.
    """
    for _ in range(10):  # right after its start the server has its database locked at times
        pending = api.pending_runs(port, folder.auth())
        if pending is not None:
            alive = flow_runs_with_process(folder.path)
            looked_at = [run for run in pending if doubtful is None or run in doubtful]
            dead = [run for run in looked_at if run not in alive]
            ended = [api.crash_run(port, folder.auth(), run, "its worker died before it began") for run in dead]
            if any(ended):
                say(f"flow runs: {sum(ended)} had not begun when their worker died; they are taken up anew")
            return set(looked_at) & alive
        time.sleep(0.5)
    return set()


def _import_prefect() -> None:
    import deployments.apply  # noqa: F401


def _fingerprint(fleet_file: Path) -> str:
    """Changes when a deployment, a flow's parameters, the fleet or Prefect itself may have changed."""
    root = home()
    digest = hashlib.sha256(f"{version('prefect')} {root} {fleet_file}".encode())
    for path in (
        root / "prefect.yaml",
        fleet_file,
        *sorted(root.glob("flows/*.py")),
        *sorted(root.glob("deployments/*.py")),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _register(spec: FleetSpec, folder: RunFolder, fingerprint: str, before: dict[str, object], say: Say) -> None:
    from deployments.apply import apply, deploy

    limits = before.get("limits")
    limits_before = {str(k): int(v) for k, v in limits.items()} if isinstance(limits, dict) else {}
    applied = apply(spec, folder.fleet_file, limits_before)
    deploy(home())
    record = {"fingerprint": fingerprint, "limits": applied.limits_set, "block": applied.block}
    keep(folder.record("applied"), record)
    for change in applied.limits:
        if change.action == "keep":
            say(f"limits: {change.name} was changed by a person and stays; the fleet file says {change.limit}")
    changed = sum(change.action != "keep" for change in applied.limits)
    say(f"prefect: deployed prefect.yaml; rack limits changed: {changed}")

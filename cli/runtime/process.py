"""Background processes that are found again: by pid and start time, never by name.

A pid alone is not enough: after a reboot or a long time it belongs to somebody else.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from adapters.kept_json import keep, read_kept

# A start time is the boot time plus ticks, and the boot time moves when the wall clock is set. No system gives a
# pid out again within this time.
SAME_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What a record file holds. `started` is the process's start in seconds since 1970; port 0: none."""

    pid: int
    started: float
    port: int = 0

    def process(self) -> psutil.Process | None:
        """The very process, None where it has ended (or its pid is somebody else's now)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < SAME_START_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


def read_record(path: Path) -> ProcessRecord | None:
    """The record in `path`, None where there is none or it is unreadable."""
    data = read_kept(path) or {}
    pid, started, port = data.get("pid"), data.get("started"), data.get("port", 0)
    if not isinstance(pid, int) or not isinstance(started, int | float) or not isinstance(port, int):
        return None
    sound = 0 < pid < 2**31 and math.isfinite(started) and 0 <= port < 2**16
    return ProcessRecord(pid, float(started), port) if sound else None


def start_detached(
    command: tuple[str, ...],
    environment: dict[str, str],
    folder: Path,
    log: Path,
    record: Path,
    port: int = 0,
) -> ProcessRecord:
    """Start `command` in a session of its own, so that it outlives the terminal; its output goes to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603  our own interpreter and fixed arguments
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = ProcessRecord(child.pid, psutil.Process(child.pid).create_time(), port)
    keep(record, asdict(started))
    return started


def flow_processes(run_folder: Path) -> list[psutil.Process]:
    """Flow runs that were started by a worker of this folder, also those whose worker has died."""
    return [process for process, _ in _flow_runs(run_folder)]


def flow_runs_with_process(run_folder: Path) -> set[str]:
    """Ids of the flow runs that `flow_processes` carry out."""
    return {run for _, run in _flow_runs(run_folder)}


def _flow_runs(run_folder: Path) -> list[tuple[psutil.Process, str]]:
    found: list[tuple[psutil.Process, str]] = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
        if environment.get("GPUFLEET_RUN") == str(run_folder) and "PREFECT__FLOW_RUN_ID" in environment:
            found.append((process, environment["PREFECT__FLOW_RUN_ID"]))
    return found


def stop(processes: list[psutil.Process], grace_seconds: float) -> list[psutil.Process]:
    """End `processes` with SIGTERM, after the grace with SIGKILL. Returns those that had to be killed."""
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=grace_seconds)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=5)
    return alive

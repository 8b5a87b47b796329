"""What really happened, written by the simulator alone.

One JSON object a line: `t` (simulated seconds since the start), `event`, `node`, `rack` and what the event
brings: fleet (racks, limits, components_behind), flash (component, from, to, task), activate (component,
version), reset (kind), power (state), host (state: up or down), cordon and uncordon (by, reason), job_start,
checkpoint, job_end, job_killed (job, nodes, gpus, lost_seconds, cause), login_refused, fault (kind). Verdicts
about gpufleet are taken from here, never from its own word.

Of drivers it tells driver_install (version, from, ok), driver_load, driver_unload and driver_refused (version),
driver_state (module, on_disk, user_space, fabric_manager: after every change), fabric_manager (version: it started),
setting (gpu, name, value, by), reboot (by), xid (gpu, code, version). The event fleet has the release and the settings
at the start as drivers and settings.

Where the scheduler is a real Slurm, its jobs add their own lines: a checkpoint and a job_start tell their step, and
`lost_seconds` are the job's, thus real ones. A job that lost its node could not write; its line has no lost_seconds.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from simulator.clock import SimClock


class TruthEvent(BaseModel):
    """One line, as it is read. What an event does not bring stays at its default."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    t: float
    event: str
    node: str | None = None
    rack: str | None = None
    component: str = ""
    to: str = ""
    task: str | None = None
    version: str = ""
    kind: str = ""
    state: str = ""
    by: str = ""
    reason: str = ""
    job: int | None = None
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    step: int | None = None
    lost_seconds: float | None = None
    cause: str = ""


class TruthLog:
    """An append-only file; every line is flushed, so that a killed simulator loses nothing."""

    def __init__(self, path: Path, clock: SimClock) -> None:
        self._clock = clock
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def write(self, event: str, node: str | None = None, rack: str | None = None, **more: object) -> None:
        line = {"t": round(self._clock.now(), 3), "event": event, "node": node, "rack": rack, **more}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()

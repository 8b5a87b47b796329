"""What a real Slurm job of the simulator runs: it trains nothing, and writes checkpoints as a training would.

It works for some seconds, writes a checkpoint on an interval and on USR1, and begins again at its newest complete
checkpoint after a requeue. What happens to it goes into the truth log: job_start and checkpoint with their step,
job_end, and job_killed with the seconds that are lost, which are those since its newest complete checkpoint or its
start, whichever is the later. Python standard library only; the job's `main` is called by the batch script that
`simulator/real_jobs.py` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from simulator.checkpoint_files import READERS, WRITERS

STEP_SECONDS = 0.1  # of work, for one training iteration
KILLED = 128 + signal.SIGTERM
_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class Stopped(Exception):
    """The job was told to end."""


class Training:
    """One start of the job. `done` is its work in seconds, that of earlier starts included."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = Path(options.folder)
        self._job = int(os.environ["SLURM_JOB_ID"])
        self._nodes = _nodes()
        self._gpus = len(self._nodes) * int(os.environ.get("SLURM_GPUS_ON_NODE", "0"))
        self._step = self._find_step()
        self._mark = time.monotonic()
        self._worked = 0.0  # since the newest checkpoint

    def run(self) -> int:
        """The exit status."""
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self._tell("job_start", step=self._step, restarts=restarts, kind=self._options.kind)
        try:
            while (rest := self._options.work - self._step * STEP_SECONDS - self._worked) > 0:
                due = self._options.interval - (time.monotonic() - self._mark)
                if self._work(min(rest, due)) or due < rest:
                    self._checkpoint()
        except Stopped:
            lost = round(time.monotonic() - self._mark, 3)
            self._tell("job_killed", lost_seconds=lost, cause="told to end by Slurm (TERM)")
            return KILLED
        self._tell("job_end")
        return 0

    def _work(self, seconds: float) -> bool:
        """Work for `seconds`, or until USR1 comes: then True."""
        begun = time.monotonic()
        asked = self._pause(seconds)
        self._worked += time.monotonic() - begun
        return asked

    def _pause(self, seconds: float) -> bool:
        got = signal.sigtimedwait(_SIGNALS, max(0.0, seconds))
        if got is not None and got.si_signo == signal.SIGTERM:
            raise Stopped
        return got is not None

    def _checkpoint(self) -> None:
        """Write one; the work stands still meanwhile, and a request that comes now is answered by this one."""
        step = self._step + max(1, round(self._worked / STEP_SECONDS))
        ranks = len(self._nodes)
        try:
            for _ in WRITERS[self._options.kind](self._folder, step, ranks):
                end = time.monotonic() + self._options.write / ranks
                while (left := end - time.monotonic()) > 0:
                    self._pause(left)
        except OSError as error:
            self._mark_failed(error)
            return
        self._step, self._worked, self._mark = step, 0.0, time.monotonic()
        self._tell("checkpoint", step=step)

    def _mark_failed(self, error: OSError) -> None:
        """The storage is away: try again a second later."""
        self._tell("checkpoint_failed", reason=str(error))
        self._pause(1.0)

    def _find_step(self) -> int:
        """Where a restart begins; 0 without a complete checkpoint."""
        return READERS[self._options.kind](self._folder) or 0

    def _tell(self, event: str, **more: object) -> None:
        now = (time.monotonic() - self._options.epoch) * self._options.scale
        line: dict[str, object] = {"t": round(now, 3), "event": event, "node": None, "rack": None, "job": self._job}
        line |= {"nodes": self._nodes, "gpus": self._gpus, **more}
        with Path(self._options.truth).open("a", encoding="utf-8") as log:
            log.write(json.dumps(line, separators=(",", ":")) + "\n")


def _nodes() -> list[str]:
    told = subprocess.run(  # noqa: S603
        ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.split()


def main() -> None:
    """The job; ends the process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(WRITERS), required=True)
    parser.add_argument("--folder", required=True, help="where the checkpoints go")
    parser.add_argument("--work", type=float, required=True, help="seconds of work until the job ends")
    parser.add_argument("--interval", type=float, required=True, help="seconds between two checkpoints")
    parser.add_argument("--write", type=float, required=True, help="seconds that one checkpoint takes")
    parser.add_argument("--truth", required=True, help="the truth log")
    parser.add_argument("--epoch", type=float, required=True, help="monotonic second of the simulator's start")
    parser.add_argument("--scale", type=float, required=True, help="the truth log's seconds in one second")
    sys.exit(Training(parser.parse_args()).run())

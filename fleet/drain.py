"""Is a node empty? Decided from what the scheduler said, never from its silence."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.model import Job, SchedulerNode, SchedulerState


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """`text` says what holds the node, or that nothing does. `taken_back`: a person undrained it."""

    empty: bool
    taken_back: bool
    text: str


def judge_drain(name: str, seen: SchedulerNode | None, jobs: tuple[Job, ...]) -> DrainStatus:
    """`seen` is None where the scheduler does not know the node: that is not empty."""
    if seen is None:
        return DrainStatus(False, False, "the scheduler does not know this node")
    if not seen.cordoned:
        return DrainStatus(False, True, "was undrained by hand while the operation held it")
    if jobs:
        return DrainStatus(False, False, "work: " + "; ".join(_describe(job) for job in jobs))
    if seen.state is SchedulerState.IDLE:
        return DrainStatus(True, False, f"idle, {'+'.join(sorted(seen.flags))}")
    if seen.state is SchedulerState.DOWN:
        return DrainStatus(False, False, f"{name} is down: whether work runs there cannot be told")
    return DrainStatus(False, False, f"scheduler state {'+'.join(sorted(seen.flags)) or 'unknown'}")


def is_down_for_a_reboot(seen: SchedulerNode | None) -> bool:
    """Whether the scheduler closed the node by itself because it was rebooted: Slurm with ReturnToService below 2.

    It does so when the node registers, which may be a second after an operation that reset it has opened it again.
    """
    if seen is None or seen.cordoned or seen.state is not SchedulerState.DOWN:
        return False
    return (seen.reason or "").startswith("Node unexpectedly rebooted")


def _describe(job: Job) -> str:
    left = "no time limit told"
    if job.limit_seconds is not None and job.elapsed_seconds is not None:
        left = f"at most {max(0.0, job.limit_seconds - job.elapsed_seconds) / 60:.0f} min left"
    return f"job {job.id} of {job.user} ({job.state}, {len(job.nodes)} nodes, {left})"

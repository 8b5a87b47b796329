"""Jobs that wait, and whether a fence is what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.errors import SchedulerUnreachable

_FIELDS = ("%A", "%D", "%P", "%u", "%a", "%r", "%v", "%j")
_NOTHING = frozenset({"", "(null)", "n/a"})


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job without nodes. `nodes`: the least that it asks for, None where that is not told. `reason` is Slurm's word
    (Resources, Priority, BeginTime …), `reservation` the one that it asked for itself."""

    id: str
    name: str
    user: str
    account: str
    partition: str
    nodes: int | None
    reason: str
    reservation: str


def waiting_format(mark: str) -> str:
    """`squeue -o` format whose fields are set apart by `mark`, a text that nobody can guess."""
    return mark + mark.join(_FIELDS) + mark


def read_waiting(text: str, mark: str) -> tuple[WaitingJob, ...]:
    """Read what `squeue -o waiting_format(mark)` printed, header included.

    Raises SchedulerUnreachable where the header or the end of a record is missing.
    """
    parts = text.split(mark)
    width = len(_FIELDS) + 1
    if len(parts) % width != 1 or len(parts) <= width or parts[1] != "JOBID" or parts[-1].strip():
        raise SchedulerUnreachable("squeue's answer is empty or cut off; ask again")
    return tuple(_read(parts[at + 1 : at + width]) for at in range(width, len(parts) - 1, width))


def _read(row: list[str]) -> WaitingJob:
    job, nodes, partition, user, account, reason, reservation, name = (
        "" if value.strip().lower() in _NOTHING else value.strip() for value in row
    )
    least = nodes.split("-")[0]
    return WaitingJob(
        id=job,
        name=name,
        user=user,
        account=account,
        partition=partition,
        nodes=int(least) if least.isascii() and least.isdigit() else None,
        reason=reason,
        reservation=reservation,
    )


def why_fenced(job: WaitingJob, open_nodes: Iterable[str], fences: Mapping[str, tuple[str, ...]]) -> str | None:
    """Why a fence keeps the job from starting; None where it does not.

    `open_nodes`: the nodes of its partition that take work (not cordoned, not down), busy or not.
    """
    everywhere = set(open_nodes)
    inside = {name: len(everywhere & set(nodes)) for name, nodes in fences.items()}
    held = {node for nodes in fences.values() for node in nodes}
    outside = len(everywhere - held)
    largest = max([outside, *inside.values()])
    if job.nodes is None or job.reservation or not any(inside.values()) or not largest < job.nodes <= len(everywhere):
        return None
    sizes = ", ".join(f"{count} in fence {name}" for name, count in sorted(inside.items()) if count)
    return (
        f"job {job.id} of {job.user} asks for {job.nodes} nodes of one kind: {sizes} and {outside} outside are open; "
        "it can start when the fence is gone"
    )

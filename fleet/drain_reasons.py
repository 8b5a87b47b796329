"""Who set a drain, from its reason text, and whether we may ever lift it.

Sources: the reasons that slurmctld and slurmd write themselves (SchedMD/slurm, node_mgr.c and req.c), LBNL's Node
Health Check ("NHC: …"), SlinkyProject's slurm-operator ("slurm-operator: …"). Everything else is a person's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from fleet.findings import Action


class DrainOwner(StrEnum):
    """Who cordoned a node."""

    GPUFLEET = "gpufleet"
    SCHEDULER = "scheduler"  # Slurm itself: it saw something wrong
    HEALTH_CHECK = "health_check"
    KUBERNETES = "kubernetes"
    PERSON = "person"
    UNKNOWN = "unknown"  # no reason is given


@dataclass(frozen=True, slots=True)
class DrainReason:
    """`operation` is ours where `owner` is GPUFLEET. `action` is what the reason asks for.

    Only a drain of GPUFLEET may be lifted by us, and only by that very operation.
    """

    owner: DrainOwner
    operation: str | None
    action: Action
    meaning: str


_OURS = re.compile(r"^gpufleet\[(?P<operation>[^\]\s]+)\]")
_HEALTH = re.compile(r"^(nhc|\[?hc\]?|healthagent|node ?health ?check|lbnl)\b\s*[:\]]?|^\[HC\]", re.IGNORECASE)
_KUBERNETES = re.compile(r"^(slurm-operator|slurm-bridge|node-controller)\s*:", re.IGNORECASE)
_BY_SLURM: tuple[tuple[re.Pattern[str], Action, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), action, meaning)
    for pattern, action, meaning in (
        (r"^not responding", Action.INVESTIGATE, "slurmd does not answer; it ends when the node answers again"),
        (r"^kill task failed", Action.REBOOT_NODE, "a process of a job could not be killed and may still hold a GPU"),
        (r"count reported lower than configured", Action.RUN_DIAGNOSTICS, "a GPU or other resource is missing"),
        (r"^low (real ?memory|tmpdisk|socket|cpus|cores)", Action.RUN_DIAGNOSTICS, "less memory, disk or CPU than due"),
        (r"^(task )?prolog (error|failed)|^prolog", Action.INVESTIGATE, "the prolog failed on this node"),
        (r"^epilog", Action.INVESTIGATE, "the epilog failed on this node"),
        (r"unexpectedly rebooted", Action.INVESTIGATE, "the node rebooted while it was in use"),
        (r"^duplicate jobid", Action.INVESTIGATE, "slurmd and slurmctld disagree about a job"),
        (r"^batch job complete fail", Action.INVESTIGATE, "the end of a batch job could not be reported"),
        (r"^reboot (asap|complete|requested|issued|timed out)", Action.WAIT, "a reboot by scontrol is under way"),
        (r"^stopping cluster", Action.NONE, "the cluster was stopped by its own tool"),
        (r"^resumetimeout reached|^powered down after", Action.INVESTIGATE, "the node did not come up in time"),
        (r"^job env setup error|^batch job launch fail", Action.INVESTIGATE, "slurmd could not start a job"),
        (
            r"^invalid registration|configuration mismatch",
            Action.FIX_CONFIGURATION,
            "slurmd registered with other values",
        ),
    )
)


def read_drain_reason(text: str | None, operation: str | None = None) -> DrainReason:
    """Whose reason this is. `operation`: the one that asks, whose own drain is then named as such."""
    clean = (text or "").strip()
    if not clean or clean.casefold() in {"none", "(null)", "n/a"}:
        return DrainReason(DrainOwner.UNKNOWN, None, Action.INVESTIGATE, "no reason is given")
    ours = _OURS.match(clean)
    if ours:
        same = operation == ours["operation"]
        meaning = "this operation holds it" if same else f"operation {ours['operation']} holds it"
        action = Action.NONE
        for part in clean.split(";")[1:]:  # what Slurm added to our reason
            found = _by_slurm(part)
            if found is not None:
                action, meaning = found[0], f"{meaning}; {found[1]}"
        return DrainReason(DrainOwner.GPUFLEET, ours["operation"], action, meaning)
    if _KUBERNETES.match(clean):
        return DrainReason(DrainOwner.KUBERNETES, None, Action.NONE, "cordoned from Kubernetes; it is lifted there")
    if _HEALTH.match(clean):
        return DrainReason(DrainOwner.HEALTH_CHECK, None, Action.RUN_DIAGNOSTICS, "a health check took it out")
    by_slurm = _by_slurm(clean)
    if by_slurm is not None:
        return DrainReason(DrainOwner.SCHEDULER, None, *by_slurm)
    return DrainReason(DrainOwner.PERSON, None, Action.NONE, "set by a person or another tool: not ours to lift")


def _by_slurm(text: str) -> tuple[Action, str] | None:
    clean = text.strip()
    return next(((action, meaning) for pattern, action, meaning in _BY_SLURM if pattern.search(clean)), None)

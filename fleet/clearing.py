"""May a quarantined node go back into service? Only a validation that passes now says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.errors import PreconditionError
from fleet.model import FirmwareComponent, FirmwareRole, NodeState, SchedulerNode, SchedulerState, SystemReading
from fleet.validation import judge_after_update
from fleet.versions import Relation, compare

_OURS = "gpufleet["
_NOT_CLEARED = " (not cleared: "


@dataclass(frozen=True, slots=True)
class Wanted:
    """The versions, by component, that `operation` was to bring to the node."""

    operation: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClearPlan:
    """What clearing a node would do. `why` is the reason of its quarantine; `seen` the scheduler's view."""

    node: str
    why: str
    seen: SchedulerNode | None
    wanted: Wanted | None
    accept_firmware: bool


@dataclass(frozen=True, slots=True)
class ClearVerdict:
    """`findings` keep the node out; `accepted` are firmware differences that a person let pass."""

    findings: tuple[str, ...]
    accepted: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True)
class Observed:
    """What was read for the verdict. `listed` is the text of `nvidia-smi -L`, None where the host gave none."""

    system: SystemReading
    firmware: tuple[FirmwareComponent, ...]
    listed: str | None
    seen: SchedulerNode | None


def is_our_cordon(seen: SchedulerNode | None) -> bool:
    """Whether the node's cordon was set by an operation of ours, which its reason says."""
    return seen is not None and seen.cordoned and (seen.reason or "").startswith(_OURS)


def check_clearable(node: str, state: NodeState, held_by: str | None) -> None:
    """Raise PreconditionError unless the node is in quarantine, or was left in validation, with no owner."""
    if held_by is not None:
        text = f"is held by {held_by}; clear it when that operation has let it go (gpufleet status {held_by})"
        raise PreconditionError(text, node=node)
    if state not in (NodeState.QUARANTINED, NodeState.VALIDATING):
        raise PreconditionError(f"is {state}, not quarantined: there is nothing to clear", node=node)


def quarantine_reason(reason: str) -> str:
    """Why the node was quarantined, without what earlier attempts to clear it found."""
    return reason.partition(_NOT_CLEARED)[0]


def not_cleared_reason(why: str, findings: tuple[str, ...]) -> str:
    """The reason of a node that stays in quarantine."""
    return f"{why}{_NOT_CLEARED}{'; '.join(findings)})"


def describe_clearing(plan: ClearPlan) -> tuple[str, ...]:
    """What would be done, a line each."""
    lines = [f"quarantined: {plan.why or 'no reason given'}", "reads its BMC, lists its GPUs on the host"]
    if plan.wanted is None:
        lines.append("firmware is not compared: no operation has changed it")
    else:
        text = f"compares its firmware with what {plan.wanted.operation} wanted"
        lines.append(text + ("; differences are accepted" if plan.accept_firmware else ""))
    seen = plan.seen
    if seen is None:
        lines.append("the scheduler does not know it: that will fail")
    elif not seen.cordoned:
        lines.append("it is not cordoned")
    elif is_our_cordon(seen):
        lines.append(f"uncordons it, since the reason is ours: {seen.reason}")
    else:
        whose = f"{seen.reason_by or 'somebody'}: {seen.reason or 'no reason given'}"
        lines.append(f"leaves the cordon, which is not ours ({whose})")
    return tuple(lines)


def judge_clearing(plan: ClearPlan, observed: Observed) -> ClearVerdict:
    """The verdict on what was just read; what is not known is a finding, never a pass."""
    seen = observed.seen
    findings = judge_after_update(observed.system, observed.listed, None if seen is None else seen.gpus).findings
    if seen is None:
        findings += ("the scheduler does not know it",)
    elif seen.state is SchedulerState.DOWN:
        findings += ("it is down in the scheduler; start its daemon first",)
    differences = _differences(plan.wanted, observed.firmware)
    if plan.accept_firmware:
        return ClearVerdict(findings, differences)
    return ClearVerdict(findings + differences)


def _differences(wanted: Wanted | None, inventory: tuple[FirmwareComponent, ...]) -> tuple[str, ...]:
    if wanted is None:
        return ()
    running = {c.id: c.version for c in inventory if c.role is FirmwareRole.ACTIVE}
    return tuple(
        f"{component} runs {running.get(component) or 'an unknown version'}, {wanted.operation} wanted {version}"
        for component, version in sorted(wanted.versions.items())
        if not _equal(running.get(component), version)
    )


def _equal(running: str | None, wanted: str) -> bool:
    return running is not None and compare(running, wanted) is Relation.EQUAL
